// SPDX-License-Identifier: GPL-2.0

//! The network between the hosts: frames on their way and what befalls them.

use std::collections::BTreeMap;

use super::frame;
use super::frame::Family;
use crate::sim::Rng;
use crate::Instant;

/// What befell a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// Nothing.
    None,
    /// It was lost.
    Loss,
    /// It arrives twice.
    Duplicate,
    /// It was held back while others overtook it.
    Reorder,
    /// A bit flipped.
    Corrupt,
    /// It was held back for longer than an ACK timeout.
    Delay,
    /// There was no way to its destination.
    Partition,
    /// It had to wait for a slow link.
    Slow,
}

impl Fault {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::Loss,
        Self::Duplicate,
        Self::Reorder,
        Self::Corrupt,
        Self::Delay,
        Self::Partition,
        Self::Slow,
    ];

    /// A word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Loss => "loss",
            Self::Duplicate => "duplicate",
            Self::Reorder => "reorder",
            Self::Corrupt => "corrupt",
            Self::Delay => "delay",
            Self::Partition => "partition",
            Self::Slow => "slow",
        }
    }
}

/// What chance does to frames; rates are per mille.
#[derive(Copy, Clone, Debug, Default)]
pub struct Weather {
    /// Time on the wire.
    pub latency_ns: u64,
    /// Time that a link needs for each frame, while others wait.
    pub packet_ns: u64,
    /// Lost.
    pub loss: u64,
    /// Delivered twice, the second time later.
    pub duplicate: u64,
    /// Held back for up to eight latencies.
    pub reorder: u64,
    /// Delivered with one bit flipped.
    pub corrupt: u64,
    /// Held back for `delay_ns`.
    pub delay: u64,
    /// See `delay`.
    pub delay_ns: u64,
}

impl Weather {
    /// Nothing but time befalls packets, and all keep their order.
    pub fn calm(&self) -> bool {
        self.loss + self.duplicate + self.reorder + self.corrupt + self.delay == 0
    }
}

/// A frame and where it goes.
#[derive(Clone)]
pub struct Flight {
    /// Receiving host.
    pub to: usize,
    /// The bytes.
    pub frame: Vec<u8>,
    /// What has befallen it.
    pub fault: Fault,
}

/// Frames on their way, by time of arrival.
pub struct Fabric {
    /// What chance does.
    pub weather: Weather,
    /// Address family of all frames.
    pub family: Family,
    flying: BTreeMap<(Instant, u64), Flight>,
    count: u64,
    free: BTreeMap<(usize, usize), Instant>,
    /// Two hosts that do not reach each other.
    pub cut: Option<(usize, usize)>,
    /// Pairs of queue pairs that do not reach each other any more.
    pub dark: Vec<usize>,
}

impl Fabric {
    /// An empty network.
    pub fn new(weather: Weather, family: Family) -> Self {
        Self {
            weather,
            family,
            flying: BTreeMap::new(),
            count: 0,
            free: BTreeMap::new(),
            cut: None,
            dark: Vec::new(),
        }
    }

    fn parted(&self, from: usize, to: usize) -> bool {
        self.cut == Some((from, to)) || self.cut == Some((to, from))
    }

    /// Puts a packet, BTH to pad, on its way; returns its frame and what befalls it.
    pub fn send(
        &mut self,
        now: Instant,
        (from, to, pair): (usize, usize, usize),
        body: &[u8],
        rng: &mut Rng,
    ) -> (Vec<u8>, Fault) {
        let qpn = u32::from_be_bytes([0, body[5], body[6], body[7]]);
        let frame = frame::wrap(self.family, from, to, qpn, body);
        let w = self.weather;
        if self.parted(from, to) || self.dark.contains(&pair) {
            return (frame, Fault::Partition);
        }
        if rng.per_mille(w.loss) {
            return (frame, Fault::Loss);
        }
        let free = self.free.entry((from, to)).or_insert(now);
        let waits = *free > now;
        let gone = (*free).max(now).after(w.packet_ns);
        *free = gone;
        let mut flight = Flight {
            to,
            frame: frame.clone(),
            fault: if waits { Fault::Slow } else { Fault::None },
        };
        let mut at = gone.after(w.latency_ns);
        if rng.per_mille(w.duplicate) {
            flight.fault = Fault::Duplicate;
            let later = at.after(rng.below(8) * w.latency_ns);
            self.launch(later, flight.clone());
        } else if rng.per_mille(w.corrupt) {
            flight.fault = Fault::Corrupt;
            let bit = rng.below(8 * (frame.len() as u64 - 14)) as usize;
            flight.frame[14 + bit / 8] ^= 1 << (bit % 8);
        } else if rng.per_mille(w.delay) {
            flight.fault = Fault::Delay;
            at = at.after(w.delay_ns);
        } else if rng.per_mille(w.reorder) {
            flight.fault = Fault::Reorder;
            at = at.after((1 + rng.below(8)) * w.latency_ns);
        }
        let fault = flight.fault;
        self.launch(at, flight);
        (frame, fault)
    }

    fn launch(&mut self, at: Instant, flight: Flight) {
        self.count += 1;
        self.flying.insert((at, self.count), flight);
    }

    /// When the next frame arrives.
    pub fn next(&self) -> Option<Instant> {
        self.flying.keys().next().map(|(at, _)| *at)
    }

    /// Takes the next frame that has arrived.
    pub fn arrive(&mut self, now: Instant) -> Option<Flight> {
        let entry = self.flying.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    /// Nothing is on its way.
    pub fn idle(&self) -> bool {
        self.flying.is_empty()
    }
}
