// SPDX-License-Identifier: GPL-2.0

//! UDP port 4791 of one namespace, open while an RDMA device is in it.
//!
//! Packets are taken in a netfilter hook behind all others: the firewall has ruled, and
//! a run of datagrams arrives whole. The bound sockets own the port and get what
//! the hook passed on, datagram by datagram.

use super::{
    datagram::Datagram,
    header::{
        self,
        Headers, //
    },
    link::{
        Frames,
        ETHERTYPE, //
    },
    ROCE_PORT,
};
use crate::kernel_ext::{
    net::NetRef,
    netdev::{
        Event,
        NetDevice, //
    },
    nf::LocalIn,
    packet::PacketType,
    rcu::{
        synchronize_expedited as synchronize,
        RcuTable, //
    },
    skb::{
        Gso,
        Receive,
        Received,
        Verdict, //
    },
    udp::{
        self,
        Family, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        rcu,
        Arc,
        ArcBorrow,
        Mutex, //
    },
};

/// An RDMA device as the network sees it.
pub(crate) trait Endpoint: Send + Sync + 'static {
    /// Datagrams arrived. Softirq, under RCU.
    fn receive(&self, datagram: &Datagram<'_>);

    /// Something happened to the device's interface. Process context, under RTNL.
    fn event(&self, netdev: &NetDevice, event: Event);
}

/// Interface number to device.
#[pin_data]
pub(super) struct Table<E: Endpoint> {
    #[pin]
    by_ifindex: RcuTable<E>,
}

impl<E: Endpoint> Table<E> {
    /// The device on `dev` or on an interface below: the core gives a device the addresses
    /// of the VLANs, bonds and bridges above its interface too.
    pub(super) fn on<'g>(
        &self,
        dev: &NetDevice,
        guard: &'g rcu::Guard,
    ) -> Option<ArcBorrow<'g, E>> {
        let find = |dev: &NetDevice| self.by_ifindex.get(dev.ifindex(), guard);
        find(dev).or_else(|| dev.find_lower(guard, find))
    }

    /// The device for a packet. One that looped back is for the owner of its address.
    fn owner<'g>(
        &self,
        dev: &NetDevice,
        headers: &Headers<'_>,
        guard: &'g rcu::Guard,
    ) -> Option<ArcBorrow<'g, E>> {
        if !dev.is_loopback() {
            return self.on(dev, guard);
        }
        self.on(
            dev.net(guard)
                .device_with(header::destination(headers.ip)?, guard)?,
            guard,
        )
    }

    /// Whether the packet goes to our port, from as much as is linear. `None`: not enough is.
    fn is_ours(packet: &Received<'_>) -> Option<bool> {
        let bytes = packet.network();
        match header::udp_offset(bytes) {
            Some(offset) => header::is_roce(bytes, offset),
            None => Some(false),
        }
    }

    fn deliver(&self, packet: &mut Received<'_>) -> Option<()> {
        let gso_size = match packet.gso() {
            Gso::None => 0,
            Gso::Udp(size) => size,
            Gso::Other => return None,
        };
        if !packet.passes_ipsec() {
            return None;
        }
        if !packet.is_linear() {
            packet.linearize().ok()?;
        }
        let headers = Headers::parse(packet.network(), gso_size != 0)?;
        let guard = rcu::read_lock();
        let endpoint = self.owner(packet.device(), &headers, &guard)?;
        let vlan = packet.device().vlan_id();
        endpoint.receive(&Datagram::new(&headers, gso_size, vlan));
        Some(())
    }
}

impl<E: Endpoint> Receive for Table<E> {
    fn receive(&self, mut packet: Received<'_>) -> Verdict {
        let ours = Self::is_ours(&packet).or_else(|| {
            packet.linearize().ok()?;
            Self::is_ours(&packet)
        });
        match ours {
            Some(true) => self
                .deliver(&mut packet)
                .map_or(Verdict::Pass, |()| Verdict::Consumed),
            _ => Verdict::Pass,
        }
    }
}

/// What is registered while the port is open.
struct Open<E: Endpoint> {
    _hook: LocalIn<Table<E>>,
    _v4: udp::Port<Table<E>>,
    _v6: Option<udp::Port<Table<E>>>,
    _frames: Option<PacketType<Frames<E>>>,
}

struct State<E: Endpoint> {
    devices: usize,
    open: Option<Open<E>>,
}

/// The port of one namespace.
#[pin_data]
pub(super) struct Port<E: Endpoint> {
    pub(super) net: Arc<NetRef>,
    table: Arc<Table<E>>,
    /// Taken under RTNL too, so nothing under it may take RTNL.
    #[pin]
    state: Mutex<State<E>>,
}

impl<E: Endpoint> Port<E> {
    /// A port that is closed.
    pub(super) fn new(net: Arc<NetRef>) -> Result<Arc<Self>> {
        let table = Arc::pin_init(
            pin_init!(Table {
                by_ifindex <- RcuTable::new(),
            }),
            GFP_KERNEL,
        )?;
        let state = State {
            devices: 0,
            open: None,
        };
        Arc::pin_init(
            pin_init!(Self {
                net,
                table,
                state <- new_mutex!(state),
            }),
            GFP_KERNEL,
        )
    }

    /// Lets `endpoint` have what arrives on `dev`, and opens the port for the first one.
    pub(super) fn add(&self, dev: &NetDevice, endpoint: Arc<E>) -> Result {
        let mut state = self.state.lock();
        if state.open.is_none() {
            state.open = Some(self.open()?);
        }
        let added = self.table.by_ifindex.insert_at(dev.ifindex(), endpoint);
        match added {
            Ok(()) => state.devices += 1,
            Err(EBUSY) => pr_err!(
                "{}: the interface has a device already, see `rdma link`\n",
                dev.name()
            ),
            Err(_) => {}
        }
        if state.devices == 0 {
            state.open = None;
        }
        added
    }

    /// Undoes [`Self::add`]. When this returns, no datagram is being handed to the device.
    pub(super) fn remove(&self, ifindex: u32) {
        let mut state = self.state.lock();
        if self.table.by_ifindex.remove(ifindex).is_none() {
            return;
        }
        state.devices -= 1;
        let last = state.devices == 0;
        match state.open.take_if(|_| last) {
            // This waits for calls that still run.
            Some(open) => drop(open),
            None => synchronize(),
        }
    }

    /// Closes the port for good: the namespace goes.
    pub(super) fn close(&self) {
        self.state.lock().open = None;
    }

    /// The device on interface `ifindex`.
    pub(super) fn device(&self, ifindex: u32) -> Option<Arc<E>> {
        let guard = rcu::read_lock();
        self.table.by_ifindex.get(ifindex, &guard).map(Arc::from)
    }

    fn open(&self) -> Result<Open<E>> {
        let bind = |family| udp::Port::bind(&self.net, family, ROCE_PORT, self.table.clone());
        let v4 = bind(Family::V4).inspect_err(explain)?;
        let v6 = match bind(Family::V6) {
            Ok(port) => Some(port),
            Err(EAFNOSUPPORT) => {
                pr_info!("no IPv6 in this kernel, IPv4 only\n");
                None
            }
            Err(err) => {
                explain(&err);
                return Err(err);
            }
        };
        let frames = match crate::roce_v1() {
            true => {
                let handler = Arc::new(Frames(self.table.clone()), GFP_KERNEL)?;
                Some(PacketType::register(ETHERTYPE, self.net.clone(), handler)?)
            }
            false => None,
        };
        Ok(Open {
            _hook: LocalIn::register(self.net.clone(), self.table.clone())?,
            _v4: v4,
            _v6: v6,
            _frames: frames,
        })
    }
}

fn explain(err: &Error) {
    match *err {
        EADDRINUSE => pr_err!(
            "UDP port {ROCE_PORT} is taken in this network namespace: delete the rdma_rxe \
             device (rdma link del) or stop the program that holds it (ss -ulnp)\n"
        ),
        err => pr_err!(
            "cannot open UDP port {ROCE_PORT}: error {}\n",
            err.to_errno()
        ),
    }
}
