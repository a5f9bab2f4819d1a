// SPDX-License-Identifier: GPL-2.0

//! Memory regions: registration, change, and the end of one.
//!
//! Verbs calls, in process context. The packet path looks regions up under RCU, see
//! [`super::memory`].

use super::{
    backing::Backing,
    device::limits,
    Device,
    Pd, //
};
use crate::{
    bindings,
    engine::{
        Access,
        MemError, //
    },
    kernel_ext::{
        dmabuf::DmaBuf,
        ib::{
            MrChange,
            MrRange, //
        },
        kmem::DirectMap,
        rcu, //
    },
};
use core::sync::atomic::{
    AtomicU32,
    AtomicU64,
    Ordering, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

pub(super) const LOCAL_WRITE: u32 = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE;
pub(super) const REMOTE_WRITE: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
pub(super) const REMOTE_READ: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ;
pub(super) const REMOTE_ATOMIC: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC;
pub(super) const FLUSH_GLOBAL: u32 = bindings::ib_access_flags_IB_ACCESS_FLUSH_GLOBAL;
pub(super) const ZERO_BASED: u32 = bindings::ib_access_flags_IB_ZERO_BASED;
pub(super) const ON_DEMAND: u32 = bindings::ib_access_flags_IB_ACCESS_ON_DEMAND;
const MW_BIND: u32 = bindings::ib_access_flags_IB_ACCESS_MW_BIND;
/// Rights that peers may have.
pub(super) const REMOTE: u32 = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | FLUSH;
const FLUSH: u32 = FLUSH_GLOBAL | bindings::ib_access_flags_IB_ACCESS_FLUSH_PERSISTENT;
/// Flags that a region may have. Huge pages are found by themselves, so the hint is taken
/// and means nothing; so do the optional ones (relaxed ordering).
const SUPPORTED: u32 = LOCAL_WRITE
    | REMOTE_WRITE
    | REMOTE_READ
    | REMOTE_ATOMIC
    | MW_BIND
    | FLUSH_GLOBAL
    | ZERO_BASED
    | ON_DEMAND
    | bindings::ib_access_flags_IB_ACCESS_HUGETLB
    | bindings::ib_access_flags_IB_ACCESS_OPTIONAL;

/// A region of user memory under a key.
///
/// Looked up under RCU and used inside the read-side section only, never cloned there:
/// [`Mr::deregister`] waits for a grace period and then owns the last reference.
pub(crate) struct Mr {
    dev: Arc<Device>,
    /// Protection domain in the upper half, access flags in the lower: [`Mr::reregister`]
    /// changes both at once.
    rights: AtomicU64,
    /// The address of its first byte.
    iova: u64,
    /// lkey and rkey: index in the device's table, then a byte that varies (IBTA 10.6.3.2).
    key: u32,
    len: u64,
    pub(super) backing: Backing,
    /// Windows that are bound to it, or [`CLOSED`].
    windows: AtomicU32,
}

/// What a region is now.
pub(crate) struct MrState {
    /// Its memory, in a word.
    pub(crate) memory: &'static CStr,
    /// `IB_ACCESS_*`.
    pub(crate) access: u32,
    /// Windows that are bound to it.
    pub(crate) windows: u32,
}

/// No window can be bound.
const CLOSED: u32 = u32::MAX;

/// Checks access flags as `ibv_reg_mr(3)` and IBTA 11.2.8.2 want it: `EOPNOTSUPP` for one
/// that is not supported, `EINVAL` for writing by a peer without writing by the owner.
fn check_access(access: u32) -> Result {
    if access & !SUPPORTED != 0 {
        return Err(EOPNOTSUPP);
    }
    if access & (REMOTE_WRITE | REMOTE_ATOMIC) != 0 && access & LOCAL_WRITE == 0 {
        return Err(EINVAL);
    }
    Ok(())
}

fn rights(pd: u32, access: u32) -> u64 {
    u64::from(pd) << 32 | u64::from(access)
}

impl Mr {
    /// Registers a range of the current process, under addresses from `iova` on, or from 0
    /// with `IB_ZERO_BASED`.
    ///
    /// Fails as [`check_access`] and [`Backing::of_process`] do, and with `EINVAL` for a range
    /// that wraps.
    pub(crate) fn register(pd: &Pd, range: MrRange, access: u32) -> Result<Arc<Self>> {
        Self::pin(&pd.dev, pd.id, range, access)
    }

    fn pin(dev: &Arc<Device>, pd: u32, range: MrRange, access: u32) -> Result<Arc<Self>> {
        let MrRange { start, len, iova } = range;
        check_access(access)?;
        let iova = match access & ZERO_BASED {
            0 => iova,
            _ => 0,
        };
        iova.checked_add(len).ok_or(EINVAL)?;
        let backing = Backing::of_process(dev, start, len, access)?;
        Self::publish(dev, rights(pd, access), len, iova, backing)
    }

    /// Registers a part of a dma-buf: `range.start` is the offset in it.
    ///
    /// Fails as [`check_access`] and [`DmaBuf::map`] do, and with `EINVAL` for addresses that
    /// wrap.
    pub(crate) fn share(pd: &Pd, fd: c_int, range: MrRange, access: u32) -> Result<Arc<Self>> {
        check_access(access)?;
        range.iova.checked_add(range.len).ok_or(EINVAL)?;
        let backing = Backing::Shared(DmaBuf::map(fd, range.start, range.len)?);
        Self::publish(
            &pd.dev,
            rights(pd.id, access),
            range.len,
            range.iova,
            backing,
        )
    }

    /// A kernel user's key for all kernel memory, by its address. `EPERM` in a process's
    /// protection domain.
    pub(crate) fn dma(pd: &Pd, memory: DirectMap, access: u32) -> Result<Arc<Self>> {
        if !pd.kernel {
            return Err(EPERM);
        }
        let rights = rights(pd.id, access);
        Self::publish(&pd.dev, rights, u64::MAX, 0, Backing::Kernel(memory))
    }

    fn publish(
        dev: &Arc<Device>,
        rights: u64,
        len: u64,
        iova: u64,
        backing: Backing,
    ) -> Result<Arc<Self>> {
        let mut next = dev.next.lock();
        next.variant = next.variant.wrapping_add(1);
        let variant = u32::from(next.variant);
        let index = dev.mrs.reserve(limits::MR, &mut next.mr)?;
        drop(next);
        let key = index << 8 | variant;
        let mr = Self {
            dev: dev.clone(),
            rights: AtomicU64::new(rights),
            iova,
            key,
            len,
            backing,
            windows: AtomicU32::new(0),
        };
        let filled = Arc::new(mr, GFP_KERNEL)
            .map_err(Error::from)
            .and_then(|mr| dev.mrs.fill(index, mr.clone()).map(|()| mr));
        filled.inspect_err(|_| drop(dev.mrs.remove(index)))
    }

    /// The region under `key` as it is now, if there is one.
    pub(crate) fn describe(dev: &Device, key: u32) -> Option<MrState> {
        let rcu = kernel::sync::rcu::read_lock();
        let mr = dev.mrs.get(key >> 8, &rcu).filter(|mr| mr.key == key)?;
        let windows = mr.windows.load(Ordering::Relaxed);
        Some(MrState {
            memory: mr.backing.name(),
            access: mr.rights.load(Ordering::Relaxed) as u32,
            windows: if windows == CLOSED { 0 } else { windows },
        })
    }

    /// lkey and rkey, which are one number.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// Its first address, and bytes.
    pub(super) fn extent(&self) -> (u64, u64) {
        (self.iova, self.len)
    }

    /// Takes the key back. Nobody touches the pages after this.
    ///
    /// Fails with `EBUSY` while a window is bound to the region (IBTA 11.2.8.5).
    pub(crate) fn deregister(&self) -> Result {
        self.close_to_windows()?;
        drop(self.dev.mrs.remove_sync(self.key() >> 8));
        Ok(())
    }

    fn close_to_windows(&self) -> Result {
        self.windows
            .compare_exchange(0, CLOSED, Ordering::Acquire, Ordering::Relaxed)
            .map(drop)
            .map_err(|_| EBUSY)
    }

    /// A window with the rights of `access` is to show `va..va + len`: the region stays until
    /// [`Self::release_for_window`]. `None`: not allowed (IBTA 10.6.7.2.1).
    pub(super) fn hold_for_window(&self, pd: u32, va: u64, len: u64, access: u32) -> Option<()> {
        let needed = match access & (REMOTE_WRITE | REMOTE_ATOMIC) {
            0 => MW_BIND,
            _ => MW_BIND | LOCAL_WRITE,
        };
        self.locate(pd, va, len, needed).ok()?;
        self.permits(pd, ZERO_BASED).err()?;
        let more = |windows: u32| windows.checked_add(1).filter(|&n| n < CLOSED);
        self.windows
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()
            .map(drop)
    }

    /// A window does not show the region any more.
    pub(super) fn release_for_window(&self) {
        self.windows.fetch_sub(1, Ordering::Release);
    }

    /// Changes what `change` names (IBTA 11.2.8.6). Another range gets another key and a
    /// region of its own, which is returned, and this one is deregistered; otherwise the key
    /// stays. Nobody uses the old rights or pages after this.
    ///
    /// Fails as [`Mr::register`] and [`Mr::deregister`] do, and with `EACCES` for permission
    /// to write to pages that were pinned for reading; then all is as before.
    pub(crate) fn reregister(&self, change: &MrChange<'_, Pd>) -> Result<Option<Arc<Self>>> {
        let now = self.rights.load(Ordering::Relaxed);
        let pd = change.pd.as_ref().map_or((now >> 32) as u32, |pd| pd.id);
        let access = change.access.unwrap_or(now as u32);
        if let Some(range) = change.range {
            let mr = Self::pin(&self.dev, pd, range, access)?;
            // Nothing is bound to one that nobody knows.
            return match self.deregister() {
                Ok(()) => Ok(Some(mr)),
                Err(e) => mr.deregister().and(Err(e)),
            };
        }
        check_access(access)?;
        let writes = access & (LOCAL_WRITE | REMOTE_WRITE | REMOTE_ATOMIC) != 0;
        if (access ^ now as u32) & (ZERO_BASED | ON_DEMAND) != 0 {
            return Err(EINVAL);
        }
        if writes && !self.backing.may_write() {
            return Err(EACCES);
        }
        self.close_to_windows()?;
        self.rights.store(rights(pd, access), Ordering::Relaxed);
        rcu::synchronize_expedited();
        self.windows.store(0, Ordering::Release);
        Ok(None)
    }

    /// Where `va..va + len` lies in the region, if it has all rights of `needed` for
    /// protection domain `pd`.
    pub(super) fn locate(
        &self,
        pd: u32,
        va: u64,
        len: u64,
        needed: u32,
    ) -> Result<usize, MemError> {
        self.permits(pd, needed)?;
        let start = va.checked_sub(self.iova).ok_or(MemError::Range)?;
        let end = start.checked_add(len).ok_or(MemError::Range)?;
        if end > self.len {
            return Err(MemError::Range);
        }
        usize::try_from(start).map_err(|_| MemError::Range)
    }

    /// Whether the region has all rights of `needed` for protection domain `pd`.
    pub(super) fn permits(&self, pd: u32, needed: u32) -> Result<(), MemError> {
        let rights = self.rights.load(Ordering::Relaxed);
        if (rights >> 32) as u32 != pd {
            return Err(MemError::Key);
        }
        if rights as u32 & needed != needed {
            return Err(MemError::Access);
        }
        Ok(())
    }
}

/// The rights that an access needs.
pub(super) fn needed(access: Access) -> u32 {
    match access {
        Access::LocalRead => 0,
        Access::LocalWrite => LOCAL_WRITE,
        Access::RemoteRead => REMOTE_READ,
        Access::RemoteWrite => REMOTE_WRITE,
        Access::RemoteAtomic => REMOTE_ATOMIC,
    }
}

/// The rights that a FLUSH needs: bits of the FETH's placement type (IBTA A19).
pub(super) fn needed_flush(placement: u8) -> u32 {
    u32::from(placement) * FLUSH_GLOBAL
}
