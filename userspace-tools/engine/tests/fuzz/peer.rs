// SPDX-License-Identifier: GPL-2.0

//! A whole queue pair between a hostile peer and a careless user. The input is a program: the queue pair's type and
//! attributes, then packets, posts, changes of state and time.
//!
//! Whatever happens, nothing panics, nothing loops, no memory is touched that no key gives, and no work request completes
//! twice or without having been posted.

use std::collections::HashSet;

use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::HostEnv;
use ferroce_engine::sim::VecStore;
use ferroce_engine::wire::Feth;
use ferroce_engine::Instant;
use ferroce_engine::LocalOp;
use ferroce_engine::MemError;
use ferroce_engine::ModifyAttrs;
use ferroce_engine::Mtu;
use ferroce_engine::Packet;
use ferroce_engine::Qp;
use ferroce_engine::QpConfig;
use ferroce_engine::QpState;
use ferroce_engine::QpStorage;
use ferroce_engine::QpType;
use ferroce_engine::ReadReplay;
use ferroce_engine::SendFlags;
use ferroce_engine::SendOp;
use ferroce_engine::SendWqe;
use ferroce_engine::SendWr;
use ferroce_engine::Sge;

use super::driver::fuzz;
use super::driver::mix;

/// Bytes of the one region that there is; in front of it and behind it is nothing.
const LEN: usize = 16 << 10;
const KEY: u32 = Endpoint::KEY;
const VA: u64 = Endpoint::VA;
const STRIDE: usize = 64;

/// The rest of a program; reads zeroes at its end.
struct Tape<'a>(&'a [u8]);

impl<'a> Tape<'a> {
    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *byte
    }

    fn long(&mut self) -> u64 {
        u64::from_be_bytes([(); 8].map(|()| self.byte()))
    }

    /// An address near the region, or anywhere.
    fn address(&mut self) -> u64 {
        match self.byte() {
            0 => self.long(),
            near => VA + u64::from(near) * 64 - 64,
        }
    }

    fn key(&mut self) -> u32 {
        match self.byte() {
            0 => self.long() as u32,
            _ => KEY,
        }
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        head
    }

    fn sge(&mut self) -> Sge {
        Sge {
            addr: self.address(),
            len: u32::from(self.byte()) << (self.byte() & 7),
            lkey: self.key(),
        }
    }
}

fn queue_pair(tape: &mut Tape<'_>) -> Qp<VecStore> {
    let types = [
        QpType::Rc,
        QpType::Uc,
        QpType::Ud,
        QpType::XrcIni,
        QpType::XrcTgt,
    ];
    let cfg = QpConfig {
        qpn: 16,
        qp_type: types[usize::from(tape.byte()) % types.len()],
        sq_sig_all: tape.byte() & 1 != 0,
        srq: tape.byte() & 1 != 0,
        max_send_sge: 4,
        max_inline: STRIDE as u32,
        sq_stride: STRIDE as u32,
        window: 4096 << (tape.byte() & 7),
        check_pkey: true,
    };
    let sq = 1 + usize::from(tape.byte() & 7);
    let store = QpStorage {
        sq: vec![SendWqe::ZERO; sq],
        sq_data: vec![0; sq * STRIDE],
        rq_sges: vec![0; 4 * Sge::SIZE],
        replay: vec![ReadReplay::ZERO; 4],
    };
    Qp::new(cfg, store)
}

fn change(tape: &mut Tape<'_>, qp_type: QpType, state: QpState) -> ModifyAttrs {
    let connected = qp_type != QpType::Ud;
    let mut attrs = ModifyAttrs {
        state: Some(state),
        ..ModifyAttrs::default()
    };
    match state {
        QpState::Init => {
            attrs.access = Some(0x3ff);
            attrs.qkey = Some(0x11);
        }
        QpState::Rtr => {
            attrs.path_mtu = Mtu::from_ib(u32::from(tape.byte()) % 5 + 1);
            attrs.dest_qpn = connected.then_some(17);
            attrs.rq_psn = connected.then_some(0xff_fffe);
            attrs.max_dest_rd_atomic = Some(tape.byte() % 5);
            attrs.min_rnr_timer = Some(1);
        }
        QpState::Rts => {
            attrs.sq_psn = Some(0xff_fffe);
            attrs.timeout = Some(tape.byte() & 15);
            attrs.retry_cnt = Some(tape.byte() & 7);
            attrs.rnr_retry = Some(tape.byte() & 7);
            attrs.max_rd_atomic = Some(tape.byte() % 5);
        }
        _ => attrs.sqd_event = true,
    }
    attrs
}

fn request(tape: &mut Tape<'_>) -> SendOp {
    let (va, rkey) = (tape.address(), tape.key());
    match tape.byte() % 14 {
        0 => SendOp::Send,
        1 => SendOp::SendImm([1, 2, 3, 4]),
        2 => SendOp::SendInvalidate(rkey),
        3 => SendOp::Write { va, rkey },
        4 => SendOp::WriteImm {
            va,
            rkey,
            imm: [5; 4],
        },
        5 => SendOp::Read { va, rkey },
        6 => SendOp::CompareSwap {
            va,
            rkey,
            compare: tape.long(),
            swap: 3,
        },
        7 => SendOp::FetchAdd {
            va,
            rkey,
            add: tape.long(),
        },
        8 => SendOp::Datagram {
            dest_qpn: rkey,
            qkey: 0x11,
            ah: 1,
            imm: None,
        },
        9 => SendOp::Flush {
            va,
            rkey,
            len: tape.long() as u32,
            kind: Feth {
                placement: tape.byte(),
                selectivity: tape.byte(),
            },
        },
        10 => SendOp::AtomicWrite {
            va,
            rkey,
            data: [6; 8],
        },
        11 => SendOp::Local(LocalOp::Invalidate {
            key: tape.key() ^ 1,
        }),
        12 => SendOp::Local(LocalOp::BindWindow {
            window: 1,
            key: 2,
            mr: rkey,
            va,
            len: 9,
            access: 0,
        }),
        _ => SendOp::Malformed,
    }
}

/// The state of a run.
struct Run {
    end: Endpoint,
    now: Instant,
    posted: u64,
    receives: u64,
    completed: HashSet<u64>,
    received: HashSet<u64>,
    what: u64,
}

impl Run {
    fn packet(&mut self, tape: &mut Tape<'_>) {
        let len = usize::from(tape.byte()) * 4 + usize::from(tape.byte() & 1) * 1024;
        let mut body = tape.bytes(len).to_vec();
        body.resize(len.max(12), 0);
        let near = tape.byte();
        if near & 0x80 == 0 {
            // Mostly to the point: right partition, version and PSN, an address that exists.
            body[1] &= 0xf0;
            body[2..4].copy_from_slice(&[0xff, 0xff]);
            let base = match near & 0x40 {
                0 => self.end.qp.query().rq_psn,
                _ => self.end.qp.query().sq_psn,
            };
            let psn = base.wrapping_add(u32::from(near & 7)).wrapping_sub(3) & 0xff_ffff;
            body[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
            if near & 0x20 == 0 && body.len() >= 28 {
                let at = VA + u64::from(near & 0x18) * 512;
                body[12..20].copy_from_slice(&at.to_be_bytes());
                body[20..24].copy_from_slice(&KEY.to_be_bytes());
            }
        }
        match Packet::parse(&body) {
            Ok(mut pkt) => {
                pkt.grh = pkt.deth.map(|_| [0x45; 40]);
                self.end.qp.handle_packet(self.now, &pkt, &mut self.end.env);
                self.did(u64::from(pkt.bth.opcode));
            }
            Err(error) => self.did(error as u64),
        }
    }

    fn post(&mut self, tape: &mut Tape<'_>) {
        let bits = tape.byte();
        let flags = SendFlags {
            signaled: bits & 1 != 0,
            solicited: bits & 2 != 0,
            fence: bits & 4 != 0,
            inline: bits & 8 != 0,
        };
        let op = request(tape);
        let data: Vec<u8> = match flags.inline {
            true => tape.bytes(usize::from(bits >> 2)).to_vec(),
            false => (0..((bits >> 4) & 7))
                .flat_map(|_| tape.sge().encode())
                .collect(),
        };
        let wr = SendWr {
            wr_id: self.posted,
            op,
            srq: 3,
            flags,
        };
        let done = self.end.qp.post_send(&wr, &data);
        self.posted += u64::from(done.is_ok());
        self.did(done.map_or_else(|error| error as u64, |()| 9));
    }

    fn receive(&mut self, tape: &mut Tape<'_>) {
        let sges: Vec<Sge> = (0..tape.byte() % 5).map(|_| tape.sge()).collect();
        let env = &mut self.end.env;
        let queue = match self.end.qp.config().qp_type {
            QpType::XrcTgt => env.srqs.entry(3).or_default(),
            QpType::XrcIni => return,
            _ => &mut env.recvs,
        };
        queue.push_back((self.receives, sges));
        self.receives += 1;
        self.end.qp.receive_posted();
    }

    /// Sends what there is to send.
    fn poll(&mut self) {
        let mut runs = 0;
        while let Some(t) = self.end.qp.poll_transmit(self.now, 7, &mut self.end.env) {
            runs += 1;
            assert!(runs < 20_000, "there is no end of packets");
            let mut failed: Option<MemError> = None;
            for i in 0..t.count() {
                let mut body = vec![0; t.packet_len(i)];
                let done = self
                    .end
                    .qp
                    .write_packet(&t, i, &mut body, &self.end.env.mem);
                failed = failed.or(done.err());
                if done.is_ok() {
                    let pkt = Packet::parse(&body).expect("what is sent is a packet");
                    assert!(pkt.payload.len() <= self.end.qp.query().path_mtu.bytes() as usize);
                    self.did(0x100 + u64::from(pkt.bth.opcode));
                }
            }
            if let Some(error) = failed {
                self.end.qp.transmit_failed(&t, error, &mut self.end.env);
            }
        }
    }

    /// Something happened: inputs with the same happenings are alike, in whatever order they came.
    fn did(&mut self, what: u64) {
        self.what |= 1 << (mix(0, what) % 64);
    }

    fn look(&mut self) {
        let mut flushes = 0;
        while self.end.qp.needs_flush() {
            flushes += 1;
            assert!(flushes < 100, "there is no end of flushing");
            self.end.qp.flush(&mut self.end.env);
        }
        for wc in std::mem::take(&mut self.end.env.send_cq) {
            assert!(wc.wr_id < self.posted, "{wc:?} of nothing");
            assert!(self.completed.insert(wc.wr_id), "{wc:?} again");
            self.did(0x200 + wc.status as u64);
        }
        for wc in std::mem::take(&mut self.end.env.recv_cq) {
            assert!(wc.wr_id < self.receives, "{wc:?} of nothing");
            assert!(self.received.insert(wc.wr_id), "{wc:?} again");
            self.did(0x300 + wc.status as u64);
        }
        for event in std::mem::take(&mut self.end.env.events) {
            self.did(0x400 + event as u64);
        }
        self.did(0x500 + self.end.qp.state() as u64);
    }

    fn step(&mut self, tape: &mut Tape<'_>) {
        let qp_type = self.end.qp.config().qp_type;
        match tape.byte() % 16 {
            0..7 => self.packet(tape),
            7..10 => self.post(tape),
            10 | 11 => self.receive(tape),
            12 => {
                let states = [
                    QpState::Rts,
                    QpState::Sqd,
                    QpState::Error,
                    QpState::Reset,
                    QpState::Init,
                    QpState::Rtr,
                ];
                let state = states[usize::from(tape.byte()) % states.len()];
                let attrs = change(tape, qp_type, state);
                let _ = self.end.qp.modify(&attrs, &mut self.end.env);
            }
            13 => {
                self.now = self.end.qp.poll_timeout().unwrap_or(self.now).max(self.now);
                self.end.qp.handle_timeout(self.now, &mut self.end.env);
            }
            _ => self.poll(),
        }
        self.look();
    }
}

fn target(program: &[u8]) -> u64 {
    let mut tape = Tape(program);
    let mut end = Endpoint {
        qp: queue_pair(&mut tape),
        env: HostEnv::default(),
    };
    end.env.mem.register(KEY, VA, LEN);
    end.env.srqs.insert(3, Default::default());
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let attrs = change(&mut tape, end.qp.config().qp_type, state);
        if end.qp.modify(&attrs, &mut end.env).is_err() {
            break;
        }
    }
    let mut run = Run {
        end,
        now: Instant(1000),
        posted: 0,
        receives: 0,
        completed: HashSet::new(),
        received: HashSet::new(),
        what: 0,
    };
    for _ in 0..60 {
        if tape.0.is_empty() {
            break;
        }
        run.step(&mut tape);
    }
    run.poll();
    run.look();
    run.what
}

#[test]
fn a_hostile_peer() {
    fuzz("peer", 5_000, target);
}
