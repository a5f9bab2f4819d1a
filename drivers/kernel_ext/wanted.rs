// SPDX-License-Identifier: GPL-2.0

//! Pages that somebody wants to be fetched.

use core::ops::Range;

/// Ranges that may wait to be fetched. One too many is asked for again by whoever wants it.
const WAITING: usize = 8;

/// Pages to be fetched.
#[derive(Clone, Default)]
pub(super) struct Wanted {
    pub(super) pages: Range<usize>,
    pub(super) write: bool,
    /// Somebody waits who is to be told if they cannot be had.
    pub(super) told: bool,
}

/// Those that wait.
#[derive(Default)]
pub(super) struct WantedList {
    list: [Wanted; WAITING],
    waiting: usize,
}

impl WantedList {
    /// Has pages fetched; says whether that is news.
    pub(super) fn add(&mut self, new: Wanted) -> bool {
        let known = self.list.iter_mut().take(self.waiting).find(|wanted| {
            let inside = wanted.pages.start <= new.pages.start && new.pages.end <= wanted.pages.end;
            inside && wanted.write >= new.write
        });
        if let Some(known) = known {
            known.told |= new.told;
            return false;
        }
        let Some(free) = self.list.get_mut(self.waiting) else {
            return false;
        };
        *free = new;
        self.waiting += 1;
        true
    }

    /// The next one to be fetched.
    pub(super) fn take(&mut self) -> Option<Wanted> {
        self.waiting = self.waiting.checked_sub(1)?;
        self.list.get(self.waiting).cloned()
    }
}
