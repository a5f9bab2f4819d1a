// SPDX-License-Identifier: GPL-2.0

//! CRC-32 by tables, 16 bytes at a time (M. Kounavis and F. Berry, "A Systematic Approach to
//! Building High Performance Software-Based CRC Generators", 2005): for CPUs without
//! carry-less multiplication, where the kernel goes byte by byte.

/// Row `n`: what a byte becomes that `n` more bytes follow.
type Tables = [[u32; 256]; 16];

/// Bit-reversed 0x04c11db7.
const POLYNOMIAL: u32 = 0xedb8_8320;

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut all = [[0; 256]; 16];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = (sum >> 1) ^ if sum & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        all[0][byte] = sum;
        byte += 1;
    }
    let mut row = 1;
    while row < 16 {
        let mut byte = 0;
        while byte < 256 {
            let before = all[row - 1][byte];
            all[row][byte] = (before >> 8) ^ all[0][(before & 0xff) as usize];
            byte += 1;
        }
        row += 1;
    }
    all
}

/// Four bytes, of which the last one has `row` more behind it.
fn word(bytes: &[u8], state: u32, row: usize) -> u32 {
    let word = bytes.first_chunk().map_or(0, |b| u32::from_le_bytes(*b)) ^ state;
    let [a, b, c, d] = word.to_le_bytes();
    TABLES[row + 3][usize::from(a)]
        ^ TABLES[row + 2][usize::from(b)]
        ^ TABLES[row + 1][usize::from(c)]
        ^ TABLES[row][usize::from(d)]
}

/// Takes `bytes` into the state.
pub(super) fn crc32_le(state: u32, bytes: &[u8]) -> u32 {
    let mut blocks = bytes.chunks_exact(16);
    let whole = blocks.by_ref().fold(state, |state, block| {
        word(&block[..4], state, 12)
            ^ word(&block[4..8], 0, 8)
            ^ word(&block[8..12], 0, 4)
            ^ word(&block[12..16], 0, 0)
    });
    blocks.remainder().iter().fold(whole, |state, byte| {
        let [low, ..] = state.to_le_bytes();
        (state >> 8) ^ TABLES[0][usize::from(low ^ byte)]
    })
}
