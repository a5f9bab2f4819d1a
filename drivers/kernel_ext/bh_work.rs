// SPDX-License-Identifier: GPL-2.0

//! Work that an object does soon, in softirq, on behalf of a caller that may not do it.
//!
//! Like [`super::timer`] it holds no reference to its owner: the owner holds the work,
//! and dropping it waits for a call that runs.

use crate::bindings;
use core::{
    ptr,
    sync::atomic::{
        AtomicBool,
        AtomicPtr,
        Ordering, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// What the work of a `T` is.
pub(crate) trait Defer: Send + Sync {
    /// Called without a lock held, in softirq.
    fn deferred(&self);
}

/// The work, a field of its owner.
#[pin_data(PinnedDrop)]
#[repr(C)]
pub(crate) struct BhWork<T: Defer> {
    #[pin]
    raw: Opaque<bindings::work_struct>,
    /// The object that contains this work; null until [`Self::bind`].
    owner: AtomicPtr<T>,
    /// It may be queued or running.
    used: AtomicBool,
}

// SAFETY: works lock themselves, and the owner may be reached from any CPU.
unsafe impl<T: Defer> Send for BhWork<T> {}
// SAFETY: as above.
unsafe impl<T: Defer> Sync for BhWork<T> {}

impl<T: Defer> BhWork<T> {
    /// A work that does nothing until it is bound to its owner.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: it initialises the memory that it is given; the lock class is static.
            raw <- Opaque::ffi_init(|raw| unsafe {
                bindings::init_work_with_key(
                    raw,
                    Some(Self::work),
                    false,
                    c"ferroce".as_char_ptr(),
                    kernel::static_lock_class!().as_ptr(),
                )
            }),
            owner: AtomicPtr::new(ptr::null_mut()),
            used: AtomicBool::new(false),
        })
    }

    /// Binds the work that `field` finds inside of `owner` to it.
    ///
    /// Fails with `EINVAL` if the work is not a part of `owner`.
    pub(crate) fn bind(owner: &Arc<T>, field: impl FnOnce(&T) -> &Self) -> Result {
        let work = field(owner);
        let start = Arc::as_ptr(owner) as usize;
        if !(start..start + size_of::<T>()).contains(&ptr::from_ref(work).addr()) {
            return Err(EINVAL);
        }
        // As with a timer: the object does not move, and its drop waits for the work.
        work.owner
            .store(Arc::as_ptr(owner).cast_mut(), Ordering::Release);
        Ok(())
    }

    /// Sees to it that the work is done in softirq after this, once for all calls so far. Any
    /// context.
    pub(crate) fn schedule(&self) {
        self.used.store(true, Ordering::Release);
        // SAFETY: the work is initialised and lives as long as `self`; the queue is the
        // kernel's, is there before modules are and lives for ever.
        unsafe {
            bindings::queue_work_on(
                bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
                bindings::system_bh_wq,
                self.raw.get(),
            )
        };
    }

    /// Stops the work and waits for a call that runs. Nobody schedules it any more.
    pub(crate) fn cancel(&self) {
        if !self.used.swap(false, Ordering::AcqRel) {
            return;
        }
        // SAFETY: as in `schedule`. The work takes no lock that callers of this hold.
        unsafe { bindings::cancel_work_sync(self.raw.get()) };
    }

    /// The C callback.
    ///
    /// # Safety
    ///
    /// `raw` is the first field of a `BhWork<T>` that its owner keeps alive.
    unsafe extern "C" fn work(raw: *mut bindings::work_struct) {
        // SAFETY: by our contract.
        let work = unsafe { &*raw.cast::<Self>() };
        // SAFETY: null, or the owner, by what `bind` checked; its drop waits for us.
        if let Some(owner) = unsafe { work.owner.load(Ordering::Acquire).as_ref() } {
            owner.deferred();
        }
    }
}

#[pinned_drop]
impl<T: Defer> PinnedDrop for BhWork<T> {
    fn drop(self: Pin<&mut Self>) {
        self.cancel();
    }
}
