// SPDX-License-Identifier: GPL-2.0

//! The CRC-32 of the ICRC, by a byte table.

use crate::icrc::Crc;

/// Table-driven CRC-32.
#[derive(Copy, Clone, Debug, Default)]
pub struct TableCrc;

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut state = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            state = (state >> 1) ^ (0xedb8_8320 * (state & 1));
            bit += 1;
        }
        table[byte] = state;
        byte += 1;
    }
    table
}

impl Crc for TableCrc {
    fn update(&self, state: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(state, |state, byte| {
            (state >> 8) ^ TABLE[usize::from(state as u8 ^ byte)]
        })
    }
}
