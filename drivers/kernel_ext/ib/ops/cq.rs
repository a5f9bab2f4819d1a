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
use kernel::prelude::*;

pub(super) unsafe extern "C" fn create_cq<D: Driver>(
    ib: *mut bindings::ib_cq,
    attr: *const bindings::ib_cq_init_attr,
    attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    // SAFETY: the core gives a fresh CQ of our size on a registered device; `attrs` is of a
    // running call, or null for a kernel user.
    errno(unsafe {
        if (*attr).flags != 0 || attrs.is_null() {
            return EOPNOTSUPP.to_errno();
        }
        let udata = &mut (*attrs).__bindgen_anon_1.__bindgen_anon_1.driver_udata as *mut _;
        let device = DeviceSlot::<D>::get((*ib).device);
        D::create_cq(device, (*attr).cqe, CqSink(ib)).and_then(|cq| {
            let slot = CqSlot::<D>::of(ib);
            let shown = Mapping::offer(udata, D::cq_ring(&cq)).and_then(|(mapping, mi)| {
                slot.mappings[0] = mapping;
                respond(udata, &bindings::rxe_create_cq_resp { mi })
            });
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

/// Kernel users cannot create a CQ yet, so nothing is there to poll.
pub(super) unsafe extern "C" fn poll_cq(
    _ib: *mut bindings::ib_cq,
    _entries: c_int,
    _wc: *mut bindings::ib_wc,
) -> c_int {
    EOPNOTSUPP.to_errno()
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
