// SPDX-License-Identifier: GPL-2.0

//! User memory that is not pinned: pages are fetched when somebody wants them, and given
//! back when the process or the kernel changes the mapping (on-demand paging).
//!
//! The packet path may not sleep, so an access that finds a page absent has it fetched by a
//! work item and says `EAGAIN`. Page addresses are followed under the lock of [`State`] only.
//! The MMU notifier takes them away under the same lock before the page gets another use;
//! that, and the check for a notifier that ran while pages were fetched, is what makes it
//! safe. Order of locks: `changing`, `state`.
//!
//! A fetch may last for ever, where a file system or another process (`userfaultfd(2)`) has to
//! deliver the page. So nobody waits for one: the work holds a reference.
//!
//! C side: include/linux/hmm.h, include/linux/mmu_notifier.h.

use super::{
    fetchers,
    lock::{
        new_bh_lock,
        BhLock, //
    },
    page_entry::{
        entry,
        FAILED,
        FLAGS,
        WRITABLE, //
    },
    wanted::{
        Wanted,
        WantedList, //
    },
};
use crate::bindings;
use core::{
    mem::offset_of,
    ops::Range,
    sync::atomic::{
        AtomicBool,
        AtomicU64,
        Ordering, //
    },
};
use kernel::{
    error::to_result,
    impl_has_work,
    mm::{
        Mm,
        MmWithUser, //
    },
    new_mutex, new_work,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        Mutex, //
    },
    time::msecs_to_jiffies,
    types::Opaque,
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// Pages that are fetched with one call.
const BATCH: usize = 512;
/// Pages that are fetched ahead of the first access to them.
pub(super) const AHEAD: usize = 2048;
/// Pages that are taken away at once.
const STRIDE: usize = 64;
/// How often, and each time for how long, pages that change meanwhile are fetched again.
const ROUNDS: usize = 8;
const PATIENCE_MS: u32 = 1000;

static NOTIFIER: bindings::mmu_interval_notifier_ops = bindings::mmu_interval_notifier_ops {
    invalidate: Some(Odp::invalidated),
    invalidate_start: None,
    invalidate_finish: None,
};

/// What the lock guards.
struct State {
    /// Kernel address of each page and its flags; without an address it is absent.
    pages: KVVec<usize>,
    wanted: WantedList,
}

impl State {
    fn is_there(&self, page: usize, write: bool) -> bool {
        self.pages.get(page).is_some_and(|&entry| {
            entry & !FLAGS != 0 && (!write || entry & WRITABLE != 0) //
        })
    }
}

/// Memory of a process that is fetched on demand. Dropping it may sleep.
#[pin_data(PinnedDrop)]
pub(crate) struct Odp {
    #[pin]
    work: Work<Odp>,
    notifier: Opaque<bindings::mmu_interval_notifier>,
    /// The notifier is with the memory manager.
    watching: AtomicBool,
    /// Held while pages are taken away, until they are marked dirty.
    #[pin]
    changing: Mutex<()>,
    #[pin]
    state: BhLock<State>,
    mm: ARef<Mm>,
    /// Address of the first page in the process.
    first: usize,
    /// Where the region starts in it.
    offset: usize,
    len: usize,
}

impl_has_work! {
    impl HasWork<Self> for Odp { self.work }
}

// SAFETY: the memory manager locks the notifier itself; the rest is `Send` and `Sync`.
unsafe impl Send for Odp {}
// SAFETY: as above.
unsafe impl Sync for Odp {}

impl Odp {
    /// Watches `len` bytes at `addr` of the current process, and takes the pages that are
    /// there.
    ///
    /// Fails with `EOVERFLOW` for a range that wraps, `EINVAL` for no bytes, `ENOMEM`.
    pub(crate) fn watch(addr: usize, len: usize) -> Result<Arc<Self>> {
        let current = kernel::current!();
        let odp = Self::watch_in(current.mm().ok_or(ESRCH)?, addr, len)?;
        let (pages, _) = odp.pages_of(0, len)?;
        // A page that is not there yet is fetched when it is wanted.
        let _ = odp.fetch(pages, false, false);
        Ok(odp)
    }

    /// The same for the process that `mm` is of, without its pages.
    pub(super) fn watch_in(mm: &MmWithUser, addr: usize, len: usize) -> Result<Arc<Self>> {
        let end = addr.checked_add(len).ok_or(EOVERFLOW)?;
        let end = end.checked_next_multiple_of(PAGE_SIZE).ok_or(EOVERFLOW)?;
        let offset = addr % PAGE_SIZE;
        let first = addr - offset;
        let state = State {
            pages: KVVec::from_elem(
                0,
                (end - first) / PAGE_SIZE,
                GFP_KERNEL_ACCOUNT | kernel::alloc::flags::__GFP_NOWARN,
            )?,
            wanted: WantedList::default(),
        };
        let odp = Arc::pin_init(
            pin_init!(Self {
                work <- new_work!("Odp::work"),
                notifier: Opaque::new(bindings::mmu_interval_notifier::default()),
                watching: AtomicBool::new(false),
                changing <- new_mutex!((), "Odp::changing"),
                state <- new_bh_lock!(state, "Odp::state"),
                mm: ARef::from(&**mm),
                first,
                offset,
                len,
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: the process's memory has users. The notifier does not move, and the drop of
        // the object takes it back first.
        to_result(unsafe {
            let notifier = odp.notifier.get();
            bindings::mmu_interval_notifier_insert(
                notifier,
                mm.as_raw().cast(),
                first,
                end - first,
                &NOTIFIER,
            )
        })?;
        odp.watching.store(true, Ordering::Release);
        Ok(odp)
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
        this: &Arc<Self>,
        start: usize,
        len: usize,
        write: bool,
        mut f: impl FnMut(*mut u8, usize),
    ) -> Result {
        let (pages, mut inside) = this.pages_of(start, len)?;
        let mut state = this.state.lock();
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
            let told = true;
            let news = state.wanted.add(Wanted { pages, write, told });
            drop(state);
            if news {
                fetchers::start(this);
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
    pub(crate) fn read(this: &Arc<Self>, start: usize, out: &mut [u8]) -> Result {
        let mut done = 0;
        Self::pieces(this, start, out.len(), false, |from, len| {
            // SAFETY: the page is there while the lock is held, and the pieces cover `out`
            // exactly once. The process may write meanwhile; these are plain bytes.
            unsafe { core::ptr::copy_nonoverlapping(from, out.as_mut_ptr().add(done), len) };
            done += len;
        })
    }

    /// Copies to byte `start` of the region. Fails as [`Self::pieces`] does.
    pub(crate) fn write(this: &Arc<Self>, start: usize, bytes: &[u8]) -> Result {
        let mut done = 0;
        Self::pieces(this, start, bytes.len(), true, |to, len| {
            // SAFETY: as in `read`; the page is writable.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr().add(done), to, len) };
            done += len;
        })
    }

    /// Calls `f` with the aligned word at byte `start`. Fails as [`Self::pieces`] does, and
    /// with `EINVAL` if it is not aligned.
    pub(crate) fn word<R>(
        this: &Arc<Self>,
        start: usize,
        f: impl FnOnce(&AtomicU64) -> R,
    ) -> Result<R> {
        if (this.offset + start) % 8 != 0 {
            return Err(EINVAL);
        }
        let mut f = Some(f);
        let mut result = None;
        Self::pieces(this, start, 8, true, |at, _| {
            // SAFETY: eight aligned bytes of one page, there while the lock is held.
            let word = unsafe { AtomicU64::from_ptr(at.cast()) };
            result = f.take().map(|f| f(word));
        })?;
        result.ok_or(EFAULT)
    }

    /// Has absent pages of a part of the region fetched, not too many. Any context.
    pub(crate) fn prefetch(this: &Arc<Self>, start: usize, len: usize, write: bool) {
        let Ok((pages, _)) = this.pages_of(start, len) else {
            return;
        };
        let end = pages.end.min(pages.start + AHEAD);
        let mut state = this.state.lock();
        let absent = (pages.start..end).find(|&page| !state.is_there(page, write));
        let news = absent.is_some_and(|from| {
            state.wanted.add(Wanted {
                pages: from..end,
                write,
                told: false,
            })
        });
        drop(state);
        if news {
            fetchers::start(this);
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
        let mm = self.mm.mmget_not_zero().ok_or(EINVAL)?;
        // The last user of memory takes it apart, which is not for us to do here.
        let _mm = MmWithUser::into_mmput_async(mm);
        let mut frames = KVec::from_elem(0usize, pages.len(), GFP_KERNEL)?;
        let flags = match (fault, write) {
            (false, _) => 0,
            (true, false) => bindings::hmm_pfn_flags_HMM_PFN_REQ_FAULT,
            (true, true) => {
                bindings::hmm_pfn_flags_HMM_PFN_REQ_FAULT
                    | bindings::hmm_pfn_flags_HMM_PFN_REQ_WRITE
            }
        };
        let mut range = bindings::hmm_range {
            notifier: self.notifier.get(),
            start: self.first + pages.start * PAGE_SIZE,
            end: self.first + pages.end * PAGE_SIZE,
            hmm_pfns: frames.as_mut_ptr(),
            default_flags: flags,
            ..Default::default()
        };
        for _ in 0..ROUNDS {
            let patience = msecs_to_jiffies(PATIENCE_MS);
            // SAFETY: the memory has users, the notifier is inserted, each page has an entry.
            to_result(unsafe { bindings::hmm_range_fault_unlocked_timeout(&mut range, patience) })?;
            let mut state = self.state.lock();
            // SAFETY: the notifier writes the number under this lock.
            if unsafe { (*self.notifier.get()).invalidate_seq } != range.notifier_seq {
                continue;
            }
            let mut all = true;
            for (page, &frame) in pages.clone().zip(frames.iter()) {
                match (state.pages.get_mut(page), entry(frame)) {
                    (Some(old), Some(new)) => *old = new,
                    _ => all = false,
                }
            }
            return match all || !fault {
                true => Ok(()),
                false => Err(EFAULT),
            };
        }
        Err(EBUSY)
    }

    /// Fetches pages; marks what cannot be had, so that who waits for it is told.
    ///
    /// Fails with `EFAULT` if there are such, whether marked or not.
    pub(super) fn fetch_or_mark(&self, wanted: &Wanted) -> Result {
        let mut result = Ok(());
        let mut from = wanted.pages.start;
        while from < wanted.pages.end {
            let to = wanted.pages.end.min(from + BATCH);
            // What changes all the time is asked for again.
            if matches!(self.fetch_batch(from..to, wanted.write, true), Err(e) if e != EBUSY) {
                result = self.fetch_each(from..to, wanted).and(result);
            }
            from = to;
        }
        result
    }

    /// Fetches page by page: a hole does not keep its neighbours away.
    fn fetch_each(&self, pages: Range<usize>, wanted: &Wanted) -> Result {
        let mut result = Ok(());
        for page in pages {
            let fetched = self.fetch_batch(page..page + 1, wanted.write, true);
            if !matches!(fetched, Err(e) if e != EBUSY) {
                continue;
            }
            result = Err(EFAULT);
            if let Some(entry) = self.state.lock().pages.get_mut(page) {
                *entry |= if wanted.told { FAILED } else { 0 };
            }
        }
        result
    }

    /// Whether no page of `pages` is there.
    pub(super) fn is_empty(&self, pages: Range<usize>) -> bool {
        let state = self.state.lock();
        pages.into_iter().all(|page| !state.is_there(page, false))
    }

    /// The pages between two addresses of the process are about to change: forgets them.
    /// `changing` is held.
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
    /// `notifier` is that of an `Odp` whose drop takes it back first. May sleep if `range` says
    /// so.
    unsafe extern "C" fn invalidated(
        notifier: *mut bindings::mmu_interval_notifier,
        range: *const bindings::mmu_notifier_range,
        seq: usize,
    ) -> bool {
        // SAFETY: by our contract.
        let (odp, start, end, may_sleep) = unsafe {
            let odp = notifier.byte_sub(offset_of!(Odp, notifier)).cast::<Odp>();
            let may_sleep = bindings::mmu_notifier_range_blockable(range);
            (&*odp, (*range).start, (*range).end, may_sleep)
        };
        let changing = match may_sleep {
            true => Some(odp.changing.lock()),
            false => odp.changing.try_lock(),
        };
        if changing.is_none() {
            return false;
        }
        let state = odp.state.lock();
        // SAFETY: the notifier is valid, and this is the lock under which the number is read.
        unsafe { bindings::mmu_interval_set_seq(notifier, seq) };
        drop(state);
        odp.forget(start, end);
        true
    }
}

/// What peers wrote must outlive the region: the pages that are still there are dirty.
#[pinned_drop]
impl PinnedDrop for Odp {
    fn drop(self: Pin<&mut Self>) {
        if !self.watching.load(Ordering::Acquire) {
            return;
        }
        // Under the mutex the notifier does not give the pages away meanwhile.
        let changing = self.changing.lock();
        self.forget(self.first, usize::MAX);
        drop(changing);
        // SAFETY: it was inserted. Returns when no call of it runs any more.
        unsafe { bindings::mmu_interval_notifier_remove(self.notifier.get()) };
    }
}

impl WorkItem for Odp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        loop {
            let next = this.state.lock().wanted.take();
            let Some(wanted) = next else {
                return;
            };
            // Who waits finds the marks.
            let _ = this.fetch_or_mark(&wanted);
        }
    }
}
