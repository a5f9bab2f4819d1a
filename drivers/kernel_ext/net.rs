// SPDX-License-Identifier: GPL-2.0

//! Network namespaces.
//!
//! A [`Net`] is borrowed and alive. A [`NetRef`] may be kept for longer than the
//! namespace lives: it says "gone" from then on, and never holds a namespace up.
//! Whoever hears of the namespace's end (see [`super::netdev::Notifier`]) owns
//! the [`NetRefs`] and retires the reference.

use super::netdev::NetDevice;
use crate::bindings;
use core::{
    net::IpAddr,
    ops::Deref,
    ptr::{
        self,
        NonNull, //
    },
    sync::atomic::{
        AtomicPtr,
        Ordering, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        rcu,
        Arc,
        Mutex, //
    },
    types::Opaque,
};

/// A network namespace that is alive for as long as the borrow.
#[repr(transparent)]
pub(crate) struct Net(Opaque<bindings::net>);

impl Net {
    /// Borrows a C `struct net`.
    ///
    /// # Safety
    ///
    /// `net` points to a namespace that is not torn down during `'a`.
    pub(crate) unsafe fn from_raw<'a>(net: *mut bindings::net) -> &'a Self {
        // SAFETY: the caller says so; `Net` is a transparent wrapper.
        unsafe { &*net.cast() }
    }

    /// The C object.
    pub(crate) fn as_raw(&self) -> *mut bindings::net {
        self.0.get()
    }

    /// The interface that has `addr` as its own address, if there is one.
    pub(crate) fn device_with<'g>(
        &self,
        addr: IpAddr,
        _guard: &'g rcu::Guard,
    ) -> Option<&'g NetDevice> {
        let dev = match addr {
            // SAFETY: the namespace is alive, and no reference on the device is asked for.
            IpAddr::V4(addr) => unsafe {
                bindings::__ip_dev_find(self.as_raw(), u32::from_ne_bytes(addr.octets()), false)
            },
            IpAddr::V6(addr) => {
                let addr = super::route::in6_addr(addr);
                // SAFETY: the namespace is alive, and RCU is held as the guard shows.
                unsafe { bindings::ipv6_dev_find(self.as_raw(), &addr, ptr::null_mut()) }
            }
        };
        // SAFETY: a device that was found under RCU lives until the guard goes.
        NonNull::new(dev).map(|dev| unsafe { NetDevice::from_raw(dev.as_ptr()) })
    }
}

impl Net {
    /// The interface of that number, if there is one.
    pub(crate) fn device_at<'g>(
        &self,
        ifindex: u32,
        _guard: &'g rcu::Guard,
    ) -> Option<&'g NetDevice> {
        // SAFETY: the namespace is alive, and RCU is held as the guard shows.
        let dev = unsafe { bindings::dev_get_by_index_rcu(self.as_raw(), ifindex as c_int) };
        // SAFETY: a device that was found under RCU lives until the guard goes.
        NonNull::new(dev).map(|dev| unsafe { NetDevice::from_raw(dev.as_ptr()) })
    }
}

impl PartialEq for Net {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

/// A counted reference on a namespace. It keeps the namespace from being torn
/// down, so hold it for one operation only.
pub(crate) struct LiveNet(NonNull<bindings::net>);

impl LiveNet {
    /// Counts a reference, unless the namespace is on its way out.
    pub(crate) fn get(net: &Net) -> Option<Self> {
        // SAFETY: the borrow shows that the memory is a namespace.
        NonNull::new(unsafe { bindings::maybe_get_net(net.as_raw()) }).map(Self)
    }
}

impl Deref for LiveNet {
    type Target = Net;

    fn deref(&self) -> &Net {
        // SAFETY: the counted reference keeps the namespace.
        unsafe { Net::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for LiveNet {
    fn drop(&mut self) {
        // SAFETY: the reference was counted in `get`.
        unsafe { bindings::put_net(self.0.as_ptr()) }
    }
}

/// A namespace that may be gone. Shared through [`Arc`]; made by [`NetRefs::get`].
#[pin_data]
pub(crate) struct NetRef {
    /// Null from the moment when the namespace begins to go. After that a grace
    /// period passes before anything of the namespace is taken down.
    net: AtomicPtr<bindings::net>,
    /// Held by [`Self::with`], so that the namespace waits for what may sleep.
    #[pin]
    busy: Mutex<()>,
}

impl NetRef {
    /// The namespace, for as long as the guard is held.
    pub(crate) fn get<'g>(&self, _guard: &'g rcu::Guard) -> Option<&'g Net> {
        let net = NonNull::new(self.net.load(Ordering::Acquire))?;
        // SAFETY: it was not retired when the read-side section had begun, so the
        // namespace stays until the section's end.
        Some(unsafe { Net::from_raw(net.as_ptr()) })
    }

    /// Calls `f`, which may sleep, with the namespace, or with `None` when it is gone.
    ///
    /// `f` must not take the RTNL lock.
    pub(crate) fn with<R>(&self, f: impl FnOnce(Option<&Net>) -> R) -> R {
        let _busy = self.busy.lock();
        let net = NonNull::new(self.net.load(Ordering::Acquire));
        // SAFETY: `retire` waits for the mutex, and the namespace waits for `retire`.
        f(net.map(|net| unsafe { Net::from_raw(net.as_ptr()) }))
    }

    /// Whether this is (and still is) `net`.
    pub(crate) fn is(&self, net: &Net) -> bool {
        self.net.load(Ordering::Relaxed) == net.as_raw()
    }

    fn retire(&self) {
        let _busy = self.busy.lock();
        self.net.store(ptr::null_mut(), Ordering::Release);
    }
}

/// The references in use, one a namespace.
#[pin_data]
pub(super) struct NetRefs {
    #[pin]
    list: Mutex<KVec<Arc<NetRef>>>,
}

impl NetRefs {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            list <- new_mutex!(KVec::new()),
        })
    }

    /// The reference for `net`, the same one each time. The counted reference says
    /// that the end of `net` has not begun, so the owner will still hear of it.
    pub(super) fn get(&self, net: &LiveNet) -> Result<Arc<NetRef>> {
        let mut list = self.list.lock();
        if let Some(known) = list.iter().find(|known| known.is(net)) {
            return Ok(known.clone());
        }
        let new = Arc::pin_init(
            pin_init!(NetRef {
                net: AtomicPtr::new(net.as_raw()),
                busy <- new_mutex!(()),
            }),
            GFP_KERNEL,
        )?;
        list.push(new.clone(), GFP_KERNEL)?;
        Ok(new)
    }

    /// Makes the reference for `net` say "gone". The caller sees to it that a grace
    /// period passes before `net` is taken down.
    pub(super) fn retire(&self, net: &Net) {
        self.list.lock().retain(|known| {
            let keep = !known.is(net);
            if !keep {
                known.retire();
            }
            keep
        });
    }
}
