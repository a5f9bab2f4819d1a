// SPDX-License-Identifier: GPL-2.0

//! The kernel's processes that fetch pages for memory on demand, which may sleep for long: a
//! work queue of our own, so that nobody else's work waits behind them.

use crate::bindings;
use core::{
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{
        HasWork,
        Queue,
        WorkItem, //
    },
};

static QUEUE: AtomicPtr<bindings::workqueue_struct> = AtomicPtr::new(ptr::null_mut());

/// They are there as long as this is, which the module has before the first device and until
/// all devices are gone.
pub(crate) struct Fetchers(());

impl Fetchers {
    /// Fails with `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: a format without arguments, and the default number of works at a time.
        let queue = unsafe {
            bindings::alloc_workqueue_noprof(
                c"ferroce_odp".as_char_ptr(),
                bindings::wq_flags_WQ_UNBOUND,
                0,
            )
        };
        if queue.is_null() {
            return Err(ENOMEM);
        }
        QUEUE.store(queue, Ordering::Release);
        Ok(Self(()))
    }
}

impl Drop for Fetchers {
    /// Waits for what is being fetched.
    fn drop(&mut self) {
        let queue = QUEUE.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: `new` made it, and there is no memory left that would use it.
        unsafe { bindings::destroy_workqueue(queue) };
    }
}

/// Lets `object` do its work soon, once for all calls so far. Any context.
pub(super) fn start<T>(object: &Arc<T>)
where
    T: WorkItem<Pointer = Arc<T>> + HasWork<T> + Send + Sync + 'static,
{
    let queue = QUEUE.load(Ordering::Acquire);
    if queue.is_null() {
        return;
    }
    // SAFETY: memory on demand, which calls this, is gone before the queue is.
    let queue = unsafe { Queue::from_raw(queue.cast_const().cast()) };
    // If it waits already, that is enough.
    let _ = queue.enqueue(object.clone());
}
