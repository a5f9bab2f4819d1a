// SPDX-License-Identifier: GPL-2.0

//! Rules of the reliable connection that a wire without faults does not show: what each answer finishes, what is asked
//! for again, and which refusal belongs to which request (section 9.7).

use ferroce_engine::ack_timeout_ns;
use ferroce_engine::sim::craft;
use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::sim::Verdict;
use ferroce_engine::wire::Operation;
use ferroce_engine::ModifyAttrs;
use ferroce_engine::Packet;
use ferroce_engine::QpState;
use ferroce_engine::SendFlags;
use ferroce_engine::SendOp;
use ferroce_engine::WcStatus::Success;
use std::cell::RefCell;
use std::rc::Rc;

const KEY: u32 = Endpoint::KEY;
const VA: u64 = Endpoint::VA;
/// First PSN of endpoint 0.
const PSN: u32 = 0xff_fffa;

/// What a filter has seen of packets.
type Log<T> = Rc<RefCell<Vec<T>>>;

/// Notes something of each packet that passes `keep`; `drop` says which get lost.
fn watch<T: 'static>(
    pair: &mut Pair,
    mut note: impl FnMut(usize, &Packet<'_>) -> Option<T> + 'static,
    mut drop: impl FnMut(usize, &Packet<'_>) -> bool + 'static,
) -> Log<T> {
    let log: Log<T> = Rc::default();
    let seen = log.clone();
    pair.filter(move |from, pkt| {
        seen.borrow_mut().extend(note(from, pkt));
        match drop(from, pkt) {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    });
    log
}

fn reth(va: u64, rkey: u32, len: u32) -> Vec<u8> {
    let mut bytes = va.to_be_bytes().to_vec();
    bytes.extend(rkey.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

/// The answer to a READ acknowledges what came before it.
#[test]
fn implied_acknowledgement() {
    let mut pair = Pair::new(&Setup::default());
    let sge = [Endpoint::sge(0, 3000)];
    let a = &mut pair.ends[0];
    a.send(1, Endpoint::write(0), &sge).unwrap();
    a.send(2, Endpoint::write(0), &sge).unwrap();
    a.send(3, Endpoint::read(0), &[Endpoint::sge(9000, 3000)])
        .unwrap();
    let sent = watch(
        &mut pair,
        |from, _| (from == 0).then_some(()),
        |_, pkt| pkt.opcode.op == Operation::Ack,
    );
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [1, 2, 3].map(|n| (n, Success)));
    assert_eq!(sent.borrow().len(), 7, "nothing is repeated");
}

/// An acknowledgement of what follows a READ means that the READ's answer was lost.
#[test]
fn implied_refusal() {
    let mut pair = Pair::new(&Setup::default());
    let a = &mut pair.ends[0];
    a.send(1, Endpoint::read(0), &[Endpoint::sge(9000, 8)])
        .unwrap();
    a.send(2, Endpoint::write(0), &[Endpoint::sge(0, 8)])
        .unwrap();
    let mut lost = false;
    let reads = watch(
        &mut pair,
        |_, pkt| (pkt.opcode.op == Operation::ReadRequest).then_some(()),
        move |_, pkt| {
            let first = pkt.opcode.op == Operation::ReadOnly && !lost;
            lost |= first;
            first
        },
    );
    let start = pair.now;
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [1, 2].map(|n| (n, Success)));
    assert_eq!(reads.borrow().len(), 2);
    let timeout = ack_timeout_ns(8).unwrap();
    assert!(pair.now.0 - start.0 < timeout, "without a timeout");
}

/// What is asked for again begins with the missing packet and ends where the first request did.
#[test]
fn partial_read_is_asked_for_again() {
    let mut pair = Pair::new(&Setup::default());
    let data = pair.ends[1].fill(0, 10_000, 5);
    let a = &mut pair.ends[0];
    a.send(1, Endpoint::read(0), &[Endpoint::sge(50_000, 10_000)])
        .unwrap();
    let mut lost = false;
    let asked = watch(
        &mut pair,
        |_, pkt| pkt.reth.map(|reth| (pkt.bth.psn.get(), reth)),
        move |from, pkt| {
            let this = from == 1 && pkt.bth.psn.get() == (PSN + 4) & 0xff_ffff && !lost;
            lost |= this;
            this
        },
    );
    pair.settle(100);
    let asked = asked.borrow();
    let (psn, reth) = asked[0];
    assert_eq!((psn, reth.va, reth.len), (PSN, VA, 10_000));
    let (psn, reth) = asked[1];
    assert_eq!(psn, (PSN + 4) & 0xff_ffff);
    assert_eq!((reth.va, reth.len), (VA + 4096, 10_000 - 4096));
    assert_eq!(asked.len(), 2);
    assert_eq!(pair.ends[0].peek(50_000, 10_000), data);
    let writes = pair.ends[0].env.mem.writes(KEY, VA + 50_000, 10_000);
    assert!(writes.iter().all(|&n| n == 1), "each byte is placed once");
}

/// A peer may have as many READs and atomics outstanding as agreed, and not one more.
#[test]
fn responder_resources_are_exact() {
    for agreed in 1..=4 {
        let mut pair = Pair::new(&Setup {
            rd_atomic: agreed,
            ..Setup::default()
        });
        let read = |n: u32| {
            let psn = (PSN + n) & 0xff_ffff;
            craft(Operation::ReadRequest, 17, psn, &[&reth(VA, KEY, 8)])
        };
        for n in 0..u32::from(agreed) {
            pair.hand(1, &read(n));
            assert_eq!(pair.ends[1].qp.state(), QpState::Rts);
        }
        pair.hand(1, &read(agreed.into()));
        assert_eq!(pair.ends[1].qp.state(), QpState::Error, "{agreed} agreed");
    }
}

/// All of them are answered again with what they had the first time, in any order.
#[test]
fn atomics_are_remembered() {
    let mut pair = Pair::new(&Setup::default());
    let va = VA + 7;
    let atomic = |n: u32| {
        let mut eth = va.to_be_bytes().to_vec();
        eth.extend(KEY.to_be_bytes());
        eth.extend(5_u64.to_be_bytes());
        eth.extend(0_u64.to_be_bytes());
        craft(Operation::FetchAdd, 17, (PSN + n) & 0xff_ffff, &[&eth])
    };
    let log = watch(
        &mut pair,
        |_, pkt| pkt.atomic_ack.map(|old| (pkt.bth.psn.get(), old)),
        |_, _| true,
    );
    let mut expected = Vec::new();
    for n in [0, 1, 2, 3, 1, 0, 3, 2, 2] {
        pair.hand(1, &atomic(n));
        pair.transmit(1);
        expected.push(((PSN + n) & 0xff_ffff, 5 * u64::from(n)));
    }
    assert_eq!(*log.borrow(), expected);
    assert_eq!(pair.ends[1].peek(7, 8), 20_u64.to_ne_bytes());
}

/// The syndrome that endpoint 1 answers a packet with.
fn syndrome(change: impl FnOnce(&mut Endpoint), packets: &[Vec<u8>]) -> Option<u8> {
    let mut pair = Pair::new(&Setup::default());
    change(&mut pair.ends[1]);
    let log = watch(
        &mut pair,
        |from, pkt| pkt.aeth.filter(|_| from == 1).map(|a| a.encode()[0]),
        |_, _| true,
    );
    for bytes in packets {
        pair.hand(1, bytes);
    }
    pair.transmit(1);
    let last = log.borrow().last().copied();
    last
}

fn receive(len: u32) -> impl FnOnce(&mut Endpoint) {
    move |end| end.recv(1, &[Endpoint::sge(0, len)])
}

fn rights(access: u32) -> impl FnOnce(&mut Endpoint) {
    move |end| {
        let change = ModifyAttrs {
            access: Some(access),
            ..ModifyAttrs::default()
        };
        end.qp.modify(&change, &mut end.env).unwrap();
    }
}

/// Section 9.7.5.2, table "NAK codes", and 9.9.3, table "Responder error behavior".
#[test]
fn each_error_has_its_code() {
    use Operation::*;
    const INVALID: Option<u8> = Some(0x61);
    const ACCESS: Option<u8> = Some(0x62);
    let none = |_: &mut Endpoint| ();
    let one = |op, rest: &[&[u8]]| [craft(op, 17, PSN, rest)];
    let full: &[u8] = &[0; 1024];
    let small: &[u8] = &[0; 8];
    let r = |len| reth(VA, KEY, len);
    let atomic = |va: u64, key: u32| {
        let mut eth = va.to_be_bytes().to_vec();
        eth.extend(key.to_be_bytes());
        eth.extend([0; 16]);
        eth
    };

    // order of packets
    assert_eq!(syndrome(receive(8000), &one(SendMiddle, &[full])), INVALID);
    assert_eq!(syndrome(receive(8000), &one(SendLast, &[small])), INVALID);
    assert_eq!(syndrome(none, &one(WriteLast, &[small])), INVALID);
    let first = craft(SendFirst, 17, PSN, &[full]);
    for op in [SendFirst, SendOnly, WriteMiddle, WriteLast] {
        let second = craft(op, 17, PSN + 1, &[full]);
        let both = [first.clone(), second];
        assert_eq!(syndrome(receive(8000), &both), INVALID, "{op:?}");
    }
    let read = craft(ReadRequest, 17, PSN + 1, &[&r(8)]);
    assert_eq!(syndrome(receive(8000), &[first, read]), INVALID);

    // lengths
    assert_eq!(syndrome(receive(8000), &one(SendFirst, &[small])), INVALID);
    assert_eq!(
        syndrome(receive(8000), &one(SendOnly, &[&[0; 1028]])),
        INVALID
    );
    assert_eq!(syndrome(receive(7), &one(SendOnly, &[small])), INVALID);
    assert_eq!(syndrome(none, &one(WriteOnly, &[&r(9), small])), INVALID);
    assert_eq!(syndrome(none, &one(WriteFirst, &[&r(1024), full])), INVALID);
    assert_eq!(syndrome(none, &one(ReadRequest, &[&r(8), small])), INVALID);
    let long = r((1 << 31) + 1);
    assert_eq!(syndrome(none, &one(ReadRequest, &[&long])), INVALID);

    // rights of the queue pair
    assert_eq!(
        syndrome(rights(0xd), &one(WriteOnly, &[&r(8), small])),
        INVALID
    );
    assert_eq!(syndrome(rights(0xb), &one(ReadRequest, &[&r(8)])), INVALID);
    let add = atomic(VA + 7, KEY);
    assert_eq!(syndrome(rights(7), &one(FetchAdd, &[&add])), INVALID);
    let odd = atomic(VA, KEY);
    assert_eq!(syndrome(none, &one(CompareSwap, &[&odd])), INVALID);

    // keys and ranges
    let stranger = reth(VA, 0xbad, 8);
    let outside = reth(VA - 1, KEY, 8);
    for eth in [&stranger, &outside] {
        assert_eq!(syndrome(none, &one(WriteOnly, &[eth, small])), ACCESS);
        assert_eq!(syndrome(none, &one(ReadRequest, &[eth])), ACCESS);
    }
    let bad = atomic(VA + 7, 0xbad);
    assert_eq!(syndrome(none, &one(FetchAdd, &[&bad])), ACCESS);

    // this side's own fault, and its lack of a receive
    let vanished = |end: &mut Endpoint| {
        receive(64)(end);
        end.env.mem.deregister(KEY);
    };
    assert_eq!(syndrome(vanished, &one(SendOnly, &[small])), Some(0x63));
    assert_eq!(syndrome(none, &one(SendOnly, &[small])), Some(0x2c));

    // a gap
    let later = [craft(WriteOnly, 17, PSN + 1, &[&r(8), small])];
    assert_eq!(syndrome(none, &later), Some(0x60));
}

/// The bit stands in the last packet of what makes a completion at the receiver, and only when asked for
/// (section 9.2.3).
#[test]
fn solicited_event_bit() {
    let imm = SendOp::WriteImm {
        va: VA,
        rkey: KEY,
        imm: [1; 4],
    };
    let cases = [
        (SendOp::Send, true, vec![false, false, true]),
        (SendOp::Send, false, vec![false, false, false]),
        (SendOp::SendImm([1; 4]), true, vec![false, false, true]),
        (imm, true, vec![false, false, true]),
        (Endpoint::write(0), true, vec![false, false, false]),
    ];
    for (op, solicited, expected) in cases {
        let mut pair = Pair::new(&Setup::default());
        pair.ends[1].recv(1, &[Endpoint::sge(9000, 4000)]);
        let flags = SendFlags {
            solicited,
            ..SendFlags::default()
        };
        let sge = [Endpoint::sge(0, 3000)];
        pair.ends[0].send_with(1, op, &sge, flags).unwrap();
        let bits = watch(
            &mut pair,
            |from, pkt| (from == 0).then_some(pkt.bth.solicited),
            |_, _| false,
        );
        pair.settle(100);
        assert_eq!(*bits.borrow(), expected, "{op:?}");
        let told = pair.ends[1].env.recv_cq.iter().any(|wc| wc.solicited);
        assert_eq!(told, expected.contains(&true));
    }
}

/// The wait is 4.096 µs · 2^t for each t, to the nanosecond.
#[test]
fn local_ack_timeout_of_each_code() {
    for timeout in 1..32 {
        let mut pair = Pair::new(&Setup {
            timeout,
            retry_cnt: 1,
            ..Setup::default()
        });
        pair.filter(|_, _| Verdict::Drop);
        let sge = [Endpoint::sge(0, 8)];
        pair.ends[0].send(1, Endpoint::write(0), &sge).unwrap();
        pair.settle(100);
        let times: Vec<u64> = pair.sent.iter().map(|s| s.at.0).collect();
        assert_eq!(times.len(), 2);
        assert_eq!(times[1] - times[0], 4096 << timeout, "timeout {timeout}");
    }
}

/// One acknowledgement for many packets.
#[test]
fn acknowledgements_are_coalesced() {
    let mut pair = Pair::new(&Setup::default());
    let sge = [Endpoint::sge(0, 20 * 1024)];
    for id in 0..3 {
        pair.ends[0].send(id, Endpoint::write(0), &sge).unwrap();
    }
    pair.settle(100);
    let acks = pair.sent.iter().filter(|s| s.from == 1).count();
    assert!(acks <= 3, "{acks} acknowledgements of 60 packets");
    assert_eq!(pair.ends[0].sent().len(), 3);
}

/// While a repetition is under way, a refusal of what was sent after it tells of a new loss; one of what was sent
/// before does not.
#[test]
fn refusals_during_a_repetition() {
    let mut pair = Pair::new(&Setup::default());
    let sge = [Endpoint::sge(0, 8)];
    pair.filter(|_, _| Verdict::Drop);
    let nak = |n: u32| {
        craft(
            Operation::Ack,
            16,
            (PSN + n) & 0xff_ffff,
            &[&[0x60, 0, 0, 0]],
        )
    };
    let sent = |pair: &Pair| pair.sent.len();
    let a = &mut pair.ends[0];
    a.send(0, Endpoint::read(0), &sge).unwrap();
    for id in 1..3 {
        a.send(id, Endpoint::write(0), &sge).unwrap();
    }
    pair.transmit(0);
    assert_eq!(sent(&pair), 3);
    // the answer to the READ was lost, and the last WRITE
    pair.hand(0, &nak(2));
    pair.transmit(0);
    assert_eq!(sent(&pair), 6);
    pair.hand(0, &nak(1));
    pair.hand(0, &nak(2));
    pair.transmit(0);
    assert_eq!(sent(&pair), 6, "told twice");
    // what is new is refused while the READ is still not answered
    pair.ends[0].send(3, Endpoint::write(0), &sge).unwrap();
    pair.transmit(0);
    assert_eq!(sent(&pair), 7);
    pair.hand(0, &nak(3));
    pair.transmit(0);
    assert_eq!(sent(&pair), 11);
}
