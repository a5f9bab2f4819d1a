// SPDX-License-Identifier: GPL-2.0

//! The core's callbacks, each turned into a method of [`Driver`].
//!
//! All are called in process context, but for those that post and poll. The core serialises creation, use and
//! destruction of each object, which is what makes [`Slot`] sound.

#![allow(
    clippy::missing_safety_doc,
    reason = "callbacks: the RDMA core is their only caller, and its contract is in ib_verbs.h"
)]

mod ah;
mod cq;
mod details;
mod fast;
mod mcast;
mod mr;
mod port;
mod qp;
mod srq;

use super::{
    device::DeviceSlot,
    mmap::Mapping,
    pma,
    slot::Slot,
    stats,
    Driver, //
};
use crate::bindings;
use ah::{create_ah, destroy_ah, modify_ah, query_ah};
use cq::{create_cq, destroy_cq, poll_cq, req_notify_cq, resize_cq};
use kernel::{
    error::to_result,
    prelude::*, //
};
use mcast::{attach_mcast, detach_mcast};
use mr::{
    advise_mr, alloc_mw, alloc_pd, dealloc_mw, dealloc_pd, dereg_mr, get_dma_mr, reg_user_mr,
    reg_user_mr_dmabuf, rereg_user_mr,
};
use port::{
    alloc_ucontext, dealloc_ucontext, get_link_layer, get_port_immutable, query_device, query_gid,
    query_pkey, query_port,
};
use qp::{create_qp, destroy_qp, modify_qp, post_recv, post_send, query_qp};
use srq::{
    alloc_xrcd, create_srq, dealloc_xrcd, destroy_srq, modify_srq, post_srq_recv, query_srq,
};

type PdSlot<D> = Slot<bindings::ib_pd, <D as Driver>::Pd>;
type AhSlot<D> = Slot<bindings::ib_ah, <D as Driver>::Ah>;
type CqSlot<D> = Slot<bindings::ib_cq, <D as Driver>::Cq>;
type QpSlot<D> = Slot<bindings::ib_qp, <D as Driver>::Qp>;
type SrqSlot<D> = Slot<bindings::ib_srq, <D as Driver>::Srq>;
type FastMrSlot<D> = Slot<bindings::ib_mr, <D as Driver>::FastMr>;
type XrcdSlot<D> = Slot<bindings::ib_xrcd, <D as Driver>::Xrcd>;
type MrSlot<D> = Slot<bindings::ib_mr, <D as Driver>::Mr>;
type MwSlot<D> = Slot<bindings::ib_mw, <D as Driver>::Mw>;
type ContextSlot = bindings::ib_ucontext;

fn errno(result: Result) -> c_int {
    result.map_or_else(|e| e.to_errno(), |()| 0)
}

/// Copies a driver's answer out; what does not fit is an error of the provider.
unsafe fn respond<T>(udata: *mut bindings::ib_udata, answer: &T) -> Result {
    // SAFETY: `udata` is of a running call.
    unsafe {
        if (*udata).outlen < size_of::<T>() {
            return Err(EINVAL);
        }
        let from = core::ptr::from_ref(answer).cast_mut().cast();
        to_result(bindings::ib_copy_to_udata(udata, from, size_of::<T>()))
    }
}

/// The operations of driver `D`.
pub(super) fn table<D: Driver>() -> bindings::ib_device_ops {
    bindings::ib_device_ops {
        owner: kernel::module::this_module::<crate::LocalModule>()
            .as_ptr()
            .cast(),
        driver_id: D::DRIVER_ID,
        uverbs_abi_ver: D::ABI_VERSION,
        query_device: Some(query_device::<D>),
        query_port: Some(query_port::<D>),
        query_pkey: Some(query_pkey),
        query_gid: Some(query_gid::<D>),
        get_port_immutable: Some(get_port_immutable::<D>),
        get_link_layer: Some(get_link_layer),
        alloc_hw_port_stats: Some(stats::alloc_port::<D>),
        get_hw_stats: Some(stats::get::<D>),
        alloc_ucontext: Some(alloc_ucontext),
        dealloc_ucontext: Some(dealloc_ucontext),
        disassociate_ucontext: Some(dealloc_ucontext),
        mmap: Some(Mapping::mmap),
        mmap_free: Some(Mapping::free),
        alloc_pd: Some(alloc_pd::<D>),
        dealloc_pd: Some(dealloc_pd::<D>),
        create_ah: Some(create_ah::<D>),
        create_user_ah: Some(create_ah::<D>),
        modify_ah: Some(modify_ah::<D>),
        query_ah: Some(query_ah::<D>),
        destroy_ah: Some(destroy_ah::<D>),
        reg_user_mr: Some(reg_user_mr::<D>),
        reg_user_mr_dmabuf: Some(reg_user_mr_dmabuf::<D>),
        rereg_user_mr: Some(rereg_user_mr::<D>),
        get_dma_mr: Some(get_dma_mr::<D>),
        alloc_mr: Some(fast::alloc_mr::<D>),
        map_mr_sg: Some(fast::map_mr_sg::<D>),
        dereg_mr: Some(dereg_mr::<D>),
        advise_mr: Some(advise_mr::<D>),
        alloc_mw: Some(alloc_mw::<D>),
        dealloc_mw: Some(dealloc_mw::<D>),
        create_cq: Some(create_cq::<D>),
        destroy_cq: Some(destroy_cq::<D>),
        resize_user_cq: Some(resize_cq::<D>),
        poll_cq: Some(poll_cq::<D>),
        req_notify_cq: Some(req_notify_cq::<D>),
        alloc_xrcd: Some(alloc_xrcd::<D>),
        dealloc_xrcd: Some(dealloc_xrcd::<D>),
        create_srq: Some(create_srq::<D>),
        modify_srq: Some(modify_srq::<D>),
        query_srq: Some(query_srq::<D>),
        post_srq_recv: Some(post_srq_recv::<D>),
        destroy_srq: Some(destroy_srq::<D>),
        create_qp: Some(create_qp::<D>),
        modify_qp: Some(modify_qp::<D>),
        query_qp: Some(query_qp::<D>),
        attach_mcast: Some(attach_mcast::<D>),
        detach_mcast: Some(detach_mcast::<D>),
        destroy_qp: Some(destroy_qp::<D>),
        fill_res_mr_entry: Some(details::mr::<D>),
        fill_res_cq_entry: Some(details::cq::<D>),
        fill_res_qp_entry: Some(details::qp::<D>),
        fill_res_srq_entry: Some(details::srq::<D>),
        post_send: Some(post_send::<D>),
        post_recv: Some(post_recv::<D>),
        process_mad: Some(pma::process_mad::<D>),
        dealloc_driver: Some(DeviceSlot::<D>::dealloc),
        size_ib_pd: size_of::<PdSlot<D>>(),
        size_ib_ah: size_of::<AhSlot<D>>(),
        size_ib_cq: size_of::<CqSlot<D>>(),
        size_ib_mw: size_of::<MwSlot<D>>(),
        size_ib_xrcd: size_of::<XrcdSlot<D>>(),
        size_ib_srq: size_of::<SrqSlot<D>>(),
        size_ib_qp: size_of::<QpSlot<D>>(),
        size_ib_ucontext: size_of::<ContextSlot>(),
        ..Default::default()
    }
}
