// SPDX-License-Identifier: GPL-2.0

//! Queue pairs on a shared receive queue, and receives whose completion invalidates a key.

use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::sim::Verdict;
use ferroce_engine::wire::Operation;
use ferroce_engine::wire::Syndrome;
use ferroce_engine::ModifyAttrs;
use ferroce_engine::Mtu;
use ferroce_engine::QpEvent;
use ferroce_engine::QpState;
use ferroce_engine::SendOp;
use ferroce_engine::WcStatus;
use ferroce_engine::WcStatus::Success;
use std::cell::RefCell;
use std::rc::Rc;

fn pair() -> Pair {
    Pair::new(&Setup {
        srq: true,
        ..Setup::default()
    })
}

/// Syndromes of what endpoint 1 answers.
fn answers(pair: &mut Pair) -> Rc<RefCell<Vec<Syndrome>>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = seen.clone();
    pair.filter(move |from, pkt| {
        if let Some(aeth) = pkt.aeth.filter(|_| from == 1) {
            log.borrow_mut().push(aeth.syndrome);
        }
        Verdict::Pass
    });
    seen
}

#[test]
fn empty_queue_is_receiver_not_ready() {
    let mut pair = pair();
    let seen = answers(&mut pair);
    let sge = [Endpoint::sge(0, 8)];
    pair.ends[0].send(1, SendOp::Send, &sge).unwrap();
    pair.run_for(20_000);
    assert_eq!(*seen.borrow(), [Syndrome::Rnr(12)]);
    pair.ends[1].recv(7, &sge);
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, Success)]);
    assert_eq!(pair.ends[1].received(), [(7, Success)]);
}

#[test]
fn last_wqe_is_reported_once_by_every_way_to_error() {
    let error = ModifyAttrs {
        state: Some(QpState::Error),
        ..ModifyAttrs::default()
    };
    let mut pair = pair();
    let b = &mut pair.ends[1];
    for _ in 0..2 {
        b.qp.modify(&error, &mut b.env).unwrap();
        b.recv(1, &[Endpoint::sge(0, 8)]);
    }
    assert_eq!(b.env.events, [QpEvent::LastWqeReached]);
    assert_eq!(b.env.recvs.len(), 2, "they are for other queue pairs");
}

#[test]
fn a_key_that_cannot_be_invalidated_fails_both_sides() {
    let mut pair = pair();
    let sge = [Endpoint::sge(0, 64)];
    pair.ends[1].recv(7, &sge);
    pair.ends[0]
        .send(1, SendOp::SendInvalidate(0xbad), &sge)
        .unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, WcStatus::RemAccessErr)]);
    assert_eq!(pair.ends[1].received(), [(7, WcStatus::LocAccessErr)]);
    assert_eq!(pair.ends[1].qp.state(), QpState::Error);
}

/// A repeated SEND with invalidate takes no second receive and no second key.
#[test]
fn invalidation_is_not_repeated() {
    let mut pair = pair();
    pair.ends[1].env.mem.register(77, 0x1000, 64);
    for id in 0..2 {
        pair.ends[1].recv(id, &[Endpoint::sge(0, 5000)]);
    }
    let mut lost = false;
    pair.filter(move |_, pkt| {
        if pkt.opcode.op == Operation::Ack && !lost {
            lost = true;
            return Verdict::Drop;
        }
        Verdict::Pass
    });
    let len = 3 * Mtu::M1024.bytes();
    pair.ends[0]
        .send(1, SendOp::SendInvalidate(77), &[Endpoint::sge(0, len)])
        .unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, Success)]);
    assert_eq!(pair.ends[1].received(), [(0, Success)]);
    assert_eq!(pair.ends[1].env.recv_cq[0].invalidated_rkey, Some(77));
}
