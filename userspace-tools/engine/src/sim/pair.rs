// SPDX-License-Identifier: GPL-2.0

//! Two endpoints, the wire between them, and the clock.

use super::net::Net;
use super::Endpoint;
use super::Faults;
use super::HostEnv;
use super::Rng;
use super::Verdict;
use crate::wire::Operation;
use crate::Instant;
use crate::ModifyAttrs;
use crate::Mtu;
use crate::Packet;
use crate::Psn;
use crate::Qp;
use crate::QpConfig;
use crate::QpState;
use crate::QpStorage;
use crate::QpType;
use crate::ReadReplay;
use crate::SendWqe;
use crate::Sge;

/// How a pair is made; both sides alike but for the PSNs.
#[derive(Copy, Clone, Debug)]
pub struct Setup {
    /// Transport service; with [`QpType::XrcIni`] the second side is its target.
    pub qp_type: QpType,
    /// Path MTU.
    pub mtu: Mtu,
    /// Send window.
    pub window: u32,
    /// Send queue entries.
    pub sq: usize,
    /// Receives come from a shared queue.
    pub srq: bool,
    /// Packets of another partition are dropped.
    pub check_pkey: bool,
    /// First PSN of each side.
    pub psn: [u32; 2],
    /// Local ACK timeout.
    pub timeout: u8,
    /// Retries.
    pub retry_cnt: u8,
    /// RNR retries.
    pub rnr_retry: u8,
    /// RNR delay that receivers ask for.
    pub min_rnr_timer: u8,
    /// READs and atomics in flight.
    pub rd_atomic: u8,
    /// What the wire does.
    pub faults: Faults,
    /// Most packets of a run; 0 varies.
    pub max_run: u64,
    /// Where all chance comes from.
    pub seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            qp_type: QpType::Rc,
            mtu: Mtu::M1024,
            window: QpConfig::WINDOW,
            sq: 128,
            srq: false,
            check_pkey: true,
            psn: [0x00ff_fffa, 0x0012_3456],
            timeout: 8,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            rd_atomic: 4,
            faults: Faults::NONE,
            max_run: 0,
            seed: 1,
        }
    }
}

/// A packet that was sent.
#[derive(Copy, Clone, Debug)]
pub struct Sent {
    /// When.
    pub at: Instant,
    /// By which endpoint.
    pub from: usize,
    /// Operation.
    pub op: Operation,
    /// PSN.
    pub psn: Psn,
    /// It asks for an acknowledgement.
    pub ack_req: bool,
}

/// Decides about each packet that endpoint `usize` sends.
type Filter = Box<dyn FnMut(usize, &Packet<'_>) -> Verdict>;

/// Two endpoints on a wire.
pub struct Pair {
    /// The clock.
    pub now: Instant,
    /// The endpoints.
    pub ends: [Endpoint; 2],
    /// Everything that was sent, also what got lost.
    pub sent: Vec<Sent>,
    /// Chance.
    pub rng: Rng,
    net: Net,
    filter: Filter,
    max_run: u64,
}

/// Most scatter/gather elements of the endpoints.
const SGES: u32 = 8;

fn endpoint(setup: &Setup, side: usize) -> Endpoint {
    let cfg = QpConfig {
        qpn: 16 + side as u32,
        qp_type: match setup.qp_type {
            QpType::XrcIni if side == 1 => QpType::XrcTgt,
            other => other,
        },
        sq_sig_all: false,
        srq: setup.srq,
        check_pkey: setup.check_pkey,
        max_send_sge: SGES,
        max_inline: 128,
        sq_stride: 128,
        window: setup.window,
    };
    let store = QpStorage {
        sq: vec![SendWqe::ZERO; setup.sq],
        sq_data: vec![0; setup.sq * cfg.sq_stride as usize],
        rq_sges: vec![0; SGES as usize * Sge::SIZE],
        replay: vec![ReadReplay::ZERO; 16],
    };
    let env = HostEnv::default();
    env.mem.register(Endpoint::KEY, Endpoint::VA, Endpoint::LEN);
    Endpoint {
        qp: Qp::new(cfg, store),
        env,
    }
}

/// The three changes that lead to RTS.
fn life(setup: &Setup, side: usize) -> [ModifyAttrs; 3] {
    let connected = setup.qp_type != QpType::Ud;
    let init = ModifyAttrs {
        state: Some(QpState::Init),
        access: Some(0x30f),
        qkey: Some(0x11),
        ..ModifyAttrs::default()
    };
    let rtr = ModifyAttrs {
        state: Some(QpState::Rtr),
        path_mtu: Some(setup.mtu),
        dest_qpn: connected.then_some(17 - side as u32),
        rq_psn: connected.then_some(setup.psn[1 - side]),
        max_dest_rd_atomic: Some(setup.rd_atomic),
        min_rnr_timer: Some(setup.min_rnr_timer),
        ..ModifyAttrs::default()
    };
    let rts = ModifyAttrs {
        state: Some(QpState::Rts),
        sq_psn: Some(setup.psn[side]),
        timeout: Some(setup.timeout),
        retry_cnt: Some(setup.retry_cnt),
        rnr_retry: Some(setup.rnr_retry),
        max_rd_atomic: Some(setup.rd_atomic),
        ..ModifyAttrs::default()
    };
    [init, rtr, rts]
}

impl Pair {
    /// Two connected endpoints in RTS.
    pub fn new(setup: &Setup) -> Self {
        Self::with_changes(setup, 3)
    }

    /// Two connected endpoints in RTR.
    pub fn in_rtr(setup: &Setup) -> Self {
        Self::with_changes(setup, 2)
    }

    fn with_changes(setup: &Setup, changes: usize) -> Self {
        let mut ends = [endpoint(setup, 0), endpoint(setup, 1)];
        for (side, end) in ends.iter_mut().enumerate() {
            for change in life(setup, side).iter().take(changes) {
                let done = end.qp.modify(change, &mut end.env);
                done.expect("the usual way to RTS");
            }
        }
        Self {
            now: Instant(1_000_000),
            ends,
            sent: Vec::new(),
            rng: Rng::new(setup.seed),
            net: Net::new(setup.faults),
            filter: Box::new(|_, _| Verdict::Pass),
            max_run: setup.max_run,
        }
    }

    /// Has `filter` decide about every packet from now on.
    pub fn filter(&mut self, filter: impl FnMut(usize, &Packet<'_>) -> Verdict + 'static) {
        self.filter = Box::new(filter);
    }

    /// Changes what chance does from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.net.faults = faults;
    }

    /// Puts a packet on the wire to endpoint `to` that nobody sent.
    pub fn inject(&mut self, to: usize, body: &[u8]) {
        self.net
            .send(self.now, to, body, Verdict::Pass, &mut self.rng);
    }

    /// Hands endpoint `to` a packet past the wire.
    pub fn hand(&mut self, to: usize, body: &[u8]) {
        let end = &mut self.ends[to];
        let pkt = Packet::parse(body).expect("a valid packet");
        end.qp.handle_packet(self.now, &pkt, &mut end.env);
        end.flush();
    }

    /// Sends all that `from` has to send, and checks the shape of its runs.
    pub fn transmit(&mut self, from: usize) {
        let end = &mut self.ends[from];
        loop {
            end.flush();
            let max = match self.max_run {
                0 => 1 + self.rng.below(20),
                max => max,
            };
            let next = end.qp.poll_transmit(self.now, max as usize, &mut end.env);
            let Some(t) = next else { break };
            let count = t.count();
            assert!((1..=max as usize).contains(&count), "run of {count}");
            let mut run = Vec::new();
            for i in 0..count {
                assert!(t.packet_len(i) == t.packet_len(0) || i + 1 == count);
                assert!(t.packet_len(i) <= t.packet_len(0));
                let mut buf = vec![0xee; t.packet_len(i)];
                if let Err(error) = end.qp.write_packet(&t, i, &mut buf, &end.env.mem) {
                    end.qp.transmit_failed(&t, error, &mut end.env);
                    run.clear();
                    break;
                }
                run.push(buf);
            }
            for buf in run {
                let pkt = Packet::parse(&buf).expect("what is sent is valid");
                assert_eq!(pkt.bth.dest_qpn, t.dest_qpn());
                self.sent.push(Sent {
                    at: self.now,
                    from,
                    op: pkt.opcode.op,
                    psn: pkt.bth.psn,
                    ack_req: pkt.bth.ack_req,
                });
                let verdict = (self.filter)(from, &pkt);
                self.net
                    .send(self.now, 1 - from, &buf, verdict, &mut self.rng);
            }
        }
        end.flush();
    }

    /// One turn: sends, then moves the clock to what comes next before `limit`, and lets that happen. `false` if
    /// nothing will.
    pub fn step(&mut self, limit: Instant) -> bool {
        for from in 0..2 {
            self.transmit(from);
        }
        let timeouts = self.ends.iter().filter_map(|end| end.qp.poll_timeout());
        let Some(at) = timeouts.chain(self.net.next()).min() else {
            return false;
        };
        if at > limit {
            self.now = limit;
            return false;
        }
        self.now = self.now.max(at);
        while let Some((to, body)) = self.net.arrive(self.now) {
            let end = &mut self.ends[to];
            let pkt = body.as_deref().map(Packet::parse);
            if let Some(Ok(mut pkt)) = pkt {
                pkt.grh = pkt.deth.map(|_| [0x45; 40]);
                end.qp.handle_packet(self.now, &pkt, &mut end.env);
            }
        }
        for end in &mut self.ends {
            if end.qp.poll_timeout().is_some_and(|at| at <= self.now) {
                end.qp.handle_timeout(self.now, &mut end.env);
            }
        }
        true
    }

    /// Runs until nothing is left to happen. Panics if that takes more than `turns`.
    pub fn settle(&mut self, turns: usize) {
        for _ in 0..turns {
            if !self.step(Instant(u64::MAX)) {
                return;
            }
        }
        panic!("still busy after {turns} turns at {:?}", self.now);
    }

    /// Runs for `ns` of virtual time.
    pub fn run_for(&mut self, ns: u64) {
        let limit = self.now.after(ns);
        while self.now < limit {
            if !self.step(limit) {
                self.now = limit;
            }
        }
        for from in 0..2 {
            self.transmit(from);
        }
    }
}
