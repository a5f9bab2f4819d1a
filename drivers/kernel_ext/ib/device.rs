// SPDX-License-Identifier: GPL-2.0

//! Registration of `ib_device`s and of the `rdma link add … type` name.

#![allow(
    clippy::missing_safety_doc,
    reason = "callbacks: the RDMA core is their only caller, and its contract is in ib_verbs.h"
)]

use super::{
    super::{
        netdev::NetDevice,
        rcu, //
    },
    ops,
    Driver, //
};
use crate::bindings;
use core::{
    marker::PhantomData,
    ptr::NonNull,
    sync::atomic::{
        AtomicU32,
        Ordering, //
    }, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    types::Opaque, //
};

/// Devices that the core has not given back to us yet.
static LIVE: AtomicU32 = AtomicU32::new(0);

/// rdma_rxe takes any device with its driver id for its own struct, and on an MTU change
/// writes into it (4432 bytes in Linux 7.3). Nothing of ours lies below this size.
const RXE_OBJECT: usize = 8192;

/// The core's device, and ours behind it.
#[repr(C)]
pub(super) struct DeviceSlot<D: Driver> {
    ib: bindings::ib_device,
    rxe: [u8; RXE_OBJECT - size_of::<bindings::ib_device>()],
    device: *const D::Device,
}

impl<D: Driver> DeviceSlot<D> {
    /// The driver's device of a core device.
    ///
    /// # Safety
    ///
    /// `ib` is the object of a `DeviceSlot<D>` that was filled and lives for `'a`.
    pub(super) unsafe fn get<'a>(ib: *mut bindings::ib_device) -> ArcBorrow<'a, D::Device> {
        // SAFETY: by our contract `device` came from `Arc::into_raw` and is still owned here.
        unsafe { ArcBorrow::from_raw((*ib.cast::<Self>()).device) }
    }

    /// `ib_device_ops::dealloc_driver`: the device is unregistered, nothing uses it.
    pub(super) unsafe extern "C" fn dealloc(ib: *mut bindings::ib_device) {
        // SAFETY: the core calls this once, for a device that `register` filled.
        let device = unsafe { Arc::from_raw((*ib.cast::<Self>()).device) };
        D::remove(device.as_arc_borrow());
        drop(device);
        LIVE.fetch_sub(1, Ordering::Release);
    }
}

/// A device in the core's registry, by which pinned memory is accounted.
#[derive(Clone, Copy)]
pub(crate) struct IbDevice(NonNull<bindings::ib_device>);

// SAFETY: a handle; the core locks what it does with it.
unsafe impl Send for IbDevice {}
// SAFETY: as above.
unsafe impl Sync for IbDevice {}

impl IbDevice {
    /// The core's object, alive until [`Driver::remove`] has returned.
    pub(crate) fn as_ptr(self) -> *mut bindings::ib_device {
        self.0.as_ptr()
    }

    /// Starts to unregister the device, from a context that may not wait (RTNL held).
    pub(crate) fn unregister_later(self) {
        // SAFETY: the core takes a reference if the device is still registered, and the
        // work does nothing to one that is already gone.
        unsafe {
            if bindings::ib_device_try_get(self.as_ptr()) {
                bindings::ib_unregister_device_queued(self.as_ptr());
                bindings::ib_device_put(self.as_ptr());
            }
        }
    }

    /// Unregisters the device and waits for it, or a moment if somebody else is at it.
    pub(crate) fn unregister(self) {
        // SAFETY: as above; `_and_put` drops the reference that `try_get` took.
        unsafe {
            if bindings::ib_device_try_get(self.as_ptr()) {
                bindings::ib_unregister_device_and_put(self.as_ptr());
            } else {
                pause();
            }
        }
    }
}

/// Makes a device on `ndev` and registers it as `name`; `make` builds the driver's part.
///
/// Fails with `ENOMEM`, with what `make` says, or with the core's error (`ENFILE`, `EEXIST`).
pub(crate) fn register<D: Driver>(
    name: &CStr,
    ndev: &NetDevice,
    guid: [u8; 8],
    make: impl FnOnce(IbDevice) -> Result<Arc<D::Device>>,
) -> Result {
    // SAFETY: the netdev is referenced by our caller; sizes are those of the slot.
    let ib = unsafe {
        bindings::_ib_alloc_device(size_of::<DeviceSlot<D>>(), bindings::dev_net(ndev.as_raw()))
    };
    let handle = IbDevice(NonNull::new(ib).ok_or(ENOMEM)?);
    let device = match make(handle) {
        Ok(device) => device,
        Err(e) => {
            // SAFETY: the device was never registered, and has no driver part to free.
            unsafe { bindings::ib_dealloc_device(ib) };
            return Err(e);
        }
    };
    // SAFETY: the device is ours until it is registered; the core copies the table of
    // operations. After a failure `ib_dealloc_device` calls `dealloc`.
    unsafe {
        (*ib.cast::<DeviceSlot<D>>()).device = Arc::into_raw(device);
        LIVE.fetch_add(1, Ordering::Relaxed);
        bindings::ib_set_device_ops(ib, &ops::table::<D>());
        describe(&mut *ib, guid);
        (*ib).link_ops = D::link_ops().0.get();
        let registered =
            to_result(bindings::ib_device_set_netdev(ib, ndev.as_raw(), 1)).and_then(|()| {
                to_result(bindings::ib_register_device(
                    ib,
                    name.as_char_ptr().cast(),
                    core::ptr::null_mut(),
                ))
            });
        registered.inspect_err(|_| bindings::ib_dealloc_device(ib))
    }
}

fn describe(ib: &mut bindings::ib_device, guid: [u8; 8]) {
    ib.node_type = bindings::RDMA_NODE_IB_CA as u8;
    ib.phys_port_cnt = 1;
    // SAFETY: reads a mask that is set at boot.
    ib.num_comp_vectors = unsafe { bindings::ferroce_num_possible_cpus() } as c_int;
    ib.node_guid = u64::from_ne_bytes(guid);
    ib.uverbs_cmd_mask |= 1 << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POST_SEND
        | 1 << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_REQ_NOTIFY_CQ;
    for (to, from) in ib.node_desc.iter_mut().zip(b"ferroce\0") {
        *to = *from;
    }
}

/// The `rdma_link_ops` of a driver, in static memory since the core links it into a list.
pub(crate) struct LinkOps(Opaque<bindings::rdma_link_ops>);

// SAFETY: the core guards its list with a lock.
unsafe impl Sync for LinkOps {}

impl LinkOps {
    /// The table of driver `D`, for its static.
    pub(crate) const fn new<D: Driver>() -> Self {
        Self(Opaque::new(bindings::rdma_link_ops {
            list: bindings::list_head {
                next: core::ptr::null_mut(),
                prev: core::ptr::null_mut(),
            },
            type_: D::LINK_TYPE.to_bytes_with_nul().as_ptr().cast(),
            newlink: Some(new_link::<D>),
            dellink: Some(del_link),
        }))
    }
}

unsafe extern "C" fn new_link<D: Driver>(
    name: *const c_char,
    ndev: *mut bindings::net_device,
) -> c_int {
    // SAFETY: the core gives a name and a netdev that it holds during the call.
    let (name, ndev) = unsafe { (CStr::from_char_ptr(name), NetDevice::from_raw(ndev)) };
    D::new_link(name, ndev).map_or_else(|e| e.to_errno(), |()| 0)
}

/// The core unregisters the device after this call; `dealloc` does the rest.
unsafe extern "C" fn del_link(_ib: *mut bindings::ib_device) -> c_int {
    0
}

/// The `rdma link` type, offered as long as this lives. Drop it before the devices go.
pub(crate) struct LinkType<D: Driver>(PhantomData<fn(D)>);

impl<D: Driver> LinkType<D> {
    /// Offers the type.
    pub(crate) fn register() -> Self {
        // SAFETY: the table is static and registered once, by the module's init.
        unsafe { bindings::rdma_link_register(D::link_ops().0.get()) };
        Self(PhantomData)
    }
}

impl<D: Driver> Drop for LinkType<D> {
    fn drop(&mut self) {
        // SAFETY: it was registered; the core waits for calls that run.
        unsafe { bindings::rdma_link_unregister(D::link_ops().0.get()) };
    }
}

fn pause() {
    kernel::time::delay::fsleep(kernel::time::Delta::from_millis(10));
}

/// Waits until the core has given every device back and RCU every object. For module exit,
/// after all devices were unregistered.
pub(crate) fn wait_until_gone() {
    while LIVE.load(Ordering::Acquire) != 0 {
        pause();
    }
    rcu::synchronize_expedited();
    rcu::barrier();
}
