// SPDX-License-Identifier: GPL-2.0

//! The two things that are done with every byte: CRC-32, and copying. For each there is the
//! kernel's way and ours; which is the fastest here is measured once.

use super::{
    crc_table,
    fpu::{
        self,
        Section, //
    },
    timer, //
};
use crate::bindings;
use core::sync::atomic::{
    AtomicBool,
    AtomicU8,
    Ordering, //
};
use kernel::prelude::*;

/// How CRC-32 is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Way {
    /// lib/crc32.c, which may use carry-less multiplication too.
    Kernel,
    /// [`super::fpu`].
    Vectors,
    /// [`super::crc_table`].
    Tables,
}

static WAY: AtomicU8 = AtomicU8::new(Way::Kernel as u8);
static OWN_COPY: AtomicBool = AtomicBool::new(false);

/// Below this a copy is over before a section has begun.
const LEAST_COPY: usize = 512;
/// Bytes that are copied in one section, which keeps others off the CPU.
const MOST_COPY: usize = 1 << 14;

fn kernel_crc32_le(seed: u32, bytes: &[u8]) -> u32 {
    // SAFETY: the range is valid for reads.
    unsafe { bindings::crc32_le(seed, bytes.as_ptr().cast(), bytes.len()) }
}

/// The same with vectors for all but the last bytes; `None` where there is no section.
fn vector_crc32_le(mut state: u32, parts: &[&[u8]]) -> Option<u32> {
    let section = Section::begin()?;
    for bytes in parts {
        let blocks = bytes.len() / 16;
        state = section.crc32_le(state, bytes, blocks);
        let rest = bytes.get(blocks * 16..).unwrap_or(&[]);
        if !rest.is_empty() {
            state = kernel_crc32_le(state, rest);
        }
    }
    Some(state)
}

/// Little-endian CRC-32 of `parts`, one after the other, from `seed`, without the final
/// inversion. Any context.
pub(crate) fn crc32_le(seed: u32, parts: &[&[u8]]) -> u32 {
    let way = WAY.load(Ordering::Relaxed);
    if way == Way::Vectors as u8 {
        if let Some(sum) = vector_crc32_le(seed, parts) {
            return sum;
        }
    }
    let step = |state, bytes: &&[u8]| match way == Way::Tables as u8 {
        true => crc_table::crc32_le(state, bytes),
        false => kernel_crc32_le(state, bytes),
    };
    parts.iter().fold(seed, step)
}

/// Copies bytes. Any context.
///
/// # Safety
///
/// `src` is valid for reads and `dst` for writes of `len` bytes, and the ranges do not overlap.
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    let own = OWN_COPY.load(Ordering::Relaxed) && (LEAST_COPY..=MOST_COPY).contains(&len);
    match own.then(Section::begin).flatten() {
        // SAFETY: our contract, and the length is no less than what it wants.
        Some(section) => unsafe { section.copy(dst, src, len) },
        // SAFETY: our contract.
        None => unsafe { core::ptr::copy_nonoverlapping(src, dst, len) },
    }
}

/// The best time of a few tries, in ns.
fn time(mut f: impl FnMut()) -> u64 {
    let once = |_| {
        let start = timer::now();
        for _ in 0..16 {
            f();
        }
        timer::now() - start
    };
    (0..5).map(once).min().unwrap_or(u64::MAX)
}

/// MB/s for the bytes of what [`time`] took.
fn rate(bytes: usize, ns: u64) -> u64 {
    bytes as u64 * 16 * 1000 / ns.max(1)
}

/// Finds out which way is faster, and whether ours computes what the kernel's does. Before
/// anything is sent. Fails with `ENOMEM`.
pub(crate) fn choose() -> Result {
    const LEN: usize = 4096;
    fpu::detect();
    let mut from = KVec::from_elem(0u8, LEN, GFP_KERNEL)?;
    let mut to = KVec::from_elem(0u8, LEN, GFP_KERNEL)?;
    for (i, byte) in from.iter_mut().enumerate() {
        *byte = (i * i >> 3) as u8;
    }
    let mut best = (
        Way::Kernel,
        time(|| {
            core::hint::black_box(kernel_crc32_le(!0, &from));
        }),
    );
    let kernel = best.1;
    for (way, crc) in [
        (Way::Vectors, vector as fn(u32, &[u8]) -> Option<u32>),
        (Way::Tables, tables),
    ] {
        let right = |len| crc(!0, &from[..len]) == Some(kernel_crc32_le(!0, &from[..len]));
        if !(0..LEN).step_by(61).all(right) {
            continue;
        }
        let took = time(|| {
            core::hint::black_box(crc(!0, &from));
        });
        if took < best.1 {
            best = (way, took);
        }
    }
    WAY.store(best.0 as u8, Ordering::Relaxed);
    let memcpy = time(|| {
        to.copy_from_slice(&from);
        core::hint::black_box(&mut to);
    });
    OWN_COPY.store(true, Ordering::Relaxed);
    let own = time(|| {
        // SAFETY: two vectors of that length.
        unsafe { copy(to.as_mut_ptr(), from.as_ptr(), LEN) };
    });
    OWN_COPY.store(to == from && own < memcpy, Ordering::Relaxed);
    pr_info!(
        "CRC-32 by {} ({} MB/s, the kernel's {}), copies by {} ({} MB/s, the kernel's {})\n",
        match best.0 {
            Way::Kernel => "the kernel",
            Way::Vectors => "vectors",
            Way::Tables => "tables",
        },
        rate(LEN, best.1),
        rate(LEN, kernel),
        match own < memcpy {
            true => "vectors",
            false => "the kernel",
        },
        rate(LEN, own.min(memcpy)),
        rate(LEN, memcpy),
    );
    Ok(())
}

fn vector(state: u32, bytes: &[u8]) -> Option<u32> {
    vector_crc32_le(state, &[bytes])
}

fn tables(state: u32, bytes: &[u8]) -> Option<u32> {
    Some(crc_table::crc32_le(state, bytes))
}
