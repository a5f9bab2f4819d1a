// SPDX-License-Identifier: GPL-2.0

//! Memory for packets, used again and again.
//!
//! Fresh memory is zeroed by most kernels (`init_on_alloc`), which costs as much as the copy
//! that fills it. A buffer here is a block of pages of which the pool holds one reference and
//! a packet another; when the packet is gone the block may be used anew.

use super::percpu::PerCpu;
use crate::bindings;
use core::{
    ptr::{
        self,
        NonNull, //
    },
    sync::atomic::{
        fence,
        AtomicPtr,
        Ordering, //
    },
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// Sizes of blocks, as powers of two of pages: for a packet, and for a run of packets.
const ORDERS: [u32; 2] = [1, 4];
/// Blocks of a size that each CPU keeps.
const SLOTS: usize = 4;

type Slots = [[AtomicPtr<u8>; SLOTS]; ORDERS.len()];

/// Blocks that are kept.
pub(crate) struct SkbPool(PerCpu<Slots>);

/// A reference on a block of pages.
pub(super) struct Block {
    start: NonNull<u8>,
    order: u32,
}

impl Block {
    fn new(order: u32) -> Option<Self> {
        let flags = bindings::FERROCE_GFP_BLOCK;
        // SAFETY: no requirement; the result is the start of pages of the direct map, or 0.
        let start = unsafe { bindings::get_free_pages_noprof(flags, order) };
        let start = NonNull::new(start as *mut u8)?;
        Some(Self { start, order })
    }

    fn page(&self) -> *mut bindings::page {
        // SAFETY: the block is pages of the direct map.
        unsafe { bindings::ferroce_virt_to_page(self.start.as_ptr().cast()) }
    }

    fn share(&self) -> Self {
        // SAFETY: the reference of `self` keeps the pages.
        unsafe { bindings::get_page(self.page()) };
        Self { ..*self }
    }

    /// Whether nobody else has a reference.
    fn is_free(&self) -> bool {
        // SAFETY: as above.
        let free = unsafe { bindings::page_ref_count(self.page()) } == 1;
        // What they read of it, they have read.
        fence(Ordering::Acquire);
        free
    }

    /// Whether it is from the memory that is kept for freeing memory, which goes back there.
    fn is_reserve(&self) -> bool {
        // SAFETY: as above.
        unsafe { bindings::page_is_pfmemalloc(self.page()) }
    }

    /// Its first byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Its bytes.
    pub(super) fn size(&self) -> usize {
        PAGE_SIZE << self.order
    }

    fn from_slot(start: *mut u8, order: u32) -> Option<Self> {
        let start = NonNull::new(start)?;
        Some(Self { start, order })
    }

    /// Gives the reference away.
    pub(super) fn into_raw(self) -> *mut u8 {
        core::mem::ManuallyDrop::new(self).start.as_ptr()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the reference is ours.
        unsafe { bindings::put_page(self.page()) };
    }
}

impl SkbPool {
    /// An empty pool. Fails with `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let empty = || [const { [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS] }; ORDERS.len()];
        Ok(Self(PerCpu::new(empty)?))
    }

    /// A block of at least `size` bytes that nobody else writes to, with whatever was in it.
    /// `None`: too large, or no memory.
    pub(super) fn block(&self, size: usize) -> Option<Block> {
        let fits = |order: &u32| size <= PAGE_SIZE << *order;
        let class = ORDERS.iter().position(fits)?;
        let order = *ORDERS.get(class)?;
        let slots = self.0.here().and_then(|all| all.get(class));
        let slots = slots.map_or(&[][..], |slots| slots);
        for slot in slots {
            // Whoever takes it out has it alone.
            let kept = Block::from_slot(slot.swap(ptr::null_mut(), Ordering::Acquire), order);
            let block = match kept {
                Some(block) if block.is_free() => block,
                Some(block) => {
                    keep(slot, block);
                    continue;
                }
                None => match Block::new(order) {
                    Some(block) if block.is_reserve() => return Some(block),
                    Some(block) => block,
                    None => continue,
                },
            };
            keep(slot, block.share());
            return Some(block);
        }
        Block::new(order)
    }
}

/// Puts a block into a slot, unless somebody else has put one there.
fn keep(slot: &AtomicPtr<u8>, block: Block) {
    let (start, order) = (block.start, block.order);
    let raw = block.into_raw();
    let put = slot.compare_exchange(ptr::null_mut(), raw, Ordering::Release, Ordering::Relaxed);
    if put.is_err() {
        drop(Block { start, order });
    }
}

impl Drop for SkbPool {
    fn drop(&mut self) {
        for slots in self.0.iter() {
            for (class, order) in slots.iter().zip(ORDERS) {
                for slot in class {
                    drop(Block::from_slot(slot.load(Ordering::Relaxed), order));
                }
            }
        }
    }
}
