// SPDX-License-Identifier: GPL-2.0

//! Memory windows: a peer's right to a part of a region, given and taken by work requests
//! (IBTA 10.6.7).
//!
//! A window's key has an index above those of regions. Type 1 belongs to a protection
//! domain and is bound again and again; type 2B belongs to the QP that bound it, until it is
//! invalidated. While a window is bound its region cannot be deregistered, so a binding
//! names the region by its key and holds nothing.
//!
//! Bound and used under a QP's lock, in any context. A window's own lock is held while its
//! memory is accessed: when a window has been taken away, nobody is in it any more.

use super::{
    backing::Backing,
    device::limits,
    mr,
    Device,
    Mr,
    Pd, //
};
use crate::{
    bindings,
    engine::MemError,
    kernel_ext::lock::{
        new_bh_lock,
        BhLock, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc,
        ArcBorrow, //
    },
};

/// Flags that a window may have. The one for local writing means nothing here.
const SUPPORTED: u32 = mr::LOCAL_WRITE
    | mr::REMOTE_WRITE
    | mr::REMOTE_READ
    | mr::REMOTE_ATOMIC
    | mr::FLUSH_GLOBAL
    | mr::ZERO_BASED
    | bindings::ib_access_flags_IB_ACCESS_OPTIONAL;

/// Who accesses memory: the QP and its protection domain.
#[derive(Clone, Copy)]
pub(super) struct Actor {
    pub(super) pd: u32,
    /// [`super::Qp::serial`]: its number may be another one's later.
    pub(super) qp: u64,
}

/// A request to bind a window, as of a work request.
pub(super) struct Bind {
    /// Key that the window has had.
    pub(super) window: u32,
    /// Key that it gets; only the variant byte counts.
    pub(super) key: u32,
    /// Key of the region.
    pub(super) mr: u32,
    /// Address in the region.
    pub(super) va: u64,
    /// Bytes; 0 unbinds.
    pub(super) len: u64,
    /// `IB_ACCESS_*`.
    pub(super) access: u32,
}

/// What a window shows.
struct Binding {
    mr: u32,
    /// Address in the region.
    va: u64,
    /// The same address for peers: 0 for a zero-based window.
    base: u64,
    len: u64,
    access: u32,
    /// Who bound it, as in [`Actor`].
    qp: u64,
}

struct State {
    key: u32,
    bound: Option<Binding>,
}

/// A memory window.
#[pin_data]
pub(crate) struct Mw {
    dev: Arc<Device>,
    pd: u32,
    index: u32,
    /// Type 2B, else 1.
    of_qp: bool,
    #[pin]
    state: BhLock<State>,
}

impl Mw {
    /// A new window that shows nothing; `of_qp`: of type 2B. Fails with `EBUSY` when there are
    /// too many, or `ENOMEM`.
    pub(crate) fn alloc(pd: &Pd, of_qp: bool) -> Result<Arc<Self>> {
        let dev = &pd.dev;
        let mut next = dev.next.lock();
        next.variant = next.variant.wrapping_add(1);
        let variant = u32::from(next.variant);
        let index = dev.mws.reserve(limits::MW, &mut next.mw)?;
        drop(next);
        let state = State {
            key: index << 8 | variant,
            bound: None,
        };
        let made = Arc::pin_init(
            pin_init!(Self {
                dev: dev.clone(),
                pd: pd.id,
                index,
                of_qp,
                state <- new_bh_lock!(state, "Mw::state"),
            }),
            GFP_KERNEL,
        );
        let filled = made.and_then(|mw| dev.mws.fill(index, mw.clone()).map(|()| mw));
        filled.inspect_err(|_| drop(dev.mws.remove(index)))
    }

    /// Its key now.
    pub(crate) fn key(&self) -> u32 {
        self.state.lock().key
    }

    /// Takes the window away. Nobody is in it after this.
    pub(crate) fn dealloc(&self) {
        drop(self.dev.mws.remove_sync(self.index));
        let rcu = rcu::read_lock();
        let bound = self.state.lock().bound.take();
        release(&self.dev, bound, &rcu);
    }

    /// Binds it, or unbinds one of type 1 (IBTA 11.3.5). `None`: the request is not allowed.
    pub(super) fn bind(&self, who: Actor, bind: &Bind, rcu: &rcu::Guard) -> Option<()> {
        let mut state = self.state.lock();
        let zero_based = bind.access & mr::ZERO_BASED != 0;
        let allowed = match self.of_qp {
            true => state.bound.is_none() && bind.len > 0,
            false => !zero_based,
        };
        let mine = self.pd == who.pd && state.key == bind.window;
        if !allowed || !mine || bind.access & !SUPPORTED != 0 {
            return None;
        }
        let bound = match bind.len {
            0 => None,
            _ => {
                let region = region(&self.dev, bind.mr, rcu)?;
                region.hold_for_window(who.pd, bind.va, bind.len, bind.access)?;
                Some(Binding {
                    mr: bind.mr,
                    va: bind.va,
                    base: if zero_based { 0 } else { bind.va },
                    len: bind.len,
                    access: bind.access,
                    qp: who.qp,
                })
            }
        };
        state.key = self.index << 8 | bind.key & 0xff;
        release(&self.dev, core::mem::replace(&mut state.bound, bound), rcu);
        Some(())
    }

    /// Unbinds a window of type 2B that `who` has bound (IBTA 11.3.6). `None`: it is not.
    pub(super) fn invalidate(&self, who: Actor, key: u32, rcu: &rcu::Guard) -> Option<()> {
        let mut state = self.state.lock();
        let bound = state.bound.as_ref()?;
        let mine = self.of_qp && self.pd == who.pd && bound.qp == who.qp;
        if !mine || state.key != key {
            return None;
        }
        release(&self.dev, state.bound.take(), rcu);
        Some(())
    }

    /// The addresses that it shows: first one, and bytes.
    pub(super) fn extent(&self) -> Option<(u64, u64)> {
        let state = self.state.lock();
        state.bound.as_ref().map(|bound| (bound.base, bound.len))
    }

    /// Calls `f` with the memory at `va..va + len` if `who` has all rights of `needed` there.
    pub(super) fn with<R>(
        &self,
        who: Actor,
        key: u32,
        (va, len): (u64, u64),
        needed: u32,
        rcu: &rcu::Guard,
        f: impl FnOnce(&Backing, usize) -> Result<R, MemError>,
    ) -> Result<R, MemError> {
        let state = self.state.lock();
        let bound = state.bound.as_ref().ok_or(MemError::Key)?;
        let mine = self.pd == who.pd && (!self.of_qp || bound.qp == who.qp);
        if !mine || state.key != key {
            return Err(MemError::Key);
        }
        if bound.access & needed != needed {
            return Err(MemError::Access);
        }
        let start = va.checked_sub(bound.base).ok_or(MemError::Range)?;
        let end = start.checked_add(len).ok_or(MemError::Range)?;
        if end > bound.len {
            return Err(MemError::Range);
        }
        // The sum lies within the region, which was checked when the window was bound.
        let va = bound.va.wrapping_add(start);
        let region = region(&self.dev, bound.mr, rcu).ok_or(MemError::Key)?;
        let start = region.locate(who.pd, va, len, 0)?;
        f(&region.backing, start)
    }
}

fn region<'a>(dev: &Device, key: u32, rcu: &'a rcu::Guard) -> Option<ArcBorrow<'a, Mr>> {
    let region = dev.mrs.get(key >> 8, rcu)?;
    (region.key() == key).then_some(region)
}

/// The region of a binding that is no more may go.
fn release(dev: &Device, bound: Option<Binding>, rcu: &rcu::Guard) {
    if let Some(region) = bound.and_then(|bound| region(dev, bound.mr, rcu)) {
        region.release_for_window();
    }
}
