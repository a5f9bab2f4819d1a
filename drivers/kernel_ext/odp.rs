// SPDX-License-Identifier: GPL-2.0

//! User memory that is not pinned: pages are fetched when somebody wants them, and given
//! back when the process or the kernel changes the mapping (on-demand paging).
//!
//! The packet path may not sleep, so an access that finds a page absent has it fetched by a
//! work item and says `EAGAIN`. Page addresses are followed under the lock of [`State`] only.
//! The MMU notifier takes them away under the same lock before the page gets another use;
//! that, and the check for a notifier that ran while pages were fetched, is what makes it
//! safe. Order of locks: `fetching`, the core's `umem_mutex`, `state`.
//!
//! C side: include/rdma/ib_umem_odp.h, include/linux/hmm.h, include/linux/mmu_notifier.h.

use super::{
    bh_work::{
        BhWork,
        Defer, //
    },
    ib::device::IbDevice,
    kmem::is_mapped,
    lock::{
        new_bh_lock,
        BhLock, //
    },
};
use crate::bindings;
use core::{
    mem::offset_of,
    ops::Range,
    sync::atomic::AtomicU64, //
};
use kernel::{
    error::from_err_ptr,
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// The page may be written.
const WRITABLE: usize = 1;
/// The last try to fetch it, or to fetch it for writing, failed: the next access is told so.
const FAILED: usize = 2;
const FLAGS: usize = WRITABLE | FAILED;

/// Pages that are fetched with one call.
const BATCH: usize = 512;
/// Pages that are fetched ahead of the first access to them.
const AHEAD: usize = 2048;
/// Pages that are taken away at once.
const STRIDE: usize = 64;
/// Ranges that may wait to be fetched. One too many is asked for again by whoever wants it.
const WAITING: usize = 8;

static NOTIFIER: bindings::mmu_interval_notifier_ops = bindings::mmu_interval_notifier_ops {
    invalidate: Some(Odp::invalidated),
    invalidate_start: None,
    invalidate_finish: None,
};

/// Pages to be fetched.
#[derive(Clone, Default)]
struct Wanted {
    pages: Range<usize>,
    write: bool,
}

/// What the lock guards.
struct State {
    /// Kernel address of each page and its flags; without an address it is absent.
    pages: KVVec<usize>,
    wanted: [Wanted; WAITING],
    /// How many of them wait.
    waiting: usize,
}

impl State {
    fn is_there(&self, page: usize, write: bool) -> bool {
        self.pages.get(page).is_some_and(|&entry| {
            entry & !FLAGS != 0 && (!write || entry & WRITABLE != 0) //
        })
    }

    /// Has pages fetched; says whether that is news.
    fn want(&mut self, pages: Range<usize>, write: bool) -> bool {
        let known = self.wanted.iter().take(self.waiting).any(|wanted| {
            let inside = wanted.pages.start <= pages.start && pages.end <= wanted.pages.end;
            inside && wanted.write >= write
        });
        match self.wanted.get_mut(self.waiting) {
            Some(free) if !known => {
                *free = Wanted { pages, write };
                self.waiting += 1;
                true
            }
            _ => false,
        }
    }

    fn next_wanted(&mut self) -> Option<Wanted> {
        self.waiting = self.waiting.checked_sub(1)?;
        self.wanted.get(self.waiting).cloned()
    }
}

/// The core's object, with its notifier.
struct Umem(*mut bindings::ib_umem_odp);

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: it came from `ib_umem_odp_get` and is released once. Returns when no
        // notifier runs any more.
        unsafe { bindings::ib_umem_odp_release(self.0) };
    }
}

/// Memory of a process that is fetched on demand. Dropping it may sleep.
///
/// The fields are dropped in this order: the work uses all others, the notifier of the umem
/// uses the state.
#[pin_data(PinnedDrop)]
pub(crate) struct Odp {
    #[pin]
    work: BhWork<Odp>,
    umem: Umem,
    /// One at a time fills the core's list of page frames.
    #[pin]
    fetching: Mutex<()>,
    #[pin]
    state: BhLock<State>,
    /// Address of the first page in the process.
    first: usize,
    /// Where the region starts in it.
    offset: usize,
    len: usize,
}

// SAFETY: the core's object locks itself; the rest is `Send` and `Sync`.
unsafe impl Send for Odp {}
// SAFETY: as above.
unsafe impl Sync for Odp {}

impl Odp {
    /// Watches `len` bytes at `addr` of the current process for `access` (`IB_ACCESS_*`, with
    /// that for on-demand paging), and takes the pages that are there.
    ///
    /// Fails as `ib_umem_odp_get` does: `EOVERFLOW` for a range that wraps, `EINVAL` for no
    /// bytes, `ENOMEM`. The result is dropped before the device is.
    pub(crate) fn watch(
        ibdev: IbDevice,
        addr: usize,
        len: usize,
        access: i32,
    ) -> Result<Arc<Self>> {
        // SAFETY: the device is registered, and we run in the context of the process. Until
        // `private` is set below the notifier does nothing but count.
        let raw =
            unsafe { bindings::ib_umem_odp_get(ibdev.as_ptr(), addr, len, access, &NOTIFIER) };
        let umem = Umem(from_err_ptr(raw)?);
        // SAFETY: the object is ours, and these fields never change.
        let (first, last) = unsafe {
            let tree = &(*raw).notifier.interval_tree;
            (tree.start, tree.last)
        };
        let offset = addr - first;
        let count = (last - first) / PAGE_SIZE + 1;
        let state = State {
            pages: KVVec::from_elem(0, count, GFP_KERNEL_ACCOUNT)?,
            wanted: Default::default(),
            waiting: 0,
        };
        let odp = Arc::pin_init(
            pin_init!(Self {
                work <- BhWork::new(),
                umem,
                fetching <- new_mutex!(()),
                state <- new_bh_lock!(state, "Odp::state"),
                first,
                offset,
                len,
            }),
            GFP_KERNEL,
        )?;
        BhWork::bind(&odp, |odp| &odp.work)?;
        // SAFETY: the notifier reads it under this mutex. The object does not move, and its
        // drop waits for the notifier.
        unsafe {
            bindings::mutex_lock(&mut (*raw).umem_mutex);
            (*raw).private = Arc::as_ptr(&odp).cast_mut().cast();
            bindings::mutex_unlock(&mut (*raw).umem_mutex);
        }
        // A page that is not there yet is fetched when it is wanted.
        let _ = odp.fetch(0..count, false, false);
        Ok(odp)
    }

    /// Whether pages may be fetched for writing.
    pub(crate) fn writable(&self) -> bool {
        // SAFETY: the object is alive, and the flag never changes.
        unsafe { (*self.umem.0).umem.writable() != 0 }
    }

    /// The pages of a part of the region, and where it starts in the first. `EFAULT` outside.
    fn pages_of(&self, start: usize, len: usize) -> Result<(Range<usize>, usize)> {
        if start.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(EFAULT);
        }
        let at = self.offset + start;
        Ok((
            at / PAGE_SIZE..(at + len).div_ceil(PAGE_SIZE),
            at % PAGE_SIZE,
        ))
    }

    /// Calls `f` with the kernel address and length of each piece of a part of the region,
    /// one after the other, once all are there. Any context.
    ///
    /// Fails with `EAGAIN` when pages are absent, which are then being fetched; with `EFAULT`
    /// when that was tried and failed, or outside of the region. Then `f` is not called.
    fn pieces(
        &self,
        start: usize,
        len: usize,
        write: bool,
        mut f: impl FnMut(*mut u8, usize),
    ) -> Result {
        let (pages, mut inside) = self.pages_of(start, len)?;
        let mut state = self.state.lock();
        let mut absent = false;
        for page in pages.clone() {
            let there = state.is_there(page, write);
            let entry = state.pages.get_mut(page).ok_or(EFAULT)?;
            let failed = *entry & FAILED != 0;
            *entry &= !FAILED;
            if failed && !there {
                return Err(EFAULT);
            }
            absent |= !there;
        }
        if absent {
            let news = state.want(pages, write);
            drop(state);
            if news {
                self.work.schedule_in_process();
            }
            return Err(EAGAIN);
        }
        let mut left = len;
        for page in pages {
            let address = state.pages.get(page).ok_or(EFAULT)? & !FLAGS;
            let piece = (PAGE_SIZE - inside).min(left);
            f((address + inside) as *mut u8, piece);
            left -= piece;
            inside = 0;
        }
        Ok(())
    }

    /// Copies from byte `start` of the region. Fails as [`Self::pieces`] does.
    pub(crate) fn read(&self, start: usize, out: &mut [u8]) -> Result {
        let mut done = 0;
        self.pieces(start, out.len(), false, |from, len| {
            // SAFETY: the page is there while the lock is held, and the pieces cover `out`
            // exactly once. The process may write meanwhile; these are plain bytes.
            unsafe { core::ptr::copy_nonoverlapping(from, out.as_mut_ptr().add(done), len) };
            done += len;
        })
    }

    /// Copies to byte `start` of the region. Fails as [`Self::pieces`] does.
    pub(crate) fn write(&self, start: usize, bytes: &[u8]) -> Result {
        let mut done = 0;
        self.pieces(start, bytes.len(), true, |to, len| {
            // SAFETY: as in `read`; the page is writable.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr().add(done), to, len) };
            done += len;
        })
    }

    /// Calls `f` with the aligned word at byte `start`. Fails as [`Self::pieces`] does, and
    /// with `EINVAL` if it is not aligned.
    pub(crate) fn word<R>(&self, start: usize, f: impl FnOnce(&AtomicU64) -> R) -> Result<R> {
        if (self.offset + start) % 8 != 0 {
            return Err(EINVAL);
        }
        let mut f = Some(f);
        let mut result = None;
        self.pieces(start, 8, true, |at, _| {
            // SAFETY: eight aligned bytes of one page, there while the lock is held.
            let word = unsafe { AtomicU64::from_ptr(at.cast()) };
            result = f.take().map(|f| f(word));
        })?;
        result.ok_or(EFAULT)
    }

    /// Has absent pages of a part of the region fetched, not too many. Any context.
    pub(crate) fn prefetch(&self, start: usize, len: usize, write: bool) {
        let Ok((pages, _)) = self.pages_of(start, len) else {
            return;
        };
        let end = pages.end.min(pages.start + AHEAD);
        let mut state = self.state.lock();
        let absent = (pages.start..end).find(|&page| !state.is_there(page, write));
        let news = absent.is_some_and(|from| state.want(from..end, write));
        drop(state);
        if news {
            self.work.schedule_in_process();
        }
    }

    /// Fetches a part of the region now, or with `fault` unset what of it needs no fault.
    /// Process context.
    ///
    /// Fails with `EFAULT` for memory that is not there or may not be used so, `EINVAL` when
    /// the process is gone.
    pub(crate) fn fetch_now(&self, start: usize, len: usize, write: bool, fault: bool) -> Result {
        let (pages, _) = self.pages_of(start, len)?;
        self.fetch(pages, write, fault)
    }

    fn fetch(&self, pages: Range<usize>, write: bool, fault: bool) -> Result {
        let mut from = pages.start;
        while from < pages.end {
            let to = pages.end.min(from + BATCH);
            self.fetch_batch(from..to, write, fault)?;
            from = to;
        }
        Ok(())
    }

    fn fetch_batch(&self, pages: Range<usize>, write: bool, fault: bool) -> Result {
        let mask = match write {
            true => bindings::hmm_pfn_flags_HMM_PFN_WRITE,
            false => 0,
        };
        let umem = self.umem.0;
        let at = self.first + pages.start * PAGE_SIZE;
        let _one = self.fetching.lock();
        // SAFETY: the object is alive. On success `umem_mutex` is held and the page frames of
        // the range are as the process has them, until we drop it: the notifier wants it too.
        let done = unsafe {
            bindings::ib_umem_odp_map_dma_and_lock(
                umem,
                at as u64,
                (pages.len() * PAGE_SIZE) as u64,
                mask as u64,
                fault,
            )
        };
        if done < 0 {
            return Err(Error::from_errno(done));
        }
        let mut all = true;
        let mut state = self.state.lock();
        for page in pages {
            // SAFETY: the list has an entry for each page of the region, and nobody else
            // writes to it while we hold `fetching`.
            let pfn = unsafe { *(*umem).map.pfn_list.add(page) };
            match (state.pages.get_mut(page), address(pfn)) {
                (Some(entry), Some(address)) => *entry = address,
                _ => all = false,
            }
        }
        drop(state);
        // SAFETY: the mutex is held, see above.
        unsafe { bindings::mutex_unlock(&mut (*umem).umem_mutex) };
        match all || !fault {
            true => Ok(()),
            false => Err(EFAULT),
        }
    }

    /// The pages between two addresses of the process are about to change: forgets them.
    /// `umem_mutex` is held.
    fn forget(&self, start: usize, end: usize) {
        let count = self.state.lock().pages.len();
        let mut page = start.saturating_sub(self.first) / PAGE_SIZE;
        let last = end.saturating_sub(self.first).div_ceil(PAGE_SIZE);
        while page < last.min(count) {
            let mut taken = [0; STRIDE];
            let mut state = self.state.lock();
            let to = last.min(page + STRIDE);
            for (slot, page) in taken.iter_mut().zip(page..to) {
                if let Some(entry) = state.pages.get_mut(page) {
                    *slot = core::mem::replace(entry, 0);
                }
            }
            drop(state);
            for entry in taken.into_iter().filter(|entry| entry & WRITABLE != 0) {
                // SAFETY: the page is mapped by the process until the notifier returns. It may
                // have been written through its kernel address.
                unsafe {
                    let page = bindings::ferroce_virt_to_page((entry & !FLAGS) as *const c_void);
                    bindings::set_page_dirty(page);
                }
            }
            page = to;
        }
    }

    /// `mmu_interval_notifier_ops::invalidate`: pages of `range` get another use when we
    /// return.
    ///
    /// # Safety
    ///
    /// `notifier` is that of an `ib_umem_odp` whose `private` is null or an `Odp` whose drop
    /// waits for us. May sleep if `range` says so.
    unsafe extern "C" fn invalidated(
        notifier: *mut bindings::mmu_interval_notifier,
        range: *const bindings::mmu_notifier_range,
        seq: usize,
    ) -> bool {
        // SAFETY: by our contract; the mutex guards `private` and the sequence number.
        unsafe {
            if !bindings::mmu_notifier_range_blockable(range) {
                return false;
            }
            let umem = notifier
                .byte_sub(offset_of!(bindings::ib_umem_odp, notifier))
                .cast::<bindings::ib_umem_odp>();
            bindings::mutex_lock(&mut (*umem).umem_mutex);
            bindings::mmu_interval_set_seq(notifier, seq);
            if let Some(odp) = (*umem).private.cast::<Odp>().as_ref() {
                odp.forget((*range).start, (*range).end);
            }
            bindings::mutex_unlock(&mut (*umem).umem_mutex);
        }
        true
    }
}

/// What peers wrote must outlive the region: the pages that are still there are dirty.
#[pinned_drop]
impl PinnedDrop for Odp {
    fn drop(self: Pin<&mut Self>) {
        self.work.cancel();
        let umem = self.umem.0;
        // SAFETY: the object lives until the fields are dropped; the mutex keeps the notifier
        // from giving the pages away meanwhile.
        unsafe {
            bindings::mutex_lock(&mut (*umem).umem_mutex);
            self.forget(self.first, usize::MAX);
            bindings::mutex_unlock(&mut (*umem).umem_mutex);
        }
    }
}

/// Entry for a page frame; `None` if there is no page, or none that we may touch.
fn address(pfn: usize) -> Option<usize> {
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

impl Defer for Odp {
    /// Fetches what is wanted; marks what cannot be had, so that who wants it is told.
    fn deferred(&self) {
        loop {
            let next = self.state.lock().next_wanted();
            let Some(Wanted { pages, write }) = next else {
                return;
            };
            let mut from = pages.start;
            while from < pages.end {
                let to = pages.end.min(from + BATCH);
                if self.fetch_batch(from..to, write, true).is_err() {
                    self.fetch_each(from..to, write);
                }
                from = to;
            }
        }
    }
}

impl Odp {
    /// Fetches page by page: a hole does not keep its neighbours away.
    fn fetch_each(&self, pages: Range<usize>, write: bool) {
        for page in pages {
            if self.fetch_batch(page..page + 1, write, true).is_err() {
                if let Some(entry) = self.state.lock().pages.get_mut(page) {
                    *entry |= FAILED;
                }
            }
        }
    }
}
