// SPDX-License-Identifier: GPL-2.0

//! Spinlocks of the packet path: one that keeps softirqs off this CPU, for state that
//! packets (softirq) share with system calls (process context), and one that keeps
//! interrupts off, for what kernel users may call with interrupts disabled.

use crate::bindings;
use kernel::{
    prelude::*,
    sync::lock::{
        Backend,
        Lock, //
    }, //
};

/// `spin_lock_bh` as a lock backend of the `kernel` crate.
pub(crate) struct BhBackend;

/// Data behind a `spin_lock_bh` lock. Make one with [`new_bh_lock!`].
pub(crate) type BhLock<T> = Lock<T, BhBackend>;

// SAFETY: the C spinlock gives exclusion; every method is called as `Backend` requires.
unsafe impl Backend for BhBackend {
    type State = kernel::bindings::spinlock_t;
    type GuardState = ();

    unsafe fn init(
        ptr: *mut Self::State,
        name: *const c_char,
        key: *mut kernel::bindings::lock_class_key,
    ) {
        // SAFETY: the caller gives memory for a lock and a key that lives for ever.
        unsafe { kernel::bindings::__spin_lock_init(ptr, name, key) }
    }

    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: the caller says that the lock is initialised.
        unsafe { bindings::spin_lock_bh(ptr.cast()) }
    }

    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: as in `lock`.
        (unsafe { bindings::spin_trylock_bh(ptr.cast()) } != 0).then_some(())
    }

    unsafe fn unlock(ptr: *mut Self::State, _guard_state: &Self::GuardState) {
        // SAFETY: the caller holds the lock.
        unsafe { bindings::spin_unlock_bh(ptr.cast()) }
    }

    unsafe fn assert_is_held(_ptr: *mut Self::State) {}
}

/// A [`BhLock`] with a lock class of its own.
macro_rules! new_bh_lock {
    ($value:expr, $name:literal) => {
        kernel::sync::lock::Lock::<_, $crate::kernel_ext::lock::BhBackend>::new(
            $value,
            kernel::c_str!($name),
            kernel::sync::static_lock_class!(),
        )
    };
}
pub(crate) use new_bh_lock;

/// `spin_lock_irqsave` as a lock backend of the `kernel` crate.
pub(crate) struct IrqBackend;

/// Data behind a `spin_lock_irqsave` lock. Make one with [`new_irq_lock!`].
pub(crate) type IrqLock<T> = Lock<T, IrqBackend>;

// SAFETY: the C spinlock gives exclusion; every method is called as `Backend` requires, and
// the guard brings the flags back that its lock saved.
unsafe impl Backend for IrqBackend {
    type State = kernel::bindings::spinlock_t;
    type GuardState = usize;

    unsafe fn init(
        ptr: *mut Self::State,
        name: *const c_char,
        key: *mut kernel::bindings::lock_class_key,
    ) {
        // SAFETY: the caller gives memory for a lock and a key that lives for ever.
        unsafe { kernel::bindings::__spin_lock_init(ptr, name, key) }
    }

    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: the caller says that the lock is initialised.
        unsafe { bindings::ferroce_spin_lock_irqsave(ptr.cast()) }
    }

    unsafe fn try_lock(_ptr: *mut Self::State) -> Option<Self::GuardState> {
        None
    }

    unsafe fn unlock(ptr: *mut Self::State, flags: &Self::GuardState) {
        // SAFETY: the caller holds the lock, and the flags are those that taking it saved.
        unsafe { bindings::spin_unlock_irqrestore(ptr.cast(), *flags) }
    }

    unsafe fn assert_is_held(_ptr: *mut Self::State) {}
}

/// An [`IrqLock`] with a lock class of its own.
macro_rules! new_irq_lock {
    ($value:expr, $name:literal) => {
        kernel::sync::lock::Lock::<_, $crate::kernel_ext::lock::IrqBackend>::new(
            $value,
            kernel::c_str!($name),
            kernel::sync::static_lock_class!(),
        )
    };
}
pub(crate) use new_irq_lock;

/// Whether interrupts are off on this CPU, where sending and most locks are not allowed.
pub(crate) fn interrupts_are_off() -> bool {
    // SAFETY: reads the CPU's flags.
    unsafe { bindings::ferroce_irqs_disabled() }
}
