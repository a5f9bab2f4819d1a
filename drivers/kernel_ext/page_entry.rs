// SPDX-License-Identifier: GPL-2.0

//! What is known of a page that is fetched on demand: its kernel address and flags, in one
//! word.

use super::kmem::is_mapped;
use crate::bindings;

/// The page may be written.
pub(super) const WRITABLE: usize = 1;
/// The last try to fetch it, or to fetch it for writing, failed: the next access is told so.
pub(super) const FAILED: usize = 2;
pub(super) const FLAGS: usize = WRITABLE | FAILED;

/// Entry for a page frame; `None` if there is no page, or none that we may touch.
pub(super) fn entry(pfn: usize) -> Option<usize> {
    let has = |flag: bindings::hmm_pfn_flags| pfn & flag != 0;
    if !has(bindings::hmm_pfn_flags_HMM_PFN_VALID) || has(bindings::hmm_pfn_flags_HMM_PFN_ERROR) {
        return None;
    }
    // SAFETY: arithmetic on a valid page frame (64-bit kernels map all memory).
    let address = unsafe { bindings::lowmem_page_address(bindings::hmm_pfn_to_page(pfn)) };
    if !is_mapped(address) {
        return None;
    }
    let writable = has(bindings::hmm_pfn_flags_HMM_PFN_WRITE);
    Some(address as usize | if writable { WRITABLE } else { 0 })
}
