// SPDX-License-Identifier: GPL-2.0

//! Scatter/gather lists, encoded as 16 bytes an element in the machine's own byte order.

use super::Access;
use super::MemError;
use super::Memory;

/// A scatter/gather element.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Key of the memory region.
    pub lkey: u32,
}

impl Sge {
    /// Bytes of an encoded element.
    pub const SIZE: usize = 16;

    /// The element's bytes; the layout of `struct ib_sge`.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        let (addr, rest) = out.split_at_mut(8);
        let (len, key) = rest.split_at_mut(4);
        addr.copy_from_slice(&self.addr.to_ne_bytes());
        len.copy_from_slice(&self.len.to_ne_bytes());
        key.copy_from_slice(&self.lkey.to_ne_bytes());
        out
    }

    /// Reads an element off the front of `list`.
    fn take(list: &[u8]) -> Option<(Self, &[u8])> {
        let (addr, rest) = list.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let sge = Self {
            addr: u64::from_ne_bytes(*addr),
            len: u32::from_ne_bytes(*len),
            lkey: u32::from_ne_bytes(*key),
        };
        Some((sge, rest))
    }
}

/// The elements of an encoded list.
pub(super) fn elements(mut list: &[u8]) -> impl Iterator<Item = Sge> + '_ {
    core::iter::from_fn(move || {
        let (sge, rest) = Sge::take(list)?;
        list = rest;
        Some(sge)
    })
}

/// Bytes that an encoded list describes, `None` if more than a message can have.
pub(super) fn total(list: &[u8]) -> Option<u32> {
    elements(list)
        .try_fold(0_u32, |sum, sge| sum.checked_add(sge.len))
        .filter(|&sum| sum <= 1 << 31)
}

/// Whether every element may be accessed.
pub(super) fn check(mem: &impl Memory, list: &[u8], access: Access) -> Result<(), MemError> {
    elements(list)
        .filter(|sge| sge.len > 0)
        .try_for_each(|sge| mem.check(sge.lkey, sge.addr, u64::from(sge.len), access))
}

/// The parts of a list's bytes `offset..offset + len`, as (key, address, length).
fn parts(list: &[u8], offset: u32, len: usize) -> impl Iterator<Item = (u32, u64, usize)> + '_ {
    let mut skip = offset;
    let mut left = len;
    elements(list).filter_map(move |sge| {
        if skip >= sge.len {
            skip -= sge.len;
            return None;
        }
        let here = left.min((sge.len - skip) as usize);
        let addr = sge.addr.wrapping_add(u64::from(skip));
        skip = 0;
        left -= here;
        (here > 0).then_some((sge.lkey, addr, here))
    })
}

/// Copies `src` into the list's memory from byte `offset` on.
pub(super) fn scatter(
    mem: &impl Memory,
    list: &[u8],
    offset: u32,
    src: &[u8],
) -> Result<(), MemError> {
    let mut rest = src;
    for (key, addr, len) in parts(list, offset, src.len()) {
        let (now, later) = rest.split_at_checked(len).ok_or(MemError::Range)?;
        mem.write(key, addr, now, Access::LocalWrite)?;
        rest = later;
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(MemError::Range)
    }
}

/// Fills `dst` with the list's memory from byte `offset` on.
pub(super) fn gather(
    mem: &impl Memory,
    list: &[u8],
    offset: u32,
    dst: &mut [u8],
) -> Result<(), MemError> {
    let mut rest = dst;
    let len = rest.len();
    for (key, addr, here) in parts(list, offset, len) {
        let (now, later) = rest.split_at_mut_checked(here).ok_or(MemError::Range)?;
        mem.read(key, addr, now, Access::LocalRead)?;
        rest = later;
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(MemError::Range)
    }
}
