// SPDX-License-Identifier: GPL-2.0

//! RoCEv1: packets with a GRH directly on Ethernet, ethertype 0x8915 (IBTA annex A16).

use super::{
    datagram::Datagram,
    header,
    port::{
        Endpoint,
        Table, //
    },
};
use crate::kernel_ext::{
    net::NetRef,
    skb::{
        Receive,
        Received,
        SkBuff,
        Verdict, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
};

/// The ethertype.
pub(super) const ETHERTYPE: u16 = 0x8915;

/// An interface and the station that is spoken to through it.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) net: Arc<NetRef>,
    pub(super) ifindex: u32,
    pub(super) station: [u8; 6],
}

impl Link {
    /// The room to leave before the GRH; `ENETDOWN` without the interface.
    pub(super) fn headroom(&self, guard: &rcu::Guard) -> Result<usize> {
        let net = self.net.get(guard).ok_or(ENETDOWN)?;
        let dev = net.device_at(self.ifindex, guard).ok_or(ENETDOWN)?;
        Ok(dev.link_headroom())
    }

    /// Sends a frame that begins with its GRH. `ENETDOWN` without the interface, or what that
    /// says.
    pub(super) fn send(&self, frame: SkBuff) -> Result {
        let guard = rcu::read_lock();
        let net = self.net.get(&guard).ok_or(ENETDOWN)?;
        let dev = net.device_at(self.ifindex, &guard).ok_or(ENETDOWN)?;
        frame.send_on(dev, ETHERTYPE, self.station)
    }
}

/// Takes what arrives in a namespace with this ethertype.
pub(super) struct Frames<E: Endpoint>(pub(super) Arc<Table<E>>);

impl<E: Endpoint> Frames<E> {
    fn deliver(&self, packet: &mut Received<'_>) -> Option<()> {
        if !packet.is_linear() {
            packet.linearize().ok()?;
        }
        let headers = header::parse_grh(packet.network())?;
        let guard = rcu::read_lock();
        let endpoint = self.0.on(packet.device(), &guard)?;
        let vlan = packet.device().vlan_id();
        endpoint.receive(&Datagram::new(&headers, 0, vlan));
        Some(())
    }
}

impl<E: Endpoint> Receive for Frames<E> {
    fn receive(&self, mut packet: Received<'_>) -> Verdict {
        // Nobody else wants it, ours or not.
        let _ = self.deliver(&mut packet);
        Verdict::Consumed
    }
}
