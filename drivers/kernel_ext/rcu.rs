// SPDX-License-Identifier: GPL-2.0

//! A table from `u32` to `Arc<T>` that is read under RCU.
//!
//! Readers (softirq, the packet path) take no lock and touch no shared counter.
//! Writers run in process context. A removed entry gives its reference back
//! after a grace period, so a reader may clone the `Arc` it was shown. That may be
//! the last one of something that owns a table, which then goes in a softirq: so the
//! tables' locks keep softirqs off.

use crate::bindings;
use core::{
    ops::Range,
    sync::atomic::AtomicU32, //
};
use kernel::{
    alloc::{
        Flags,
        KBox, //
    },
    error::to_result,
    prelude::*,
    sync::{
        rcu,
        Arc,
        ArcBorrow, //
    },
    types::Opaque,
};

/// One reference held by a table. `head` is first, so that RCU's callback finds the entry.
#[repr(C)]
struct Entry<T> {
    head: Opaque<bindings::callback_head>,
    value: Arc<T>,
}

/// Index to `Arc<T>`; lookups under RCU, changes in process context.
#[pin_data(PinnedDrop)]
pub(crate) struct RcuTable<T: Send + Sync> {
    #[pin]
    xa: Opaque<bindings::xarray>,
    _entries: core::marker::PhantomData<Arc<T>>,
}

// SAFETY: the xarray locks itself, and what it hands out is `Send + Sync`.
unsafe impl<T: Send + Sync> Send for RcuTable<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for RcuTable<T> {}

impl<T: Send + Sync> RcuTable<T> {
    /// An empty table.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `xa_init_flags` initialises the memory that it is given.
            xa <- Opaque::ffi_init(|xa| unsafe {
                bindings::xa_init_flags(xa, bindings::FERROCE_XA_FLAGS)
            }),
            _entries: core::marker::PhantomData,
        })
    }

    fn entry(value: Arc<T>, gfp: Flags) -> Result<*mut Entry<T>> {
        let head = Opaque::new(bindings::callback_head::default());
        Ok(KBox::into_raw(KBox::new(Entry { head, value }, gfp)?))
    }

    fn settle(entry: *mut Entry<T>, err: c_int) -> Result {
        to_result(err).inspect_err(|_| {
            // SAFETY: the table did not take the entry, which came from `KBox::into_raw`.
            drop(unsafe { KBox::from_raw(entry) })
        })
    }

    /// Puts `value` at `index`. Fails with `EBUSY` if something is there, or `ENOMEM`.
    pub(crate) fn insert_at(&self, index: u32, value: Arc<T>) -> Result {
        let entry = Self::entry(value, GFP_KERNEL)?;
        // SAFETY: the xarray is initialised, and `entry` is a valid aligned pointer.
        let err = unsafe {
            bindings::xa_insert_bh(
                self.xa.get(),
                index as usize,
                entry.cast(),
                bindings::FERROCE_GFP_KERNEL,
            )
        };
        Self::settle(entry, err)
    }

    /// Takes a free index of `range`, the next one after `cursor` if there is one; nothing is
    /// found there until [`Self::fill`], and [`Self::remove`] gives it back.
    ///
    /// The index goes round, so that one which was just freed is not used again
    /// at once. Fails with `EBUSY` when the range is full, or `ENOMEM`.
    pub(crate) fn reserve(&self, range: Range<u32>, cursor: &mut u32) -> Result<u32> {
        let limit = bindings::xa_limit {
            min: range.start,
            max: range.end - 1,
        };
        let mut index = 0;
        // SAFETY: the xarray is initialised; `index` and `cursor` are ours. A null entry
        // reserves the index.
        let err = unsafe {
            bindings::xa_alloc_cyclic_bh(
                self.xa.get(),
                &mut index,
                core::ptr::null_mut(),
                limit,
                cursor,
                bindings::FERROCE_GFP_KERNEL,
            )
        };
        to_result(err.min(0))?;
        Ok(index)
    }

    /// Puts `value` at an index that was reserved. Fails with `ENOMEM`.
    pub(crate) fn fill(&self, index: u32, value: Arc<T>) -> Result {
        let entry = Self::entry(value, GFP_KERNEL)?;
        // SAFETY: the xarray is initialised, and `entry` is a valid aligned pointer.
        let err = unsafe {
            bindings::xa_err(bindings::xa_store_bh(
                self.xa.get(),
                index as usize,
                entry.cast(),
                bindings::FERROCE_GFP_KERNEL,
            ))
        };
        Self::settle(entry, err)
    }

    /// Puts what `make` makes of its index at a free index of `range`, the next one after
    /// `cursor` if there is one, without waiting for memory.
    ///
    /// Any context, interrupts off too; such a table is changed by this and
    /// [`Self::remove_atomic`] only. Fails with `EBUSY` when the range is full, `ENOMEM`, or
    /// as `make` does.
    pub(crate) fn insert_atomic(
        &self,
        range: Range<u32>,
        cursor: &AtomicU32,
        make: impl FnOnce(u32) -> Result<Arc<T>>,
    ) -> Result<Arc<T>> {
        let limit = bindings::xa_limit {
            min: range.start,
            max: range.end - 1,
        };
        let mut index = 0;
        // SAFETY: the xarray is initialised; `cursor` is used under the xarray's lock only. A
        // null entry reserves the index.
        let err = unsafe {
            let flags = bindings::ferroce_xa_lock(self.xa.get());
            let err = bindings::__xa_alloc_cyclic(
                self.xa.get(),
                &mut index,
                core::ptr::null_mut(),
                limit,
                cursor.as_ptr(),
                bindings::FERROCE_GFP_ATOMIC_NOWARN,
            );
            bindings::ferroce_xa_unlock(self.xa.get(), flags);
            err
        };
        to_result(err.min(0))?;
        let filled = make(index).and_then(|value| {
            self.fill_atomic(index, value.clone())?;
            Ok(value)
        });
        filled.inspect_err(|_| drop(self.remove_atomic(index)))
    }

    fn fill_atomic(&self, index: u32, value: Arc<T>) -> Result {
        let entry = Self::entry(value, GFP_ATOMIC)?;
        // SAFETY: the xarray is initialised, and `entry` is a valid aligned pointer.
        let err = unsafe {
            let flags = bindings::ferroce_xa_lock(self.xa.get());
            let old = bindings::__xa_store(
                self.xa.get(),
                index as usize,
                entry.cast(),
                bindings::FERROCE_GFP_ATOMIC_NOWARN,
            );
            bindings::ferroce_xa_unlock(self.xa.get(), flags);
            bindings::xa_err(old)
        };
        Self::settle(entry, err)
    }

    /// As [`Self::remove`], in any context: see [`Self::insert_atomic`].
    pub(crate) fn remove_atomic(&self, index: u32) -> Option<Arc<T>> {
        // SAFETY: the xarray is initialised.
        let entry = unsafe {
            let flags = bindings::ferroce_xa_lock(self.xa.get());
            let entry = bindings::__xa_erase(self.xa.get(), index as usize);
            bindings::ferroce_xa_unlock(self.xa.get(), flags);
            entry
        };
        Self::retire(entry.cast())
    }

    /// Puts `value` at `index` in the place of what is there, which goes after a grace
    /// period. Fails with `ENOMEM`.
    pub(crate) fn replace(&self, index: u32, value: Arc<T>) -> Result {
        let entry = Self::entry(value, GFP_KERNEL)?;
        // SAFETY: the xarray is initialised, and `entry` is a valid aligned pointer.
        let (old, err) = unsafe {
            let flags = bindings::FERROCE_GFP_KERNEL;
            let old = bindings::xa_store_bh(self.xa.get(), index as usize, entry.cast(), flags);
            (old, bindings::xa_err(old))
        };
        Self::settle(entry, err)?;
        drop(Self::retire(old.cast()));
        Ok(())
    }

    /// What is at `index`, for as long as the guard is held.
    pub(crate) fn get<'g>(&self, index: u32, _guard: &'g rcu::Guard) -> Option<ArcBorrow<'g, T>> {
        // SAFETY: the xarray is initialised.
        let entry = unsafe { bindings::xa_load(self.xa.get(), index as usize) };
        // SAFETY: entries are freed a grace period after they left the table, so this one
        // lives while the read-side section does.
        let entry = unsafe { entry.cast::<Entry<T>>().as_ref() }?;
        Some(entry.value.as_arc_borrow())
    }

    /// Takes `index` out. The table's own reference goes after a grace period.
    pub(crate) fn remove(&self, index: u32) -> Option<Arc<T>> {
        // SAFETY: the xarray is initialised.
        let entry = unsafe { bindings::xa_erase_bh(self.xa.get(), index as usize) };
        Self::retire(entry.cast())
    }

    /// Lets an entry that was taken out go after a grace period.
    fn retire(entry: *mut Entry<T>) -> Option<Arc<T>> {
        // SAFETY: our caller took the entry out, so nobody else frees it.
        let value = unsafe { entry.as_ref() }?.value.clone();
        // SAFETY: `head` is the first field of an entry that only we may free, and
        // `free_entry` is of this module, whose exit waits with `rcu_barrier`.
        unsafe { bindings::call_rcu(entry.cast(), Some(free_entry::<T>)) };
        Some(value)
    }

    /// Takes `index` out and waits until no reader is left, so that what the table held may
    /// be dropped here, where one may sleep.
    pub(crate) fn remove_sync(&self, index: u32) -> Option<Arc<T>> {
        // SAFETY: the xarray is initialised.
        let entry = unsafe { bindings::xa_erase_bh(self.xa.get(), index as usize) };
        if entry.is_null() {
            return None;
        }
        synchronize_expedited();
        // SAFETY: we took the entry out, and its last reader has left.
        let entry = unsafe { KBox::from_raw(entry.cast::<Entry<T>>()) };
        Some(entry.value.clone())
    }
}

/// RCU's callback for an entry that was removed.
///
/// # Safety
///
/// `head` is the first field of an `Entry<T>` made by `KBox::into_raw`, and no reader is left.
unsafe extern "C" fn free_entry<T>(head: *mut bindings::callback_head) {
    // SAFETY: by our contract.
    drop(unsafe { KBox::from_raw(head.cast::<Entry<T>>()) });
}

#[pinned_drop]
impl<T: Send + Sync> PinnedDrop for RcuTable<T> {
    fn drop(self: Pin<&mut Self>) {
        let mut index = 0;
        loop {
            // SAFETY: the xarray is initialised and nobody else uses it any more.
            let entry = unsafe {
                bindings::xa_find(
                    self.xa.get(),
                    &mut index,
                    usize::MAX,
                    bindings::FERROCE_XA_PRESENT,
                )
            };
            if entry.is_null() {
                break;
            }
            self.remove(index as u32);
        }
        // SAFETY: as above; it is empty now.
        unsafe { bindings::xa_destroy(self.xa.get()) };
    }
}

/// Waits until every reader that runs now has left, quickly at some cost to other CPUs.
pub(crate) fn synchronize_expedited() {
    // SAFETY: may be called wherever one may sleep, which is where tables are changed.
    unsafe { bindings::synchronize_rcu_expedited() };
}

/// Waits for the callbacks of every entry removed so far. For module exit.
pub(crate) fn barrier() {
    // SAFETY: may be called wherever one may sleep.
    unsafe { bindings::rcu_barrier() };
}
