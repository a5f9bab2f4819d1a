// SPDX-License-Identifier: GPL-2.0

//! User memory pinned for a memory region, reached page by page.

use super::{
    crc::copy,
    ib::device::IbDevice, //
};
use crate::bindings;
use kernel::{
    error::from_err_ptr,
    page::PAGE_SIZE,
    prelude::*, //
};

/// Pinned pages of a process. Dropping it unpins them, and may sleep.
pub(crate) struct Umem {
    raw: *mut bindings::ib_umem,
    /// Kernel address of each page (64-bit kernels map all memory).
    pages: KVVec<usize>,
    /// Where the region starts in the first page.
    offset: usize,
    len: usize,
}

// SAFETY: the pages are shared memory, and the pin may be released by any task.
unsafe impl Send for Umem {}
// SAFETY: as above; access copies bytes.
unsafe impl Sync for Umem {}

impl Umem {
    /// Pins `len` bytes at `addr` of the current process for `access` (`IB_ACCESS_*`).
    ///
    /// Any offset and length but 0. Fails as `ib_umem_get` does: `EINVAL` for a range that
    /// wraps, `ENOMEM` beyond RLIMIT_MEMLOCK, `EFAULT` for memory that is not there.
    ///
    /// The result is dropped before the device is.
    pub(crate) fn pin(ibdev: IbDevice, addr: usize, len: usize, access: i32) -> Result<Self> {
        // SAFETY: the device is registered (its user got `ibdev` from it), and we run in the
        // context of the process that owns the memory.
        let raw = unsafe { bindings::ib_umem_get_va(ibdev.as_ptr(), addr, len, access) };
        let raw = from_err_ptr(raw)?;
        let mut umem = Self {
            raw,
            pages: KVVec::new(),
            offset: addr & (PAGE_SIZE - 1),
            len,
        };
        umem.collect()?;
        Ok(umem)
    }

    /// Whether the pages were pinned for writing.
    pub(crate) fn writable(&self) -> bool {
        // SAFETY: the umem is alive, and the flag never changes.
        unsafe { (*self.raw).writable() != 0 }
    }

    fn collect(&mut self) -> Result {
        let count = (self.offset + self.len).div_ceil(PAGE_SIZE);
        self.pages.reserve(count, GFP_KERNEL_ACCOUNT)?;
        let mut iter = bindings::sg_page_iter::default();
        // SAFETY: the table belongs to the umem; the iterator is ours and follows its length.
        unsafe {
            let table = &(*self.raw).sgt_append.sgt;
            bindings::__sg_page_iter_start(&mut iter, table.sgl, table.orig_nents, 0);
            while self.pages.len() < count && bindings::__sg_page_iter_next(&mut iter) {
                let page = bindings::sg_page_iter_page(&mut iter);
                self.pages.push(
                    bindings::lowmem_page_address(page) as usize,
                    GFP_KERNEL_ACCOUNT,
                )?;
            }
        }
        if self.pages.len() < count {
            return Err(EFAULT);
        }
        Ok(())
    }

    /// Calls `f` with the kernel address and length of each contiguous piece of a range.
    fn pieces(&self, start: usize, len: usize, mut f: impl FnMut(*mut u8, usize)) -> Result {
        if start.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(EFAULT);
        }
        let mut at = self.offset + start;
        let mut left = len;
        while left > 0 {
            let page = *self.pages.get(at / PAGE_SIZE).ok_or(EFAULT)?;
            let inside = at % PAGE_SIZE;
            let mut piece = PAGE_SIZE - inside;
            let mut next = at / PAGE_SIZE + 1;
            while piece < left && self.pages.get(next) == Some(&(page + inside + piece)) {
                piece += PAGE_SIZE;
                next += 1;
            }
            let piece = piece.min(left);
            f((page + inside) as *mut u8, piece);
            at += piece;
            left -= piece;
        }
        Ok(())
    }

    /// Copies from byte `start` of the region. `EFAULT` outside of it.
    pub(crate) fn read(&self, start: usize, out: &mut [u8]) -> Result {
        let mut done = 0;
        self.pieces(start, out.len(), |from, len| {
            // SAFETY: the pages are pinned, and `pieces` covers `out` exactly once. The process
            // may write meanwhile; these are plain bytes.
            unsafe { copy(out.as_mut_ptr().add(done), from, len) };
            done += len;
        })
    }

    /// Copies to byte `start` of the region. `EFAULT` outside of it.
    pub(crate) fn write(&self, start: usize, bytes: &[u8]) -> Result {
        let mut done = 0;
        self.pieces(start, bytes.len(), |to, len| {
            // SAFETY: as in `read`.
            unsafe { copy(to, bytes.as_ptr().add(done), len) };
            done += len;
        })
    }

    /// The aligned 64-bit word at byte `start`, for an atomic. `EFAULT` outside, `EINVAL` if
    /// it is not aligned.
    pub(crate) fn word(&self, start: usize) -> Result<&core::sync::atomic::AtomicU64> {
        let mut word = core::ptr::null_mut();
        self.pieces(start, 8, |at, len| {
            if len == 8 {
                word = at;
            }
        })?;
        if word.is_null() || word as usize % 8 != 0 {
            return Err(EINVAL);
        }
        // SAFETY: eight aligned bytes of a page that stays pinned as long as `self`.
        Ok(unsafe { core::sync::atomic::AtomicU64::from_ptr(word.cast()) })
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: `raw` came from `ib_umem_get_va` and is released once.
        unsafe { bindings::ib_umem_release(self.raw) };
    }
}
