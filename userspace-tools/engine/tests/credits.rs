// SPDX-License-Identifier: GPL-2.0

//! End-to-end flow control (section 9.7.7.2): what the responder tells, and what the requester makes of it.

use ferroce_engine::sim::craft;
use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Faults;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::sim::Verdict;
use ferroce_engine::wire::Aeth;
use ferroce_engine::wire::Credits;
use ferroce_engine::wire::Operation;
use ferroce_engine::wire::Syndrome;
use ferroce_engine::SendOp;
use ferroce_engine::WcStatus::Success;
use std::cell::RefCell;
use std::rc::Rc;

/// The specification's table.
const TABLE: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

#[test]
fn codes_of_the_table() {
    for (code, count) in TABLE.into_iter().enumerate() {
        assert_eq!(Credits::from_bits(code as u8).count(), Some(count));
        assert_eq!(usize::from(Credits::of(count).bits()), code);
        let below = Credits::of(count.saturating_sub(1)).bits();
        assert_eq!(usize::from(below), code.saturating_sub(1));
    }
    assert_eq!(Credits::from_bits(31).count(), None);
    assert_eq!(Credits::of(u32::MAX).bits(), 30);
    assert_eq!(Credits::NONE.bits(), 31);
}

/// The MSN and the credits of each answer.
fn counts(seen: &RefCell<Vec<Aeth>>) -> Vec<(u32, Option<u32>)> {
    let seen = seen.borrow();
    seen.iter().map(|a| (a.msn, a.credits.count())).collect()
}

/// A pair whose endpoint 0 sees endpoint 1 as a peer that counts no credits, or says something else.
fn told(setup: &Setup) -> (Pair, Rc<RefCell<Vec<Aeth>>>) {
    let mut pair = Pair::new(setup);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = seen.clone();
    pair.filter(move |from, pkt| {
        if let Some(aeth) = pkt.aeth.filter(|_| from == 1) {
            log.borrow_mut().push(aeth);
        }
        Verdict::Pass
    });
    (pair, seen)
}

#[test]
fn responder_tells_what_waits() {
    let (mut pair, seen) = told(&Setup::default());
    for id in 0..7 {
        pair.ends[1].recv(id, &[Endpoint::sge(0, 8)]);
    }
    let sge = [Endpoint::sge(0, 8)];
    pair.ends[0].send(1, SendOp::Send, &sge).unwrap();
    pair.settle(100);
    pair.ends[0].send(2, Endpoint::write(0), &sge).unwrap();
    pair.settle(100);
    assert_eq!(counts(&seen), [(1, Some(6)), (2, Some(6))]);
}

#[test]
fn the_receive_of_a_message_in_progress_counts() {
    let (mut pair, seen) = told(&Setup::default());
    for id in 0..2 {
        pair.ends[1].recv(id, &[Endpoint::sge(0, 4000)]);
    }
    let sge = [Endpoint::sge(0, 3000)];
    pair.ends[0].send(1, SendOp::Send, &sge).unwrap();
    pair.settle(100);
    assert_eq!(counts(&seen), [(0, Some(2)), (1, Some(1))]);
}

#[test]
fn shared_receive_queues_are_not_counted() {
    let (mut pair, seen) = told(&Setup {
        srq: true,
        ..Setup::default()
    });
    pair.ends[1].recv(1, &[Endpoint::sge(0, 8)]);
    let sge = [Endpoint::sge(0, 8)];
    pair.ends[0].send(1, SendOp::Send, &sge).unwrap();
    pair.settle(100);
    pair.ends[0].send(2, Endpoint::read(0), &sge).unwrap();
    pair.settle(100);
    let told = seen
        .borrow()
        .iter()
        .map(|a| a.credits.count())
        .collect::<Vec<_>>();
    assert_eq!(told, [None, None]);
}

/// PSNs of the first transmission that endpoint 0 has made so far, relative to its first.
fn sent(pair: &Pair) -> Vec<u32> {
    let own = pair.sent.iter().filter(|s| s.from == 0);
    own.map(|s| s.psn.get().wrapping_sub(0xff_fffa) & 0xff_ffff)
        .collect()
}

/// Without credits one packet goes out, and asks for an acknowledgement.
#[test]
fn the_first_message_is_limited_to_a_packet() {
    let mut pair = Pair::new(&Setup::default());
    let sge = [Endpoint::sge(0, 3000)];
    for id in 1..4 {
        pair.ends[0].send(id, SendOp::Send, &sge).unwrap();
        pair.ends[1].recv(id, &[Endpoint::sge(9000, 3000)]);
    }
    pair.transmit(0);
    assert_eq!(sent(&pair), [0]);
    assert!(pair.sent[0].ack_req);
    pair.run_for(10_000);
    assert_eq!(sent(&pair), (0..9).collect::<Vec<_>>(), "three credits");
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [1, 2, 3].map(|id| (id, Success)));
}

/// WRITEs, READs and atomics take no credit, and count as messages.
#[test]
fn only_what_takes_a_receive_is_limited() {
    let mut pair = Pair::new(&Setup::default());
    let sge = [Endpoint::sge(0, 2000)];
    pair.ends[0].send(1, Endpoint::write(0), &sge).unwrap();
    pair.ends[0].send(2, Endpoint::read(0), &sge).unwrap();
    pair.ends[0].send(3, SendOp::Send, &sge).unwrap();
    pair.ends[0].send(4, Endpoint::write(0), &sge).unwrap();
    pair.transmit(0);
    // the READ takes PSNs 2 and 3, the SEND begins at 4
    assert_eq!(sent(&pair), [0, 1, 2, 4]);
    pair.ends[1].recv(1, &[Endpoint::sge(9000, 3000)]);
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [1, 2, 3, 4].map(|id| (id, Success)));
}

/// The peer says how many it has: messages up to that number go at once, and one packet more.
#[test]
fn limit_sequence_number() {
    for (code, msn, whole) in [(0, 1, 1), (2, 1, 3), (5, 1, 7), (2, 3, 5), (31, 1, 10)] {
        let mut pair = Pair::new(&Setup::default());
        let sge = [Endpoint::sge(0, 2000)];
        pair.ends[0].send(0, Endpoint::write(0), &sge[..1]).unwrap();
        for id in 1..10 {
            pair.ends[0].send(id, SendOp::Send, &sge).unwrap();
        }
        pair.filter(|_, _| Verdict::Drop);
        pair.transmit(0);
        let before = sent(&pair).len();
        assert_eq!(before, 3, "the WRITE and a packet");
        let aeth = [code, 0, 0, msn];
        pair.hand(0, &craft(Operation::Ack, 16, 0xff_fffb, &[&aeth]));
        pair.transmit(0);
        // message n of 2 packets begins at PSN 2n - 2
        let beyond = if whole < 10 { 1 } else { 0 };
        let expected = (0..2 * whole + beyond).collect::<Vec<u32>>();
        assert_eq!(sent(&pair), expected, "code {code} at {msn}");
    }
}

/// Credits come with any acknowledgement, also one that nobody has asked for.
#[test]
fn unsolicited_acknowledgement() {
    let mut pair = Pair::new(&Setup::default());
    let sge = [Endpoint::sge(0, 8)];
    pair.filter(|_, _| Verdict::Drop);
    for id in 1..4 {
        pair.ends[0].send(id, SendOp::Send, &sge).unwrap();
    }
    pair.transmit(0);
    assert_eq!(sent(&pair), [0]);
    pair.hand(0, &craft(Operation::Ack, 16, 0xff_fff9, &[&[2, 0, 0, 0]]));
    pair.transmit(0);
    assert_eq!(sent(&pair), [0, 1, 2], "two credits, and one packet more");
    // older news takes nothing back, and a stranger's PSN tells nothing
    pair.hand(0, &craft(Operation::Ack, 16, 0xff_fff9, &[&[0, 0, 0, 0]]));
    pair.hand(0, &craft(Operation::Ack, 16, 0xff_fff8, &[&[31, 0, 0, 0]]));
    pair.ends[0].send(4, SendOp::Send, &sge).unwrap();
    pair.transmit(0);
    assert_eq!(sent(&pair), [0, 1, 2]);
}

/// As rdma_rxe does it: code 31 with everything.
#[test]
fn a_peer_without_credits_is_not_waited_for() {
    let mut pair = Pair::new(&Setup {
        srq: true,
        ..Setup::default()
    });
    let sge = [Endpoint::sge(0, 2000)];
    for id in 0..20 {
        pair.ends[1].recv(id, &[Endpoint::sge(9000, 3000)]);
        pair.ends[0].send(id, SendOp::Send, &sge).unwrap();
    }
    pair.run_for(10_000);
    pair.transmit(0);
    assert_eq!(sent(&pair).len(), 40);
    pair.settle(100);
    assert_eq!(pair.ends[0].sent().len(), 20);
}

/// A slow receiver with few buffers: nothing is sent in vain but single packets.
#[test]
fn r6_credits_spare_the_wire() {
    let mut pair = Pair::new(&Setup {
        min_rnr_timer: 1,
        ..Setup::default()
    });
    let sge = [Endpoint::sge(0, 4000)];
    for id in 0..30 {
        pair.ends[0].send(id, SendOp::Send, &sge).unwrap();
    }
    for id in 0..30 {
        pair.ends[1].recv(id, &[Endpoint::sge(9000, 4000)]);
        pair.run_for(100_000);
    }
    pair.settle(1000);
    assert_eq!(
        pair.ends[0].sent(),
        (0..30).map(|id| (id, Success)).collect::<Vec<_>>()
    );
    let mut firsts = 0;
    for s in pair.sent.iter().filter(|s| s.from == 0) {
        assert_ne!(s.op, Operation::SendOnly);
        firsts += usize::from(s.op == Operation::SendFirst);
    }
    let all = pair.sent.iter().filter(|s| s.from == 0).count();
    assert_eq!(all - firsts, 3 * 30, "middle and last packets go once");
}

/// Loss of anything on a limited queue only costs time.
#[test]
fn limited_under_loss() {
    for seed in 1..60 {
        let mut pair = Pair::new(&Setup {
            seed,
            timeout: 6,
            min_rnr_timer: 1,
            faults: Faults {
                loss: 100,
                duplicate: 50,
                reorder: 100,
                ..Faults::NONE
            },
            ..Setup::default()
        });
        let sge = [Endpoint::sge(0, 3000)];
        for id in 0..20 {
            let imm = SendOp::WriteImm {
                va: Endpoint::VA,
                rkey: Endpoint::KEY,
                imm: [1; 4],
            };
            let op = if id % 3 == 0 { imm } else { SendOp::Send };
            pair.ends[0].send(id, op, &sge).unwrap();
        }
        for id in 0..20 {
            pair.ends[1].recv(id, &[Endpoint::sge(9000, 4000)]);
            pair.run_for(20_000 * (seed % 4));
        }
        pair.settle(20_000);
        let expected: Vec<_> = (0..20).map(|id| (id, Success)).collect();
        assert_eq!(pair.ends[0].sent(), expected, "seed {seed}");
        assert_eq!(pair.ends[1].received(), expected, "seed {seed}");
    }
}

#[test]
fn refusals_tell_no_credits() {
    let aeth = |byte: u8| Aeth::take(&[byte, 0, 0, 0]).expect("an AETH").0;
    assert_eq!(aeth(0x22).credits, Credits::NONE);
    assert_eq!(aeth(0x60).credits, Credits::NONE);
    assert_eq!(aeth(0x22).syndrome, Syndrome::Rnr(2));
    assert_eq!(aeth(0x02).credits.count(), Some(2));
}
