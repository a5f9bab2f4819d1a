// SPDX-License-Identifier: GPL-2.0

//! CRC-32 and copying by the CPU's vector registers (x86 with AVX and PCLMULQDQ).
//!
//! The compiler never uses these registers in the kernel, so whoever does says so to the
//! kernel before and after ([`Section`]); that is not possible in every context.

use crate::bindings;
use core::{
    marker::PhantomData,
    sync::atomic::{
        AtomicBool,
        Ordering, //
    },
};

/// The CPU has what this module uses.
static USABLE: AtomicBool = AtomicBool::new(false);

/// Finds out whether there can be a [`Section`]; before that there is none.
pub(super) fn detect() {
    // SAFETY: no requirement.
    let usable = unsafe { bindings::ferroce_has_vectors() };
    USABLE.store(usable, Ordering::Relaxed);
}

/// A section of code that may use vector registers. It stays on its CPU, and is short.
pub(super) struct Section(PhantomData<*mut ()>);

impl Section {
    /// Begins one, if that is possible here and the CPU has what this module uses.
    pub(super) fn begin() -> Option<Self> {
        let usable = USABLE.load(Ordering::Relaxed);
        // SAFETY: what was begun is ended in `drop`, on the same CPU, since preemption is off
        // meanwhile and the section is not `Send`.
        (usable && unsafe { bindings::ferroce_fpu_begin() }).then_some(Self(PhantomData))
    }

    /// Takes `blocks` times 16 bytes at the start of `bytes` into the state of a reflected
    /// CRC-32 (polynomial 0x04c11db7). Blocks that are not there are not taken.
    pub(super) fn crc32_le(&self, state: u32, bytes: &[u8], blocks: usize) -> u32 {
        let blocks = blocks.min(bytes.len() / 16);
        if blocks == 0 {
            return state;
        }
        // SAFETY: the section is ours, and the slice has that many blocks.
        unsafe { x86::fold(state, bytes.as_ptr(), blocks) }
    }

    /// Copies `len` bytes.
    ///
    /// # Safety
    ///
    /// `src` is valid for reads and `dst` for writes of `len` bytes, which is at least 32, and
    /// the ranges do not overlap.
    pub(super) unsafe fn copy(&self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the section is ours, and the rest is our contract.
        unsafe { x86::copy(dst, src, len) }
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        // SAFETY: begun in `begin`.
        unsafe { bindings::ferroce_fpu_end() }
    }
}

#[cfg(CONFIG_X86_64)]
mod x86 {
    use core::arch::asm;

    /// Multipliers modulo the polynomial, by V. Gopal et al., "Fast CRC Computation for Generic
    /// Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), for the reflected CRC-32: what
    /// moves 128 bits by 512 bits, by 128 bits, by 64 bits, and Barrett's two.
    #[repr(C, align(16))]
    struct Multipliers([u64; 8]);
    static MULTIPLIERS: Multipliers = Multipliers([
        0x1_5444_2bd4,
        0x1_c6e4_1596,
        0x1_7519_97d0,
        0x0_ccaa_009e,
        0x1_63cd_6124,
        0,
        0x1_db71_0641,
        0x1_f701_1641,
    ]);

    /// # Safety
    ///
    /// In a [`super::Section`], with `blocks` times 16 readable bytes at `at`, and one block
    /// at least.
    pub(super) unsafe fn fold(state: u32, at: *const u8, blocks: usize) -> u32 {
        let mut sum = state;
        // SAFETY: it reads the blocks, each once, and the table. Vector registers are the
        // section's.
        unsafe {
            asm!(
                "vmovd xmm0, {sum:e}",
                "vpxor xmm0, xmm0, [{at}]",
                "sub {blocks}, 1",
                "add {at}, 16",
                "cmp {blocks}, 7",
                "jb 5f",
                // Four lanes of 128 bits, each moved by 512 bits a round.
                "vmovdqu xmm1, [{at}]",
                "vmovdqu xmm2, [{at} + 16]",
                "vmovdqu xmm3, [{at} + 32]",
                "vmovdqa xmm5, [{k}]",
                "sub {blocks}, 3",
                "add {at}, 48",
                "sub {blocks}, 8",
                "jb 3f",
                "2:",
                "vpclmulqdq xmm6, xmm0, xmm5, 0x00",
                "vpclmulqdq xmm0, xmm0, xmm5, 0x11",
                "vpxor xmm6, xmm6, [{at}]",
                "vpxor xmm0, xmm0, xmm6",
                "vpclmulqdq xmm7, xmm1, xmm5, 0x00",
                "vpclmulqdq xmm1, xmm1, xmm5, 0x11",
                "vpxor xmm7, xmm7, [{at} + 16]",
                "vpxor xmm1, xmm1, xmm7",
                "vpclmulqdq xmm8, xmm2, xmm5, 0x00",
                "vpclmulqdq xmm2, xmm2, xmm5, 0x11",
                "vpxor xmm8, xmm8, [{at} + 32]",
                "vpxor xmm2, xmm2, xmm8",
                "vpclmulqdq xmm9, xmm3, xmm5, 0x00",
                "vpclmulqdq xmm3, xmm3, xmm5, 0x11",
                "vpxor xmm9, xmm9, [{at} + 48]",
                "vpxor xmm3, xmm3, xmm9",
                "vpclmulqdq xmm6, xmm0, xmm5, 0x00",
                "vpclmulqdq xmm0, xmm0, xmm5, 0x11",
                "vpxor xmm6, xmm6, [{at} + 64]",
                "vpxor xmm0, xmm0, xmm6",
                "vpclmulqdq xmm7, xmm1, xmm5, 0x00",
                "vpclmulqdq xmm1, xmm1, xmm5, 0x11",
                "vpxor xmm7, xmm7, [{at} + 80]",
                "vpxor xmm1, xmm1, xmm7",
                "vpclmulqdq xmm8, xmm2, xmm5, 0x00",
                "vpclmulqdq xmm2, xmm2, xmm5, 0x11",
                "vpxor xmm8, xmm8, [{at} + 96]",
                "vpxor xmm2, xmm2, xmm8",
                "vpclmulqdq xmm9, xmm3, xmm5, 0x00",
                "vpclmulqdq xmm3, xmm3, xmm5, 0x11",
                "vpxor xmm9, xmm9, [{at} + 112]",
                "vpxor xmm3, xmm3, xmm9",
                "add {at}, 128",
                "sub {blocks}, 8",
                "jae 2b",
                "3:",
                "add {blocks}, 8",
                "sub {blocks}, 4",
                "jb 4f",
                "vpclmulqdq xmm6, xmm0, xmm5, 0x00",
                "vpclmulqdq xmm0, xmm0, xmm5, 0x11",
                "vpxor xmm6, xmm6, [{at}]",
                "vpxor xmm0, xmm0, xmm6",
                "vpclmulqdq xmm7, xmm1, xmm5, 0x00",
                "vpclmulqdq xmm1, xmm1, xmm5, 0x11",
                "vpxor xmm7, xmm7, [{at} + 16]",
                "vpxor xmm1, xmm1, xmm7",
                "vpclmulqdq xmm8, xmm2, xmm5, 0x00",
                "vpclmulqdq xmm2, xmm2, xmm5, 0x11",
                "vpxor xmm8, xmm8, [{at} + 32]",
                "vpxor xmm2, xmm2, xmm8",
                "vpclmulqdq xmm9, xmm3, xmm5, 0x00",
                "vpclmulqdq xmm3, xmm3, xmm5, 0x11",
                "vpxor xmm9, xmm9, [{at} + 48]",
                "vpxor xmm3, xmm3, xmm9",
                "add {at}, 64",
                "sub {blocks}, 4",
                "4:",
                "add {blocks}, 4",
                // The four lanes into one.
                "vmovdqa xmm5, [{k} + 16]",
                "vpclmulqdq xmm6, xmm0, xmm5, 0x00",
                "vpclmulqdq xmm0, xmm0, xmm5, 0x11",
                "vpxor xmm0, xmm0, xmm6",
                "vpxor xmm0, xmm0, xmm1",
                "vpclmulqdq xmm6, xmm0, xmm5, 0x00",
                "vpclmulqdq xmm0, xmm0, xmm5, 0x11",
                "vpxor xmm0, xmm0, xmm6",
                "vpxor xmm0, xmm0, xmm2",
                "vpclmulqdq xmm6, xmm0, xmm5, 0x00",
                "vpclmulqdq xmm0, xmm0, xmm5, 0x11",
                "vpxor xmm0, xmm0, xmm6",
                "vpxor xmm0, xmm0, xmm3",
                "5:",
                // What is left, a block at a time.
                "vmovdqa xmm5, [{k} + 16]",
                "test {blocks}, {blocks}",
                "jz 7f",
                "6:",
                "vpclmulqdq xmm6, xmm0, xmm5, 0x00",
                "vpclmulqdq xmm0, xmm0, xmm5, 0x11",
                "vpxor xmm6, xmm6, [{at}]",
                "vpxor xmm0, xmm0, xmm6",
                "add {at}, 16",
                "sub {blocks}, 1",
                "jnz 6b",
                "7:",
                // 128 bits to 64, to 32.
                "vpcmpeqd xmm4, xmm4, xmm4",
                "vpsrlq xmm4, xmm4, 32",
                "vpclmulqdq xmm1, xmm0, xmm5, 0x10",
                "vpsrldq xmm0, xmm0, 8",
                "vpxor xmm0, xmm0, xmm1",
                "vpsrldq xmm1, xmm0, 4",
                "vpand xmm0, xmm0, xmm4",
                "vpclmulqdq xmm0, xmm0, [{k} + 32], 0x00",
                "vpxor xmm0, xmm0, xmm1",
                "vmovdqa xmm5, [{k} + 48]",
                "vpand xmm1, xmm0, xmm4",
                "vpclmulqdq xmm1, xmm1, xmm5, 0x10",
                "vpand xmm1, xmm1, xmm4",
                "vpclmulqdq xmm1, xmm1, xmm5, 0x00",
                "vpxor xmm0, xmm0, xmm1",
                "vpextrd {sum:e}, xmm0, 1",
                sum = inout(reg) sum,
                at = inout(reg) at => _,
                blocks = inout(reg) blocks => _,
                k = in(reg) &raw const MULTIPLIERS,
                options(readonly, nostack),
            );
        }
        sum
    }

    /// # Safety
    ///
    /// In a [`super::Section`], and as for [`super::Section::copy`].
    pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: it reads and writes `len` bytes, the last of them perhaps twice. Vector
        // registers are the section's.
        unsafe {
            asm!(
                // The last 32 bytes are read before and written after all others.
                "vmovdqu ymm4, [{src} + {len} - 32]",
                "lea {end}, [{dst} + {len} - 32]",
                "sub {len}, 128",
                "jb 3f",
                "2:",
                "vmovdqu ymm0, [{src}]",
                "vmovdqu ymm1, [{src} + 32]",
                "vmovdqu ymm2, [{src} + 64]",
                "vmovdqu ymm3, [{src} + 96]",
                "vmovdqu [{dst}], ymm0",
                "vmovdqu [{dst} + 32], ymm1",
                "vmovdqu [{dst} + 64], ymm2",
                "vmovdqu [{dst} + 96], ymm3",
                "add {src}, 128",
                "add {dst}, 128",
                "sub {len}, 128",
                "jae 2b",
                "3:",
                "add {len}, 96",
                "jnc 5f",
                "4:",
                "vmovdqu ymm0, [{src}]",
                "vmovdqu [{dst}], ymm0",
                "add {src}, 32",
                "add {dst}, 32",
                "sub {len}, 32",
                "jae 4b",
                "5:",
                "vmovdqu [{end}], ymm4",
                "vzeroupper",
                src = inout(reg) src => _,
                dst = inout(reg) dst => _,
                len = inout(reg) len => _,
                end = out(reg) _,
                options(nostack),
            );
        }
    }
}

#[cfg(not(CONFIG_X86_64))]
mod x86 {
    /// Never called: there is no section.
    pub(super) unsafe fn fold(state: u32, _at: *const u8, _blocks: usize) -> u32 {
        state
    }

    /// As above.
    pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's contract.
        unsafe { core::ptr::copy_nonoverlapping(src, dst, len) }
    }
}
