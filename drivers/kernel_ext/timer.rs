// SPDX-License-Identifier: GPL-2.0

//! A one-shot high-resolution timer that fires in softirq and belongs to an object.
//!
//! Unlike the `kernel` crate's it holds no reference to its owner: the owner
//! holds the timer, and dropping it waits for a callback that runs.

use crate::bindings;
use core::sync::atomic::{
    AtomicPtr,
    AtomicU64,
    Ordering, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// What happens when the timer of a `T` fires.
pub(crate) trait Expire: Send + Sync {
    /// Called in softirq, without a lock held.
    fn expire(&self);
}

/// The timer, a field of its owner.
#[pin_data(PinnedDrop)]
#[repr(C)]
pub(crate) struct Timer<T: Expire> {
    #[pin]
    raw: Opaque<bindings::hrtimer>,
    /// The object that contains this timer; null until [`Self::bind`].
    owner: AtomicPtr<T>,
    /// When it will fire, in ns of the monotonic clock; 0: not armed.
    due: AtomicU64,
}

// SAFETY: hrtimers lock themselves, and the owner may be reached from any CPU.
unsafe impl<T: Expire> Send for Timer<T> {}
// SAFETY: as above.
unsafe impl<T: Expire> Sync for Timer<T> {}

impl<T: Expire> Timer<T> {
    /// A timer that does nothing until it is bound to its owner.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `hrtimer_setup` initialises the memory that it is given.
            raw <- Opaque::ffi_init(|raw| unsafe {
                bindings::hrtimer_setup(
                    raw,
                    Some(Self::fired),
                    bindings::CLOCK_MONOTONIC as i32,
                    bindings::hrtimer_mode_HRTIMER_MODE_ABS_SOFT,
                )
            }),
            owner: AtomicPtr::new(core::ptr::null_mut()),
            due: AtomicU64::new(0),
        })
    }

    /// Binds the timer that `field` finds inside of `owner` to it.
    ///
    /// Fails with `EINVAL` if the timer is not a part of `owner`.
    pub(crate) fn bind(owner: &Arc<T>, field: impl FnOnce(&T) -> &Self) -> Result {
        let timer = field(owner);
        let start = Arc::as_ptr(owner) as usize;
        if !(start..start + size_of::<T>()).contains(&core::ptr::from_ref(timer).addr()) {
            return Err(EINVAL);
        }
        // An object in an `Arc` does not move, and dropping it drops the timer, which waits
        // for a callback that runs: so the pointer is good whenever the timer fires.
        timer
            .owner
            .store(Arc::as_ptr(owner).cast_mut(), Ordering::Release);
        Ok(())
    }

    /// Sees to it that the timer fires at `at` (ns, monotonic) or earlier.
    ///
    /// A timer that fires early finds nothing due and is armed again by its owner,
    /// so that moving the deadline later costs nothing here.
    pub(crate) fn arm(&self, at: u64) {
        let due = self.due.load(Ordering::Relaxed);
        if due != 0 && due <= at {
            return;
        }
        self.due.store(at.max(1), Ordering::Relaxed);
        // SAFETY: the timer is initialised and lives as long as `self`.
        unsafe {
            bindings::hrtimer_start_range_ns(
                self.raw.get(),
                at as i64,
                0,
                bindings::hrtimer_mode_HRTIMER_MODE_ABS_SOFT,
            )
        };
    }

    /// Stops the timer and waits for a callback that runs.
    pub(crate) fn cancel(&self) {
        // SAFETY: as in `arm`. The callback takes no lock that callers of this hold.
        unsafe { bindings::hrtimer_cancel(self.raw.get()) };
        self.due.store(0, Ordering::Relaxed);
    }

    /// The C callback.
    ///
    /// # Safety
    ///
    /// `raw` is the first field of a `Timer<T>` that its owner keeps alive.
    unsafe extern "C" fn fired(raw: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
        // SAFETY: by our contract.
        let timer = unsafe { &*raw.cast::<Self>() };
        timer.due.store(0, Ordering::Relaxed);
        // SAFETY: null, or the owner, by what `bind` checked; its drop waits for us.
        if let Some(owner) = unsafe { timer.owner.load(Ordering::Acquire).as_ref() } {
            owner.expire();
        }
        bindings::hrtimer_restart::HRTIMER_NORESTART
    }
}

#[pinned_drop]
impl<T: Expire> PinnedDrop for Timer<T> {
    fn drop(self: Pin<&mut Self>) {
        self.cancel();
    }
}

/// Now, in ns of the monotonic clock.
pub(crate) fn now() -> u64 {
    // SAFETY: may be called in any context.
    unsafe { bindings::ktime_get() as u64 }
}
