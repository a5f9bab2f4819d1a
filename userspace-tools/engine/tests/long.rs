// SPDX-License-Identifier: GPL-2.0

//! Messages of 2^31 bytes, the longest there are (section 9.7.7), over memory that has no bytes.

use ferroce_engine::sim::VecStore;
use ferroce_engine::wire::Operation;
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
use ferroce_engine::WcStatus;
use std::cell::Cell;

const LONGEST: u32 = 1 << 31;

/// Memory where everything may be read and written; writes must come in order.
#[derive(Default)]
struct Endless {
    written: Cell<u64>,
}

impl Memory for Endless {
    fn check(&self, _: u32, _: u64, _: u64, _: Access) -> Result<(), MemError> {
        Ok(())
    }

    fn read(&self, _: u32, _: u64, _: &mut [u8], _: Access) -> Result<(), MemError> {
        Ok(())
    }

    fn write(&self, _: u32, va: u64, src: &[u8], _: Access) -> Result<(), MemError> {
        assert_eq!(va, self.written.get(), "bytes come in order");
        self.written.set(va + src.len() as u64);
        Ok(())
    }

    fn atomic(&self, _: u32, _: u64, _: AtomicOp) -> Result<u64, MemError> {
        Err(MemError::Key)
    }

    fn atomic_write(&self, _: u32, _: u64, _: [u8; 8]) -> Result<(), MemError> {
        Err(MemError::Key)
    }

    fn flush(&self, _: u32, _: Option<(u64, u64)>, _: u8) -> Result<(), MemError> {
        Err(MemError::Key)
    }

    fn invalidate(&self, _: u32) -> Result<(), MemError> {
        Err(MemError::Key)
    }
}

#[derive(Default)]
struct Host {
    mem: Endless,
    recv: Option<RecvWr>,
    done: Vec<Completion>,
}

impl Env for Host {
    type Mem = Endless;

    fn mem(&self) -> &Endless {
        &self.mem
    }

    fn next_recv(&mut self, out: &mut [u8]) -> Option<RecvWr> {
        out.copy_from_slice(&ELEMENT.encode());
        self.recv.take()
    }

    fn local(&mut self, _: &LocalOp) -> Result<(), WcStatus> {
        Ok(())
    }

    fn sends_left(&mut self, _left: u32) {}

    fn complete_send(&mut self, completion: Completion) {
        self.done.push(completion);
    }

    fn complete_recv(&mut self, completion: Completion) {
        self.done.push(completion);
    }

    fn event(&mut self, _: QpEvent) {}
}

const ELEMENT: Sge = Sge {
    addr: 0,
    len: LONGEST,
    lkey: 1,
};

struct End {
    qp: Qp<VecStore>,
    host: Host,
}

fn end(qpn: u32, mtu: Mtu) -> End {
    let cfg = QpConfig {
        qpn,
        qp_type: QpType::Rc,
        sq_sig_all: true,
        srq: false,
        check_pkey: true,
        max_send_sge: 1,
        max_inline: 0,
        sq_stride: 16,
        window: QpConfig::WINDOW,
    };
    let store = QpStorage {
        sq: vec![SendWqe::ZERO; 4],
        sq_data: vec![0; 64],
        rq_sges: vec![0; 16],
        replay: vec![ReadReplay::ZERO; 4],
    };
    let mut host = Host::default();
    let mut qp = Qp::new(cfg, store);
    let steps = [
        ModifyAttrs {
            state: Some(QpState::Init),
            access: Some(15),
            ..ModifyAttrs::default()
        },
        ModifyAttrs {
            state: Some(QpState::Rtr),
            path_mtu: Some(mtu),
            dest_qpn: Some(3 - qpn),
            rq_psn: Some(0xff_0000),
            max_dest_rd_atomic: Some(4),
            min_rnr_timer: Some(1),
            ..ModifyAttrs::default()
        },
        ModifyAttrs {
            state: Some(QpState::Rts),
            sq_psn: Some(0xff_0000),
            timeout: Some(14),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(4),
            ..ModifyAttrs::default()
        },
    ];
    for step in steps {
        qp.modify(&step, &mut host).expect("the usual way to RTS");
    }
    End { qp, host }
}

/// Hands over what `from` has to send; `false` if that is nothing.
fn carry(from: &mut End, to: &mut End) -> bool {
    let mut buf = vec![0; 5000];
    let now = Instant(1);
    let mut any = false;
    while let Some(t) = from.qp.poll_transmit(now, 16, &mut from.host) {
        any = true;
        for i in 0..t.count() {
            let buf = &mut buf[..t.packet_len(i)];
            from.qp.write_packet(&t, i, buf, &from.host.mem).unwrap();
            let pkt = Packet::parse(buf).unwrap();
            to.qp.handle_packet(now, &pkt, &mut to.host);
        }
    }
    any
}

/// Moves the longest message and checks what both sides say about it.
fn longest(op: SendOp, mtu: Mtu) {
    let [mut a, mut b] = [end(1, mtu), end(2, mtu)];
    b.host.recv = Some(RecvWr {
        wr_id: 9,
        num_sge: 1,
        total: LONGEST,
    });
    let wr = SendWr {
        wr_id: 1,
        op,
        srq: 0,
        flags: SendFlags::default(),
    };
    a.qp.post_send(&wr, &ELEMENT.encode()).unwrap();
    while carry(&mut a, &mut b) | carry(&mut b, &mut a) {}
    let done = a.host.done[0];
    assert_eq!((done.status, done.byte_len), (WcStatus::Success, LONGEST));
    let placed = match op {
        SendOp::Read { .. } => &a,
        _ => &b,
    };
    assert_eq!(placed.host.mem.written.get(), u64::from(LONGEST));
    if op == SendOp::Send {
        assert_eq!(b.host.done[0].byte_len, LONGEST);
    }
    let psns = LONGEST.div_ceil(mtu.bytes());
    let next = (0xff_0000 + psns) & 0xff_ffff;
    assert_eq!((a.qp.query().sq_psn, b.qp.query().rq_psn), (next, next));
}

#[test]
fn r37_longest_messages() {
    longest(SendOp::Send, Mtu::M4096);
    longest(SendOp::Write { va: 0, rkey: 1 }, Mtu::M4096);
    longest(SendOp::Read { va: 0, rkey: 1 }, Mtu::M4096);
}

/// With the smallest MTU a READ of 2^31 bytes takes half of all PSNs.
#[test]
fn longest_read_request_of_a_peer() {
    let mut b = end(2, Mtu::M256);
    let request = |psn: u32, va: u64, len: u32| {
        let rest = [
            &va.to_be_bytes()[..],
            &1_u32.to_be_bytes(),
            &len.to_be_bytes(),
        ]
        .concat();
        ferroce_engine::sim::craft(Operation::ReadRequest, 2, psn, &[&rest])
    };
    let hand = |b: &mut End, bytes: &[u8]| {
        let pkt = Packet::parse(bytes).unwrap();
        b.qp.handle_packet(Instant(1), &pkt, &mut b.host);
    };
    hand(&mut b, &request(0xff_0000, 0, LONGEST));
    assert_eq!(b.qp.query().rq_psn, (0xff_0000 + (1 << 23)) & 0xff_ffff);
    let first = b.qp.poll_transmit(Instant(1), 16, &mut b.host).unwrap();
    assert_eq!(first.first_psn().get(), 0xff_0000);
    // its last packet is asked for again
    let last = (0xff_0000 + (1 << 23) - 1) & 0xff_ffff;
    hand(&mut b, &request(last, u64::from(LONGEST) - 256, 256));
    let again = b.qp.poll_transmit(Instant(1), 16, &mut b.host).unwrap();
    assert_eq!((again.first_psn().get(), again.count()), (last, 1));
    // and the next message is a new one
    hand(&mut b, &request((last + 1) & 0xff_ffff, 0, 1));
    assert_eq!(b.qp.state(), QpState::Rts);
    assert_eq!(b.qp.query().rq_psn, (last + 2) & 0xff_ffff);
}
