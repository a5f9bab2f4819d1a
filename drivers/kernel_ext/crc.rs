// SPDX-License-Identifier: GPL-2.0

//! The two things that are done with every byte: CRC-32, and copying. For each there is the
//! kernel's way and ours ([`super::fpu`]); which is faster here is measured once.

use super::{
    fpu::Section,
    timer, //
};
use crate::bindings;
use core::sync::atomic::{
    AtomicBool,
    Ordering, //
};
use kernel::prelude::*;

static OWN_CRC: AtomicBool = AtomicBool::new(false);
static OWN_COPY: AtomicBool = AtomicBool::new(false);

/// Below this a copy is over before a section has begun.
const LEAST_COPY: usize = 512;
/// Bytes that are copied in one section, which keeps others off the CPU.
const MOST_COPY: usize = 1 << 14;

/// lib/crc32.c, which may use carry-less multiplication too.
fn kernel_crc32_le(seed: u32, bytes: &[u8]) -> u32 {
    // SAFETY: the range is valid for reads.
    unsafe { bindings::crc32_le(seed, bytes.as_ptr().cast(), bytes.len()) }
}

/// The same with our own loop for all but the last bytes; `None` where there is no section.
fn own_crc32_le(mut state: u32, parts: &[&[u8]]) -> Option<u32> {
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
    let own = match OWN_CRC.load(Ordering::Relaxed) {
        true => own_crc32_le(seed, parts),
        false => None,
    };
    own.unwrap_or_else(|| {
        let kernel = |state, bytes: &&[u8]| kernel_crc32_le(state, bytes);
        parts.iter().fold(seed, kernel)
    })
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
    let mut from = KVec::from_elem(0u8, LEN, GFP_KERNEL)?;
    let mut to = KVec::from_elem(0u8, LEN, GFP_KERNEL)?;
    for (i, byte) in from.iter_mut().enumerate() {
        *byte = (i * i >> 3) as u8;
    }
    let right = (0..LEN).step_by(61).all(|len| {
        let bytes = &from[..len];
        own_crc32_le(!0, &[bytes]) == Some(kernel_crc32_le(!0, bytes))
    });
    let kernel = time(|| {
        core::hint::black_box(kernel_crc32_le(!0, &from));
    });
    let own = time(|| {
        core::hint::black_box(own_crc32_le(!0, &[&from]));
    });
    OWN_CRC.store(right && own < kernel, Ordering::Relaxed);
    let memcpy = time(|| {
        to.copy_from_slice(&from);
        core::hint::black_box(&mut to);
    });
    OWN_COPY.store(right, Ordering::Relaxed);
    let vector = time(|| {
        // SAFETY: two vectors of that length.
        unsafe { copy(to.as_mut_ptr(), from.as_ptr(), LEN) };
    });
    OWN_COPY.store(right && to == from && vector < memcpy, Ordering::Relaxed);
    pr_info!(
        "CRC-32 {} (kernel {}, own {} MB/s), copy {} (kernel {}, own {} MB/s)\n",
        name(&OWN_CRC),
        rate(LEN, kernel),
        rate(LEN, own),
        name(&OWN_COPY),
        rate(LEN, memcpy),
        rate(LEN, vector),
    );
    Ok(())
}

fn name(own: &AtomicBool) -> &'static str {
    match own.load(Ordering::Relaxed) {
        true => "by our own loop",
        false => "by the kernel",
    }
}
