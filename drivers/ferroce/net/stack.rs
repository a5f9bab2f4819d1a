// SPDX-License-Identifier: GPL-2.0

//! Which interface belongs to which RDMA device, over all namespaces.

use super::{
    path::{
        Path,
        PathConfig, //
    },
    port::{
        Endpoint,
        Port, //
    },
};
use crate::kernel_ext::{
    multicast,
    net::{
        Net,
        NetRef, //
    },
    netdev::{
        Event,
        Listen,
        NetDevice,
        Notifier, //
    },
    skb_pool::SkbPool, //
};
use core::net::IpAddr;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// The module's network side. Dropping it closes all ports; detach all devices before,
/// and do not hold RTNL.
pub(crate) struct Stack<E: Endpoint> {
    notifier: Pin<KBox<Notifier<Ports<E>>>>,
}

impl<E: Endpoint> Stack<E> {
    /// Starts to listen for what happens to interfaces.
    pub(crate) fn new() -> Result<Self> {
        let ports = Arc::pin_init(
            pin_init!(PortList {
                list <- new_mutex!(KVec::new()),
            }),
            GFP_KERNEL,
        )?;
        let notifier = KBox::pin_init(Notifier::register(Ports(ports)), GFP_KERNEL)?;
        Ok(Self { notifier })
    }

    /// Gives `endpoint` what arrives for interface `netdev` from now on.
    ///
    /// `EBUSY` if the interface has a device, `EADDRINUSE` if the UDP port is taken,
    /// `ENODEV` if the interface is on its way out. Not under RTNL.
    pub(crate) fn attach(&self, netdev: &NetDevice, endpoint: Arc<E>) -> Result<Attachment<E>> {
        let net = netdev.live_net().ok_or(ENODEV)?;
        let port = self
            .notifier
            .listener()
            .0
            .get(self.notifier.net_ref(&net)?)?;
        let pool = Arc::new(SkbPool::new()?, GFP_KERNEL)?;
        port.add(netdev, endpoint)?;
        let attachment = Attachment {
            pool,
            ifindex: netdev.ifindex(),
            port,
        };
        // Whoever takes the interface away after this finds the endpoint in the table.
        let present = netdev
            .with_rtnl(|dev| dev.is_registered() && dev.live_net().is_some_and(|now| *now == *net));
        if !present {
            attachment.detach();
            return Err(ENODEV);
        }
        Ok(attachment)
    }
}

/// An endpoint's place on its interface. It stays there until [`Self::detach`].
pub(crate) struct Attachment<E: Endpoint> {
    port: Arc<Port<E>>,
    pool: Arc<SkbPool>,
    ifindex: u32,
}

impl<E: Endpoint> Attachment<E> {
    /// Takes the endpoint away. When this returns, it is given no datagram any more.
    /// Does nothing the second time. May be called under RTNL; sleeps.
    pub(crate) fn detach(&self) {
        self.port.remove(self.ifindex);
    }

    /// The interface.
    pub(crate) fn interface(&self) -> Interface {
        Interface {
            net: self.port.net.clone(),
            index: self.ifindex,
        }
    }

    /// A way to a peer out of the interface that has the source address, or else out of
    /// this one. `EHOSTUNREACH`, `ENETUNREACH` and the like if there is no route. Does not
    /// sleep.
    pub(crate) fn path(&self, config: &PathConfig) -> Result<Path> {
        let ifindex = config.interface.unwrap_or(self.ifindex);
        Path::new(self.port.net.clone(), self.pool.clone(), ifindex, config)
    }
}

/// An interface by its number, which may be gone.
pub(crate) struct Interface {
    net: Arc<NetRef>,
    index: u32,
}

impl Interface {
    /// Makes the interface a member of an IP multicast group. Fails with `ENODEV` if it is
    /// gone or has not that IP, or with `ENOMEM`. Sleeps; not under RTNL.
    pub(crate) fn join(&self, group: IpAddr) -> Result {
        multicast::join(&self.net, self.index, group)
    }

    /// Undoes one [`Self::join`].
    pub(crate) fn leave(&self, group: IpAddr) {
        multicast::leave(&self.net, self.index, group);
    }
}

/// The ports of all namespaces that ever had a device.
#[pin_data]
struct PortList<E: Endpoint> {
    #[pin]
    list: Mutex<KVec<Arc<Port<E>>>>,
}

impl<E: Endpoint> PortList<E> {
    /// The port of a namespace, made when it is asked for first.
    fn get(&self, net: Arc<NetRef>) -> Result<Arc<Port<E>>> {
        let mut list = self.list.lock();
        if let Some(port) = list.iter().find(|port| Arc::ptr_eq(&port.net, &net)) {
            return Ok(port.clone());
        }
        let port = Port::new(net)?;
        list.push(port.clone(), GFP_KERNEL)?;
        Ok(port)
    }

    fn find(&self, net: &Net) -> Option<Arc<Port<E>>> {
        self.list
            .lock()
            .iter()
            .find(|port| port.net.is(net))
            .cloned()
    }
}

struct Ports<E: Endpoint>(Arc<PortList<E>>);

impl<E: Endpoint> Listen for Ports<E> {
    fn event(&self, dev: &NetDevice, net: &Net, event: Event) {
        if let Some(endpoint) = self.0.find(net).and_then(|port| port.device(dev.ifindex())) {
            endpoint.event(dev, event);
        }
    }

    fn gone(&self, net: &Net) {
        if let Some(port) = self.0.find(net) {
            port.close();
            self.0
                .list
                .lock()
                .retain(|other| !Arc::ptr_eq(other, &port));
        }
    }
}
