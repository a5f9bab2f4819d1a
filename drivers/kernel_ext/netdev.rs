// SPDX-License-Identifier: GPL-2.0

//! Network interfaces and the notifier that tells of their changes.

use super::net::{
    LiveNet,
    Net,
    NetRef,
    NetRefs, //
};
use crate::bindings;
use core::ptr;
use kernel::{
    error::to_result,
    fmt,
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
    types::Opaque,
};

/// A network interface that is there for as long as the borrow.
#[repr(transparent)]
pub(crate) struct NetDevice(Opaque<bindings::net_device>);

/// Reads a field of the C object that others may write at the same time.
macro_rules! read_once {
    ($dev:expr, $($field:tt)+) => {
        // SAFETY: the borrow of the device keeps the memory; a volatile read of a
        // machine word takes whatever value was written last.
        unsafe { ptr::addr_of!((*$dev.as_raw()).$($field)+).read_volatile() }
    };
}

impl NetDevice {
    /// Borrows a C `struct net_device`.
    ///
    /// # Safety
    ///
    /// `dev` points to a device that is not freed during `'a`.
    pub(crate) unsafe fn from_raw<'a>(dev: *mut bindings::net_device) -> &'a Self {
        // SAFETY: the caller says so; `NetDevice` is a transparent wrapper.
        unsafe { &*dev.cast() }
    }

    /// The C object.
    pub(crate) fn as_raw(&self) -> *mut bindings::net_device {
        self.0.get()
    }

    /// The interface's number, unique in its namespace.
    pub(crate) fn ifindex(&self) -> u32 {
        read_once!(self, ifindex) as u32
    }

    /// The name at this moment.
    pub(crate) fn name(&self) -> Name {
        Name(read_once!(self, name))
    }

    /// The interface's MTU: the largest IP packet.
    pub(crate) fn mtu(&self) -> u32 {
        read_once!(self, mtu)
    }

    /// The Ethernet address, if the interface has one.
    pub(crate) fn mac(&self) -> Option<[u8; 6]> {
        if read_once!(self, addr_len) != 6 {
            return None;
        }
        let addr = read_once!(self, dev_addr).cast::<[u8; 6]>();
        // SAFETY: it points to at least `addr_len` bytes that live as long as the device.
        Some(unsafe { addr.read_volatile() }).filter(|mac| *mac != [0; 6])
    }

    /// Whether it is an Ethernet interface, a tunnel to a program or the loopback: whatever
    /// carries IP for all comers.
    pub(crate) fn carries_ip(&self) -> bool {
        matches!(
            u32::from(read_once!(self, type_)),
            bindings::ARPHRD_ETHER | bindings::ARPHRD_NONE | bindings::ARPHRD_LOOPBACK
        )
    }

    /// Whether it is an Ethernet interface.
    pub(crate) fn is_ethernet(&self) -> bool {
        u32::from(read_once!(self, type_)) == bindings::ARPHRD_ETHER
    }

    /// Whether it is up and has a carrier.
    pub(crate) fn is_active(&self) -> bool {
        // SAFETY: the borrow keeps the device, of which flags are read.
        let state = unsafe { bindings::ib_get_curr_port_state(self.as_raw()) };
        state == bindings::ib_port_state_IB_PORT_ACTIVE
    }

    /// Whether it is a namespace's `lo`.
    pub(crate) fn is_loopback(&self) -> bool {
        read_once!(self, flags) & bindings::net_device_flags_IFF_LOOPBACK != 0
    }

    /// Whether it is registered, neither before nor after that. Stable under RTNL.
    pub(crate) fn is_registered(&self) -> bool {
        u32::from(read_once!(self, reg_state)) == bindings::netdev_reg_state_NETREG_REGISTERED
    }

    /// Whether feature `bit` (`NETIF_F_*_BIT`) is on.
    pub(crate) fn has_feature(&self, bit: u32) -> bool {
        read_once!(self, features) & (1 << bit) != 0
    }

    /// The largest GSO packet that it takes, in bytes.
    pub(crate) fn gso_max_size(&self) -> usize {
        read_once!(self, gso_max_size).min(read_once!(self, gso_ipv4_max_size)) as usize
    }

    /// The room that the link layer wants before the IP header.
    pub(crate) fn link_headroom(&self) -> usize {
        let header = usize::from(read_once!(self, hard_header_len))
            + usize::from(read_once!(self, needed_headroom));
        (header & !15) + 16
    }

    /// Whether the driver behind it is `kind` (`veth`, `vlan`, …).
    pub(crate) fn is_kind(&self, kind: &CStr) -> bool {
        let ops = read_once!(self, rtnl_link_ops);
        // SAFETY: link operations are static in the driver whose device this is, and
        // their kind is a C string.
        !ops.is_null() && unsafe { CStr::from_char_ptr((*ops).kind) } == kind
    }

    /// The namespace at this moment.
    pub(crate) fn net<'g>(&self, _guard: &'g rcu::Guard) -> &'g Net {
        let net = read_once!(self, nd_net.net);
        // SAFETY: a device leaves its namespace a grace period before the namespace is freed.
        unsafe { Net::from_raw(net) }
    }

    /// The namespace, kept; `None` if it is on its way out.
    pub(crate) fn live_net(&self) -> Option<LiveNet> {
        let guard = rcu::read_lock();
        LiveNet::get(self.net(&guard))
    }

    /// The VLAN ID, if it is a VLAN's interface.
    pub(crate) fn vlan_id(&self) -> Option<u16> {
        // SAFETY: the borrow keeps the device; only a VLAN's is asked for its ID.
        unsafe {
            let is_vlan = bindings::is_vlan_dev(self.as_raw());
            is_vlan.then(|| bindings::vlan_dev_vlan_id(self.as_raw()))
        }
    }

    /// The first answer that `look` has to one of the interfaces below this one, in the same
    /// namespace.
    pub(crate) fn find_lower<R, F>(&self, guard: &rcu::Guard, look: F) -> Option<R>
    where
        F: FnMut(&NetDevice) -> Option<R>,
    {
        struct Search<'a, R, F> {
            net: &'a Net,
            guard: &'a rcu::Guard,
            look: F,
            found: Option<R>,
        }

        /// # Safety
        ///
        /// `private.data` is the `Search` below, and `lower` a device that RCU keeps.
        unsafe extern "C" fn visit<R, F: FnMut(&NetDevice) -> Option<R>>(
            lower: *mut bindings::net_device,
            private: *mut bindings::netdev_nested_priv,
        ) -> c_int {
            // SAFETY: as our callers say.
            let (search, lower) = unsafe {
                let search = &mut *(*private).data.cast::<Search<'_, R, F>>();
                (search, NetDevice::from_raw(lower))
            };
            if lower.net(search.guard) == search.net {
                search.found = (search.look)(lower);
            }
            search.found.is_some().into()
        }

        let mut search = Search {
            net: self.net(guard),
            guard,
            look,
            found: None,
        };
        let mut private = bindings::netdev_nested_priv {
            data: ptr::from_mut(&mut search).cast(),
            ..Default::default()
        };
        // SAFETY: RCU is held as the guard shows, and `visit` gets what it asks for.
        unsafe {
            bindings::netdev_walk_all_lower_dev_rcu(
                self.as_raw(),
                Some(visit::<R, F>),
                &mut private,
            )
        };
        search.found
    }

    /// Calls `f` under RTNL, where no interface comes, goes or moves.
    pub(crate) fn with_rtnl<R>(&self, f: impl FnOnce(&Self) -> R) -> R {
        with_rtnl(|| f(self))
    }
}

/// Calls `f` under RTNL, where no interface comes, goes or moves.
pub(super) fn with_rtnl<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: may be called wherever one may sleep.
    unsafe { bindings::rtnl_lock() };
    let result = f();
    // SAFETY: locked above.
    unsafe { bindings::rtnl_unlock() };
    result
}

/// An interface's name, copied.
pub(crate) struct Name([u8; 16]);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        for byte in name {
            write!(f, "{}", char::from(*byte))?;
        }
        Ok(())
    }
}

/// What happened to an interface.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// It was set up.
    Up,
    /// It was set down.
    Down,
    /// Its state changed, the carrier for one.
    Change,
    /// It has a new MTU.
    ChangeMtu,
    /// It leaves: deleted, or moved into another namespace.
    Unregister,
}

/// Hears of changes. Everything is called in process context under RTNL.
pub(crate) trait Listen: Send + Sync {
    /// Something happened to `dev`, which is (or was until now) in `net`.
    fn event(&self, dev: &NetDevice, net: &Net, event: Event);

    /// `net` goes. What is registered in it must be given up before this returns.
    fn gone(&self, net: &Net);
}

/// A registered notifier for the interfaces of all namespaces, and the keeper of
/// the module's [`NetRef`]s.
///
/// A namespace's loopback interface cannot be deleted or moved, and is the last one to go
/// when the namespace goes: its end stands for the namespace's. Dropping the notifier ends
/// all namespaces as far as its listener is concerned. It may not be dropped under RTNL.
#[pin_data(PinnedDrop)]
pub(crate) struct Notifier<T: Listen> {
    listener: T,
    #[pin]
    nets: NetRefs,
    /// Initialised last: it is called from then on.
    #[pin]
    block: Opaque<bindings::notifier_block>,
}

// SAFETY: the block is changed by the notifier chain's functions only, which lock.
unsafe impl<T: Listen> Send for Notifier<T> {}
// SAFETY: as above.
unsafe impl<T: Listen> Sync for Notifier<T> {}

impl<T: Listen> Notifier<T> {
    /// Registers; `listener` is told [`Event::Up`] for each interface that is up.
    pub(crate) fn register(listener: T) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            listener,
            nets <- NetRefs::new(),
            block <- Opaque::try_ffi_init(|block: *mut bindings::notifier_block| {
                let init = bindings::notifier_block {
                    notifier_call: Some(Self::call),
                    ..Default::default()
                };
                // SAFETY: `block` is the pinned field's memory, unregistered before it goes.
                unsafe {
                    block.write(init);
                    to_result(bindings::register_netdevice_notifier(block.cast()))
                }
            }),
        }? Error)
    }

    /// The listener.
    pub(crate) fn listener(&self) -> &T {
        &self.listener
    }

    /// A reference on `net` that may be kept.
    pub(crate) fn net_ref(&self, net: &LiveNet) -> Result<Arc<NetRef>> {
        self.nets.get(net)
    }

    /// # Safety
    ///
    /// For the notifier chain only, with the block of a registered `Self`.
    unsafe extern "C" fn call(
        block: *mut bindings::notifier_block,
        action: c_ulong,
        info: *mut c_void,
    ) -> c_int {
        let block = Opaque::cast_from(block);
        // SAFETY: the chain calls with the block that is a field of `Self`, which is pinned
        // and otherwise initialised.
        let this = unsafe { &*kernel::container_of!(block, Self, block) };
        // SAFETY: netdevice notifiers get this struct, with a device that is there during the call.
        let dev =
            unsafe { NetDevice::from_raw((*info.cast::<bindings::netdev_notifier_info>()).dev) };
        let event = match action as u32 {
            bindings::netdev_cmd_NETDEV_UP => Event::Up,
            bindings::netdev_cmd_NETDEV_DOWN => Event::Down,
            bindings::netdev_cmd_NETDEV_CHANGE => Event::Change,
            bindings::netdev_cmd_NETDEV_CHANGEMTU => Event::ChangeMtu,
            bindings::netdev_cmd_NETDEV_UNREGISTER => Event::Unregister,
            _ => return bindings::NOTIFY_OK as c_int,
        };
        let net = read_once!(dev, nd_net.net);
        // SAFETY: RTNL is held, under which a device stays in its namespace and that lives.
        let net = unsafe { Net::from_raw(net) };
        this.listener.event(dev, net, event);
        if event == Event::Unregister && dev.is_loopback() {
            this.listener.gone(net);
            // A grace period passes between this event and the end of the namespace's
            // subsystems, as `retire` asks.
            this.nets.retire(net);
        }
        bindings::NOTIFY_OK as c_int
    }
}

#[pinned_drop]
impl<T: Listen> PinnedDrop for Notifier<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: registered when it was made. The chain sends the end of every
        // interface before this returns, and nothing after.
        unsafe { bindings::unregister_netdevice_notifier(self.block.get().cast()) };
    }
}
