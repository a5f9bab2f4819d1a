// SPDX-License-Identifier: GPL-2.0

//! Callbacks of address handles. Kernel users call them with interrupts off, too.

use super::{
    errno,
    respond,
    AhSlot,
    PdSlot, //
};
use crate::{
    bindings,
    kernel_ext::ib::{
        device::DeviceSlot,
        gid::AhAttr,
        Driver, //
    },
};
use kernel::prelude::*;

pub(super) unsafe extern "C" fn create_ah<D: Driver>(
    ib: *mut bindings::ib_ah,
    init: *mut bindings::rdma_ah_init_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core gives a fresh AH of our size with a PD of this driver, its
    // attributes, and the udata of a running call or null for a kernel user.
    errno(unsafe {
        let pd = PdSlot::<D>::get((*ib).pd);
        let made = AhAttr::new(&*(*init).ah_attr).and_then(|attr| D::create_ah(pd, &attr));
        made.and_then(|ah| {
            let ah_num = D::ah_number(&ah);
            let slot = AhSlot::<D>::of(ib);
            slot.fill(ah);
            if udata.is_null() {
                return Ok(());
            }
            let answer = bindings::rxe_create_ah_resp {
                ah_num,
                reserved: 0,
            };
            respond(udata, &answer).inspect_err(|_| {
                if let Some(ah) = slot.take() {
                    D::destroy_ah(DeviceSlot::<D>::get((*ib).device), ah);
                }
            })
        })
    })
}

pub(super) unsafe extern "C" fn modify_ah<D: Driver>(
    ib: *mut bindings::ib_ah,
    attr: *mut bindings::rdma_ah_attr,
) -> c_int {
    // SAFETY: the core gives a live AH of this driver and its new attributes.
    errno(unsafe {
        AhAttr::new(&*attr).and_then(|attr| D::modify_ah(&AhSlot::<D>::get(ib), &attr))
    })
}

pub(super) unsafe extern "C" fn query_ah<D: Driver>(
    ib: *mut bindings::ib_ah,
    attr: *mut bindings::rdma_ah_attr,
) -> c_int {
    // SAFETY: the core gives a live AH of this driver, and memory for the answer.
    unsafe {
        D::query_ah(&AhSlot::<D>::get(ib)).fill(&mut *attr);
        (*attr).grh.sgid_attr = (*ib).sgid_attr;
    }
    0
}

pub(super) unsafe extern "C" fn destroy_ah<D: Driver>(ib: *mut bindings::ib_ah, _: u32) -> c_int {
    // SAFETY: the core destroys an AH that it made, once, before its device goes.
    unsafe {
        if let Some(ah) = AhSlot::<D>::of(ib).take() {
            D::destroy_ah(DeviceSlot::<D>::get((*ib).device), ah);
        }
    }
    0
}
