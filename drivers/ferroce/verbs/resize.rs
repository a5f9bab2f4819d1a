// SPDX-License-Identifier: GPL-2.0

//! Copies what is in a queue into another ring while the queue goes on.
//!
//! A ring may have 64 MiB, which nobody copies with interrupts off. So nearly all is copied
//! without the queue's lock, what has come meanwhile in the next round, and the last few with
//! the lock held.
//!
//! A queue numbers its elements from its beginning, modulo 2^32. The number modulo the slots
//! of a ring is the place in that ring, so that numbers outlive a change of the ring.

use crate::kernel_ext::{
    lock::{
        IrqBackend,
        IrqLock, //
    },
    ring::Ring, //
};
use kernel::{
    prelude::*,
    sync::{
        lock::Guard,
        Arc, //
    }, //
};

/// Elements that may be copied with the lock held.
const FEW: u32 = 64;
/// Rounds until a queue that is filled faster than it is copied is given up.
const ROUNDS: usize = 16;

/// What is in a queue.
pub(super) struct Content {
    pub(super) ring: Arc<Ring>,
    /// Number of the oldest element.
    pub(super) first: u32,
    /// Elements.
    pub(super) count: u32,
}

impl Content {
    fn end(&self) -> u32 {
        self.first.wrapping_add(self.count)
    }

    /// Number of the first element that a copy which got as far as `done` lacks.
    fn missing_from(&self, done: Option<&Self>) -> u32 {
        let copied = done.map_or(0, |done| done.end().wrapping_sub(self.first));
        match copied <= self.count {
            true => self.first.wrapping_add(copied),
            false => self.first,
        }
    }
}

/// Copies what is in `queue`, as `content` finds it, into `new`, and shows it there. Returns
/// with the lock held, for the caller to take the ring. Process context.
///
/// Fails with `EINVAL` if `new` has no room for it or elements of another size, and with
/// `EBUSY` if the queue's user gives it no peace.
pub(super) fn copy<'a, T>(
    queue: &'a IrqLock<T>,
    new: &Ring,
    content: impl Fn(&T) -> Content,
) -> Result<Guard<'a, T, IrqBackend>> {
    let mut done: Option<Content> = None;
    for _ in 0..ROUNDS {
        let state = queue.lock();
        let now = content(&state);
        if now.count > new.capacity() {
            return Err(EINVAL);
        }
        if done
            .as_ref()
            .is_some_and(|done| !Arc::ptr_eq(&done.ring, &now.ring))
        {
            // Another call was faster. This may be the last who knows the old ring, which
            // cannot be freed with interrupts off.
            drop(state);
            done = None;
            continue;
        }
        let from = now.missing_from(done.as_ref());
        let missing = now.end().wrapping_sub(from);
        if missing <= FEW {
            new.copy_from(&now.ring, from, missing)?;
            new.set_consumer(now.first);
            new.set_producer(now.end());
            return Ok(state);
        }
        drop(state);
        new.copy_from(&now.ring, from, missing)?;
        done = Some(now);
    }
    Err(EBUSY)
}
