// SPDX-License-Identifier: GPL-2.0

//! An open file: the device that it is bound to, and what was made there.
//!
//! Locks: `state` is held over everything that makes, finds or destroys an object; user
//! memory may be touched under it. `rings` is taken by mmap(), which holds the address
//! space's lock, so no user memory is touched under it; it nests inside `state`.

use super::{
    registry,
    table::Table, //
};
use crate::{
    bindings,
    kernel_ext::{
        ring::{
            self,
            Ring, //
        },
        uapi::Argument,
        wait::WaitQueue, //
    },
    verbs::{
        Cq,
        Device,
        Mr,
        Pd,
        Qp, //
    },
};
use kernel::{
    mm::virt::{
        flags,
        VmaNew, //
    },
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        Mutex, //
    },
    xarray::{
        AllocKind,
        XArray, //
    },
};

/// An object that others use by its handle.
pub(super) struct Used<T> {
    pub(super) object: T,
    /// How many others.
    pub(super) users: u32,
}

/// A completion queue, and the tasks that wait for it.
#[derive(Clone)]
pub(super) struct CqEntry {
    pub(super) cq: Arc<Cq>,
    pub(super) waiters: Arc<WaitQueue>,
}

/// A memory region, and its protection domain's handle.
pub(super) struct MrEntry {
    pub(super) mr: Arc<Mr>,
    pub(super) pd: u32,
}

/// A queue pair, and the handles of what it uses.
pub(super) struct QpEntry {
    pub(super) qp: Arc<Qp>,
    pub(super) pd: u32,
    pub(super) cqs: [u32; 2],
}

/// The objects of a context, all on one device.
pub(super) struct Objects {
    pub(super) device: Arc<Device>,
    pub(super) pds: Table<Used<Arc<Pd>>>,
    pub(super) mrs: Table<MrEntry>,
    pub(super) cqs: Table<Used<CqEntry>>,
    pub(super) qps: Table<QpEntry>,
}

impl Objects {
    fn new(device: Arc<Device>) -> Self {
        Self {
            device,
            pds: Table::new(),
            mrs: Table::new(),
            cqs: Table::new(),
            qps: Table::new(),
        }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        for entry in self.qps.drain() {
            entry.qp.destroy();
        }
        for entry in self.mrs.drain() {
            // No window is bound to it: this door has none.
            let _ = entry.mr.deregister();
        }
        for entry in self.cqs.drain() {
            entry.object.close();
        }
    }
}

impl CqEntry {
    /// Ends the queue; whoever waits for it sees that.
    pub(super) fn close(self) {
        self.cq.close();
        self.waiters.wake_all();
    }
}

enum State {
    Unbound,
    Bound(KBox<Objects>),
    /// The device was removed.
    Gone,
}

/// Which of an object's rings.
#[derive(Clone, Copy)]
pub(super) enum RingKind {
    Cq = 0,
    Sq = 1,
    Rq = 2,
}

/// An open file.
#[pin_data]
pub(crate) struct Context {
    #[pin]
    state: Mutex<State>,
    /// By page offset in the file.
    #[pin]
    rings: XArray<Arc<Ring>>,
}

impl Context {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                state <- new_mutex!(State::Unbound),
                rings <- XArray::new(AllocKind::Alloc),
            }),
            GFP_KERNEL,
        )
    }

    /// Lets `work` at the objects. `ENXIO` before BIND, `ENODEV` once the device is gone.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut Objects) -> Result<R>) -> Result<R> {
        match &mut *self.state.lock() {
            State::Unbound => Err(ENXIO),
            State::Bound(objects) => work(objects),
            State::Gone => Err(ENODEV),
        }
    }

    /// The file is closed.
    pub(super) fn close(&self) {
        registry::leave(self);
        self.end(State::Unbound);
    }

    /// The device is being removed: nothing of it may be used after this.
    pub(super) fn device_gone(&self) {
        self.end(State::Gone);
    }

    fn end(&self, state: State) {
        let before = core::mem::replace(&mut *self.state.lock(), state);
        // Outside of the lock, since a waiter may come for it.
        drop(before);
    }

    /// Offers a ring to mmap().
    pub(super) fn offer(
        &self,
        kind: RingKind,
        handle: u32,
        ring: &Arc<Ring>,
    ) -> Result<bindings::ferroce_mmap> {
        let page = ring_page(kind, handle);
        self.rings.lock().store(page, ring.clone(), GFP_KERNEL)?;
        Ok(bindings::ferroce_mmap {
            offset: page as u64 * PAGE_SIZE as u64,
            size: ring.size().try_into()?,
            pad: 0,
        })
    }

    /// Takes the offer back; a mapping that exists lives on.
    pub(super) fn withdraw(&self, kind: RingKind, handle: u32) {
        let ring = self.rings.lock().remove(ring_page(kind, handle));
        drop(ring);
    }

    /// mmap() of a ring.
    pub(super) fn map(&self, vma: &VmaNew) -> Result {
        if vma.flags() & flags::SHARED == 0 {
            return Err(EINVAL);
        }
        let ring: Arc<Ring> = {
            let rings = self.rings.lock();
            rings.get(ring::page_offset(vma)).ok_or(EINVAL)?.into()
        };
        ring.map_new(vma)
    }
}

/// The page of the file where a ring is mapped; each has one of its own.
fn ring_page(kind: RingKind, handle: u32) -> usize {
    (handle as usize) << 2 | kind as usize
}

/// FERROCE_IOC_BIND
pub(super) fn bind(context: ArcBorrow<'_, Context>, arg: Argument) -> Result {
    let arg: bindings::ferroce_bind = arg.read()?;
    if arg.pad != 0 {
        return Err(EINVAL);
    }
    registry::join(context, arg.index, |device| {
        let mut state = context.state.lock();
        if !matches!(*state, State::Unbound) {
            return Err(EBUSY);
        }
        *state = State::Bound(KBox::new(Objects::new(device), GFP_KERNEL)?);
        Ok(())
    })
}
