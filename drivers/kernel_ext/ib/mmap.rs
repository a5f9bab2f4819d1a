// SPDX-License-Identifier: GPL-2.0

//! Rings that user space maps through the verbs file, by the core's mmap table.

#![allow(
    clippy::missing_safety_doc,
    reason = "callbacks: the RDMA core is their only caller, and its contract is in ib_verbs.h"
)]

use super::super::ring::Ring;
use crate::bindings;
use kernel::{
    alloc::KBox,
    error::to_result,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

/// An entry of the core's table, which owns it until `mmap_free`.
#[repr(C)]
pub(super) struct Mapping {
    entry: bindings::rdma_user_mmap_entry,
    ring: Arc<Ring>,
}

impl Mapping {
    /// Offers `ring` to the process behind `udata`; returns the entry and what user space
    /// needs to map it.
    ///
    /// # Safety
    ///
    /// `udata` is of a running uverbs call.
    pub(super) unsafe fn offer(
        udata: *mut bindings::ib_udata,
        ring: &Arc<Ring>,
    ) -> Result<(*mut Self, bindings::mminfo)> {
        let mapping = KBox::new(
            Self {
                entry: bindings::rdma_user_mmap_entry::default(),
                ring: ring.clone(),
            },
            GFP_KERNEL,
        )?;
        let size = ring.size();
        let mapping = KBox::into_raw(mapping);
        // SAFETY: by our contract; the entry is ours until the core has taken it.
        let inserted = to_result(unsafe {
            let context = bindings::ferroce_udata_context(udata);
            bindings::rdma_user_mmap_entry_insert(context, &mut (*mapping).entry, size)
        });
        if let Err(e) = inserted {
            // SAFETY: the core did not take it.
            drop(unsafe { KBox::from_raw(mapping) });
            return Err(e);
        }
        // SAFETY: the entry lives until `remove`.
        let offset = unsafe { (*mapping).entry.start_pgoff } as u64 * PAGE_SIZE as u64;
        Ok((
            mapping,
            bindings::mminfo {
                offset,
                size: size as u32,
                pad: 0,
            },
        ))
    }

    /// Takes the offer back; a mapping that exists keeps its pages. Null is nothing.
    pub(super) fn remove(mapping: *mut Self) {
        // SAFETY: null or an entry that the core holds; it calls `free` at the last reference.
        unsafe { bindings::rdma_user_mmap_entry_remove(mapping.cast()) };
    }

    /// `ib_device_ops::mmap`.
    pub(super) unsafe extern "C" fn mmap(
        context: *mut bindings::ib_ucontext,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        // SAFETY: called by the core with a context and the VMA being mapped; an entry that
        // is found is ours and referenced until `put`.
        unsafe {
            let entry = bindings::rdma_user_mmap_entry_get(context, vma);
            if entry.is_null() {
                return EINVAL.to_errno();
            }
            let result = (*entry.cast::<Self>()).ring.map(vma);
            bindings::rdma_user_mmap_entry_put(entry);
            result.map_or_else(|e| e.to_errno(), |()| 0)
        }
    }

    /// `ib_device_ops::mmap_free`.
    pub(super) unsafe extern "C" fn free(entry: *mut bindings::rdma_user_mmap_entry) {
        // SAFETY: the core gives back what `offer` made, once.
        drop(unsafe { KBox::from_raw(entry.cast::<Self>()) });
    }
}
