// SPDX-License-Identifier: GPL-2.0

//! Memory regions of a simulated host, with a count of how often each byte was written through them.

use std::cell::RefCell;
use std::rc::Rc;

use crate::Access;
use crate::AtomicOp;
use crate::MemError;
use crate::Memory;

struct Region {
    key: u32,
    va: u64,
    data: Vec<u8>,
    writes: Vec<u8>,
    denied: Vec<Access>,
    /// So many accesses find it absent.
    absent: u32,
    /// Placements of FLUSH that it allows.
    flushable: u8,
    /// What was flushed.
    flushes: Vec<Option<(u64, u64)>>,
    revoked: bool,
}

impl Region {
    fn range(&self, va: u64, len: u64) -> Result<std::ops::Range<usize>, MemError> {
        let from = va.checked_sub(self.va).ok_or(MemError::Range)?;
        let to = from.checked_add(len).ok_or(MemError::Range)?;
        if to > self.data.len() as u64 {
            return Err(MemError::Range);
        }
        Ok(from as usize..to as usize)
    }
}

/// The memory regions of a host; clones share them.
#[derive(Clone, Default)]
pub struct HostMemory(Rc<RefCell<Vec<Region>>>);

impl HostMemory {
    /// Registers `len` bytes of zeroes at `va` under `key`.
    pub fn register(&self, key: u32, va: u64, len: usize) {
        self.0.borrow_mut().push(Region {
            key,
            va,
            data: vec![0; len],
            writes: vec![0; len],
            denied: Vec::new(),
            absent: 0,
            flushable: 3,
            flushes: Vec::new(),
            revoked: false,
        });
    }

    /// Takes a permission from a region.
    pub fn deny(&self, key: u32, access: Access) {
        let mut regions = self.0.borrow_mut();
        let region = regions.iter_mut().find(|r| r.key == key);
        region.expect("a registered key").denied.push(access);
    }

    /// The next `times` accesses find the memory absent.
    pub fn page_out(&self, key: u32, times: u32) {
        let mut regions = self.0.borrow_mut();
        let region = regions.iter_mut().find(|r| r.key == key);
        region.expect("a registered key").absent = times;
    }

    /// Accesses that are still to find the memory absent.
    pub fn still_absent(&self, key: u32) -> u32 {
        let regions = self.0.borrow();
        let region = regions.iter().find(|r| r.key == key);
        region.expect("a registered key").absent
    }

    /// Allows only these placements of FLUSH.
    pub fn allow_flush(&self, key: u32, placement: u8) {
        let mut regions = self.0.borrow_mut();
        let region = regions.iter_mut().find(|r| r.key == key);
        region.expect("a registered key").flushable = placement;
    }

    /// Ranges that were flushed, `None` for the whole region.
    pub fn flushes(&self, key: u32) -> Vec<Option<(u64, u64)>> {
        let regions = self.0.borrow();
        let region = regions.iter().find(|r| r.key == key);
        region.expect("a registered key").flushes.clone()
    }

    /// Makes a key invalid; the host's own program still sees the memory.
    pub fn revoke(&self, key: u32) {
        let mut regions = self.0.borrow_mut();
        let region = regions.iter_mut().find(|r| r.key == key);
        region.expect("a registered key").revoked = true;
    }

    /// Removes a region.
    pub fn deregister(&self, key: u32) {
        self.0.borrow_mut().retain(|r| r.key != key);
    }

    /// Writes as the host's own program would.
    pub fn poke(&self, key: u32, va: u64, bytes: &[u8]) {
        self.with(key, va, bytes.len() as u64, None, |r, range| {
            r.data[range].copy_from_slice(bytes);
        })
        .expect("a registered range");
    }

    /// Reads as the host's own program would.
    pub fn peek(&self, key: u32, va: u64, len: usize) -> Vec<u8> {
        self.with(key, va, len as u64, None, |r, range| r.data[range].to_vec())
            .expect("a registered range")
    }

    /// How often each byte was written through the region.
    pub fn writes(&self, key: u32, va: u64, len: usize) -> Vec<u8> {
        self.with(key, va, len as u64, None, |r, range| {
            r.writes[range].to_vec()
        })
        .expect("a registered range")
    }

    /// Whether there is such a region.
    pub fn known(&self, key: u32) -> Result<(), MemError> {
        let regions = self.0.borrow();
        let found = regions.iter().any(|r| r.key == key);
        found.then_some(()).ok_or(MemError::Key)
    }

    fn with<T>(
        &self,
        key: u32,
        va: u64,
        len: u64,
        access: Option<Access>,
        act: impl FnOnce(&mut Region, std::ops::Range<usize>) -> T,
    ) -> Result<T, MemError> {
        let mut regions = self.0.borrow_mut();
        let region = regions.iter_mut().find(|r| r.key == key);
        let region = region.ok_or(MemError::Key)?;
        if access.is_some() && region.revoked {
            return Err(MemError::Key);
        }
        if access.is_some_and(|access| region.denied.contains(&access)) {
            return Err(MemError::Access);
        }
        let range = region.range(va, len)?;
        Ok(act(region, range))
    }
}

impl HostMemory {
    /// An access by the engine, which may find the memory absent.
    fn access<T>(
        &self,
        key: u32,
        va: u64,
        len: u64,
        access: Access,
        act: impl FnOnce(&mut Region, std::ops::Range<usize>) -> T,
    ) -> Result<T, MemError> {
        self.with(key, va, len, Some(access), |region, range| {
            if region.absent > 0 {
                region.absent -= 1;
                return Err(MemError::Absent);
            }
            Ok(act(region, range))
        })?
    }
}

impl Memory for HostMemory {
    fn check(&self, key: u32, va: u64, len: u64, access: Access) -> Result<(), MemError> {
        self.with(key, va, len, Some(access), |_, _| ())
    }

    fn read(&self, key: u32, va: u64, dst: &mut [u8], access: Access) -> Result<(), MemError> {
        self.access(key, va, dst.len() as u64, access, |r, range| {
            dst.copy_from_slice(&r.data[range]);
        })
    }

    fn write(&self, key: u32, va: u64, src: &[u8], access: Access) -> Result<(), MemError> {
        self.access(key, va, src.len() as u64, access, |r, range| {
            r.data[range.clone()].copy_from_slice(src);
            r.writes[range]
                .iter_mut()
                .for_each(|count| *count = count.saturating_add(1));
        })
    }

    fn atomic(&self, key: u32, va: u64, op: AtomicOp) -> Result<u64, MemError> {
        self.access(key, va, 8, Access::RemoteAtomic, |r, range| {
            let word = &mut r.data[range];
            let old = u64::from_ne_bytes(*word.first_chunk().expect("8 bytes"));
            let new = match op {
                AtomicOp::CompareSwap { compare, swap } if compare == old => swap,
                AtomicOp::CompareSwap { .. } => old,
                AtomicOp::FetchAdd { add } => old.wrapping_add(add),
            };
            word.copy_from_slice(&new.to_ne_bytes());
            old
        })
    }

    fn atomic_write(&self, key: u32, va: u64, data: [u8; 8]) -> Result<(), MemError> {
        self.write(key, va, &data, Access::RemoteWrite)
    }

    fn flush(&self, key: u32, range: Option<(u64, u64)>, placement: u8) -> Result<(), MemError> {
        let mut regions = self.0.borrow_mut();
        let region = regions.iter_mut().find(|r| r.key == key);
        let region = region.ok_or(MemError::Key)?;
        if placement & !region.flushable != 0 {
            return Err(MemError::Access);
        }
        if let Some((va, len)) = range {
            region.range(va, len)?;
        }
        if region.absent > 0 {
            region.absent -= 1;
            return Err(MemError::Absent);
        }
        region.flushes.push(range);
        Ok(())
    }

    fn invalidate(&self, key: u32) -> Result<(), MemError> {
        self.known(key)?;
        self.deregister(key);
        Ok(())
    }
}
