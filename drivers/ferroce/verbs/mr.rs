// SPDX-License-Identifier: GPL-2.0

//! Memory regions, and the engine's view of memory through them.

use super::{
    device::limits,
    Device,
    Pd, //
};
use crate::{
    bindings,
    engine::{
        Access,
        AtomicOp,
        MemError,
        Memory, //
    },
    kernel_ext::umem::Umem, //
};
use core::sync::atomic::{
    fence,
    Ordering, //
};
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc,
        ArcBorrow, //
    },
};

const LOCAL_WRITE: u32 = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE;
const REMOTE_WRITE: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
const REMOTE_READ: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ;
const REMOTE_ATOMIC: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC;
const FLUSH_GLOBAL: u32 = bindings::ib_access_flags_IB_ACCESS_FLUSH_GLOBAL;
const SUPPORTED: u32 = LOCAL_WRITE
    | REMOTE_WRITE
    | REMOTE_READ
    | REMOTE_ATOMIC
    | bindings::ib_access_flags_IB_ACCESS_OPTIONAL;

/// A region of user memory under a key.
///
/// Looked up under RCU and used inside the read-side section only, never cloned there:
/// [`Mr::deregister`] waits for a grace period and then owns the last reference.
pub(crate) struct Mr {
    dev: Arc<Device>,
    pd: u32,
    access: u32,
    iova: u64,
    /// lkey and rkey: index in the device's table, then a byte that varies (IBTA 10.6.3.2).
    key: u32,
    len: u64,
    /// The pages; `None` for a region that gives access to nothing.
    umem: Option<Umem>,
}

impl Mr {
    /// Registers `len` bytes at `start` of the current process as `iova..iova + len`.
    ///
    /// Fails with `EOPNOTSUPP` for access flags that are not supported, `EINVAL` for a range
    /// that wraps, and as [`Umem::pin`] does.
    pub(crate) fn register(
        pd: &Pd,
        start: u64,
        len: u64,
        iova: u64,
        access: u32,
    ) -> Result<Arc<Self>> {
        if access & !SUPPORTED != 0 {
            return Err(EOPNOTSUPP);
        }
        iova.checked_add(len).ok_or(EINVAL)?;
        let umem = match len {
            0 => None,
            _ => Some(Umem::pin(
                pd.dev.ib,
                start.try_into()?,
                len.try_into()?,
                access as i32,
            )?),
        };
        Self::publish(pd, len, iova, access, umem)
    }

    /// The key that a kernel user would have for all memory. It gives access to nothing yet.
    pub(crate) fn dma(pd: &Pd, access: u32) -> Result<Arc<Self>> {
        Self::publish(pd, 0, 0, access, None)
    }

    fn publish(pd: &Pd, len: u64, iova: u64, access: u32, umem: Option<Umem>) -> Result<Arc<Self>> {
        let dev = &pd.dev;
        let mut next = dev.next.lock();
        next.variant = next.variant.wrapping_add(1);
        let variant = u32::from(next.variant);
        let index = dev.mrs.reserve(limits::MR, &mut next.mr)?;
        drop(next);
        let key = index << 8 | variant;
        let mr = Self {
            dev: dev.clone(),
            pd: pd.id,
            access,
            iova,
            key,
            len,
            umem,
        };
        let filled = Arc::new(mr, GFP_KERNEL)
            .map_err(Error::from)
            .and_then(|mr| dev.mrs.fill(index, mr.clone()).map(|()| mr));
        filled.inspect_err(|_| drop(dev.mrs.remove(index)))
    }

    /// lkey and rkey, which are one number.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// Takes the key back. Nobody touches the pages after this.
    pub(crate) fn deregister(mr: Arc<Self>) {
        drop(mr.dev.mrs.remove_sync(mr.key() >> 8));
    }

    /// Where `va..va + len` lies in the region, if `access` is allowed there.
    fn locate(&self, va: u64, len: u64, access: Access) -> Result<usize, MemError> {
        let needed = match access {
            Access::LocalRead => 0,
            Access::LocalWrite => LOCAL_WRITE,
            Access::RemoteRead => REMOTE_READ,
            Access::RemoteWrite => REMOTE_WRITE,
            Access::RemoteAtomic => REMOTE_ATOMIC,
        };
        if self.access & needed != needed {
            return Err(MemError::Access);
        }
        let start = va.checked_sub(self.iova).ok_or(MemError::Range)?;
        let end = start.checked_add(len).ok_or(MemError::Range)?;
        if end > self.len {
            return Err(MemError::Range);
        }
        usize::try_from(start).map_err(|_| MemError::Range)
    }
}

/// Memory as the QPs of one protection domain reach it, during a read-side section.
pub(crate) struct PdMemory<'a> {
    dev: &'a Device,
    pd: u32,
    rcu: &'a rcu::Guard,
}

impl<'a> PdMemory<'a> {
    /// The memory of protection domain `pd`.
    pub(crate) fn new(dev: &'a Device, pd: u32, rcu: &'a rcu::Guard) -> Self {
        Self { dev, pd, rcu }
    }

    fn find(&self, key: u32) -> Result<ArcBorrow<'a, Mr>, MemError> {
        let mr = self.dev.mrs.get(key >> 8, self.rcu).ok_or(MemError::Key)?;
        if mr.key() != key || mr.pd != self.pd {
            return Err(MemError::Key);
        }
        Ok(mr)
    }
}

impl Memory for PdMemory<'_> {
    fn check(&self, key: u32, va: u64, len: u64, access: Access) -> Result<(), MemError> {
        if len == 0 {
            return Ok(());
        }
        self.find(key)?.locate(va, len, access).map(drop)
    }

    fn read(&self, key: u32, va: u64, dst: &mut [u8], access: Access) -> Result<(), MemError> {
        if dst.is_empty() {
            return Ok(());
        }
        let mr = self.find(key)?;
        let start = mr.locate(va, dst.len() as u64, access)?;
        let umem = mr.umem.as_ref().ok_or(MemError::Fault)?;
        umem.read(start, dst).map_err(|_| MemError::Fault)
    }

    fn write(&self, key: u32, va: u64, src: &[u8], access: Access) -> Result<(), MemError> {
        if src.is_empty() {
            return Ok(());
        }
        let mr = self.find(key)?;
        let start = mr.locate(va, src.len() as u64, access)?;
        let umem = mr.umem.as_ref().ok_or(MemError::Fault)?;
        umem.write(start, src).map_err(|_| MemError::Fault)
    }

    fn atomic(&self, key: u32, va: u64, op: AtomicOp) -> Result<u64, MemError> {
        let mr = self.find(key)?;
        let start = mr.locate(va, 8, Access::RemoteAtomic)?;
        let umem = mr.umem.as_ref().ok_or(MemError::Fault)?;
        let word = umem.word(start).map_err(|_| MemError::Fault)?;
        Ok(match op {
            AtomicOp::FetchAdd { add } => word.fetch_add(add, Ordering::SeqCst),
            AtomicOp::CompareSwap { compare, swap } => word
                .compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|old| old),
        })
    }

    fn atomic_write(&self, key: u32, va: u64, data: [u8; 8]) -> Result<(), MemError> {
        let mr = self.find(key)?;
        let start = mr.locate(va, 8, Access::RemoteWrite)?;
        let umem = mr.umem.as_ref().ok_or(MemError::Fault)?;
        let word = umem.word(start).map_err(|_| MemError::Fault)?;
        word.store(u64::from_ne_bytes(data), Ordering::SeqCst);
        Ok(())
    }

    /// All that came before is in the memory that every CPU and device sees, once ordered.
    fn flush(&self, key: u32, range: Option<(u64, u64)>, placement: u8) -> Result<(), MemError> {
        let mr = self.find(key)?;
        let needed = u32::from(placement) * FLUSH_GLOBAL;
        if mr.access & needed != needed {
            return Err(MemError::Access);
        }
        if let Some((va, len)) = range {
            mr.locate(va, len, Access::LocalRead)?;
        }
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn invalidate(&self, _key: u32) -> Result<(), MemError> {
        Err(MemError::Access)
    }
}
