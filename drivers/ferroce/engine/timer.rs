// SPDX-License-Identifier: GPL-2.0

//! Time: the caller's clock and the two encodings of delays that the wire and the verbs use.

use super::Psn;

/// A point on the caller's monotonic clock, in nanoseconds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub u64);

impl Instant {
    /// The point `ns` later.
    #[must_use]
    pub const fn after(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}

/// A wait for memory that is being fetched. Each look for the same memory waits twice as long as the one before: where
/// a look takes longer than the first wait, nothing else would run, the fetch neither.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct FetchWait {
    until: Option<Instant>,
    /// The packet whose memory was absent last, and how often in a row.
    at: Psn,
    doublings: u32,
}

impl FetchWait {
    const FIRST_NS: u64 = 200_000;
    const DOUBLINGS: u32 = 5;

    /// The memory of the packet `at` is absent now.
    pub(super) fn begin(&mut self, now: Instant, at: Psn) {
        self.doublings = match self.at == at {
            true => Self::DOUBLINGS.min(self.doublings + 1),
            false => 0,
        };
        self.at = at;
        self.until = Some(now.after(Self::FIRST_NS << self.doublings));
    }

    /// When to look for it again.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// It is `now`: the wait may be over.
    pub(super) fn pass(&mut self, now: Instant) {
        if self.until.is_some_and(|at| at <= now) {
            self.until = None;
        }
    }
}

/// The local ACK timeout for its 5-bit code: 4.096 µs · 2^code; `None` for 0, which means no timeout (section 9.7.6.1.3).
pub fn ack_timeout_ns(code: u8) -> Option<u64> {
    match code & 31 {
        0 => None,
        code => Some(4096_u64 << code),
    }
}

/// Delays of the RNR timer in units of 10 µs, by its 5-bit code (section 9.7.5.2.8, table "RNR NAK timer field").
const RNR_UNITS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The delay that a receiver asks for with the 5-bit code of an RNR NAK.
pub fn rnr_delay_ns(code: u8) -> u64 {
    let units = RNR_UNITS.get(usize::from(code & 31)).copied();
    u64::from(units.unwrap_or(0)) * 10_000
}
