// SPDX-License-Identifier: GPL-2.0

//! Objects by handle: a small number that is never 0.

use kernel::prelude::*;

/// No context has more objects of a kind.
const MAX_OBJECTS: usize = 1 << 16;

/// Objects of one kind.
pub(super) struct Table<T> {
    /// The object with handle h is at h - 1.
    slots: KVVec<Option<T>>,
    /// Handles without an object; has room for all.
    free: KVVec<u32>,
}

impl<T> Table<T> {
    pub(super) const fn new() -> Self {
        Self {
            slots: KVVec::new(),
            free: KVVec::new(),
        }
    }

    /// Keeps a handle, so that what is made for it will have a place. Give it to
    /// [`Self::fill`] or [`Self::release`].
    pub(super) fn reserve(&mut self) -> Result<u32> {
        if let Some(handle) = self.free.pop() {
            return Ok(handle);
        }
        if self.slots.len() >= MAX_OBJECTS {
            return Err(EMFILE);
        }
        self.free.reserve(self.slots.len() + 1, GFP_KERNEL)?;
        self.slots.push(None, GFP_KERNEL)?;
        Ok(self.slots.len() as u32)
    }

    /// Puts the object in.
    pub(super) fn fill(&mut self, handle: u32, object: T) {
        if let Some(slot) = self.slot(handle) {
            *slot = Some(object);
        }
    }

    /// Gives the handle back.
    pub(super) fn release(&mut self, handle: u32) {
        // There is room, as `reserve` saw to it.
        let _ = self.free.push_within_capacity(handle);
    }

    fn slot(&mut self, handle: u32) -> Option<&mut Option<T>> {
        self.slots.get_mut((handle as usize).checked_sub(1)?)
    }

    /// The object of that handle; `ENOENT` if there is none.
    pub(super) fn get(&mut self, handle: u32) -> Result<&mut T> {
        self.slot(handle).and_then(Option::as_mut).ok_or(ENOENT)
    }

    /// Takes the object out, if `may` lets it go.
    pub(super) fn remove(&mut self, handle: u32, may: impl FnOnce(&T) -> Result) -> Result<T> {
        may(self.get(handle)?)?;
        let object = self.slot(handle).and_then(Option::take).ok_or(ENOENT)?;
        self.release(handle);
        Ok(object)
    }

    /// Takes all objects out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.slots.iter_mut().filter_map(Option::take)
    }
}
