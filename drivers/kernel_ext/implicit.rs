// SPDX-License-Identifier: GPL-2.0

//! All memory of a process on demand (implicit on-demand paging): as a device does it, by
//! parts that are made when something in them is wanted first and turns out to be there.
//!
//! Parts are looked up by a binary search under a lock. They stay until the whole goes, so
//! that their number is bounded: [`MOST`].

use super::{
    charge::Charged,
    fetchers,
    lock::{
        new_bh_lock,
        BhLock, //
    },
    odp::{
        Odp,
        AHEAD, //
    },
    wanted::{
        Wanted,
        WantedList, //
    },
};
use core::{
    ops::Range,
    sync::atomic::AtomicU64, //
};
use kernel::{
    impl_has_work,
    mm::{
        Mm,
        MmWithUser, //
    },
    new_work,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// Bytes of a part.
const PART: usize = 64 << 20;
const PART_PAGES: usize = PART / PAGE_SIZE;
/// Parts: 256 GiB of memory that is used.
const MOST: usize = 4096;
/// Pages without memory that are remembered until somebody has been told.
const FAILURES: usize = 16;

/// How a part is wanted: to be written, and by somebody who waits.
#[derive(Clone, Copy)]
struct How {
    write: bool,
    told: bool,
}
const READ: How = How {
    write: false,
    told: true,
};
const WRITE: How = How {
    write: true,
    told: true,
};

struct State {
    /// The parts by their number, which is their address divided by [`PART`].
    parts: KVVec<(usize, Arc<Odp>)>,
    wanted: WantedList,
    /// Numbers of pages that could not be fetched, in no part.
    failed: [Option<usize>; FAILURES],
    next_failed: usize,
}

impl State {
    fn find(&self, number: usize) -> Result<&Arc<Odp>, usize> {
        let found = self
            .parts
            .binary_search_by_key(&number, |(number, _)| *number)?;
        self.parts.get(found).map(|(_, part)| part).ok_or(found)
    }

    /// Whether a page of `pages` has failed, which is forgotten then.
    fn take_failure(&mut self, pages: &Range<usize>) -> bool {
        let is = |page: &&mut Option<usize>| page.is_some_and(|page| pages.contains(&page));
        self.failed
            .iter_mut()
            .find(is)
            .and_then(Option::take)
            .is_some()
    }
}

/// All memory of a process. Dropping it may sleep.
#[pin_data]
pub(crate) struct Implicit {
    mm: ARef<Mm>,
    #[pin]
    work: Work<Implicit>,
    #[pin]
    state: BhLock<State>,
}

impl_has_work! {
    impl HasWork<Self> for Implicit { self.work }
}

impl Implicit {
    /// All memory of the current process. Fails with `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let current = kernel::current!();
        let mm: ARef<Mm> = ARef::from(&**current.mm().ok_or(ESRCH)?);
        let state = State {
            parts: KVVec::with_capacity(MOST, GFP_KERNEL_ACCOUNT)?,
            wanted: WantedList::default(),
            failed: [None; FAILURES],
            next_failed: 0,
        };
        Arc::pin_init(
            pin_init!(Self {
                mm,
                work <- new_work!("Implicit::work"),
                state <- new_bh_lock!(state, "Implicit::state"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The part with all of `len` bytes at `at`. Any context.
    ///
    /// Fails with `EAGAIN` if it is being made, and for who is to be `told` with `EFAULT` if
    /// that was tried and failed.
    fn part(this: &Arc<Self>, at: usize, len: usize, how: How) -> Result<Arc<Odp>> {
        let mut state = this.state.lock();
        // The clone is never the last one: the whole is kept during an access.
        if let Ok(part) = state.find(at / PART) {
            return Ok(part.clone());
        }
        let pages = at / PAGE_SIZE..(at + len).div_ceil(PAGE_SIZE);
        let How { write, told } = how;
        if told && state.take_failure(&pages) {
            return Err(EFAULT);
        }
        let news = state.wanted.add(Wanted { pages, write, told });
        drop(state);
        if news {
            fetchers::start(this);
        }
        Err(EAGAIN)
    }

    /// Calls `f` for each part that has some of the `len` bytes at `start`: with the place in
    /// the part, and which of the bytes they are.
    fn each(start: usize, len: usize, mut f: impl FnMut(usize, Range<usize>) -> Result) -> Result {
        start.checked_add(len).ok_or(EFAULT)?;
        let mut done = 0;
        while done < len {
            let at = start + done;
            let piece = (PART - at % PART).min(len - done);
            f(at, done..done + piece)?;
            done += piece;
        }
        Ok(())
    }

    /// Copies from address `start`. Fails as [`Odp::read`] does.
    pub(crate) fn read(this: &Arc<Self>, start: usize, out: &mut [u8]) -> Result {
        Self::each(start, out.len(), |at, bytes| {
            let part = Self::part(this, at, bytes.len(), READ)?;
            Odp::read(&part, at % PART, out.get_mut(bytes).ok_or(EFAULT)?)
        })
    }

    /// Copies to address `start`. Fails as [`Odp::write`] does.
    pub(crate) fn write(this: &Arc<Self>, start: usize, bytes: &[u8]) -> Result {
        Self::each(start, bytes.len(), |at, some| {
            let part = Self::part(this, at, some.len(), WRITE)?;
            Odp::write(&part, at % PART, bytes.get(some).ok_or(EFAULT)?)
        })
    }

    /// Calls `f` with the aligned word at address `start`. Fails as [`Odp::word`] does.
    pub(crate) fn word<R>(
        this: &Arc<Self>,
        start: usize,
        f: impl FnOnce(&AtomicU64) -> R,
    ) -> Result<R> {
        if start % 8 != 0 {
            return Err(EINVAL);
        }
        Odp::word(&Self::part(this, start, 8, WRITE)?, start % PART, f)
    }

    /// As [`Odp::prefetch`].
    pub(crate) fn prefetch(this: &Arc<Self>, start: usize, len: usize, write: bool) {
        let len = len.min(AHEAD * PAGE_SIZE);
        let how = How { write, told: false };
        // What does not come now is fetched when it is wanted.
        let _ = Self::each(start, len, |at, bytes| {
            let part = Self::part(this, at, bytes.len(), how)?;
            Odp::prefetch(&part, at % PART, bytes.len(), write);
            Ok(())
        });
    }

    /// As [`Odp::fetch_now`].
    pub(crate) fn fetch_now(&self, start: usize, len: usize, write: bool, fault: bool) -> Result {
        Self::each(start, len, |at, bytes| {
            if fault {
                let pages = at / PAGE_SIZE..(at + bytes.len()).div_ceil(PAGE_SIZE);
                let told = false;
                self.make(at / PART, &Wanted { pages, write, told })?;
            }
            let part = self.state.lock().find(at / PART).ok().cloned();
            part.map_or(Ok(()), |part| {
                part.fetch_now(at % PART, bytes.len(), write, fault)
            })
        })
    }

    /// Makes a part, if what is wanted of it is there. Process context.
    ///
    /// Fails with `EFAULT` if it is not, `ENOMEM`, and with `EBUSY` if it changes all the time.
    fn make(&self, number: usize, wanted: &Wanted) -> Result {
        if self.state.lock().find(number).is_ok() {
            return Ok(());
        }
        let mm = self.mm.mmget_not_zero().ok_or(EFAULT)?;
        let mm = MmWithUser::into_mmput_async(mm);
        let start = number.checked_mul(PART).ok_or(EFAULT)?;
        let charged = Charged::to(&mm);
        let part = Odp::watch_in(&mm, start, PART)?;
        drop(charged);
        let first = number * PART_PAGES;
        let pages =
            wanted.pages.start.max(first) - first..wanted.pages.end.min(first + PART_PAGES) - first;
        let fetched = part.fetch_or_mark(&Wanted {
            pages: pages.clone(),
            ..*wanted
        });
        if part.is_empty(pages) {
            return fetched.and(Err(EBUSY));
        }
        let mut state = self.state.lock();
        if let Err(place) = state.find(number).map(drop) {
            // This is not the last reference, which must not go with the lock held.
            let entry = (number, part.clone());
            return match state.parts.insert_within_capacity(place, entry) {
                Ok(()) => Ok(()),
                Err(_) => Err(EFAULT),
            };
        }
        Ok(())
    }
}

impl WorkItem for Implicit {
    type Pointer = Arc<Self>;

    /// Makes the parts that are wanted; remembers what cannot be had.
    fn run(this: Arc<Self>) {
        loop {
            let next = this.state.lock().wanted.take();
            let Some(wanted) = next else {
                return;
            };
            let parts = wanted.pages.start / PART_PAGES..wanted.pages.end.div_ceil(PART_PAGES);
            for number in parts {
                let made = this.make(number, &wanted);
                // What changes all the time is asked for again.
                if wanted.told && matches!(made, Err(e) if e != EBUSY) {
                    let mut state = this.state.lock();
                    let at = state.next_failed % FAILURES;
                    state.next_failed = at + 1;
                    if let Some(place) = state.failed.get_mut(at) {
                        *place = Some(wanted.pages.start.max(number * PART_PAGES));
                    }
                }
            }
        }
    }
}
