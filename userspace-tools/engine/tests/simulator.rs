// SPDX-License-Identifier: GPL-2.0

//! Whole runs from a seed: random work in both directions over a bad wire, watched by an oracle.
//!
//! The oracle: every work request completes once and in order, every receive is taken in order by the message meant
//! for it, every byte is placed, once, and is the right one. `SEED=n` repeats one run, `SEEDS=n` runs more of them.

use std::collections::VecDeque;

use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Faults;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Rng;
use ferroce_engine::sim::Setup;
use ferroce_engine::sim::Verdict;
use ferroce_engine::Mtu;
use ferroce_engine::QpState;
use ferroce_engine::SendFlags;
use ferroce_engine::SendOp;
use ferroce_engine::Sge;
use ferroce_engine::WcOpcode;
use ferroce_engine::WcStatus;
use ferroce_engine::WcStatus::Success;

const KEY: u32 = Endpoint::KEY;
const VA: u64 = Endpoint::VA;

/// A message that must arrive: bytes at an offset of endpoint `side`'s memory.
struct Placed {
    side: usize,
    offset: u64,
    data: Vec<u8>,
}

/// A receive completion that must come.
struct Arrival {
    wr_id: u64,
    opcode: WcOpcode,
    len: u32,
    imm: Option<[u8; 4]>,
    solicited: bool,
}

/// A receive to post later, or at once.
struct Receive {
    wr_id: u64,
    sges: Vec<Sge>,
}

/// What one side has to do and what must come of it.
#[derive(Default)]
struct Side {
    work: VecDeque<(SendOp, Vec<Sge>, SendFlags)>,
    receives: VecDeque<Receive>,
    completions: Vec<(u64, u32)>,
    arrivals: Vec<Arrival>,
    posted: u64,
}

/// A run: its pair, its load and what is expected of it.
struct Run {
    pair: Pair,
    sides: [Side; 2],
    placed: Vec<Placed>,
    /// The next free byte of each side's memory; no two messages share one.
    free: [u64; 2],
}

fn setup(rng: &mut Rng, seed: u64) -> Setup {
    let near_wrap = 0x00ff_ffff - rng.below(300) as u32;
    let bad = |rng: &mut Rng| rng.pick(&[0, 0, 5, 20, 50]);
    Setup {
        mtu: rng.pick(&[Mtu::M256, Mtu::M512, Mtu::M1024, Mtu::M2048, Mtu::M4096]),
        window: rng.pick(&[4096, 16 << 10, 64 << 10, 1 << 20]),
        sq: rng.pick(&[1, 3, 16, 100]),
        psn: [near_wrap, rng.below(1 << 24) as u32],
        timeout: rng.pick(&[6, 7, 8]),
        min_rnr_timer: rng.pick(&[1, 5, 12]),
        rd_atomic: rng.pick(&[1, 2, 4, 16]),
        faults: Faults {
            latency_ns: 5_000,
            packet_ns: rng.pick(&[0, 300]),
            loss: bad(rng),
            duplicate: bad(rng),
            reorder: bad(rng),
            corrupt: bad(rng),
        },
        seed,
        ..Setup::default()
    }
}

fn length(rng: &mut Rng, mtu: u32) -> u32 {
    match rng.below(4) {
        0 => rng.below(16) as u32,
        1 => mtu * rng.below(5) as u32 + rng.below(3) as u32,
        2 => (mtu * (1 + rng.below(4) as u32)).saturating_sub(rng.below(3) as u32),
        _ => rng.below(20_000) as u32,
    }
}

impl Run {
    fn new(seed: u64, messages: usize) -> Self {
        let mut rng = Rng::new(seed);
        let setup = setup(&mut rng, seed);
        let mut run = Self {
            pair: Pair::new(&setup),
            sides: Default::default(),
            placed: Vec::new(),
            free: [0; 2],
        };
        let both = rng.per_mille(700);
        for _ in 0..messages {
            let side = if both { rng.below(2) as usize } else { 0 };
            run.add_message(&mut rng, side, setup.mtu.bytes());
        }
        run
    }

    /// `len` fresh bytes of a side's memory.
    fn alloc(&mut self, side: usize, len: u32) -> u64 {
        let at = self.free[side];
        self.free[side] += u64::from(len) + 1;
        assert!(self.free[side] < Endpoint::LEN as u64, "out of memory");
        at
    }

    /// Fresh memory in up to four pieces that are `len` bytes together, and the bytes it will hold.
    fn pieces(&mut self, rng: &mut Rng, side: usize, len: u32) -> Vec<Sge> {
        let mut sges = Vec::new();
        let mut left = len;
        for last in [false, false, false, true] {
            let cut = rng.below(u64::from(left) + 1) as u32;
            let here = if last || rng.per_mille(400) {
                left
            } else {
                cut
            };
            let at = self.alloc(side, here);
            sges.push(Endpoint::sge(at, here));
            left -= here;
        }
        sges
    }

    /// Expects `data` in the pieces, as far as it goes.
    fn expect(&mut self, side: usize, sges: &[Sge], data: &[u8]) {
        let mut rest = data;
        for sge in sges {
            let (here, later) = rest.split_at(rest.len().min(sge.len as usize));
            rest = later;
            self.placed.push(Placed {
                side,
                offset: sge.addr - VA,
                data: here.to_vec(),
            });
        }
    }

    fn fill(&self, rng: &mut Rng, side: usize, sges: &[Sge]) -> Vec<u8> {
        let end = &self.pair.ends[side];
        let fill = |sge: &Sge| end.fill(sge.addr - VA, sge.len as usize, rng.next_u64());
        sges.iter().flat_map(fill).collect()
    }

    fn add_message(&mut self, rng: &mut Rng, side: usize, mtu: u32) {
        let peer = 1 - side;
        let len = length(rng, mtu);
        let flags = SendFlags {
            signaled: rng.per_mille(700),
            solicited: rng.per_mille(300),
            fence: rng.per_mille(200),
            inline: false,
        };
        let kind = rng.below(6);
        let rkey = KEY;
        let imm = (rng.next_u64() as u32).to_be_bytes();
        let local = self.pieces(rng, side, if kind == 5 { 8 } else { len });
        let op = match kind {
            0 => SendOp::Send,
            1 => SendOp::SendImm(imm),
            5 => self.add_atomic(rng, side, &local),
            _ => {
                let remote = self.alloc(peer, len);
                let va = VA + remote;
                let there = [Endpoint::sge(remote, len)];
                if kind == 4 {
                    let data = self.fill(rng, peer, &there);
                    self.expect(side, &local, &data);
                    SendOp::Read { va, rkey }
                } else {
                    let data = self.fill(rng, side, &local);
                    self.expect(peer, &there, &data);
                    if kind == 3 {
                        SendOp::WriteImm { va, rkey, imm }
                    } else {
                        SendOp::Write { va, rkey }
                    }
                }
            }
        };
        if matches!(kind, 0 | 1 | 3) {
            let imm = (kind != 0).then_some(imm);
            self.add_receive(rng, side, &local, kind == 3, imm, flags.solicited);
        }
        let id = self.sides[side].posted;
        self.sides[side].posted += 1;
        if flags.signaled {
            let len = local.iter().map(|sge| sge.len).sum();
            self.sides[side].completions.push((id, len));
        }
        self.sides[side].work.push_back((op, local, flags));
    }

    /// An atomic on a word of its own.
    fn add_atomic(&mut self, rng: &mut Rng, side: usize, local: &[Sge]) -> SendOp {
        let peer = 1 - side;
        let at = self.alloc(peer, 16);
        let word = at + (8 - ((VA + at) & 7)) % 8;
        let old = self.fill(rng, peer, &[Endpoint::sge(word, 8)]);
        self.expect(side, local, &old);
        let old = u64::from_ne_bytes(*old.first_chunk().unwrap());
        let (add, va) = (rng.next_u64(), VA + word);
        self.placed.push(Placed {
            side: peer,
            offset: word,
            data: old.wrapping_add(add).to_ne_bytes().to_vec(),
        });
        SendOp::FetchAdd { va, rkey: KEY, add }
    }

    /// The receive for a message from `side`.
    fn add_receive(
        &mut self,
        rng: &mut Rng,
        side: usize,
        local: &[Sge],
        write: bool,
        imm: Option<[u8; 4]>,
        solicited: bool,
    ) {
        let peer = 1 - side;
        let len: u32 = local.iter().map(|sge| sge.len).sum();
        let room = if write {
            0
        } else {
            len + rng.below(100) as u32
        };
        let sges = self.pieces(rng, peer, room);
        if !write {
            let data = self.fill(rng, side, local);
            self.expect(peer, &sges, &data);
        }
        let wr_id = self.sides[peer].arrivals.len() as u64;
        let opcode = if write {
            WcOpcode::RecvRdmaWithImm
        } else {
            WcOpcode::Recv
        };
        self.sides[peer].receives.push_back(Receive { wr_id, sges });
        self.sides[peer].arrivals.push(Arrival {
            wr_id,
            opcode,
            len,
            imm,
            solicited,
        });
    }

    /// Posts some of what is left to post.
    fn post(&mut self) {
        for (side, end) in self.pair.ends.iter_mut().enumerate() {
            let todo = &mut self.sides[side];
            for _ in 0..self.pair.rng.below(4) {
                if let Some(recv) = todo.receives.pop_front() {
                    end.recv(recv.wr_id, &recv.sges);
                }
            }
            for _ in 0..self.pair.rng.below(8) {
                if end.qp.sq_space() == 0 {
                    break;
                }
                if let Some((op, sges, flags)) = todo.work.pop_front() {
                    let id = todo.posted - todo.work.len() as u64 - 1;
                    end.send_with(id, op, &sges, flags).expect("room");
                }
            }
        }
    }

    fn idle(&self) -> bool {
        self.sides
            .iter()
            .all(|s| s.work.is_empty() && s.receives.is_empty())
    }

    /// Runs until everything is posted and settled.
    fn finish(&mut self) {
        for _ in 0..20_000 {
            self.post();
            let step = 1 + self.pair.rng.below(20_000);
            self.pair.run_for(step);
            if self.idle() {
                self.pair.settle(200_000);
                return;
            }
        }
        panic!("not everything could be posted");
    }

    /// The oracle for a run without errors.
    fn check(&self) {
        for (end, side) in self.pair.ends.iter().zip(&self.sides) {
            let sent = end.env.send_cq.iter();
            let sent: Vec<_> = sent.map(|wc| (wc.wr_id, wc.byte_len)).collect();
            let failed = end.env.send_cq.iter().find(|wc| wc.status != Success);
            assert_eq!(failed, None);
            assert_eq!(sent, side.completions);
            assert_eq!(end.qp.state(), QpState::Rts);
            assert_eq!(end.env.recv_cq.len(), side.arrivals.len());
            for (wc, expected) in end.env.recv_cq.iter().zip(&side.arrivals) {
                assert_eq!(wc.status, Success);
                assert_eq!(wc.wr_id, expected.wr_id);
                assert_eq!(wc.opcode, expected.opcode);
                assert_eq!(wc.byte_len, expected.len);
                assert_eq!(wc.imm, expected.imm);
                assert_eq!(wc.solicited, expected.solicited);
            }
        }
        for placed in &self.placed {
            let end = &self.pair.ends[placed.side];
            let len = placed.data.len();
            assert_eq!(end.peek(placed.offset, len), placed.data);
            let writes = end.env.mem.writes(KEY, VA + placed.offset, len);
            assert!(writes.iter().all(|&n| n <= 1), "placed twice");
        }
    }
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|e| panic!("{name}={text}: {e}")),
    )
}

/// The seeds to run: the first `count`, as many as `SEEDS` says, or the one that `SEED` says.
fn seeds(count: u64) -> std::ops::Range<u64> {
    match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(count),
    }
}

/// Runs `body` for each seed and names the one that fails.
fn for_seeds(count: u64, body: impl Fn(u64) + std::panic::RefUnwindSafe) {
    for seed in seeds(count) {
        if let Err(panic) = std::panic::catch_unwind(|| body(seed)) {
            eprintln!("repeat with SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn everything_arrives_once_and_in_order() {
    for_seeds(400, |seed| {
        let mut run = Run::new(seed, 40);
        run.finish();
        run.check();
    });
}

/// The wire breaks for good at some moment: what was acknowledged is complete, one request fails for lack of answers,
/// the rest is flushed, nothing is lost or invented.
#[test]
fn a_partition_ends_in_errors_in_order() {
    for_seeds(200, |seed| {
        let mut run = Run::new(seed, 40);
        for side in &mut run.sides {
            side.work.iter_mut().for_each(|(_, _, f)| f.signaled = true);
        }
        let mut left = run.pair.rng.below(200);
        run.pair.filter(move |_, _| {
            left = left.saturating_sub(1);
            if left == 0 {
                Verdict::Drop
            } else {
                Verdict::Pass
            }
        });
        let mut turns = 0;
        while !run.idle() && turns < 20_000 {
            run.post();
            run.pair.run_for(100_000);
            turns += 1;
        }
        run.pair.settle(200_000);
        for end in &mut run.pair.ends {
            end.qp.set_error(&mut end.env);
            end.flush();
        }
        for (end, side) in run.pair.ends.iter().zip(&run.sides) {
            let ids: Vec<u64> = end.env.send_cq.iter().map(|wc| wc.wr_id).collect();
            let posted = side.posted - side.work.len() as u64;
            assert_eq!(ids, (0..posted).collect::<Vec<_>>());
            let statuses: Vec<_> = end.env.send_cq.iter().map(|wc| wc.status).collect();
            let good = statuses.iter().take_while(|s| **s == Success).count();
            let rest = &statuses[good..];
            let first = rest.first().copied();
            let fails = [WcStatus::RetryExcErr, WcStatus::WrFlushErr];
            assert!(first.is_none_or(|s| fails.contains(&s)));
            let flushed = |s: &WcStatus| *s == WcStatus::WrFlushErr;
            assert!(rest.iter().skip(1).all(flushed));
            let received: Vec<u64> = end.env.recv_cq.iter().map(|wc| wc.wr_id).collect();
            let taken = side.arrivals.len() - side.receives.len();
            assert_eq!(received, (0..taken as u64).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_seed_repeats_its_run() {
    let trace = |seed| {
        let mut run = Run::new(seed, 20);
        run.finish();
        let sent = run.pair.sent.iter();
        sent.map(|s| (s.at, s.from, s.psn)).collect::<Vec<_>>()
    };
    for seed in 0..3 {
        assert_eq!(trace(seed), trace(seed));
    }
}
