// SPDX-License-Identifier: GPL-2.0

//! Callbacks of protection domains, memory regions and windows.

use super::{
    errno,
    fast,
    MrSlot,
    MwSlot,
    PdSlot, //
};
use crate::{
    bindings,
    kernel_ext::{
        ib::{
            device::DeviceSlot,
            Advice,
            Driver,
            MrChange,
            MrRange, //
        },
        kmem::DirectMap, //
    },
};
use kernel::{
    alloc::KBox,
    prelude::*,
    sync::Arc, //
};

pub(super) unsafe extern "C" fn alloc_pd<D: Driver>(
    ib: *mut bindings::ib_pd,
    udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core gives a fresh PD of our size on a registered device.
    errno(unsafe {
        let device = DeviceSlot::<D>::get((*ib).device);
        D::alloc_pd(device, udata.is_null()).map(|pd| PdSlot::<D>::of(ib).fill(pd))
    })
}

pub(super) unsafe extern "C" fn dealloc_pd<D: Driver>(
    ib: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core destroys a PD that it made, once, when nothing uses it.
    drop(unsafe { PdSlot::<D>::of(ib) }.take());
    0
}

/// Makes the core's object for a region, which is ours to allocate.
fn new_mr<D: Driver>(pd: *mut bindings::ib_pd, result: Result<Arc<D::Mr>>) -> *mut bindings::ib_mr {
    let made = result.and_then(|mr| {
        let slot = MrSlot::<D>::empty();
        match slot {
            Ok(slot) => {
                let ib = KBox::into_raw(slot).cast::<bindings::ib_mr>();
                let (lkey, rkey) = D::mr_keys(&mr);
                // SAFETY: the slot is ours until the core has it.
                unsafe {
                    (*ib).device = (*pd).device;
                    (*ib).pd = pd;
                    (*ib).lkey = lkey;
                    (*ib).rkey = rkey;
                    MrSlot::<D>::of(ib).fill(mr);
                }
                Ok(ib)
            }
            Err(e) => {
                // Nobody knows the region yet, so nothing keeps it.
                let _ = D::dereg_mr(mr.as_arc_borrow());
                Err(e)
            }
        }
    });
    made.unwrap_or_else(|e| e.to_ptr())
}

pub(super) unsafe extern "C" fn reg_user_mr<D: Driver>(
    pd: *mut bindings::ib_pd,
    start: u64,
    length: u64,
    iova: u64,
    access: c_int,
    dmah: *mut bindings::ib_dmah,
    _udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    if !dmah.is_null() {
        return EOPNOTSUPP.to_ptr();
    }
    // SAFETY: the core gives a PD of this driver.
    let object = unsafe { PdSlot::<D>::get(pd) };
    let range = MrRange {
        start,
        len: length,
        iova,
    };
    new_mr::<D>(pd, D::reg_user_mr(object, range, access as u32))
}

pub(super) unsafe extern "C" fn reg_user_mr_dmabuf<D: Driver>(
    pd: *mut bindings::ib_pd,
    offset: u64,
    length: u64,
    iova: u64,
    fd: c_int,
    access: c_int,
    dmah: *mut bindings::ib_dmah,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> *mut bindings::ib_mr {
    if !dmah.is_null() {
        return EOPNOTSUPP.to_ptr();
    }
    let range = MrRange {
        start: offset,
        len: length,
        iova,
    };
    // SAFETY: the core gives a PD of this driver.
    let object = unsafe { PdSlot::<D>::get(pd) };
    new_mr::<D>(pd, D::reg_user_mr_dmabuf(object, fd, range, access as u32))
}

pub(super) unsafe extern "C" fn rereg_user_mr<D: Driver>(
    ib: *mut bindings::ib_mr,
    flags: c_int,
    start: u64,
    length: u64,
    iova: u64,
    access: c_int,
    pd: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    let has = |flag: bindings::ib_mr_rereg_flags| flags as u32 & flag != 0;
    let range = MrRange {
        start,
        len: length,
        iova,
    };
    // SAFETY: the core gives a region and a PD of this driver, and keeps both meanwhile.
    let (mr, pd) = unsafe { (MrSlot::<D>::get(ib), PdSlot::<D>::get(pd)) };
    let change = MrChange {
        range: has(bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS).then_some(range),
        pd: has(bindings::ib_mr_rereg_flags_IB_MR_REREG_PD).then_some(pd),
        access: has(bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS).then_some(access as u32),
    };
    match D::rereg_user_mr(mr, &change) {
        Ok(None) => core::ptr::null_mut(),
        Ok(Some(new)) => {
            let (lkey, rkey) = D::mr_keys(&new);
            // SAFETY: the core lets nobody else use its region meanwhile, and takes the keys
            // from it when we are back.
            unsafe {
                (*ib).lkey = lkey;
                (*ib).rkey = rkey;
                let slot = MrSlot::<D>::of(ib);
                drop(slot.take());
                slot.fill(new);
            }
            core::ptr::null_mut()
        }
        Err(e) => e.to_ptr(),
    }
}

pub(super) unsafe extern "C" fn get_dma_mr<D: Driver>(
    pd: *mut bindings::ib_pd,
    access: c_int,
) -> *mut bindings::ib_mr {
    // SAFETY: the core gives a PD of this driver.
    let object = unsafe { PdSlot::<D>::get(pd) };
    new_mr::<D>(pd, D::get_dma_mr(object, DirectMap::new(), access as u32))
}

pub(super) unsafe extern "C" fn dereg_mr<D: Driver>(
    ib: *mut bindings::ib_mr,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core gives back what `alloc_mr` made, of this type.
    unsafe {
        if (*ib).type_ == bindings::ib_mr_type_IB_MR_TYPE_MEM_REG {
            fast::free_mr::<D>(ib);
            return 0;
        }
    }
    // SAFETY: the core gives back what `new_mr` made; it is gone once we succeed.
    errno(unsafe {
        D::dereg_mr(MrSlot::<D>::get(ib)).map(|()| {
            drop(MrSlot::<D>::of(ib).take());
            drop(KBox::from_raw(ib.cast::<MrSlot<D>>()));
        })
    })
}

pub(super) unsafe extern "C" fn advise_mr<D: Driver>(
    pd: *mut bindings::ib_pd,
    advice: bindings::ib_uverbs_advise_mr_advice,
    flags: u32,
    list: *mut bindings::ib_sge,
    count: u32,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    let (write, fault) = match advice {
        bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH => (false, true),
        bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE => {
            (true, true)
        }
        bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => {
            (false, false)
        }
        _ => return EOPNOTSUPP.to_errno(),
    };
    let flush = bindings::ib_uverbs_advise_mr_flag_IB_UVERBS_ADVISE_MR_FLAG_FLUSH;
    let advice = Advice {
        write,
        fault,
        now: flags & flush != 0,
    };
    // SAFETY: the core gives a PD of this driver and a list of that many entries, of its own.
    let (pd, list) = unsafe {
        (
            PdSlot::<D>::get(pd),
            core::slice::from_raw_parts(list, count as usize),
        )
    };
    errno(
        list.iter()
            .try_for_each(|sge| D::advise_mr(pd, advice, sge.lkey, sge.addr, sge.length.into())),
    )
}

pub(super) unsafe extern "C" fn alloc_mw<D: Driver>(
    ib: *mut bindings::ib_mw,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core gives a fresh window of our size, of a PD of this driver.
    errno(unsafe {
        D::alloc_mw(PdSlot::<D>::get((*ib).pd), (*ib).type_).map(|(mw, key)| {
            (*ib).rkey = key;
            MwSlot::<D>::of(ib).fill(mw);
        })
    })
}

pub(super) unsafe extern "C" fn dealloc_mw<D: Driver>(ib: *mut bindings::ib_mw) -> c_int {
    // SAFETY: the core destroys a window that it made, once.
    if let Some(mw) = unsafe { MwSlot::<D>::of(ib) }.take() {
        D::dealloc_mw(mw);
    }
    0
}
