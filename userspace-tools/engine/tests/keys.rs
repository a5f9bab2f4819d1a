// SPDX-License-Identifier: GPL-2.0

//! Partition keys, queue keys, lengths that no service has, and what unreliable connections drop.

use ferroce_engine::sim::craft;
use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::wire::Operation;
use ferroce_engine::ModifyAttrs;
use ferroce_engine::Mtu;
use ferroce_engine::Packet;
use ferroce_engine::PostError;
use ferroce_engine::QpState;
use ferroce_engine::QpType;
use ferroce_engine::SendOp;
use ferroce_engine::Sge;
use ferroce_engine::WcOpcode;
use ferroce_engine::WcStatus;
use ferroce_engine::WcStatus::Success;

const PSN: u32 = 0xff_fffa;

/// Whether endpoint 1 with P_Key `own` takes a packet with P_Key `theirs`.
fn takes(check_pkey: bool, own: u16, theirs: u16) -> bool {
    let mut pair = Pair::new(&Setup {
        check_pkey,
        ..Setup::default()
    });
    let b = &mut pair.ends[1];
    let change = ModifyAttrs {
        pkey: Some(own),
        ..ModifyAttrs::default()
    };
    b.qp.modify(&change, &mut b.env).unwrap();
    b.recv(1, &[Endpoint::sge(0, 64)]);
    let mut packet = craft(Operation::SendOnly, 17, PSN, &[&[0; 8]]);
    packet[2..4].copy_from_slice(&theirs.to_be_bytes());
    pair.hand(1, &packet);
    !pair.ends[1].received().is_empty()
}

/// Section 10.9.3: the low 15 bits are the partition, the high bit is full membership.
#[test]
fn partitions() {
    for (own, theirs, expected) in [
        (0xffff, 0xffff, true),
        (0xffff, 0x7fff, true),
        (0x7fff, 0xffff, true),
        (0x7fff, 0x7fff, false),
        (0x8001, 0x8001, true),
        (0x8001, 0x8002, false),
        (0xffff, 0x8001, false),
    ] {
        assert_eq!(takes(true, own, theirs), expected, "{own:#x} {theirs:#x}");
        assert!(takes(false, own, theirs), "the switch is off");
    }
}

fn datagram(qkey: u32) -> SendOp {
    SendOp::Datagram {
        dest_qpn: 17,
        qkey,
        ah: 1,
        imm: None,
    }
}

fn unreliable(qp_type: QpType) -> Pair {
    Pair::new(&Setup {
        qp_type,
        ..Setup::default()
    })
}

/// A request with the high bit sends the queue pair's own key, which is 0x11 here (section 10.2.5).
#[test]
fn queue_keys() {
    for (qkey, on_wire) in [
        (0x11, 0x11),
        (0x12, 0x12),
        (0x8000_0000, 0x11),
        (0x8001_0000, 0x11),
        (0x7fff_ffff, 0x7fff_ffff),
    ] {
        let mut pair = unreliable(QpType::Ud);
        pair.ends[1].recv(1, &[Endpoint::sge(0, 64)]);
        let sge = [Endpoint::sge(0, 8)];
        let a = &mut pair.ends[0];
        a.send(1, datagram(qkey), &sge).unwrap();
        let t = a.qp.poll_transmit(pair.now, 1, &mut a.env).expect("a run");
        let mut bytes = vec![0; t.packet_len(0)];
        a.qp.write_packet(&t, 0, &mut bytes, &a.env.mem).unwrap();
        let deth = Packet::parse(&bytes).unwrap().deth.unwrap();
        assert_eq!((deth.qkey, deth.src_qpn), (on_wire, 16));
        pair.hand(1, &bytes);
        let taken = pair.ends[1].received().len();
        assert_eq!(taken, usize::from(on_wire == 0x11));
    }
}

/// Elements that sum up to `total` bytes, `u32::MAX` at most each.
fn list(total: u64) -> [Sge; 2] {
    let first = total.min(1 << 30) as u32;
    let rest = (total - u64::from(first)) as u32;
    [Endpoint::sge(0, first), Endpoint::sge(0, rest)]
}

/// A message has 2^31 bytes at most, a datagram one packet (sections 9.7.7 and 9.8.3).
#[test]
fn messages_that_are_too_long() {
    let mut pair = Pair::new(&Setup::default());
    let a = &mut pair.ends[0];
    for op in [SendOp::Send, Endpoint::write(0), Endpoint::read(0)] {
        for total in [(1_u64 << 31) + 1, (1 << 32) - 1, (1 << 32) + 8] {
            assert_eq!(a.send(1, op, &list(total)), Err(PostError::TooLong));
        }
        assert_eq!(a.send(1, op, &list(1 << 31)), Ok(()));
    }
    let mut pair = unreliable(QpType::Ud);
    let a = &mut pair.ends[0];
    for (len, expected) in [(1024, Ok(())), (1025, Err(PostError::TooLong))] {
        assert_eq!(
            a.send(1, datagram(0x11), &[Endpoint::sge(0, len)]),
            expected
        );
    }
}

/// What the caller was told is too long takes its turn in the queue.
#[test]
fn too_long_is_a_length_error() {
    for (qp_type, after) in [(QpType::Rc, QpState::Error), (QpType::Ud, QpState::Sqe)] {
        let mut pair = unreliable(qp_type);
        let a = &mut pair.ends[0];
        let good = match qp_type {
            QpType::Ud => datagram(0x11),
            _ => Endpoint::write(0),
        };
        a.send(1, good, &[Endpoint::sge(0, 8)]).unwrap();
        a.send(2, SendOp::TooLong, &[]).unwrap();
        a.send(3, good, &[Endpoint::sge(0, 8)]).unwrap();
        pair.settle(100);
        let expected = [
            (1, Success),
            (2, WcStatus::LocLenErr),
            (3, WcStatus::WrFlushErr),
        ];
        assert_eq!(pair.ends[0].sent(), expected);
        assert_eq!(pair.ends[0].qp.state(), after);
    }
}

/// Packets are of whole words (section 9.2.4): case R36.
#[test]
fn r36_odd_lengths_are_no_packets() {
    let packet = craft(Operation::SendOnly, 17, PSN, &[&[7; 16]]);
    for len in 0..=packet.len() {
        let whole = len >= 12 && len % 4 == 0;
        assert_eq!(Packet::parse(&packet[..len]).is_ok(), whole, "{len} bytes");
    }
}

fn uc(op: Operation, psn: u32, rest: &[&[u8]]) -> Vec<u8> {
    let mut bytes = craft(op, 17, (PSN + psn) & 0xff_ffff, rest);
    bytes[0] |= 0x20;
    bytes
}

/// Each case: packets to an endpoint with one receive of 4000 bytes, and the bytes of the message that arrives, if
/// one does (sections 9.8.2 and 9.8.3).
#[test]
fn unreliable_connection_drops_what_is_broken() {
    use Operation::*;
    let full: &[u8] = &[5; 1024];
    let end: &[u8] = &[6; 100];
    let long: &[u8] = &[6; 1028];
    let reth = |key: u32, len: u32| {
        let mut bytes = Endpoint::VA.to_be_bytes().to_vec();
        bytes.extend(key.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes
    };
    let imm: &[u8] = &[9; 4];
    let own = reth(Endpoint::KEY, 100);
    let bad = reth(0xbad, 100);
    let cases: Vec<(Vec<Vec<u8>>, Option<u32>)> = vec![
        (
            vec![uc(SendFirst, 0, &[full]), uc(SendLast, 1, &[end])],
            Some(1124),
        ),
        // a gap within
        (
            vec![uc(SendFirst, 0, &[full]), uc(SendLast, 2, &[end])],
            None,
        ),
        // a gap, and then a whole message
        (
            vec![
                uc(SendFirst, 0, &[full]),
                uc(SendMiddle, 2, &[full]),
                uc(SendOnly, 3, &[end]),
            ],
            Some(100),
        ),
        // broken off by the next message
        (
            vec![uc(SendFirst, 0, &[full]), uc(SendOnly, 1, &[end])],
            Some(100),
        ),
        (
            vec![
                uc(SendFirst, 0, &[full]),
                uc(SendFirst, 1, &[full]),
                uc(SendLast, 2, &[end]),
            ],
            Some(1124),
        ),
        // the start is missing
        (
            vec![uc(SendMiddle, 0, &[full]), uc(SendLast, 1, &[end])],
            None,
        ),
        // of two kinds
        (
            vec![uc(SendFirst, 0, &[full]), uc(WriteLast, 1, &[end])],
            None,
        ),
        // lengths
        (
            vec![uc(SendFirst, 0, &[end]), uc(SendLast, 1, &[end])],
            None,
        ),
        (vec![uc(SendOnly, 0, &[long])], None),
        (
            vec![
                uc(SendFirst, 0, &[full]),
                uc(SendMiddle, 1, &[full]),
                uc(SendMiddle, 2, &[full]),
                uc(SendLast, 3, &[full]),
                uc(SendOnly, 4, &[end]),
            ],
            Some(100),
        ),
        // memory
        (vec![uc(WriteOnlyImm, 0, &[&own, imm, end])], Some(100)),
        (vec![uc(WriteOnlyImm, 0, &[&bad, imm, end])], None),
        (
            vec![uc(WriteOnly, 0, &[&bad, end]), uc(SendOnly, 1, &[end])],
            Some(100),
        ),
        // from the past
        (vec![uc(SendOnly, 0xff_fff0, &[end])], Some(100)),
    ];
    for (n, (packets, expected)) in cases.iter().enumerate() {
        let mut pair = unreliable(QpType::Uc);
        pair.ends[1].recv(1, &[Endpoint::sge(0, 4000)]);
        for packet in packets {
            pair.hand(1, packet);
        }
        let got = pair.ends[1].env.recv_cq.first().map(|wc| {
            assert_eq!(wc.status, Success);
            wc.byte_len
        });
        assert_eq!(got, *expected, "case {n}");
        assert_eq!(pair.ends[1].qp.state(), QpState::Rts, "case {n}");
        pair.transmit(1);
        assert!(pair.sent.is_empty(), "nothing is answered");
    }
}

/// A message that finds no receive is dropped, and does not hold up the next.
#[test]
fn unreliable_connection_without_a_receive() {
    let mut pair = unreliable(QpType::Uc);
    pair.hand(1, &uc(Operation::SendOnly, 0, &[&[1; 8]]));
    pair.ends[1].recv(1, &[Endpoint::sge(0, 64)]);
    pair.hand(1, &uc(Operation::SendOnlyImm, 1, &[&[9; 4], &[2; 8]]));
    let wc = pair.ends[1].env.recv_cq[0];
    assert_eq!((wc.wr_id, wc.imm), (1, Some([9; 4])));
    assert_eq!(wc.opcode, WcOpcode::Recv);
    assert_eq!(pair.ends[1].peek(0, 8), [2; 8]);
}

/// All sizes around a packet, for each MTU, on each service.
#[test]
fn r37_every_mtu_on_every_service() {
    for mtu in [Mtu::M256, Mtu::M512, Mtu::M1024, Mtu::M2048, Mtu::M4096] {
        for qp_type in [QpType::Rc, QpType::Uc] {
            let mut pair = Pair::new(&Setup {
                mtu,
                qp_type,
                ..Setup::default()
            });
            let n = mtu.bytes();
            let data = pair.ends[0].fill(0, 3 * n as usize + 1, 9);
            for len in [0, 1, n - 1, n, n + 1, 2 * n, 3 * n, 3 * n + 1] {
                pair.ends[1].recv(len.into(), &[Endpoint::sge(50_000, 3 * n + 1)]);
                let sge = [Endpoint::sge(0, len)];
                pair.ends[0].send(len.into(), SendOp::Send, &sge).unwrap();
                pair.settle(100);
                let wc = *pair.ends[1].env.recv_cq.last().expect("a completion");
                assert_eq!((wc.wr_id, wc.byte_len), (len.into(), len));
                let got = pair.ends[1].peek(50_000, len as usize);
                assert_eq!(got, data[..len as usize]);
            }
        }
    }
}
