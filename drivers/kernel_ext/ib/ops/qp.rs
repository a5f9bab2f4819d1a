// SPDX-License-Identifier: GPL-2.0

//! Callbacks of queue pairs.

use super::{
    errno,
    respond,
    AhSlot,
    CqSlot,
    PdSlot,
    QpSlot,
    SrqSlot,
    XrcdSlot, //
};
use crate::{
    bindings,
    kernel_ext::ib::{
        device::DeviceSlot,
        mmap::Mapping,
        slot::Slot,
        wr::{
            AhNumber,
            RecvWrs,
            SendWrs, //
        },
        Driver,
        QpParts,
        QpSink,
        Ring, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

pub(super) unsafe extern "C" fn create_qp<D: Driver>(
    ib: *mut bindings::ib_qp,
    init: *mut bindings::ib_qp_init_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core gives a fresh QP of our size, with PD and CQs of this driver.
    errno(unsafe {
        let init = &mut *init;
        if init.create_flags != 0 {
            return EOPNOTSUPP.to_errno();
        }
        let device = DeviceSlot::<D>::get((*ib).device);
        let given = QpParts {
            pd: PdSlot::<D>::maybe((*ib).pd),
            send_cq: CqSlot::<D>::maybe(init.send_cq),
            recv_cq: CqSlot::<D>::maybe(init.recv_cq),
            srq: SrqSlot::<D>::maybe(init.srq),
            xrcd: XrcdSlot::<D>::maybe(init.xrcd),
        };
        let kernel = udata.is_null();
        let made = D::create_qp(device, &given, init, kernel, QpSink(ib));
        made.and_then(|qp| {
            let slot = QpSlot::<D>::of(ib);
            let (number, sq, rq) = D::qp_rings(&qp);
            (*ib).qp_num = number;
            let shown = match kernel {
                true => Ok(()),
                false => show_rings(slot, udata, sq, rq),
            };
            slot.fill(qp);
            shown.inspect_err(|_| {
                if let Some(qp) = slot.take() {
                    D::destroy_qp(qp);
                }
            })
        })
    })
}

unsafe fn show_rings<I, T>(
    slot: &mut Slot<I, T>,
    udata: *mut bindings::ib_udata,
    sq: Option<&Arc<Ring>>,
    rq: Option<&Arc<Ring>>,
) -> Result {
    // SAFETY: `udata` is of a running call.
    unsafe {
        let (mut sq_mi, mut rq_mi) = Default::default();
        if let Some(sq) = sq {
            let (mapping, mi) = Mapping::offer(udata, sq)?;
            slot.show(0, mapping);
            sq_mi = mi;
        }
        if let Some(rq) = rq {
            let (mapping, mi) = Mapping::offer(udata, rq)?;
            slot.show(1, mapping);
            rq_mi = mi;
        }
        respond(udata, &bindings::rxe_create_qp_resp { rq_mi, sq_mi })
    }
}

pub(super) unsafe extern "C" fn modify_qp<D: Driver>(
    ib: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    mask: c_int,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core gives a live QP of this driver and its attributes.
    errno(unsafe { D::modify_qp(QpSlot::<D>::get(ib), &*attr, mask as u32) })
}

pub(super) unsafe extern "C" fn query_qp<D: Driver>(
    ib: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    _mask: c_int,
    init: *mut bindings::ib_qp_init_attr,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        D::query_qp(&QpSlot::<D>::get(ib), &mut *attr, &mut *init);
        (*init).event_handler = (*ib).event_handler;
        (*init).qp_context = (*ib).qp_context;
        (*init).send_cq = (*ib).send_cq;
        (*init).recv_cq = (*ib).recv_cq;
        (*init).srq = (*ib).srq;
        (*init).cap = (*attr).cap;
        (*init).qp_type = (*ib).qp_type;
    }
    0
}

pub(super) unsafe extern "C" fn destroy_qp<D: Driver>(
    ib: *mut bindings::ib_qp,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core destroys a QP that it made, once.
    if let Some(qp) = unsafe { QpSlot::<D>::of(ib) }.take() {
        D::destroy_qp(qp);
    }
    0
}

/// A process writes its work requests into the ring and calls this without any; one of the
/// kernel calls it with its own.
pub(super) unsafe extern "C" fn post_send<D: Driver>(
    ib: *mut bindings::ib_qp,
    wr: *const bindings::ib_send_wr,
    bad: *mut *const bindings::ib_send_wr,
) -> c_int {
    // SAFETY: the core gives a live QP of this driver, a chain of requests of its type, and
    // memory for the request that failed.
    unsafe {
        let qp = QpSlot::<D>::get(ib);
        if wr.is_null() {
            return errno(D::ring_doorbell(qp));
        }
        let number: AhNumber = |ah| D::ah_number(&AhSlot::<D>::get(ah));
        let datagrams = matches!(
            (*ib).qp_type,
            bindings::ib_qp_type_IB_QPT_UD | bindings::ib_qp_type_IB_QPT_GSI
        );
        let mut wrs = SendWrs::new(wr, datagrams.then_some(number));
        let result = match (*ib).uobject.is_null() {
            true => D::post_send(qp, &mut wrs),
            false => Err(EOPNOTSUPP),
        };
        errno(result.inspect_err(|_| *bad = wrs.failed()))
    }
}

pub(super) unsafe extern "C" fn post_recv<D: Driver>(
    ib: *mut bindings::ib_qp,
    wr: *const bindings::ib_recv_wr,
    bad: *mut *const bindings::ib_recv_wr,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        let mut wrs = RecvWrs::new(wr);
        let result = match (*ib).uobject.is_null() {
            true => D::post_recv(QpSlot::<D>::get(ib), &mut wrs),
            false => Err(EOPNOTSUPP),
        };
        errno(result.inspect_err(|_| *bad = wrs.failed()))
    }
}
