// SPDX-License-Identifier: GPL-2.0

//! Callbacks of completion queues.

use super::{
    errno,
    respond,
    CqSlot, //
};
use crate::{
    bindings,
    kernel_ext::ib::{
        device::DeviceSlot,
        mmap::Mapping,
        CqSink,
        Driver, //
    },
};
use core::sync::atomic::{
    AtomicI32,
    Ordering, //
};
use kernel::prelude::*;

pub(super) unsafe extern "C" fn create_cq<D: Driver>(
    ib: *mut bindings::ib_cq,
    attr: *const bindings::ib_cq_init_attr,
    attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    // SAFETY: the core gives a fresh CQ of our size on a registered device; `attrs` is of a
    // running call, or null for a kernel user.
    errno(unsafe {
        if (*attr).flags != 0 {
            return EOPNOTSUPP.to_errno();
        }
        let device = DeviceSlot::<D>::get((*ib).device);
        D::create_cq(device, (*attr).cqe, CqSink(ib)).and_then(|cq| {
            let slot = CqSlot::<D>::of(ib);
            let shown = match attrs.as_mut() {
                Some(attrs) => show_ring::<D>(slot, attrs, &cq),
                None => Ok(()),
            };
            (*ib).cqe = D::cq_ring(&cq).capacity() as c_int;
            slot.fill(cq);
            shown.inspect_err(|_| {
                if let Some(cq) = slot.take() {
                    D::destroy_cq(cq);
                }
            })
        })
    })
}

unsafe fn show_ring<D: Driver>(
    slot: &mut CqSlot<D>,
    attrs: &mut bindings::uverbs_attr_bundle,
    cq: &D::Cq,
) -> Result {
    // SAFETY: `attrs` is of a running call, and has room for the provider's data.
    unsafe {
        let udata = &mut attrs.__bindgen_anon_1.__bindgen_anon_1.driver_udata as *mut _;
        let (mapping, mi) = Mapping::offer(udata, &D::cq_ring(cq))?;
        slot.show(0, mapping);
        respond(udata, &bindings::rxe_create_cq_resp { mi })
    }
}

pub(super) unsafe extern "C" fn resize_cq<D: Driver>(
    ib: *mut bindings::ib_cq,
    entries: u32,
    udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core gives a live CQ of this driver, and the udata of a running call.
    errno(unsafe {
        let cq = CqSlot::<D>::get(ib);
        D::larger_cq(&cq, entries).and_then(|ring| {
            let (mapping, mi) = Mapping::offer(udata, &ring)?;
            let capacity = ring.capacity();
            let resized = respond(udata, &bindings::rxe_resize_cq_resp { mi })
                .and_then(|()| D::resize_cq(&cq, ring));
            match resized {
                Ok(()) => {
                    CqSlot::<D>::shared(ib).show(0, mapping);
                    AtomicI32::from_ptr(&mut (*ib).cqe).store(capacity as c_int, Ordering::Relaxed);
                }
                Err(_) => Mapping::remove(mapping),
            }
            resized
        })
    })
}

pub(super) unsafe extern "C" fn destroy_cq<D: Driver>(
    ib: *mut bindings::ib_cq,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core destroys a CQ that it made, once, when no QP uses it.
    if let Some(cq) = unsafe { CqSlot::<D>::of(ib) }.take() {
        D::destroy_cq(cq);
    }
    0
}

pub(super) unsafe extern "C" fn poll_cq<D: Driver>(
    ib: *mut bindings::ib_cq,
    entries: c_int,
    wc: *mut bindings::ib_wc,
) -> c_int {
    let mut count = 0;
    // SAFETY: the core gives a live CQ of this driver, and room for `entries` completions.
    unsafe {
        let device = DeviceSlot::<D>::get((*ib).device);
        let cq = CqSlot::<D>::get(ib);
        while count < entries {
            let Some(next) = D::poll_cq(&device, &cq) else {
                break;
            };
            wc.add(count as usize).write(next);
            count += 1;
        }
    }
    count
}

pub(super) unsafe extern "C" fn req_notify_cq<D: Driver>(
    ib: *mut bindings::ib_cq,
    flags: bindings::ib_cq_notify_flags,
) -> c_int {
    let solicited = flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK
        == bindings::ib_cq_notify_flags_IB_CQ_SOLICITED;
    // SAFETY: the core gives a live CQ of this driver.
    let cq = unsafe { CqSlot::<D>::get(ib) };
    let missed = D::req_notify_cq(&cq, solicited);
    (missed && flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0).into()
}
