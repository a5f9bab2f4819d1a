// SPDX-License-Identifier: GPL-2.0

//! The engine's view of memory: keys, looked up and checked at each access.
//!
//! Runs under a QP's lock and in an RCU read-side section, in any context. What it finds
//! stays there until the section ends.

use super::{
    mr::{
        needed,
        needed_flush, //
    },
    Device,
    Mr, //
};
use crate::engine::{
    Access,
    AtomicOp,
    MemError,
    Memory, //
};
use core::sync::atomic::{
    fence,
    Ordering, //
};
use kernel::sync::{
    rcu,
    ArcBorrow, //
};

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

    /// The region under `key`.
    fn region(&self, key: u32) -> Result<ArcBorrow<'a, Mr>, MemError> {
        let mr = self.dev.mrs.get(key >> 8, self.rcu);
        mr.filter(|mr| mr.key() == key).ok_or(MemError::Key)
    }

    /// The region under `key`, and where in it `va..va + len` lies, if `access` is allowed
    /// there.
    fn find(
        &self,
        key: u32,
        va: u64,
        len: u64,
        access: Access,
    ) -> Result<(ArcBorrow<'a, Mr>, usize), MemError> {
        let mr = self.region(key)?;
        let start = mr.locate(self.pd, va, len, needed(access))?;
        Ok((mr, start))
    }
}

impl Memory for PdMemory<'_> {
    fn check(&self, key: u32, va: u64, len: u64, access: Access) -> Result<(), MemError> {
        if len == 0 {
            return Ok(());
        }
        self.find(key, va, len, access).map(drop)
    }

    fn read(&self, key: u32, va: u64, dst: &mut [u8], access: Access) -> Result<(), MemError> {
        if dst.is_empty() {
            return Ok(());
        }
        let (mr, start) = self.find(key, va, dst.len() as u64, access)?;
        mr.backing.read(start, dst).map_err(|_| MemError::Fault)
    }

    fn write(&self, key: u32, va: u64, src: &[u8], access: Access) -> Result<(), MemError> {
        if src.is_empty() {
            return Ok(());
        }
        let (mr, start) = self.find(key, va, src.len() as u64, access)?;
        mr.backing.write(start, src).map_err(|_| MemError::Fault)
    }

    fn atomic(&self, key: u32, va: u64, op: AtomicOp) -> Result<u64, MemError> {
        let (mr, start) = self.find(key, va, 8, Access::RemoteAtomic)?;
        // A zero-based region may start at any byte, so that a good address is a bad place.
        let word = mr.backing.word(start);
        let word = word.map_err(|_| MemError::Access)?;
        Ok(match op {
            AtomicOp::FetchAdd { add } => word.fetch_add(add, Ordering::SeqCst),
            AtomicOp::CompareSwap { compare, swap } => word
                .compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|old| old),
        })
    }

    fn atomic_write(&self, key: u32, va: u64, data: [u8; 8]) -> Result<(), MemError> {
        let (mr, start) = self.find(key, va, 8, Access::RemoteWrite)?;
        let word = mr.backing.word(start);
        let word = word.map_err(|_| MemError::Access)?;
        word.store(u64::from_ne_bytes(data), Ordering::SeqCst);
        Ok(())
    }

    /// All that came before is in the memory that every CPU and device sees, once ordered.
    fn flush(&self, key: u32, range: Option<(u64, u64)>, placement: u8) -> Result<(), MemError> {
        let mr = self.region(key)?;
        let needed = needed_flush(placement);
        match range {
            Some((va, len)) => mr.locate(self.pd, va, len, needed).map(drop)?,
            None => mr.permits(self.pd, needed)?,
        }
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn invalidate(&self, _key: u32) -> Result<(), MemError> {
        Err(MemError::Access)
    }
}
