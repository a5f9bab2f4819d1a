// SPDX-License-Identifier: GPL-2.0

//! Callbacks of multicast groups. The core has checked that the QP is of type UD and the
//! GID a multicast address; a LID means nothing on Ethernet.

use super::*;

pub(super) unsafe extern "C" fn attach_mcast<D: Driver>(
    ib: *mut bindings::ib_qp,
    mgid: *mut bindings::ib_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: the core gives a live QP of this driver and a GID, of which all bytes are valid.
    errno(unsafe { D::attach_mcast(QpSlot::<D>::get(ib), (*mgid).raw) })
}

pub(super) unsafe extern "C" fn detach_mcast<D: Driver>(
    ib: *mut bindings::ib_qp,
    mgid: *mut bindings::ib_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: as above.
    errno(unsafe { D::detach_mcast(QpSlot::<D>::get(ib), (*mgid).raw) })
}
