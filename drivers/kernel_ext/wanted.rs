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
}

/// Those that wait.
#[derive(Default)]
pub(super) struct WantedList {
    list: [Wanted; WAITING],
    waiting: usize,
}

impl WantedList {
    /// Has pages fetched; says whether that is news.
    pub(super) fn add(&mut self, pages: Range<usize>, write: bool) -> bool {
        let known = self.list.iter().take(self.waiting).any(|wanted| {
            let inside = wanted.pages.start <= pages.start && pages.end <= wanted.pages.end;
            inside && wanted.write >= write
        });
        match self.list.get_mut(self.waiting) {
            Some(free) if !known => {
                *free = Wanted { pages, write };
                self.waiting += 1;
                true
            }
            _ => false,
        }
    }

    /// The next one to be fetched.
    pub(super) fn take(&mut self) -> Option<Wanted> {
        self.waiting = self.waiting.checked_sub(1)?;
        self.list.get(self.waiting).cloned()
    }
}
