// SPDX-License-Identifier: GPL-2.0

//! Packet sequence numbers: 24 bits that wrap (section 9.7.2).

/// A packet sequence number.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Psn(u32);

impl Psn {
    /// The bits a PSN has on the wire.
    pub const MASK: u32 = 0x00ff_ffff;

    /// Half of the space: a distance below it is ahead, any other is behind.
    pub const HALF: u32 = 1 << 23;

    /// Keeps the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MASK)
    }

    /// The number, below 2^24.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The PSN `n` packets later.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }

    /// The PSN before this one.
    #[must_use]
    pub const fn prev(self) -> Self {
        Self::new(self.0.wrapping_sub(1))
    }

    /// How many steps forward lead from `earlier` to this PSN, modulo 2^24.
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0) & Self::MASK
    }
}
