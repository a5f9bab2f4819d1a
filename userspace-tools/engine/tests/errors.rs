// SPDX-License-Identifier: GPL-2.0

//! What goes wrong ends as the specification says, and never takes a work request with it.

use ferroce_engine::sim::craft;
use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::wire::Operation;
use ferroce_engine::wire::Reth;
use ferroce_engine::Access;
use ferroce_engine::ModifyAttrs;
use ferroce_engine::ModifyError;
use ferroce_engine::Mtu;
use ferroce_engine::PostError;
use ferroce_engine::QpEvent;
use ferroce_engine::QpState;
use ferroce_engine::SendOp;
use ferroce_engine::Sge;
use ferroce_engine::WcStatus;
use ferroce_engine::WcStatus::Success;
use ferroce_engine::WcStatus::WrFlushErr;

const KEY: u32 = Endpoint::KEY;
const VA: u64 = Endpoint::VA;

fn write(va: u64, rkey: u32) -> SendOp {
    SendOp::Write { va, rkey }
}

fn pair() -> Pair {
    Pair::new(&Setup::default())
}

/// Two writes with a bad key in a row, then more: one error, then flushes, on both queues: case R10.
#[test]
fn r10_bad_rkey_flushes_the_rest() {
    let mut pair = pair();
    let sge = [Endpoint::sge(0, 3000)];
    for id in 1..=2 {
        pair.ends[0].recv(100 + id, &sge);
        pair.ends[1].recv(200 + id, &sge);
    }
    pair.ends[0].send(1, write(VA, KEY), &sge).unwrap();
    pair.ends[0].send(2, write(VA, 666), &sge).unwrap();
    pair.ends[0].send(3, write(VA, 666), &sge).unwrap();
    pair.ends[0].send(4, SendOp::Send, &sge).unwrap();
    pair.settle(100);
    pair.ends[0].send(5, write(VA, KEY), &sge).unwrap();
    pair.ends[0].recv(103, &sge);
    let expected = [
        (1, Success),
        (2, WcStatus::RemAccessErr),
        (3, WrFlushErr),
        (4, WrFlushErr),
        (5, WrFlushErr),
    ];
    assert_eq!(pair.ends[0].sent(), expected);
    let flushed = [(101, WrFlushErr), (102, WrFlushErr), (103, WrFlushErr)];
    assert_eq!(pair.ends[0].received(), flushed);
    assert_eq!(
        pair.ends[1].received(),
        [(201, WrFlushErr), (202, WrFlushErr)]
    );
    assert_eq!(pair.ends[1].env.events, [QpEvent::AccessError]);
    for end in &pair.ends {
        assert_eq!(end.qp.state(), QpState::Error);
        assert_eq!(end.qp.poll_timeout(), None);
    }
}

/// Remote address plus length around 2^64: case R23.
#[test]
fn r23_remote_address_wraps() {
    let sge = [Endpoint::sge(0, 4096)];
    for va in [u64::MAX, u64::MAX - 4095, u64::MAX - 4096, 0] {
        let ops = [
            write(va, KEY),
            SendOp::Read { va, rkey: KEY },
            SendOp::WriteImm {
                va,
                rkey: KEY,
                imm: [0; 4],
            },
        ];
        for op in ops {
            let mut pair = pair();
            pair.ends[0].send(1, op, &sge).unwrap();
            pair.settle(100);
            assert_eq!(pair.ends[0].sent(), [(1, WcStatus::RemAccessErr)]);
        }
    }
}

/// A repeated READ request may not name more than the first did: case R23.
#[test]
fn r23_repeated_read_stays_in_its_bounds() {
    let mut pair = pair();
    let sge = [Endpoint::sge(0, 2048)];
    let read = SendOp::Read { va: VA, rkey: KEY };
    pair.ends[0].send(1, read, &sge).unwrap();
    pair.settle(100);
    let before = pair.sent.len();
    let requests = [
        (VA, KEY, 2049, 0),
        (VA + 1024, KEY, 1025, 1),
        (VA + 1, KEY, 8, 0),
        (u64::MAX - 1, KEY, 8, 0),
        (VA, KEY + 1, 8, 0),
        (VA, KEY, u32::MAX, 0),
        (VA + 1024, KEY, u32::MAX, 1),
    ];
    for (va, rkey, len, ahead) in requests {
        let reth = Reth { va, rkey, len }.encode();
        let body = craft(Operation::ReadRequest, 17, 0xff_fffa + ahead, &[&reth]);
        pair.inject(1, &body);
    }
    pair.settle(100);
    assert_eq!(pair.sent.len(), before, "no answer");
    assert_eq!(pair.ends[1].qp.state(), QpState::Rts);
}

#[test]
fn message_longer_than_the_receive() {
    for len in [101, 1500, 5000] {
        let mut pair = pair();
        pair.ends[1].recv(7, &[Endpoint::sge(0, 100)]);
        let sge = [Endpoint::sge(0, len)];
        pair.ends[0].send(1, SendOp::Send, &sge).unwrap();
        pair.settle(100);
        assert_eq!(pair.ends[0].sent(), [(1, WcStatus::RemInvReqErr)]);
        assert_eq!(pair.ends[1].received(), [(7, WcStatus::LocLenErr)]);
        assert_eq!(pair.ends[1].peek(100, 5000), vec![0; 5000]);
    }
}

#[test]
fn receive_into_memory_that_is_not_there() {
    let mut pair = pair();
    let sge = Sge {
        lkey: 666,
        ..Endpoint::sge(0, 100)
    };
    pair.ends[1].recv(7, &[sge]);
    let sge = [Endpoint::sge(0, 100)];
    pair.ends[0].send(1, SendOp::Send, &sge).unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, WcStatus::RemOpErr)]);
    assert_eq!(pair.ends[1].received(), [(7, WcStatus::LocProtErr)]);
    assert_eq!(pair.ends[1].env.events, [QpEvent::Fatal]);
}

#[test]
fn local_key_is_wrong_behind_good_requests() {
    let good = [Endpoint::sge(0, 3000)];
    let bad = Sge {
        lkey: 666,
        ..Endpoint::sge(0, 8)
    };
    let read = SendOp::Read { va: VA, rkey: KEY };
    for op in [write(VA, KEY), read] {
        let mut pair = pair();
        pair.ends[0].send(1, read, &good).unwrap();
        pair.ends[0].send(2, write(VA, KEY), &good).unwrap();
        pair.ends[0].send(3, op, &[good[0], bad]).unwrap();
        pair.ends[0].send(4, write(VA, KEY), &good).unwrap();
        pair.settle(100);
        let expected = [
            (1, Success),
            (2, Success),
            (3, WcStatus::LocProtErr),
            (4, WrFlushErr),
        ];
        assert_eq!(pair.ends[0].sent(), expected);
    }
}

#[test]
fn memory_vanishes_between_check_and_copy() {
    let mut pair = Pair::new(&Setup {
        max_run: 1,
        window: 4096,
        ..Setup::default()
    });
    pair.ends[0].env.mem.register(5, 0x10000, 8192);
    let sge = Sge {
        addr: 0x10000,
        len: 8192,
        lkey: 5,
    };
    pair.ends[0].send(1, write(VA, KEY), &[sge]).unwrap();
    pair.transmit(0);
    pair.ends[0].env.mem.deregister(5);
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, WcStatus::LocProtErr)]);
}

#[test]
fn remote_memory_vanishes_during_a_read() {
    let mut pair = pair();
    pair.ends[1].env.mem.register(5, 0x10000, 8192);
    let mem = &pair.ends[1].env.mem;
    mem.deny(5, Access::RemoteWrite);
    let read = SendOp::Read {
        va: 0x10000,
        rkey: 5,
    };
    let sge = [Endpoint::sge(0, 8192)];
    pair.ends[0].send(1, read, &sge).unwrap();
    pair.transmit(0);
    // Takes the request, which passes the check, but sends nothing yet.
    let reth = Reth {
        va: 0x10000,
        rkey: 5,
        len: 8192,
    };
    let request = craft(Operation::ReadRequest, 17, 0xff_fffa, &[&reth.encode()]);
    pair.hand(1, &request);
    pair.ends[1].env.mem.deregister(5);
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, WcStatus::RemAccessErr)]);
    assert_eq!(pair.ends[1].qp.state(), QpState::Error);
}

#[test]
fn remote_permissions() {
    let cases = [
        (Access::RemoteWrite, write(VA, KEY)),
        (Access::RemoteRead, SendOp::Read { va: VA, rkey: KEY }),
        (
            Access::RemoteAtomic,
            SendOp::FetchAdd {
                va: VA + 8 - (VA & 7),
                rkey: KEY,
                add: 1,
            },
        ),
    ];
    for (access, op) in cases {
        let mut by_region = pair();
        by_region.ends[1].env.mem.deny(KEY, access);
        let sge = [Endpoint::sge(0, 8)];
        by_region.ends[0].send(1, op, &sge).unwrap();
        by_region.settle(100);
        assert_eq!(by_region.ends[0].sent(), [(1, WcStatus::RemAccessErr)]);

        let mut by_qp = pair();
        let none = ModifyAttrs {
            access: Some(1),
            ..ModifyAttrs::default()
        };
        let [_, b] = &mut by_qp.ends;
        b.qp.modify(&none, &mut b.env).unwrap();
        by_qp.ends[0].send(1, op, &sge).unwrap();
        by_qp.settle(100);
        assert_eq!(by_qp.ends[0].sent(), [(1, WcStatus::RemInvReqErr)]);
        assert_eq!(by_qp.ends[1].env.events, [QpEvent::RequestError]);
    }
}

#[test]
fn empty_messages_need_no_key() {
    let mut pair = pair();
    pair.ends[0].send(1, write(0, 0), &[]).unwrap();
    let read = SendOp::Read { va: 0, rkey: 0 };
    pair.ends[0].send(2, read, &[]).unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, Success), (2, Success)]);
}

#[test]
fn malformed_request_fails_in_its_turn() {
    let mut pair = pair();
    let sge = [Endpoint::sge(0, 3000)];
    pair.ends[0].send(1, write(VA, KEY), &sge).unwrap();
    pair.ends[0].send(2, SendOp::Malformed, &[]).unwrap();
    pair.ends[0].send(3, write(VA, KEY), &sge).unwrap();
    pair.settle(100);
    let expected = [(1, Success), (2, WcStatus::LocQpOpErr), (3, WrFlushErr)];
    assert_eq!(pair.ends[0].sent(), expected);
}

#[test]
fn posts_that_cannot_be() {
    let mut pair = pair();
    let [a, _] = &mut pair.ends;
    let eight = [Endpoint::sge(0, 8)];
    let atomic = |va| SendOp::FetchAdd {
        va,
        rkey: KEY,
        add: 1,
    };
    let invalid = Err(PostError::Invalid);
    assert_eq!(a.send(1, atomic(1), &eight), invalid);
    assert_eq!(a.send(1, atomic(8), &[Endpoint::sge(0, 7)]), invalid);
    let huge = Sge {
        len: u32::MAX,
        ..eight[0]
    };
    let too_long = Err(PostError::TooLong);
    assert_eq!(a.send(1, SendOp::Send, &[huge]), too_long);
    assert_eq!(a.send(1, SendOp::Send, &[huge, huge]), too_long);
    assert_eq!(a.send(1, SendOp::Send, &[eight[0]; 9]), invalid);
    assert_eq!(a.send_inline(1, SendOp::Send, &[0; 129]), invalid);
    let datagram = SendOp::Datagram {
        dest_qpn: 1,
        qkey: 1,
        ah: 1,
        imm: None,
    };
    assert_eq!(a.send(1, datagram, &eight), invalid);
    for id in 0..128 {
        a.send(id, SendOp::Send, &eight).unwrap();
    }
    assert_eq!(a.send(1, SendOp::Send, &eight), Err(PostError::Full));
    assert_eq!(a.qp.sq_space(), 0);
    let reset = ModifyAttrs {
        state: Some(QpState::Reset),
        ..ModifyAttrs::default()
    };
    a.qp.modify(&reset, &mut a.env).unwrap();
    assert_eq!(a.send(1, SendOp::Send, &eight), Err(PostError::State));
    assert_eq!(a.qp.sq_space(), 128);
    assert_eq!(a.sent(), [], "RESET completes nothing");
}

#[test]
fn modify_refuses_what_is_not_in_the_table() {
    use QpState::*;
    let mut pair = pair();
    let [a, _] = &mut pair.ends;
    let to = |state| ModifyAttrs {
        state: Some(state),
        ..ModifyAttrs::default()
    };
    for state in [Init, Rtr, Sqe] {
        let refused = a.qp.modify(&to(state), &mut a.env);
        assert_eq!(refused, Err(ModifyError::Transition), "{state:?}");
    }
    let wrong = ModifyAttrs {
        cur_state: Some(Init),
        ..to(Rts)
    };
    let refused = a.qp.modify(&wrong, &mut a.env);
    assert_eq!(refused, Err(ModifyError::Transition));
    let mtu = ModifyAttrs {
        path_mtu: Some(Mtu::M256),
        ..to(Rts)
    };
    let refused = a.qp.modify(&mtu, &mut a.env);
    assert_eq!(refused, Err(ModifyError::Transition));
    a.qp.modify(&to(Reset), &mut a.env).unwrap();
    a.qp.modify(&to(Init), &mut a.env).unwrap();
    assert_eq!(a.qp.modify(&to(Rtr), &mut a.env), Err(ModifyError::Missing));
    let rtr = ModifyAttrs {
        dest_qpn: Some(1),
        path_mtu: Some(Mtu::M256),
        rq_psn: Some(1 << 24),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(0),
        ..to(Rtr)
    };
    assert_eq!(a.qp.modify(&rtr, &mut a.env), Err(ModifyError::Value));
    let rtr = ModifyAttrs {
        rq_psn: Some(1),
        max_dest_rd_atomic: Some(17),
        ..rtr
    };
    assert_eq!(a.qp.modify(&rtr, &mut a.env), Err(ModifyError::Value));
    assert_eq!(a.qp.state(), Init);
}

#[test]
fn more_reads_than_agreed_are_an_invalid_request() {
    let mut pair = Pair::new(&Setup {
        rd_atomic: 1,
        ..Setup::default()
    });
    let none = ModifyAttrs {
        max_dest_rd_atomic: Some(0),
        ..ModifyAttrs::default()
    };
    let [_, b] = &mut pair.ends;
    b.qp.modify(&none, &mut b.env).unwrap();
    let read = SendOp::Read { va: VA, rkey: KEY };
    let sge = [Endpoint::sge(0, 8)];
    pair.ends[0].send(1, read, &sge).unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, WcStatus::RemInvReqErr)]);
}

#[test]
fn error_by_the_user_flushes_everything() {
    let mut pair = pair();
    let sge = [Endpoint::sge(0, 8)];
    for id in 0..100 {
        pair.ends[0].recv(id, &sge);
        let posted = pair.ends[0].send(id, SendOp::Send, &sge);
        posted.unwrap();
    }
    pair.transmit(0);
    let [a, _] = &mut pair.ends;
    a.qp.set_error(&mut a.env);
    assert_eq!(a.qp.poll_timeout(), None);
    a.flush();
    let all: Vec<_> = (0..100).map(|id| (id, WrFlushErr)).collect();
    assert_eq!(a.sent(), all);
    assert_eq!(a.received(), all);
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), all, "no answer is taken any more");
}

/// A write whose packets do not add up to the length it announced, or break off, places no byte outside.
#[test]
fn write_of_another_length_than_announced() {
    use Operation::*;
    let full = [7; 1024];
    let cases: [(u32, &[(Operation, usize)]); 10] = [
        (9, &[(WriteOnly, 8)]),
        (7, &[(WriteOnly, 8)]),
        (1024, &[(WriteFirst, 1024)]),
        (500, &[(WriteFirst, 1024)]),
        (1500, &[(WriteFirst, 1000)]),
        (1500, &[(WriteFirst, 1024), (WriteLast, 475)]),
        (1500, &[(WriteFirst, 1024), (WriteLast, 477)]),
        (1500, &[(WriteFirst, 1024), (WriteMiddle, 1024)]),
        (2048, &[(WriteFirst, 1024), (WriteLast, 0)]),
        (2048, &[(WriteFirst, 1024), (SendLast, 1024)]),
    ];
    for (len, packets) in cases {
        let mut pair = pair();
        pair.ends[1].recv(1, &[Endpoint::sge(8192, 4096)]);
        for (at, &(op, size)) in packets.iter().enumerate() {
            let (va, rkey) = (VA, KEY);
            let reth = Reth { va, rkey, len }.encode();
            let head: &[u8] = if op.has_reth() { &reth } else { &[] };
            let psn = 0xff_fffa + at as u32;
            pair.hand(1, &craft(op, 17, psn, &[head, &full[..size]]));
        }
        assert_eq!(pair.ends[1].qp.state(), QpState::Error, "{packets:?}");
        assert_eq!(pair.ends[1].env.events, [QpEvent::RequestError]);
        let outside = pair.ends[1].peek(u64::from(len), 4096);
        assert!(outside.iter().all(|&b| b == 0), "{packets:?}");
    }
}

#[test]
fn packet_of_another_partition_is_not_seen() {
    let mut pair = pair();
    let (va, rkey, len) = (VA, KEY, 8);
    let reth = Reth { va, rkey, len }.encode();
    let mut body = craft(Operation::WriteOnly, 17, 0xff_fffa, &[&reth, &[7; 8]]);
    body[3] = 0xfe;
    pair.hand(1, &body);
    assert_eq!(pair.ends[1].peek(0, 8), [0; 8]);
    // The membership bit does not matter.
    body[2..4].copy_from_slice(&[0x7f, 0xff]);
    pair.hand(1, &body);
    assert_eq!(pair.ends[1].peek(0, 8), [7; 8]);
}
