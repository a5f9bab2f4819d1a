// SPDX-License-Identifier: GPL-2.0

//! Two queue pairs that hand each other packets, in memory that is checked but never copied.

use std::hint::black_box;

use ferroce_engine::Access;
use ferroce_engine::AtomicOp;
use ferroce_engine::Completion;
use ferroce_engine::Env;
use ferroce_engine::Instant;
use ferroce_engine::LocalOp;
use ferroce_engine::MemError;
use ferroce_engine::Memory;
use ferroce_engine::ModifyAttrs;
use ferroce_engine::Mtu;
use ferroce_engine::Packet;
use ferroce_engine::Qp;
use ferroce_engine::QpConfig;
use ferroce_engine::QpEvent;
use ferroce_engine::QpState;
use ferroce_engine::QpStorage;
use ferroce_engine::QpType;
use ferroce_engine::ReadReplay;
use ferroce_engine::RecvWr;
use ferroce_engine::SendFlags;
use ferroce_engine::SendOp;
use ferroce_engine::SendWqe;
use ferroce_engine::SendWr;
use ferroce_engine::Sge;
use ferroce_engine::Store;
use ferroce_engine::WcStatus;

/// What is measured: messages of one kind, one after the other.
pub struct Scenario {
    /// Its name in reports.
    pub name: &'static str,
    op: SendOp,
    len: u32,
}

impl Scenario {
    /// Packets of a message.
    pub fn packets(&self) -> u64 {
        self.len.div_ceil(4096).into()
    }
}

const KEY: u32 = 0x1234;
const VA: u64 = 0x7f00_0000_0000;
const LEN: u64 = 1 << 20;
const REMOTE: (u64, u32) = (VA, KEY);

/// All scenarios, at a path MTU of 4096.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "write_4k",
        op: SendOp::Write {
            va: REMOTE.0,
            rkey: REMOTE.1,
        },
        len: 65536,
    },
    Scenario {
        name: "send_4k",
        op: SendOp::Send,
        len: 65536,
    },
    Scenario {
        name: "read_4k",
        op: SendOp::Read {
            va: REMOTE.0,
            rkey: REMOTE.1,
        },
        len: 65536,
    },
    Scenario {
        name: "send_64",
        op: SendOp::Send,
        len: 64,
    },
];

/// One region, whose bytes nobody touches.
struct NoCopy;

impl NoCopy {
    fn allowed(&self, key: u32, va: u64, len: u64) -> Result<(), MemError> {
        if key != KEY {
            return Err(MemError::Key);
        }
        let from = va.checked_sub(VA).ok_or(MemError::Range)?;
        let to = from.checked_add(len).ok_or(MemError::Range)?;
        if to > LEN {
            return Err(MemError::Range);
        }
        Ok(())
    }
}

impl Memory for NoCopy {
    fn check(&self, key: u32, va: u64, len: u64, _: Access) -> Result<(), MemError> {
        self.allowed(key, va, len)
    }

    fn read(&self, key: u32, va: u64, dst: &mut [u8], _: Access) -> Result<(), MemError> {
        black_box(&dst);
        self.allowed(key, va, dst.len() as u64)
    }

    fn write(&self, key: u32, va: u64, src: &[u8], _: Access) -> Result<(), MemError> {
        black_box(src);
        self.allowed(key, va, src.len() as u64)
    }

    fn atomic(&self, _: u32, _: u64, _: AtomicOp) -> Result<u64, MemError> {
        Err(MemError::Access)
    }

    fn atomic_write(&self, _: u32, _: u64, _: [u8; 8]) -> Result<(), MemError> {
        Err(MemError::Access)
    }

    fn flush(&self, _: u32, _: Option<(u64, u64)>, _: u8) -> Result<(), MemError> {
        Err(MemError::Access)
    }

    fn invalidate(&self, _: u32) -> Result<(), MemError> {
        Err(MemError::Access)
    }
}

/// Receives without end, and completions that are counted.
#[derive(Default)]
struct Host {
    sent: u64,
    received: u64,
}

impl Env for Host {
    type Mem = NoCopy;

    fn mem(&self) -> &NoCopy {
        &NoCopy
    }

    fn next_recv(&mut self, out: &mut [u8]) -> Option<RecvWr> {
        let sge = Sge {
            addr: VA,
            len: 65536,
            lkey: KEY,
        };
        out[..Sge::SIZE].copy_from_slice(&sge.encode());
        Some(RecvWr {
            wr_id: 0,
            num_sge: 1,
            total: 65536,
        })
    }

    fn local(&mut self, _: &LocalOp) -> Result<(), WcStatus> {
        Err(WcStatus::LocQpOpErr)
    }

    fn sends_left(&mut self, _left: u32) {}

    fn complete_send(&mut self, completion: Completion) {
        assert_eq!(completion.status, WcStatus::Success);
        self.sent += 1;
    }

    fn complete_recv(&mut self, completion: Completion) {
        assert_eq!(completion.status, WcStatus::Success);
        self.received += 1;
    }

    fn event(&mut self, event: QpEvent) {
        assert_eq!(event, QpEvent::CommEstablished);
    }
}

struct VecStore;

impl Store for VecStore {
    type Wqes = Vec<SendWqe>;
    type Bytes = Vec<u8>;
    type Acks = Vec<ReadReplay>;
}

struct End {
    qp: Qp<VecStore>,
    host: Host,
}

/// Two connected queue pairs.
pub struct Pair {
    ends: [End; 2],
    now: Instant,
    packet: Vec<u8>,
}

const DEPTH: usize = 16;
/// Packets of a run: what a super-skb holds.
const RUN: usize = 15;

fn end(side: u32) -> End {
    let cfg = QpConfig {
        qpn: 16 + side,
        qp_type: QpType::Rc,
        sq_sig_all: true,
        srq: false,
        check_pkey: true,
        max_send_sge: 1,
        max_inline: 0,
        sq_stride: Sge::SIZE as u32,
        window: QpConfig::WINDOW,
    };
    let store = QpStorage {
        sq: vec![SendWqe::ZERO; DEPTH],
        sq_data: vec![0; DEPTH * Sge::SIZE],
        rq_sges: vec![0; Sge::SIZE],
        replay: vec![ReadReplay::ZERO; 16],
    };
    let mut end = End {
        qp: Qp::new(cfg, store),
        host: Host::default(),
    };
    for change in &to_rts(side) {
        let done = end.qp.modify(change, &mut end.host);
        done.expect("the usual way to RTS");
    }
    end
}

fn to_rts(side: u32) -> [ModifyAttrs; 3] {
    let init = ModifyAttrs {
        state: Some(QpState::Init),
        access: Some(0xf),
        ..ModifyAttrs::default()
    };
    let rtr = ModifyAttrs {
        state: Some(QpState::Rtr),
        path_mtu: Some(Mtu::M4096),
        dest_qpn: Some(17 - side),
        rq_psn: Some(0),
        max_dest_rd_atomic: Some(16),
        min_rnr_timer: Some(12),
        ..ModifyAttrs::default()
    };
    let rts = ModifyAttrs {
        state: Some(QpState::Rts),
        sq_psn: Some(0),
        timeout: Some(14),
        retry_cnt: Some(7),
        rnr_retry: Some(7),
        max_rd_atomic: Some(16),
        ..ModifyAttrs::default()
    };
    [init, rtr, rts]
}

impl Pair {
    /// Two queue pairs in RTS.
    pub fn new() -> Self {
        Self {
            ends: [end(0), end(1)],
            now: Instant(1_000_000),
            packet: vec![0; 8192],
        }
    }

    /// Sends so many messages, and gives the packets of data that they took.
    pub fn run(&mut self, scenario: &Scenario, messages: u64) -> u64 {
        let goal = self.ends[0].host.sent + messages;
        let mut posted = self.ends[0].host.sent;
        let mut data = 0;
        while self.ends[0].host.sent < goal {
            while posted < goal && self.ends[0].qp.sq_space() > 0 {
                self.post(scenario);
                posted += 1;
            }
            let moved = [self.transmit(0), self.transmit(1)];
            assert!(moved[0] + moved[1] > 0, "nothing moves");
            data += match scenario.op {
                SendOp::Read { .. } => moved[1],
                _ => moved[0],
            };
        }
        data
    }

    fn post(&mut self, scenario: &Scenario) {
        let sge = Sge {
            addr: VA,
            len: scenario.len,
            lkey: KEY,
        };
        let wr = SendWr {
            wr_id: 7,
            op: scenario.op,
            srq: 0,
            flags: SendFlags::default(),
        };
        let posted = self.ends[0].qp.post_send(&wr, &sge.encode());
        posted.expect("room in the queue");
    }

    /// Hands all that one side has to send to the other; gives the number of packets.
    fn transmit(&mut self, from: usize) -> u64 {
        self.now = self.now.after(1000);
        let [first, second] = &mut self.ends;
        let (from, to) = match from {
            0 => (first, second),
            _ => (second, first),
        };
        let mut packets = 0;
        while let Some(t) = from.qp.poll_transmit(self.now, RUN, &mut from.host) {
            for i in 0..t.count() {
                let buf = &mut self.packet[..t.packet_len(i)];
                let written = from.qp.write_packet(&t, i, buf, from.host.mem());
                written.expect("memory that is there");
                let packet = Packet::parse(buf).expect("a valid packet");
                to.qp.handle_packet(self.now, &packet, &mut to.host);
            }
            packets += t.count() as u64;
        }
        packets
    }
}
