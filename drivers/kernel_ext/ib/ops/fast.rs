// SPDX-License-Identifier: GPL-2.0

//! Callbacks of regions for fast registration, which only kernel users have.

use super::{
    FastMrSlot,
    PdSlot, //
};
use crate::{
    bindings,
    kernel_ext::{
        ib::Driver,
        kmem::DirectMap, //
    },
};
use kernel::{
    alloc::KBox,
    prelude::*, //
};

pub(super) unsafe extern "C" fn alloc_mr<D: Driver>(
    pd: *mut bindings::ib_pd,
    kind: bindings::ib_mr_type,
    max_pages: u32,
) -> *mut bindings::ib_mr {
    if kind != bindings::ib_mr_type_IB_MR_TYPE_MEM_REG {
        return EOPNOTSUPP.to_ptr();
    }
    let made = FastMrSlot::<D>::empty().and_then(|slot| {
        // SAFETY: the core gives a PD of this driver.
        let object = unsafe { PdSlot::<D>::get(pd) };
        let mr = D::alloc_fast_mr(object, DirectMap::new(), max_pages)?;
        let key = D::fast_mr_key(&mr);
        let ib = KBox::into_raw(slot).cast::<bindings::ib_mr>();
        // SAFETY: the slot is ours until the core has it.
        unsafe {
            (*ib).device = (*pd).device;
            (*ib).pd = pd;
            (*ib).lkey = key;
            (*ib).rkey = key;
            FastMrSlot::<D>::of(ib).fill(mr);
        }
        Ok(ib)
    });
    made.unwrap_or_else(|e| e.to_ptr())
}

pub(super) unsafe extern "C" fn map_mr_sg<D: Driver>(
    ib: *mut bindings::ib_mr,
    list: *mut bindings::scatterlist,
    count: c_int,
    offset: *mut c_uint,
) -> c_int {
    // SAFETY: the core gives a region that `alloc_mr` made and a list that is mapped for
    // this device; the range and the page size in the region are for the driver to read.
    unsafe {
        let mr = FastMrSlot::<D>::get(ib);
        D::begin_pages(&mr);
        let mapped = bindings::ib_sg_to_pages(ib, list, count, offset, Some(set_page::<D>));
        if mapped <= 0 {
            return mapped;
        }
        match D::end_pages(&mr, (*ib).iova, (*ib).length, (*ib).page_size) {
            Ok(()) => mapped,
            Err(e) => e.to_errno(),
        }
    }
}

unsafe extern "C" fn set_page<D: Driver>(ib: *mut bindings::ib_mr, addr: u64) -> c_int {
    // SAFETY: called by the core from within `map_mr_sg`.
    let mr = unsafe { FastMrSlot::<D>::get(ib) };
    super::errno(D::add_page(&mr, addr))
}

/// Frees what `alloc_mr` made.
///
/// # Safety
///
/// `ib` is of `alloc_mr`, and the core gives it back.
pub(super) unsafe fn free_mr<D: Driver>(ib: *mut bindings::ib_mr) {
    // SAFETY: by our contract.
    unsafe {
        if let Some(mr) = FastMrSlot::<D>::of(ib).take() {
            D::free_fast_mr(mr);
        }
        drop(KBox::from_raw(ib.cast::<FastMrSlot<D>>()));
    }
}
