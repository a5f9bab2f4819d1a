// SPDX-License-Identifier: GPL-2.0

//! The kernel's CRC-32 (lib/crc32.c), which uses carry-less multiplication where the CPU has it.

use crate::bindings;

/// Little-endian CRC-32 of `bytes` from `seed`, without the final inversion.
pub(crate) fn crc32_le(seed: u32, bytes: &[u8]) -> u32 {
    // SAFETY: the range is valid for reads.
    unsafe { bindings::crc32_le(seed, bytes.as_ptr().cast(), bytes.len()) }
}
