// SPDX-License-Identifier: GPL-2.0

//! The driver's part of an object that the RDMA core allocates.

use super::mmap::Mapping;
use core::sync::atomic::{
    AtomicPtr,
    Ordering, //
};
use kernel::{
    alloc::KBox,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};

/// A core object `I` (at offset 0, as the core wants it) and what the driver keeps with it.
///
/// The core allocates it zeroed, which is the empty state.
#[repr(C)]
pub(super) struct Slot<I, T> {
    ib: I,
    object: *const T,
    /// Rings that a process may map. Exchanged whole, since two calls may change an object's
    /// size at once.
    mappings: [AtomicPtr<Mapping>; 2],
}

impl<I, T> Slot<I, T> {
    /// An empty slot, for an object that the driver allocates itself. Fails with `ENOMEM`.
    pub(super) fn empty() -> Result<KBox<Self>> {
        let mut slot = KBox::new_uninit(GFP_KERNEL)?;
        // SAFETY: the memory is ours; zeroes are a C object that is not in use yet and null
        // pointers.
        unsafe {
            core::ptr::write_bytes(slot.as_mut_ptr(), 0, 1);
            Ok(slot.assume_init())
        }
    }

    /// The slot around a core object.
    ///
    /// # Safety
    ///
    /// `ib` is the object of a `Slot<I, T>` that lives for `'a`, and nobody else changes
    /// the slot meanwhile (the core serialises creation and destruction).
    pub(super) unsafe fn of<'a>(ib: *mut I) -> &'a mut Self {
        // SAFETY: by our contract.
        unsafe { &mut *ib.cast::<Self>() }
    }

    /// The driver's object of a core object.
    ///
    /// # Safety
    ///
    /// `ib` is the object of a `Slot<I, T>` that was filled and is not destroyed during `'a`.
    pub(super) unsafe fn get<'a>(ib: *const I) -> ArcBorrow<'a, T> {
        // SAFETY: by our contract `object` came from `Arc::into_raw` and is still owned here.
        unsafe { ArcBorrow::from_raw((*ib.cast::<Self>()).object) }
    }

    /// The driver's object of a core object, if there is one.
    ///
    /// # Safety
    ///
    /// `ib` is null or as [`Self::get`] wants it.
    pub(super) unsafe fn maybe<'a>(ib: *const I) -> Option<ArcBorrow<'a, T>> {
        // SAFETY: by our contract.
        (!ib.is_null()).then(|| unsafe { Self::get(ib) })
    }

    /// Puts the driver's object in.
    pub(super) fn fill(&mut self, object: Arc<T>) {
        self.object = Arc::into_raw(object);
    }

    /// Puts `mapping` at `index` and takes back what was offered there. A mapping that a
    /// process has made stays.
    pub(super) fn show(&self, index: usize, mapping: *mut Mapping) {
        if let Some(place) = self.mappings.get(index) {
            Mapping::remove(place.swap(mapping, Ordering::AcqRel));
        }
    }

    /// The slot of a live object, which other calls may use at the same time.
    ///
    /// # Safety
    ///
    /// As for [`Self::get`].
    pub(super) unsafe fn shared<'a>(ib: *const I) -> &'a Self {
        // SAFETY: by our contract; what changes in a live object's slot is atomic.
        unsafe { &*ib.cast::<Self>() }
    }

    /// Takes the driver's object and its mappings out.
    pub(super) fn take(&mut self) -> Option<Arc<T>> {
        for index in 0..self.mappings.len() {
            self.show(index, core::ptr::null_mut());
        }
        let object = core::mem::replace(&mut self.object, core::ptr::null());
        // SAFETY: a pointer that is there came from `Arc::into_raw`, and is taken once.
        (!object.is_null()).then(|| unsafe { Arc::from_raw(object) })
    }
}
