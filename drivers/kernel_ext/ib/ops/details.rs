// SPDX-License-Identifier: GPL-2.0

//! Callbacks that tell details of objects. The core keeps the object meanwhile.

use super::{
    errno,
    CqSlot,
    QpSlot,
    SrqSlot, //
};
use crate::{
    bindings,
    kernel_ext::ib::{
        details::Details,
        device::DeviceSlot,
        Driver, //
    },
};
use kernel::prelude::*;

pub(super) unsafe extern "C" fn cq<D: Driver>(
    message: *mut bindings::sk_buff,
    ib: *mut bindings::ib_cq,
) -> c_int {
    // SAFETY: the core gives its message, and a CQ of this driver.
    errno(unsafe { Details::fill(message, |out| D::describe_cq(&CqSlot::<D>::get(ib), out)) })
}

pub(super) unsafe extern "C" fn qp<D: Driver>(
    message: *mut bindings::sk_buff,
    ib: *mut bindings::ib_qp,
) -> c_int {
    // SAFETY: as above, and a QP.
    errno(unsafe { Details::fill(message, |out| D::describe_qp(&QpSlot::<D>::get(ib), out)) })
}

pub(super) unsafe extern "C" fn srq<D: Driver>(
    message: *mut bindings::sk_buff,
    ib: *mut bindings::ib_srq,
) -> c_int {
    // SAFETY: as above, and an SRQ.
    errno(unsafe { Details::fill(message, |out| D::describe_srq(&SrqSlot::<D>::get(ib), out)) })
}

/// Another call may put another region under the core's object meanwhile, so that only its
/// key is taken.
pub(super) unsafe extern "C" fn mr<D: Driver>(
    message: *mut bindings::sk_buff,
    ib: *mut bindings::ib_mr,
) -> c_int {
    // SAFETY: as above, and a region.
    errno(unsafe {
        let dev = DeviceSlot::<D>::get((*ib).device);
        let key = (&raw const (*ib).rkey).read_volatile();
        Details::fill(message, |out| D::describe_mr(&dev, key, out))
    })
}
