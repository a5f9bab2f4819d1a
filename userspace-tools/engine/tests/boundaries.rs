// SPDX-License-Identifier: GPL-2.0

//! The last value that is still right and the first that is wrong, where random runs do not come by.

use ferroce_engine::sim::craft;
use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::wire::NakCode;
use ferroce_engine::wire::Operation;
use ferroce_engine::wire::Reth;
use ferroce_engine::wire::Syndrome;
use ferroce_engine::Packet;
use ferroce_engine::Psn;
use ferroce_engine::QpEvent;
use ferroce_engine::QpState;
use ferroce_engine::SendOp;
use ferroce_engine::WcStatus;

/// What endpoint 1 answers to a SEND this far ahead of the PSN that it expects.
fn answer(ahead: u32) -> Option<(Syndrome, u32)> {
    let mut pair = Pair::new(&Setup::default());
    let first = pair.ends[1].qp.query().rq_psn;
    let psn = Psn::new(first).plus(ahead).get();
    pair.hand(1, &craft(Operation::SendOnly, 17, psn, &[b"data"]));
    let end = &mut pair.ends[1];
    let t = end.qp.poll_transmit(pair.now, 1, &mut end.env)?;
    let mut body = vec![0; t.packet_len(0)];
    end.qp.write_packet(&t, 0, &mut body, &end.env.mem).unwrap();
    let pkt = Packet::parse(&body).unwrap();
    let at = pkt.bth.psn.since(Psn::new(first));
    Some((pkt.aeth?.syndrome, at))
}

/// PSNs in the half of the space behind the expected one are duplicates, all others ahead are missing some
/// (section 9.7.1.1).
#[test]
fn half_of_the_psns_are_behind() {
    let half = 1 << 23;
    let gap = Some((Syndrome::Nak(NakCode::Sequence), 0));
    let again = Some((Syndrome::Ack, 0x00ff_ffff));
    assert_eq!(answer(1), gap);
    assert_eq!(answer(half - 1), gap);
    assert_eq!(answer(half), again);
    assert_eq!(answer(2 * half - 1), again);
}

/// The last packet of several has at least a byte (section 9.7.4.1.6).
#[test]
fn an_empty_last_packet_is_invalid() {
    for (size, state) in [(1, QpState::Rts), (0, QpState::Error)] {
        let mut pair = Pair::new(&Setup::default());
        pair.ends[1].recv(1, &[Endpoint::sge(0, 4096)]);
        let first = Psn::new(pair.ends[1].qp.query().rq_psn);
        let (full, last) = ([7; 1024], vec![7; size]);
        pair.hand(1, &craft(Operation::SendFirst, 17, first.get(), &[&full]));
        let psn = first.plus(1).get();
        pair.hand(1, &craft(Operation::SendLast, 17, psn, &[&last]));
        assert_eq!(pair.ends[1].qp.state(), state, "{size} bytes");
    }
}

/// A READ may be asked for again in part, also in one that ends elsewhere than the first request did.
#[test]
fn a_part_of_a_read_has_its_own_length() {
    let mut pair = Pair::new(&Setup::default());
    let first = pair.ends[1].qp.query().rq_psn;
    for (skip, len) in [(0, 4000), (1, 1500), (1, 1000), (0, 4000)] {
        let reth = Reth {
            va: Endpoint::VA + u64::from(skip) * 1024,
            rkey: Endpoint::KEY,
            len,
        };
        let psn = Psn::new(first).plus(skip).get();
        pair.hand(
            1,
            &craft(Operation::ReadRequest, 17, psn, &[&reth.encode()]),
        );
        assert_eq!(answered(&mut pair), (psn, len as usize));
    }
}

/// PSN of the first response and bytes of all.
fn answered(pair: &mut Pair) -> (u32, usize) {
    let end = &mut pair.ends[1];
    let (mut psn, mut bytes) = (None, 0);
    while let Some(t) = end.qp.poll_transmit(pair.now, 9, &mut end.env) {
        for i in 0..t.count() {
            let mut body = vec![0; t.packet_len(i)];
            end.qp.write_packet(&t, i, &mut body, &end.env.mem).unwrap();
            let pkt = Packet::parse(&body).unwrap();
            psn.get_or_insert(pkt.bth.psn.get());
            bytes += pkt.payload.len();
        }
    }
    (psn.unwrap(), bytes)
}

/// Every message has all RNR retries, whatever those before it needed.
#[test]
fn r7_rnr_retries_count_for_each_message() {
    let mut pair = Pair::new(&Setup {
        rnr_retry: 1,
        min_rnr_timer: 1,
        srq: true,
        ..Setup::default()
    });
    for id in 0..3 {
        pair.ends[0]
            .send(id, SendOp::Send, &[Endpoint::sge(0, 10)])
            .unwrap();
        pair.run_for(15_000);
        pair.ends[1].recv(id, &[Endpoint::sge(4096 * id, 10)]);
        pair.settle(1000);
    }
    let rnrs = pair
        .sent
        .iter()
        .filter(|sent| sent.from == 1 && sent.op == Operation::Ack);
    assert!(rnrs.count() >= 6, "each message was refused once");
    assert_eq!(
        pair.ends[0].sent(),
        [0, 1, 2].map(|id| (id, WcStatus::Success))
    );
}

/// After an RNR delay one message tries its luck, before the others follow; without credits nothing else holds them.
#[test]
fn r6_one_message_asks_after_an_rnr_delay() {
    let mut pair = Pair::new(&Setup {
        min_rnr_timer: 12,
        srq: true,
        ..Setup::default()
    });
    pair.ends[1].recv(9, &[Endpoint::sge(0, 10)]);
    pair.ends[0]
        .send(9, SendOp::Send, &[Endpoint::sge(0, 10)])
        .unwrap();
    pair.settle(100);
    for id in 0..5 {
        pair.ends[0]
            .send(id, SendOp::Send, &[Endpoint::sge(0, 10)])
            .unwrap();
    }
    pair.run_for(500_000);
    let first = pair.sent.iter().filter(|sent| sent.from == 0).count();
    pair.run_for(600_000);
    let later = pair.sent.iter().filter(|sent| sent.from == 0).count();
    assert_eq!((first, later), (1 + 5, 1 + 6));
}

/// Memory that goes away fails the answer to one READ and the request for the next, and the connection once.
#[test]
fn an_answer_that_fails_behind_a_refusal_is_one_event() {
    let mut pair = Pair::new(&Setup::default());
    let key = 0x77;
    pair.ends[1].env.mem.register(key, Endpoint::VA, 4096);
    let first = Psn::new(pair.ends[1].qp.query().rq_psn);
    let reth = Reth {
        va: Endpoint::VA,
        rkey: key,
        len: 8,
    };
    let ask = |pair: &mut Pair, ahead| {
        let psn = first.plus(ahead).get();
        pair.hand(
            1,
            &craft(Operation::ReadRequest, 17, psn, &[&reth.encode()]),
        );
    };
    ask(&mut pair, 0);
    pair.ends[1].env.mem.revoke(key);
    ask(&mut pair, 1);
    pair.transmit(1);
    assert_eq!(pair.ends[1].env.events, [QpEvent::AccessError]);
    let sent: Vec<_> = pair.sent.iter().map(|sent| (sent.op, sent.psn)).collect();
    assert_eq!(sent, [(Operation::Ack, first)]);
}
