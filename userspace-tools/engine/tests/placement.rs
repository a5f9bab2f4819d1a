// SPDX-License-Identifier: GPL-2.0

//! FLUSH and ATOMIC WRITE (annex A19): bytes on the wire, rights, order, repetition.

use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::sim::Verdict;
use ferroce_engine::wire::Feth;
use ferroce_engine::wire::Operation;
use ferroce_engine::Access;
use ferroce_engine::ModifyAttrs;
use ferroce_engine::PostError;
use ferroce_engine::QpState;
use ferroce_engine::QpType;
use ferroce_engine::SendFlags;
use ferroce_engine::SendOp;
use ferroce_engine::WcOpcode;
use ferroce_engine::WcStatus;
use ferroce_engine::WcStatus::RemAccessErr;
use ferroce_engine::WcStatus::RemInvReqErr;
use ferroce_engine::WcStatus::Success;

const KEY: u32 = Endpoint::KEY;
/// A multiple of 8 inside the endpoints' memory.
const VA: u64 = Endpoint::VA + 7;
const GLOBAL: u8 = Feth::GLOBAL;
const PERSISTENT: u8 = Feth::PERSISTENT;

fn flush(placement: u8, selectivity: u8, len: u32) -> SendOp {
    SendOp::Flush {
        va: VA,
        rkey: KEY,
        len,
        kind: Feth {
            placement,
            selectivity,
        },
    }
}

fn atomic_write(va: u64, data: [u8; 8]) -> SendOp {
    SendOp::AtomicWrite {
        va,
        rkey: KEY,
        data,
    }
}

fn pair() -> Pair {
    Pair::new(&Setup::default())
}

/// The first packet that endpoint 0 sends for `op`, BTH to pad.
fn packet(op: SendOp) -> Vec<u8> {
    let mut pair = pair();
    let end = &mut pair.ends[0];
    end.send(1, op, &[]).unwrap();
    let t = end
        .qp
        .poll_transmit(pair.now, 9, &mut end.env)
        .expect("a run");
    assert_eq!(t.count(), 1);
    let mut bytes = vec![0xee; t.packet_len(0)];
    end.qp
        .write_packet(&t, 0, &mut bytes, &end.env.mem)
        .unwrap();
    bytes
}

#[test]
fn bytes_on_the_wire() {
    // BTH: opcode, MigReq, P_Key, QP 17, AckReq, PSN 0xfffffa
    let bth = |opcode| {
        vec![
            opcode, 0x40, 0xff, 0xff, 0, 0, 0, 17, 0x80, 0xff, 0xff, 0xfa,
        ]
    };
    let reth = |len: u8| {
        let mut bytes = VA.to_be_bytes().to_vec();
        bytes.extend([0, 0, 0x12, 0x34, 0, 0, 0, len]);
        bytes
    };
    let flushed = packet(flush(GLOBAL | PERSISTENT, Feth::REGION, 0x44));
    assert_eq!(
        flushed,
        [bth(0x1c), vec![0, 0, 0, 0x13], reth(0x44)].concat()
    );
    let written = packet(atomic_write(VA, [1, 2, 3, 4, 5, 6, 7, 8]));
    let data = vec![1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(written, [bth(0x1d), reth(8), data].concat());
}

#[test]
fn flush_of_a_range_and_of_a_region() {
    let mut pair = pair();
    let a = &mut pair.ends[0];
    a.send(1, flush(GLOBAL, Feth::RANGE, 4096), &[]).unwrap();
    a.send(2, flush(PERSISTENT, Feth::REGION, 0), &[]).unwrap();
    pair.settle(100);
    let a = &pair.ends[0];
    assert_eq!(a.sent(), [(1, Success), (2, Success)]);
    assert_eq!(a.env.send_cq[0].opcode, WcOpcode::Flush);
    let flushed = pair.ends[1].env.mem.flushes(KEY);
    assert_eq!(flushed, [Some((VA, 4096)), None]);
    let answers: Vec<Operation> = pair
        .sent
        .iter()
        .filter(|s| s.from == 1)
        .map(|s| s.op)
        .collect();
    assert_eq!(answers, [Operation::ReadOnly; 2]);
}

#[test]
fn atomic_write_places_its_bytes() {
    let mut pair = pair();
    let data = [9, 8, 7, 6, 5, 4, 3, 2];
    let a = &mut pair.ends[0];
    a.send(1, atomic_write(VA, data), &[]).unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, Success)]);
    assert_eq!(pair.ends[0].env.send_cq[0].opcode, WcOpcode::AtomicWrite);
    assert_eq!(pair.ends[1].peek(7, 8), data);
}

#[test]
fn what_cannot_be_posted() {
    let posts = |setup: &Setup, op| Pair::new(setup).ends[0].send(1, op, &[]);
    let rc = Setup::default();
    let uc = Setup {
        qp_type: QpType::Uc,
        ..rc
    };
    let no_reads = Setup { rd_atomic: 0, ..rc };
    let good = flush(GLOBAL, Feth::RANGE, 8);
    let write = atomic_write(VA, [0; 8]);
    for (setup, op) in [
        (&uc, good),
        (&uc, write),
        (&no_reads, good),
        (&no_reads, write),
        (&rc, flush(0, Feth::RANGE, 8)),
        (&rc, flush(4, Feth::RANGE, 8)),
        (&rc, flush(GLOBAL, 2, 8)),
        (&rc, atomic_write(VA + 4, [0; 8])),
    ] {
        assert_eq!(posts(setup, op), Err(PostError::Invalid), "{op:?}");
    }
    assert_eq!(posts(&rc, good), Ok(()));
}

/// What the peer's queue pair or memory does not allow: (its access flags, placements of its region, what is asked).
#[test]
fn rights() {
    let write = atomic_write(VA, [1; 8]);
    let outside = SendOp::Flush {
        va: Endpoint::VA + Endpoint::LEN as u64 - 7,
        rkey: KEY,
        len: 8,
        kind: Feth {
            placement: GLOBAL,
            selectivity: Feth::RANGE,
        },
    };
    let cases: [(u32, u8, SendOp, WcStatus); 9] = [
        (0x100, 1, flush(GLOBAL, 0, 8), Success),
        (0x200, 2, flush(PERSISTENT, 0, 8), Success),
        (0x200, 3, flush(GLOBAL, 0, 8), RemInvReqErr),
        (0x100, 3, flush(PERSISTENT | GLOBAL, 0, 8), RemInvReqErr),
        (0x300, 1, flush(PERSISTENT, 0, 8), RemAccessErr),
        (0x300, 2, flush(GLOBAL, 1, 8), RemAccessErr),
        (0x300, 3, outside, RemAccessErr),
        (0x002, 0, write, Success),
        (0x30d, 3, write, RemInvReqErr),
    ];
    for (access, placement, op, expected) in cases {
        let mut pair = pair();
        let b = &mut pair.ends[1];
        let change = ModifyAttrs {
            access: Some(access),
            ..ModifyAttrs::default()
        };
        b.qp.modify(&change, &mut b.env).unwrap();
        b.env.mem.allow_flush(KEY, placement);
        pair.ends[0].send(1, op, &[]).unwrap();
        pair.settle(100);
        assert_eq!(pair.ends[0].sent(), [(1, expected)], "{access:#x} {op:?}");
        let failed = expected != Success;
        assert_eq!(pair.ends[1].qp.state() == QpState::Error, failed);
    }
}

#[test]
fn atomic_write_to_a_region_that_is_read_only() {
    let mut pair = pair();
    pair.ends[1].env.mem.deny(KEY, Access::RemoteWrite);
    pair.ends[0].send(1, atomic_write(VA, [1; 8]), &[]).unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, RemAccessErr)]);
}

/// A FLUSH counts among the outstanding READs and atomics, and fences wait for it.
#[test]
fn outstanding_like_a_read() {
    let mut pair = Pair::new(&Setup {
        rd_atomic: 2,
        ..Setup::default()
    });
    let a = &mut pair.ends[0];
    a.send(1, flush(GLOBAL, 0, 8), &[]).unwrap();
    a.send(2, atomic_write(VA, [1; 8]), &[]).unwrap();
    a.send(3, Endpoint::read(0), &[Endpoint::sge(64, 8)])
        .unwrap();
    pair.transmit(0);
    assert_eq!(pair.sent.len(), 2);
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [1, 2, 3].map(|n| (n, Success)));

    let mut pair = Pair::new(&Setup::default());
    let a = &mut pair.ends[0];
    a.send(1, flush(GLOBAL, 0, 8), &[]).unwrap();
    let fenced = SendFlags {
        signaled: true,
        fence: true,
        ..SendFlags::default()
    };
    a.send_with(2, Endpoint::write(0), &[Endpoint::sge(0, 8)], fenced)
        .unwrap();
    pair.transmit(0);
    assert_eq!(pair.sent.len(), 1);
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, Success), (2, Success)]);
}

/// Behind READs the answers keep their order, whatever is lost; nothing is done twice.
#[test]
fn any_one_packet_may_be_lost() {
    for lost in 0..14 {
        let mut pair = pair();
        let data = pair.ends[0].fill(0, 3000, 5);
        let mut n = 0;
        pair.filter(move |_, _| {
            n += 1;
            if n == lost + 1 {
                Verdict::Drop
            } else {
                Verdict::Pass
            }
        });
        let a = &mut pair.ends[0];
        a.send(1, Endpoint::write(100), &[Endpoint::sge(0, 3000)])
            .unwrap();
        a.send(2, flush(GLOBAL, 0, 4096), &[]).unwrap();
        a.send(3, Endpoint::read(100), &[Endpoint::sge(9000, 3000)])
            .unwrap();
        a.send(4, atomic_write(VA, [1; 8]), &[]).unwrap();
        a.send(5, atomic_write(VA, [2; 8]), &[]).unwrap();
        pair.settle(1000);
        assert_eq!(
            pair.ends[0].sent(),
            [1, 2, 3, 4, 5].map(|n| (n, Success)),
            "packet {lost}"
        );
        assert_eq!(pair.ends[0].peek(9000, 3000), data);
        let b = &pair.ends[1];
        assert_eq!(b.peek(7, 8), [2; 8]);
        assert_eq!(b.env.mem.flushes(KEY).len(), 1, "packet {lost}");
        assert_eq!(b.env.mem.writes(KEY, VA, 8), [2; 8], "packet {lost}");
    }
}

/// An answer that carries data where none belongs.
#[test]
fn an_answer_with_data_is_a_bad_response() {
    use ferroce_engine::sim::craft;
    let mut pair = pair();
    pair.ends[0].send(1, atomic_write(VA, [1; 8]), &[]).unwrap();
    pair.transmit(0);
    let aeth = [0x1f, 0, 0, 1];
    pair.hand(
        0,
        &craft(Operation::ReadOnly, 16, 0xff_fffa, &[&aeth, &[7; 8]]),
    );
    assert_eq!(pair.ends[0].sent(), [(1, WcStatus::BadRespErr)]);
}

/// Reserved placements and selectivities, lengths and addresses that a queue pair would not send.
#[test]
fn requests_that_make_no_sense() {
    use ferroce_engine::sim::craft;
    let reth = |va: u64, len: u32| {
        let mut bytes = va.to_be_bytes().to_vec();
        bytes.extend(KEY.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes
    };
    let feth = |placement: u8, selectivity: u8| vec![0, 0, 0, (selectivity << 4) | placement];
    let psn = 0xff_fffa;
    let cases = [
        craft(Operation::Flush, 17, psn, &[&feth(0, 0), &reth(VA, 8)]),
        craft(Operation::Flush, 17, psn, &[&feth(8, 0), &reth(VA, 8)]),
        craft(Operation::Flush, 17, psn, &[&feth(1, 3), &reth(VA, 8)]),
        craft(
            Operation::Flush,
            17,
            psn,
            &[&feth(1, 0), &reth(VA, 8), &[0; 4]],
        ),
        craft(Operation::AtomicWrite, 17, psn, &[&reth(VA, 4), &[0; 4]]),
        craft(Operation::AtomicWrite, 17, psn, &[&reth(VA, 16), &[0; 8]]),
        craft(Operation::AtomicWrite, 17, psn, &[&reth(VA, 8), &[0; 16]]),
        craft(
            Operation::AtomicWrite,
            17,
            psn,
            &[&reth(VA + 1, 8), &[0; 8]],
        ),
    ];
    for (n, bytes) in cases.iter().enumerate() {
        let mut pair = pair();
        pair.hand(1, bytes);
        assert_eq!(pair.ends[1].qp.state(), QpState::Error, "case {n}");
    }
}
