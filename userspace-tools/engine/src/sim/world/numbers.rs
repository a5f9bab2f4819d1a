// SPDX-License-Identifier: GPL-2.0

//! Numbers of the specification that the observer needs, written down a second time.

/// Delay for the code of an RNR NAK, in nanoseconds (section 9.7.5.2.8, table 46 "RNR NAK timer field").
pub fn rnr_delay(code: u8) -> u64 {
    const HUNDREDTHS_MS: [u64; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    HUNDREDTHS_MS[usize::from(code)] * 10_000
}

/// The local ACK timeout for its code, in nanoseconds.
pub fn ack_timeout(code: u8) -> u64 {
    4096 << code
}
