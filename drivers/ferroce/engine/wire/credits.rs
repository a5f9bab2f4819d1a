// SPDX-License-Identifier: GPL-2.0

//! End-to-end credits: how many receives a responder has waiting, as five bits of an acknowledgement tell it
//! (section 9.7.7.2, table "End-to-End Flow Control Credit Field").

/// The five bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Credits(u8);

/// Receives by code; code 31 means that no credits are counted.
const COUNTS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

impl Credits {
    /// The sender counts no credits: it has a shared receive queue, or does not do so at all.
    pub const NONE: Self = Self(0x1f);

    /// The five bits of an acknowledgement.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 0x1f)
    }

    /// The largest number that can be told and does not exceed `receives`.
    pub fn of(receives: u32) -> Self {
        let above = COUNTS.iter().take_while(|&&count| count <= receives);
        Self::from_bits(above.count().saturating_sub(1) as u8)
    }

    /// The receives that are told, `None` for [`Credits::NONE`].
    pub fn count(self) -> Option<u32> {
        COUNTS.get(usize::from(self.0)).copied()
    }

    /// The five bits.
    pub const fn bits(self) -> u8 {
        self.0
    }
}
