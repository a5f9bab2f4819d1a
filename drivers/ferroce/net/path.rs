// SPDX-License-Identifier: GPL-2.0

//! Where a queue pair sends: addresses, ports, and the route to there.

use super::{
    frame::{
        Frame,
        Way, //
    },
    header::{
        Pseudos,
        Template, //
    },
    link::Link,
    ROCE_PORT, //
};
use crate::{
    bindings,
    kernel_ext::{
        net::NetRef,
        route::{
            Addrs,
            Flow,
            Route,
            RouteCache, //
        },
        skb::SkBuff,
        skb_pool::SkbPool, //
    },
};
use core::{
    net::IpAddr,
    sync::atomic::{
        AtomicU16,
        AtomicUsize,
        Ordering, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
};

/// What a path is made from.
#[derive(Copy, Clone)]
pub(crate) struct PathConfig {
    /// Our address.
    pub(crate) src: IpAddr,
    /// The peer's address, of the same family.
    pub(crate) dst: IpAddr,
    /// UDP source port, the entropy for whoever balances load on the way.
    pub(crate) sport: u16,
    /// IPv4 TOS or IPv6 traffic class.
    pub(crate) tclass: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub(crate) hop_limit: u8,
    /// IPv6 flow label.
    pub(crate) flow_label: u32,
    /// The interface that has our address, if that is known.
    pub(crate) interface: Option<u32>,
    /// The Ethernet address to send to, with RoCEv1.
    pub(crate) station: Option<[u8; 6]>,
}

/// A way to a peer. May be used from any context and from several CPUs.
pub(crate) struct Path {
    net: Arc<NetRef>,
    /// Where the memory of large packets comes from.
    pool: Arc<SkbPool>,
    flow: Flow,
    template: Template,
    routes: RouteCache,
    /// The largest packet of several datagrams to build for the present route.
    batch: AtomicUsize,
    /// IPv4 ID of the next datagram.
    id: AtomicU16,
    /// Where packets of RoCEv1 go, which know of no routes.
    link: Option<Link>,
}

/// The largest buffer: with headroom and the stack's record it still fits 64 KiB,
/// the pool's largest block.
const MAX_PACKET: usize = (1 << 16) - 768;
/// As many datagrams as the stack cuts a packet into.
const MAX_SEGMENTS: usize = 128;

impl Path {
    /// A path out of interface `ifindex`. `EHOSTUNREACH`, `ENETUNREACH` and the like if
    /// there is no route now. Does not sleep.
    pub(super) fn new(
        net: Arc<NetRef>,
        pool: Arc<SkbPool>,
        ifindex: u32,
        config: &PathConfig,
    ) -> Result<Self> {
        let flow = Flow {
            ifindex,
            addrs: Addrs::new(config.src, config.dst)?,
            sport: config.sport,
            dport: ROCE_PORT,
            tclass: config.tclass,
            flow_label: config.flow_label,
        };
        let template = match config.station {
            None => Template::new(&flow, config.hop_limit),
            Some(_) => Template::grh(
                config.src,
                config.dst,
                config.tclass,
                config.flow_label,
                config.hop_limit,
            ),
        };
        let link = config.station.map(|station| Link {
            net: net.clone(),
            ifindex,
            station,
        });
        let this = Self {
            net,
            pool,
            template,
            link,
            flow,
            routes: RouteCache::new(),
            batch: AtomicUsize::new(0),
            id: AtomicU16::new(0),
        };
        this.way(&rcu::read_lock())?;
        Ok(this)
    }

    /// The way packets take now, looked up again when the stack says so.
    fn route(&self, guard: &rcu::Guard) -> Result<Route> {
        if let Some(route) = self.routes.get(guard) {
            return Ok(route);
        }
        let net = self.net.get(guard).ok_or(ENETDOWN)?;
        let route = self.routes.refresh(net, &self.flow)?;
        self.batch.store(batch(&route, guard), Ordering::Relaxed);
        Ok(route)
    }

    /// How packets leave now, and the room to leave before the IP header or GRH.
    fn way(&self, guard: &rcu::Guard) -> Result<(Way, usize)> {
        if let Some(link) = &self.link {
            let room = link.headroom(guard)?;
            return Ok((Way::Link(link.clone()), room));
        }
        let route = self.route(guard)?;
        let room = route.headroom(guard);
        Ok((Way::Route(route), room))
    }

    /// Whether `ip` is the header of a packet from this path's peer to its source address.
    pub(crate) fn is_answered_by(&self, ip: &[u8]) -> bool {
        self.template.is_answered_by(ip)
    }

    /// How many segments of `segment_len` bytes (BTH to ICRC) a frame may have.
    pub(crate) fn max_segments(&self, segment_len: usize) -> usize {
        let room = self
            .batch
            .load(Ordering::Relaxed)
            .saturating_sub(self.template.len());
        (room / segment_len.max(1)).clamp(1, MAX_SEGMENTS)
    }

    /// A frame of `count` segments of `segment_len` bytes (BTH to ICRC), the last one of
    /// `last_len`. After `ENOMEM` [`Self::max_segments`] says less, until the route changes.
    /// Does not sleep.
    pub(crate) fn frame(&self, segment_len: usize, count: usize, last_len: usize) -> Result<Frame> {
        let valid = (1..=MAX_SEGMENTS).contains(&count) && (1..=segment_len).contains(&last_len);
        if !valid || segment_len > MAX_PACKET {
            return Err(EINVAL);
        }
        let payload = segment_len * (count - 1) + last_len;
        let len = self.template.len() + payload;
        if len > MAX_PACKET {
            return Err(EMSGSIZE);
        }
        let guard = rcu::read_lock();
        let (way, room) = self.way(&guard)?;
        let skb = SkBuff::new(&self.pool, room, len);
        let mut skb = skb.inspect_err(|_| self.batch.store(len / 2, Ordering::Relaxed))?;
        let id = self.id.fetch_add(count as u16, Ordering::Relaxed);
        self.template.write(skb.bytes(), id, payload, count > 1);
        skb.set_transport(self.template.ip_len());
        if count > 1 {
            skb.set_udp_gso(segment_len, count);
        }
        let headers = skb.bytes().get(..self.template.len());
        let headers = headers.and_then(|both| both.split_at_checked(self.template.ip_len()));
        let (ip, udp) = headers.ok_or(EINVAL)?;
        let pseudos = Pseudos::new(ip, udp).ok_or(EINVAL)?;
        Ok(Frame {
            skb,
            way,
            pseudos,
            ip_len: self.template.ip_len(),
            udp_len: self.template.len() - self.template.ip_len(),
            segment_len,
            count,
            filled: 0,
        })
    }
}

/// How large a packet of many datagrams may be along a route; 0: no such packets.
///
/// They are cut by the stack, or stay whole over a link inside this host. What a device
/// that cuts them itself writes into the IPv4 ID is not known, and the ICRC covers it.
fn batch(route: &Route, guard: &rcu::Guard) -> usize {
    let dev = route.device(guard);
    let inside = dev.is_loopback() || dev.is_kind(c"veth");
    let cut_by_stack = !dev.has_feature(bindings::NETIF_F_GSO_UDP_L4_BIT);
    if route.is_transformed() || !(inside || cut_by_stack) {
        return 0;
    }
    dev.gso_max_size().min(MAX_PACKET)
}
