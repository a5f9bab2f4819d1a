// SPDX-License-Identifier: GPL-2.0

//! Random numbers.

use crate::bindings;

/// Bytes that nobody can guess.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // SAFETY: it writes `N` bytes into an array of that size.
    unsafe { bindings::get_random_bytes(bytes.as_mut_ptr().cast(), N) };
    bytes
}
