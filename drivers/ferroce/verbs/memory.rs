// SPDX-License-Identifier: GPL-2.0

//! The engine's view of memory: keys, looked up and checked at each access.
//!
//! Runs under a QP's lock and in an RCU read-side section, in any context. What it finds
//! stays there until the section ends.

use super::{
    backing::Backing,
    fast::{
        self,
        FastMr, //
    },
    mr::{
        self,
        Mr, //
    },
    mw::{
        Actor,
        Bind,
        Mw, //
    },
    Device, //
};
use crate::engine::{
    Access,
    AtomicOp,
    LocalOp,
    MemError,
    Memory,
    WcStatus, //
};
use core::{
    cell::Cell,
    sync::atomic::{
        fence,
        Ordering, //
    },
};
use kernel::sync::{
    rcu,
    ArcBorrow, //
};

/// Memory as a QP reaches it, during a read-side section.
pub(crate) struct PdMemory<'a> {
    dev: &'a Device,
    who: Actor,
    rcu: &'a rcu::Guard,
    /// The region that was found last: runs of packets are about one.
    last: Cell<Option<ArcBorrow<'a, Mr>>>,
}

impl<'a> PdMemory<'a> {
    /// The memory of protection domain `pd`, for the QP with serial number `qp` of it.
    pub(crate) fn new(dev: &'a Device, pd: u32, qp: u64, rcu: &'a rcu::Guard) -> Self {
        let who = Actor { pd, qp };
        Self {
            dev,
            who,
            rcu,
            last: Cell::new(None),
        }
    }

    /// The region with this key, or another one of its index. It stays valid during the
    /// read-side section, but may be deregistered meanwhile, as during any access.
    fn region(&self, key: u32) -> Option<ArcBorrow<'a, Mr>> {
        if let Some(mr) = self.last.get().filter(|mr| mr.key() == key) {
            return Some(mr);
        }
        let found = self.dev.mrs.get(key >> 8, self.rcu);
        self.last.set(found);
        found
    }

    /// Calls `f` with the memory under `key` and the place in it of `span`, an address and a
    /// length, if all rights of `needed` are there.
    fn with<R>(
        &self,
        key: u32,
        span: (u64, u64),
        needed: u32,
        f: impl FnOnce(&Backing, usize) -> Result<R, MemError>,
    ) -> Result<R, MemError> {
        if fast::is_fast(key) {
            let mr = self.fast(key).ok_or(MemError::Key)?;
            return mr.with(self.who.pd, key, span, needed, f);
        }
        match self.region(key) {
            Some(mr) if mr.key() == key => {
                let start = mr.locate(self.who.pd, span.0, span.1, needed)?;
                f(&mr.backing, start)
            }
            Some(_) => Err(MemError::Key),
            None => self
                .window(key)
                .filter(|_| needed & mr::REMOTE != 0)
                .ok_or(MemError::Key)?
                .with(self.who, key, span, needed, self.rcu, f),
        }
    }

    fn fast(&self, key: u32) -> Option<ArcBorrow<'a, FastMr>> {
        self.dev.fast_mrs.get(key >> 8, self.rcu)
    }

    fn window(&self, key: u32) -> Option<ArcBorrow<'a, Mw>> {
        self.dev.mws.get(key >> 8, self.rcu)
    }

    /// All that is under a key: its first address, and bytes.
    fn extent(&self, key: u32) -> Option<(u64, u64)> {
        match self.dev.mrs.get(key >> 8, self.rcu) {
            Some(mr) => Some(mr.extent()),
            None => self.window(key)?.extent(),
        }
    }

    /// Does a local operation; its status if it fails (IBTA 11.6.2).
    pub(super) fn local(&self, op: &LocalOp) -> Result<(), WcStatus> {
        let done = match *op {
            LocalOp::BindWindow {
                window,
                key,
                mr,
                va,
                len,
                access,
            } => {
                let bind = Bind {
                    window,
                    key,
                    mr,
                    va,
                    len,
                    access,
                };
                self.window(window)
                    .and_then(|mw| mw.bind(self.who, &bind, self.rcu))
            }
            LocalOp::Invalidate { key } => self.take_away(key),
            LocalOp::Register { mr, key, access } => self
                .fast(mr)
                .and_then(|mr| mr.register(self.who.pd, key, access)),
        };
        done.ok_or(WcStatus::MwBindErr)
    }

    /// Invalidates a key; `None` if this QP may not.
    fn take_away(&self, key: u32) -> Option<()> {
        if fast::is_fast(key) {
            return self.fast(key)?.invalidate(self.who.pd, key);
        }
        self.window(key)?.invalidate(self.who, key, self.rcu)
    }
}

impl Memory for PdMemory<'_> {
    fn check(&self, key: u32, va: u64, len: u64, access: Access) -> Result<(), MemError> {
        if len == 0 {
            return Ok(());
        }
        let write = !matches!(access, Access::LocalRead | Access::RemoteRead);
        self.with(key, (va, len), mr::needed(access), |memory, start| {
            memory.prefetch(start, len, write);
            Ok(())
        })
    }

    fn read(&self, key: u32, va: u64, dst: &mut [u8], access: Access) -> Result<(), MemError> {
        if dst.is_empty() {
            return Ok(());
        }
        let span = (va, dst.len() as u64);
        self.with(key, span, mr::needed(access), |memory, start| {
            memory.read(start, dst)
        })
    }

    fn write(&self, key: u32, va: u64, src: &[u8], access: Access) -> Result<(), MemError> {
        if src.is_empty() {
            return Ok(());
        }
        let span = (va, src.len() as u64);
        self.with(key, span, mr::needed(access), |memory, start| {
            memory.write(start, src)
        })
    }

    fn atomic(&self, key: u32, va: u64, op: AtomicOp) -> Result<u64, MemError> {
        self.with(key, (va, 8), mr::REMOTE_ATOMIC, |memory, start| {
            memory.word(start, |word| match op {
                AtomicOp::FetchAdd { add } => word.fetch_add(add, Ordering::SeqCst),
                AtomicOp::CompareSwap { compare, swap } => word
                    .compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst)
                    .unwrap_or_else(|old| old),
            })
        })
    }

    fn atomic_write(&self, key: u32, va: u64, data: [u8; 8]) -> Result<(), MemError> {
        self.with(key, (va, 8), mr::REMOTE_WRITE, |memory, start| {
            memory.word(start, |word| {
                word.store(u64::from_ne_bytes(data), Ordering::SeqCst)
            })
        })
    }

    /// All that came before is in the memory that every CPU and device sees, once ordered.
    fn flush(&self, key: u32, range: Option<(u64, u64)>, placement: u8) -> Result<(), MemError> {
        let span = range.or_else(|| self.extent(key)).ok_or(MemError::Key)?;
        self.with(key, span, mr::needed_flush(placement), |_, _| {
            fence(Ordering::SeqCst);
            Ok(())
        })
    }

    fn invalidate(&self, key: u32) -> Result<(), MemError> {
        self.take_away(key).ok_or(MemError::Access)
    }
}
