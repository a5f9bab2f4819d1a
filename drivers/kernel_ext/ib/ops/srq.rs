// SPDX-License-Identifier: GPL-2.0

//! Callbacks of shared receive queues and XRC domains.

use super::{
    errno,
    respond,
    CqSlot,
    PdSlot,
    SrqSlot,
    XrcdSlot, //
};
use crate::{
    bindings,
    kernel_ext::{
        ib::{
            device::DeviceSlot,
            mmap::Mapping,
            wr::RecvWrs,
            Driver,
            SrqSink,
            XrcParts, //
        },
        ring::Ring, //
    },
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

pub(super) unsafe extern "C" fn alloc_xrcd<D: Driver>(
    ib: *mut bindings::ib_xrcd,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core gives a fresh XRC domain of our size on a registered device.
    errno(unsafe {
        let device = DeviceSlot::<D>::get((*ib).device);
        D::alloc_xrcd(device).map(|xrcd| XrcdSlot::<D>::of(ib).fill(xrcd))
    })
}

pub(super) unsafe extern "C" fn dealloc_xrcd<D: Driver>(
    ib: *mut bindings::ib_xrcd,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core destroys a domain that it made, once, when nothing uses it.
    drop(unsafe { XrcdSlot::<D>::of(ib) }.take());
    0
}

pub(super) unsafe extern "C" fn create_srq<D: Driver>(
    ib: *mut bindings::ib_srq,
    init: *mut bindings::ib_srq_init_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core gives a fresh SRQ of our size with a PD of this driver, its
    // attributes, and the udata of a running call or null for a kernel user.
    errno(unsafe {
        let xrc = match (*init).srq_type {
            bindings::ib_srq_type_IB_SRQT_BASIC => None,
            bindings::ib_srq_type_IB_SRQT_XRC => {
                let xrcd = (*ib).ext.__bindgen_anon_1.xrc.xrcd;
                if xrcd.is_null() || (*ib).ext.cq.is_null() {
                    return EINVAL.to_errno();
                }
                Some(XrcParts {
                    xrcd: XrcdSlot::<D>::get(xrcd),
                    cq: CqSlot::<D>::get((*ib).ext.cq),
                })
            }
            _ => return EOPNOTSUPP.to_errno(),
        };
        let is_xrc = xrc.is_some();
        let pd = PdSlot::<D>::get((*ib).pd);
        D::create_srq(pd, &mut (*init).attr, xrc, SrqSink(ib)).and_then(|srq| {
            let slot = SrqSlot::<D>::of(ib);
            let (srq_num, ring) = D::srq_parts(&srq);
            slot.fill(srq);
            if is_xrc {
                (*ib).ext.__bindgen_anon_1.xrc.srq_num = srq_num;
            }
            if udata.is_null() {
                return Ok(());
            }
            let shown = Mapping::offer(udata, &ring).and_then(|(mapping, mi)| {
                slot.show(0, mapping);
                let answer = bindings::rxe_create_srq_resp {
                    mi,
                    srq_num,
                    reserved: 0,
                };
                respond(udata, &answer)
            });
            shown.inspect_err(|_| {
                if let Some(srq) = slot.take() {
                    D::destroy_srq(srq);
                }
            })
        })
    })
}

pub(super) unsafe extern "C" fn modify_srq<D: Driver>(
    ib: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_attr,
    mask: u32,
    udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core gives a live SRQ of this driver, the attributes, and the udata of a
    // running call or null for a kernel user.
    errno(unsafe {
        let srq = SrqSlot::<D>::get(ib);
        let limit = mask & bindings::ib_srq_attr_mask_IB_SRQ_LIMIT != 0;
        let limit = limit.then_some((*attr).srq_limit);
        if mask & bindings::ib_srq_attr_mask_IB_SRQ_MAX_WR == 0 {
            return errno(D::modify_srq(&srq, None, limit));
        }
        D::larger_srq(&srq, (*attr).max_wr).and_then(|ring| {
            if udata.is_null() {
                return D::modify_srq(&srq, Some(ring), limit);
            }
            let mapping = show_larger(udata, &ring)?;
            let changed = D::modify_srq(&srq, Some(ring), limit);
            match changed {
                Ok(()) => SrqSlot::<D>::shared(ib).show(0, mapping),
                Err(_) => Mapping::remove(mapping),
            }
            changed
        })
    })
}

/// Offers `ring`, and writes how to map it where the provider asked for it.
unsafe fn show_larger(udata: *mut bindings::ib_udata, ring: &Arc<Ring>) -> Result<*mut Mapping> {
    let mut cmd = bindings::rxe_modify_srq_cmd::default();
    let len = size_of::<bindings::rxe_modify_srq_cmd>();
    // SAFETY: `udata` is of a running call; `cmd` is ours.
    unsafe {
        if (*udata).inlen < len {
            return Err(EINVAL);
        }
        let to = core::ptr::from_mut(&mut cmd).cast();
        to_result(bindings::ib_copy_from_udata(to, udata, len))?;
        let (mapping, mi) = Mapping::offer(udata, ring)?;
        let to = UserPtr::from_addr(cmd.mmap_info_addr as usize);
        let mut out = UserSlice::new(to, size_of::<bindings::mminfo>()).writer();
        let written = out
            .write_slice(&mi.offset.to_ne_bytes())
            .and_then(|()| out.write_slice(&mi.size.to_ne_bytes()))
            .and_then(|()| out.write_slice(&mi.pad.to_ne_bytes()));
        written
            .inspect_err(|_| Mapping::remove(mapping))
            .map(|()| mapping)
    }
}

pub(super) unsafe extern "C" fn query_srq<D: Driver>(
    ib: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_attr,
) -> c_int {
    // SAFETY: the core gives a live SRQ of this driver, and memory for the answer.
    unsafe { D::query_srq(&SrqSlot::<D>::get(ib), &mut *attr) };
    0
}

pub(super) unsafe extern "C" fn destroy_srq<D: Driver>(
    ib: *mut bindings::ib_srq,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core destroys an SRQ that it made, once, when no QP uses it.
    if let Some(srq) = unsafe { SrqSlot::<D>::of(ib) }.take() {
        D::destroy_srq(srq);
    }
    0
}

pub(super) unsafe extern "C" fn post_srq_recv<D: Driver>(
    ib: *mut bindings::ib_srq,
    wr: *const bindings::ib_recv_wr,
    bad: *mut *const bindings::ib_recv_wr,
) -> c_int {
    // SAFETY: the core gives a live SRQ of this driver, a chain of requests, and memory for
    // the request that failed.
    unsafe {
        let mut wrs = RecvWrs::new(wr);
        let result = match (*ib).uobject.is_null() {
            true => D::post_srq_recv(&SrqSlot::<D>::get(ib), &mut wrs),
            false => Err(EOPNOTSUPP),
        };
        errno(result.inspect_err(|_| *bad = wrs.failed()))
    }
}
