// SPDX-License-Identifier: GPL-2.0

//! The one object that callbacks without a context reach: set when the module
//! starts, cleared when it stops.

use core::{
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering, //
    },
};
use kernel::sync::{
    rcu,
    Arc, //
};

/// A static that holds an [`Arc`] or nothing.
pub(crate) struct Global<T: Send + Sync>(AtomicPtr<T>);

impl<T: Send + Sync> Global<T> {
    /// Nothing yet.
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The object, if it is there.
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        let _rcu = rcu::read_lock();
        let object = self.0.load(Ordering::Acquire);
        if object.is_null() {
            return None;
        }
        // SAFETY: the pointer came from `Arc::into_raw`, and `swap` drops that reference a
        // grace period after the pointer is gone. The clone is what we give away.
        let shared = unsafe { core::mem::ManuallyDrop::new(Arc::from_raw(object)) };
        Some(Arc::clone(&shared))
    }

    /// Puts an object (or nothing) in and returns what was there. May sleep.
    pub(crate) fn swap(&self, object: Option<Arc<T>>) -> Option<Arc<T>> {
        let new = object.map_or(ptr::null_mut(), |object| Arc::into_raw(object).cast_mut());
        let old = self.0.swap(new, Ordering::AcqRel);
        if old.is_null() {
            return None;
        }
        super::rcu::synchronize_expedited();
        // SAFETY: the pointer came from `Arc::into_raw` in an earlier `swap`, and no reader
        // that saw it is left in its read-side section.
        Some(unsafe { Arc::from_raw(old) })
    }
}
