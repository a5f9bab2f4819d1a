// SPDX-License-Identifier: GPL-2.0

//! A ring in memory that user space may map: the queue of the rxe uABI
//! (`struct rxe_queue_buf` of include/uapi/rdma/rdma_user_rxe.h).
//!
//! A header of three 128-byte lines (sizes, producer index, consumer index), then
//! `slots` elements of a power-of-two size. Both indices count in `0..slots`; the
//! ring is empty when they are equal. User space may write anything at any time:
//! every value is read once and masked, and elements are copied.

use crate::bindings;
use core::sync::atomic::{
    AtomicU32,
    Ordering, //
};
use kernel::{
    error::to_result,
    mm::virt::VmaNew,
    prelude::*, //
};

const PRODUCER: usize = 128;
const CONSUMER: usize = 256;
const DATA: usize = 384;

/// Zeroed memory of `vmalloc_user`, laid out as a ring.
pub(crate) struct Ring {
    base: *mut u8,
    elem_shift: u32,
    mask: u32,
    size: usize,
}

// SAFETY: the memory is shared with user space anyway; all access is atomic or copies.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring for at least `entries` elements of at least `elem_size` bytes.
    ///
    /// Fails with `EINVAL` for sizes that overflow, or `ENOMEM`.
    pub(crate) fn new(entries: u32, elem_size: usize) -> Result<Self> {
        let slots = entries
            .checked_add(1)
            .and_then(u32::checked_next_power_of_two)
            .ok_or(EINVAL)?;
        let elem = elem_size
            .max(64)
            .checked_next_power_of_two()
            .ok_or(EINVAL)?;
        let data = elem.checked_mul(slots as usize).ok_or(EINVAL)?;
        let size = kernel::page::page_align(DATA.checked_add(data).ok_or(EINVAL)?).ok_or(EINVAL)?;
        // SAFETY: no requirement; the result is checked.
        let base = unsafe { bindings::vmalloc_user_noprof(size) }.cast::<u8>();
        if base.is_null() {
            return Err(ENOMEM);
        }
        let ring = Self {
            base,
            elem_shift: elem.trailing_zeros(),
            mask: slots - 1,
            size,
        };
        ring.word(0).store(ring.elem_shift, Ordering::Relaxed);
        ring.word(4).store(ring.mask, Ordering::Relaxed);
        Ok(ring)
    }

    /// How many elements fit; one slot stays free.
    pub(crate) fn capacity(&self) -> u32 {
        self.mask
    }

    /// Bytes of one element.
    pub(crate) fn elem_size(&self) -> usize {
        1 << self.elem_shift
    }

    /// Bytes of the whole mapping, a multiple of the page size.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset < DATA);
        // SAFETY: `offset` is one of the header's, aligned and inside the mapping.
        unsafe { AtomicU32::from_ptr(self.base.add(offset).cast()) }
    }

    /// The producer's index, as the other side last wrote it.
    pub(crate) fn producer(&self) -> u32 {
        self.word(PRODUCER).load(Ordering::Acquire) & self.mask
    }

    /// The consumer's index, as the other side last wrote it.
    pub(crate) fn consumer(&self) -> u32 {
        self.word(CONSUMER).load(Ordering::Acquire) & self.mask
    }

    /// Shows the other side that elements up to `index` are written.
    pub(crate) fn set_producer(&self, index: u32) {
        self.word(PRODUCER)
            .store(index & self.mask, Ordering::Release);
    }

    /// Shows the other side that elements up to `index` are free.
    pub(crate) fn set_consumer(&self, index: u32) {
        self.word(CONSUMER)
            .store(index & self.mask, Ordering::Release);
    }

    /// How many elements are in it, as both sides' indices say.
    pub(crate) fn len(&self) -> u32 {
        self.distance(self.consumer(), self.producer())
    }

    /// How many elements there are from `from` to `to`.
    pub(crate) fn distance(&self, from: u32, to: u32) -> u32 {
        to.wrapping_sub(from) & self.mask
    }

    /// Copies `count` elements of `old`, from index `first` on, to the same indices here, each
    /// modulo the slots of its ring. `EINVAL` if they do not fit, or elements differ in size.
    pub(crate) fn copy_from(&self, old: &Self, first: u32, count: u32) -> Result {
        if count > self.capacity() || self.elem_shift != old.elem_shift {
            return Err(EINVAL);
        }
        for i in 0..count {
            let (size, index) = (self.elem_size(), first.wrapping_add(i));
            let from = old.at(index, 0, size).ok_or(EINVAL)?;
            let to = self.at(index, 0, size).ok_or(EINVAL)?;
            // SAFETY: `at` checked both ranges, which are of different mappings. The user may
            // write meanwhile; these are plain bytes.
            unsafe { core::ptr::copy_nonoverlapping(from, to, size) };
        }
        Ok(())
    }

    /// The index after `index`.
    pub(crate) fn next(&self, index: u32) -> u32 {
        index.wrapping_add(1) & self.mask
    }

    fn at(&self, index: u32, offset: usize, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        if end > self.elem_size() {
            return None;
        }
        let start = DATA + (((index & self.mask) as usize) << self.elem_shift) + offset;
        // SAFETY: a masked index and a range inside the element are inside the mapping.
        Some(unsafe { self.base.add(start) })
    }

    /// Copies bytes `offset..` of element `index` out. `EINVAL` past its end.
    pub(crate) fn read(&self, index: u32, offset: usize, out: &mut [u8]) -> Result {
        let from = self.at(index, offset, out.len()).ok_or(EINVAL)?;
        // SAFETY: `at` checked the range; `out` is memory of ours, apart from the ring. The
        // user may write meanwhile, so the bytes may be torn: they are checked after.
        unsafe { core::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies `bytes` to `offset` of element `index`. `EINVAL` past its end.
    pub(crate) fn write(&self, index: u32, offset: usize, bytes: &[u8]) -> Result {
        let to = self.at(index, offset, bytes.len()).ok_or(EINVAL)?;
        // SAFETY: as in `read`.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Maps the ring into `vma`, which may be no longer than the ring.
    ///
    /// The pages are reference counted, so a mapping may outlive the ring.
    ///
    /// # Safety
    ///
    /// `vma` is a VMA that is being mapped, with its lock held.
    pub(crate) unsafe fn map(&self, vma: *mut bindings::vm_area_struct) -> Result {
        // SAFETY: by our contract, and `base` came from `vmalloc_user`.
        to_result(unsafe { bindings::remap_vmalloc_range(vma.cast(), self.base.cast(), 0) })
    }

    /// Maps the ring into a VMA that mmap() is setting up, which may be no longer than the ring.
    pub(crate) fn map_new(&self, vma: &VmaNew) -> Result {
        // SAFETY: a `VmaNew` is what `map` asks for.
        unsafe { self.map(vma.as_ptr().cast()) }
    }
}

/// The page of its file at which mmap() is to start.
pub(crate) fn page_offset(vma: &VmaNew) -> usize {
    // SAFETY: the VMA is being set up by us and nobody else.
    unsafe { (*vma.as_ptr()).vm_pgoff }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `base` came from `vmalloc_user` and is freed once.
        unsafe { bindings::vfree(self.base.cast()) };
    }
}
