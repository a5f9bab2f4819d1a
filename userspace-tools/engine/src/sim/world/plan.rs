// SPDX-License-Identifier: GPL-2.0

//! What a run consists of, drawn from its seed: hosts, queue pairs, weather, and the trouble that each pair of queue
//! pairs gets into.

use super::fabric::Weather;
use super::frame::Family;
use crate::sim::Rng;
use crate::Mtu;
use crate::QpType;

/// A microsecond in nanoseconds.
pub const US: u64 = 1000;

/// What goes wrong between two queue pairs, beyond the weather.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing: everything must succeed.
    None,
    /// One work request of `side` cannot succeed.
    Flaw {
        /// Index of the side in its pair.
        side: usize,
    },
    /// `side` is put into ERROR.
    Kill {
        /// Index of the side in its pair.
        side: usize,
    },
    /// Both go to RESET and live again, `side` first.
    Rebirth {
        /// Index of the side in its pair.
        side: usize,
    },
    /// The send queue of `side` is drained and goes on later.
    Drain {
        /// Index of the side in its pair.
        side: usize,
    },
    /// `side` runs out of receives.
    Starve {
        /// Index of the side in its pair.
        side: usize,
    },
    /// They do not reach each other any more.
    Dark,
    /// Memory of `side` that the other one uses is invalidated.
    Revoke {
        /// Index of the side in its pair.
        side: usize,
    },
}

/// A queue pair.
#[derive(Copy, Clone, Debug)]
pub struct Params {
    /// Host it lives on.
    pub host: usize,
    /// Pair it belongs to.
    pub pair: usize,
    /// Index in the pair.
    pub side: usize,
    /// Transport service.
    pub qp_type: QpType,
    /// Path MTU.
    pub mtu: Mtu,
    /// Send window.
    pub window: u32,
    /// Send queue entries.
    pub sq: usize,
    /// Receives come from the host's shared queue.
    pub srq: bool,
    /// Every send work request is signalled.
    pub sig_all: bool,
    /// First PSN.
    pub psn: u32,
    /// Local ACK timeout.
    pub timeout: u8,
    /// Retries.
    pub retry_cnt: u8,
    /// RNR retries.
    pub rnr_retry: u8,
    /// RNR delay that it asks for.
    pub min_rnr_timer: u8,
    /// READs and atomics in flight from this side; the other side takes as many.
    pub rd_atomic: u8,
    /// What the peer may do.
    pub access: u32,
    /// Queue key.
    pub qkey: u32,
    /// When it becomes ready to receive.
    pub rtr_at: u64,
    /// When it becomes ready to send.
    pub rts_at: u64,
    /// Receives are posted before they are needed.
    pub early: bool,
    /// Work requests to post.
    pub load: usize,
}

impl Params {
    /// Nothing may get lost.
    pub fn reliable(&self) -> bool {
        !matches!(self.qp_type, QpType::Uc | QpType::Ud)
    }

    /// Receives are not flushed with the queue pair.
    pub fn shares_receives(&self) -> bool {
        self.srq || self.qp_type == QpType::XrcTgt
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where all chance comes from.
    pub seed: u64,
    /// Address family.
    pub family: Family,
    /// Number of hosts.
    pub hosts: usize,
    /// What the network does.
    pub weather: Weather,
    /// A partition: two hosts, from when, for how long.
    pub cut: Option<(usize, usize, u64, u64)>,
    /// Queue pairs; those of pair `n` are `2 * n` and `2 * n + 1`.
    pub nodes: Vec<Params>,
    /// Trouble of each pair.
    pub trouble: Vec<Trouble>,
}

fn weather(rng: &mut Rng) -> Weather {
    let calm = Weather {
        latency_ns: 1 + rng.below(8_000),
        packet_ns: 0,
        ..Weather::default()
    };
    if rng.per_mille(300) {
        return calm;
    }
    let bad = |rng: &mut Rng| rng.pick(&[0, 0, 0, 5, 20, 50]);
    Weather {
        packet_ns: rng.pick(&[0, 0, 300, 900]),
        loss: bad(rng),
        duplicate: bad(rng),
        reorder: bad(rng),
        corrupt: bad(rng),
        delay: rng.pick(&[0, 0, 5, 20]),
        delay_ns: rng.pick(&[300, 1200, 3000]) * US,
        ..calm
    }
}

fn trouble(rng: &mut Rng, qp_type: QpType) -> Trouble {
    let side = rng.below(2) as usize;
    if rng.per_mille(450) {
        return Trouble::None;
    }
    match (rng.below(12), qp_type) {
        (0, _) => Trouble::Kill { side },
        (1 | 2, _) => Trouble::Drain { side },
        (3, QpType::Rc | QpType::XrcIni) => Trouble::Dark,
        (4, QpType::Rc | QpType::XrcIni) => Trouble::Starve { side },
        (5 | 6, QpType::Rc | QpType::XrcIni) => Trouble::Rebirth { side },
        (7, QpType::Rc | QpType::XrcIni) => Trouble::Revoke { side },
        _ => Trouble::Flaw { side },
    }
}

impl Plan {
    /// The run of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x6665_7272_6f63_6521);
        let rng = &mut rng;
        let hosts = 2 + rng.below(3) as usize;
        let weather = weather(rng);
        let mut plan = Self {
            seed,
            family: rng.pick(&[Family::V4, Family::V4, Family::V6]),
            hosts,
            weather,
            cut: None,
            nodes: Vec::new(),
            trouble: Vec::new(),
        };
        let pairs = 1 + rng.below(4) as usize;
        for pair in 0..pairs {
            plan.add_pair(rng, pair);
        }
        if !weather.calm() && rng.per_mille(250) {
            let a = rng.below(hosts as u64) as usize;
            let b = rng.below(hosts as u64) as usize;
            let shortest = plan.nodes.iter().map(|n| n.timeout).min().unwrap_or(8);
            let span = 1 + rng.below(2 * (4096 << shortest));
            plan.cut = Some((a, b, rng.below(200 * US), span));
        }
        plan
    }

    fn add_pair(&mut self, rng: &mut Rng, pair: usize) {
        use QpType::*;
        let qp_type = rng.pick(&[Rc, Rc, Rc, Rc, Rc, Rc, Uc, Uc, Ud, Ud, XrcIni, XrcIni]);
        let xrc = qp_type == XrcIni;
        let trouble = trouble(rng, qp_type);
        let mtu = match qp_type {
            QpType::Ud => Mtu::M4096,
            _ => rng.pick(&[
                Mtu::M256,
                Mtu::M256,
                Mtu::M512,
                Mtu::M1024,
                Mtu::M2048,
                Mtu::M4096,
            ]),
        };
        let slow = self.weather.packet_ns > 0;
        let late = self.weather.delay > 0;
        let timeout = if slow {
            rng.pick(&[10, 11])
        } else {
            rng.pick(&[7, 8, 9])
        };
        let fails_soon = matches!(trouble, Trouble::Starve { .. } | Trouble::Dark);
        let starves = matches!(trouble, Trouble::Starve { .. });
        let srq = rng.per_mille(200) && !starves && !xrc;
        let both = rng.per_mille(700) && !xrc;
        let load = 4 + rng.below(rng.clone().pick(&[8, 20, 40])) as usize;
        for side in 0..2 {
            let rtr_at = if side == 0 { 0 } else { rng.below(50 * US) };
            self.nodes.push(Params {
                host: rng.below(self.hosts as u64) as usize,
                pair,
                side,
                qp_type: if xrc && side == 1 { XrcTgt } else { qp_type },
                mtu,
                window: rng.pick(&[4096, 16 << 10, 64 << 10, 1 << 20]),
                sq: rng.pick(&[1, 3, 16, 100]),
                srq,
                sig_all: rng.per_mille(100),
                psn: match rng.below(3) {
                    0 => 0x00ff_ffff - rng.below(60) as u32,
                    1 => rng.below(3) as u32,
                    _ => rng.below(1 << 24) as u32,
                },
                timeout,
                retry_cnt: if trouble == Trouble::Dark {
                    rng.below(8) as u8
                } else {
                    7
                },
                rnr_retry: if starves { rng.below(7) as u8 } else { 7 },
                min_rnr_timer: rng.below(if fails_soon || late { 16 } else { 32 }) as u8,
                rd_atomic: rng.pick(&[1, 2, 4, 16]),
                access: 0x30f,
                qkey: 0x1111_0000 + rng.below(100) as u32,
                rtr_at,
                rts_at: rtr_at + rng.below(100 * US),
                early: rng.per_mille(500),
                load: if side == 0 || both { load } else { 0 },
            });
        }
        self.trouble.push(trouble);
    }

    /// The other queue pair of a node's pair.
    pub fn peer(node: usize) -> usize {
        node ^ 1
    }

    /// Nothing but order-keeping time befalls the packets of this run, and links are fast.
    pub fn calm(&self) -> bool {
        self.weather.calm() && self.weather.packet_ns == 0 && self.cut.is_none()
    }
}
