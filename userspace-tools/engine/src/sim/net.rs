// SPDX-License-Identifier: GPL-2.0

//! The wire: packets with real ICRCs, and what may happen to them.

use std::collections::BTreeMap;

use super::Rng;
use crate::crc::TableCrc;
use crate::icrc;
use crate::Instant;

/// What chance does to packets; rates are per mille.
#[derive(Copy, Clone, Debug)]
pub struct Faults {
    /// Time on the wire.
    pub latency_ns: u64,
    /// Time that the wire takes for each packet of a direction, while others wait in a queue without end.
    pub packet_ns: u64,
    /// Lost.
    pub loss: u64,
    /// Delivered twice, the second time later.
    pub duplicate: u64,
    /// Held back for up to eight latencies.
    pub reorder: u64,
    /// Delivered with one bit flipped.
    pub corrupt: u64,
}

impl Faults {
    /// A wire that only takes time.
    pub const NONE: Self = Self {
        latency_ns: 5_000,
        packet_ns: 0,
        loss: 0,
        duplicate: 0,
        reorder: 0,
        corrupt: 0,
    };
}

/// What a test's filter decides about a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// On to what chance has for it.
    Pass,
    /// Lost.
    Drop,
    /// Delivered twice.
    Twice,
}

/// An IPv4 header and a UDP header; the engine sees neither, the ICRC covers both.
const IP: [u8; 20] = [
    0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
];
const UDP: [u8; 8] = [0xc0, 1, 0x12, 0xb7, 0, 0, 0, 0];

fn icrc_of(body: &[u8]) -> [u8; 4] {
    let mut pseudo = icrc::Pseudo::new(&IP, &UDP).expect("headers of the right length");
    icrc::icrc(&TableCrc, &mut pseudo, body).expect("a packet has a BTH")
}

/// Packets on their way, by time of arrival.
pub(super) struct Net {
    pub(super) faults: Faults,
    flying: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    count: u64,
    /// When the wire to each endpoint is free again.
    free: [Instant; 2],
}

impl Net {
    pub(super) fn new(faults: Faults) -> Self {
        Self {
            faults,
            flying: BTreeMap::new(),
            count: 0,
            free: [Instant(0); 2],
        }
    }

    /// Adds the ICRC and puts the packet on the wire.
    pub(super) fn send(&mut self, now: Instant, to: usize, body: &[u8], v: Verdict, rng: &mut Rng) {
        let faults = self.faults;
        if v == Verdict::Drop || rng.per_mille(faults.loss) {
            return;
        }
        let mut frame = body.to_vec();
        frame.extend(icrc_of(body));
        if rng.per_mille(faults.corrupt) {
            let bit = rng.below(8 * frame.len() as u64) as usize;
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        let copies = if v == Verdict::Twice || rng.per_mille(faults.duplicate) {
            2
        } else {
            1
        };
        for copy in 0..copies {
            let held = copy > 0 || rng.per_mille(faults.reorder);
            let hold = if held { rng.below(8) + 1 } else { 0 };
            let gone = self.free[to].max(now).after(faults.packet_ns);
            self.free[to] = gone;
            let at = gone.after(faults.latency_ns * (1 + hold));
            self.count += 1;
            self.flying.insert((at, self.count), (to, frame.clone()));
        }
    }

    /// When the next packet arrives.
    pub(super) fn next(&self) -> Option<Instant> {
        self.flying.keys().next().map(|(at, _)| *at)
    }

    /// Takes the next packet that has arrived, BTH to pad, `None` for its bytes if its ICRC is wrong.
    pub(super) fn arrive(&mut self, now: Instant) -> Option<(usize, Option<Vec<u8>>)> {
        let entry = self.flying.first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        let (to, mut frame) = entry.remove();
        let body = frame.len() - 4;
        let icrc = frame.split_off(body);
        let intact = icrc_of(&frame) == *icrc;
        Some((to, intact.then_some(frame)))
    }
}
