// SPDX-License-Identifier: GPL-2.0

//! Answers that make no sense for the request they are to (section 9.9.2, table "Requester error behavior", class B).

use ferroce_engine::sim::craft;
use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::sim::Verdict;
use ferroce_engine::wire::Feth;
use ferroce_engine::wire::Operation;
use ferroce_engine::QpState;
use ferroce_engine::SendOp;
use ferroce_engine::Sge;
use ferroce_engine::WcStatus::BadRespErr;
use ferroce_engine::WcStatus::Success;

const PSN: u32 = 0xff_fffa;
const ACK: [u8; 4] = [0x1f, 0, 0, 1];

/// A packet: its operation, and what follows its BTH.
type Answer = (Operation, Vec<u8>);

/// The state of endpoint 0, and how its request ended if it has, after these answers to it.
fn answered(op: SendOp, sge: &[Sge], answers: &[Answer]) -> String {
    let mut pair = Pair::new(&Setup::default());
    pair.filter(|_, _| Verdict::Drop);
    pair.ends[0].send(1, op, sge).unwrap();
    pair.transmit(0);
    for (n, (op, rest)) in answers.iter().enumerate() {
        let psn = (PSN + n as u32) & 0xff_ffff;
        pair.hand(0, &craft(*op, 16, psn, &[rest]));
    }
    let a = &pair.ends[0];
    let failed = a.qp.state() == QpState::Error;
    match a.sent().as_slice() {
        [] if !failed => "waits".into(),
        [(1, Success)] if !failed => "succeeds".into(),
        [(1, BadRespErr)] if failed => "fails".into(),
        other => format!("{other:?} in {:?}", a.qp.state()),
    }
}

#[test]
fn answers_to_a_read() {
    use Operation::*;
    let full: &[u8] = &[1; 1024];
    let rest: &[u8] = &[1; 100];
    let refusal: &[u8] = &[0x61, 0, 0, 1];
    let cases: Vec<(Vec<Answer>, &str)> = vec![
        (
            vec![
                (ReadFirst, [&ACK[..], full].concat()),
                (ReadLast, [&ACK[..], rest].concat()),
            ],
            "succeeds",
        ),
        (vec![(ReadFirst, [&ACK[..], full].concat())], "waits"),
        // repetitions: what is asked for again may begin and end anew
        (
            vec![
                (ReadFirst, [&ACK[..], full].concat()),
                (ReadOnly, [&ACK[..], rest].concat()),
            ],
            "succeeds",
        ),
        // lengths
        (vec![(ReadFirst, [&ACK[..], rest].concat())], "fails"),
        (
            vec![
                (ReadFirst, [&ACK[..], full].concat()),
                (ReadLast, [&ACK[..], full].concat()),
            ],
            "fails",
        ),
        (
            vec![
                (ReadFirst, [&ACK[..], full].concat()),
                (ReadLast, ACK.to_vec()),
            ],
            "fails",
        ),
        // it ends too soon, or not at all
        (vec![(ReadOnly, [&ACK[..], full].concat())], "fails"),
        (vec![(ReadLast, [&ACK[..], full].concat())], "fails"),
        (
            vec![
                (ReadFirst, [&ACK[..], full].concat()),
                (ReadMiddle, [rest].concat()),
            ],
            "fails",
        ),
        // of another kind
        (vec![(AtomicAck, [&ACK[..], &[0; 8]].concat())], "fails"),
        (vec![(ReadFirst, [refusal, full].concat())], "fails"),
    ];
    for (n, (answers, expected)) in cases.iter().enumerate() {
        let sge = [Endpoint::sge(0, 1124)];
        let got = answered(Endpoint::read(0), &sge, answers);
        assert_eq!(got, *expected, "case {n}");
    }
}

#[test]
fn answers_to_an_atomic_a_write_and_a_flush() {
    use Operation::*;
    let old: &[u8] = &[0; 8];
    let refusal: &[u8] = &[0x23, 0, 0, 1];
    let add = SendOp::FetchAdd {
        va: Endpoint::VA + 7,
        rkey: Endpoint::KEY,
        add: 1,
    };
    let kind = Feth {
        placement: Feth::GLOBAL,
        selectivity: Feth::REGION,
    };
    let flush = SendOp::Flush {
        va: 0,
        rkey: Endpoint::KEY,
        len: 0,
        kind,
    };
    let write = Endpoint::write(0);
    let word = [Endpoint::sge(1, 8)];
    let cases: Vec<(SendOp, &[Sge], Answer, &str)> = vec![
        (
            add,
            &word,
            (AtomicAck, [&ACK[..], old].concat()),
            "succeeds",
        ),
        (add, &word, (AtomicAck, [refusal, old].concat()), "fails"),
        (add, &word, (ReadOnly, [&ACK[..], old].concat()), "fails"),
        (write, &word, (Ack, ACK.to_vec()), "succeeds"),
        (write, &word, (ReadOnly, [&ACK[..], old].concat()), "fails"),
        (write, &word, (AtomicAck, [&ACK[..], old].concat()), "fails"),
        (flush, &[], (ReadOnly, ACK.to_vec()), "succeeds"),
        (flush, &[], (ReadOnly, [&ACK[..], old].concat()), "fails"),
        (flush, &[], (ReadFirst, ACK.to_vec()), "fails"),
        (flush, &[], (ReadMiddle, Vec::new()), "fails"),
    ];
    for (n, (op, sge, answer, expected)) in cases.into_iter().enumerate() {
        let got = answered(op, sge, &[answer]);
        assert_eq!(got, expected, "case {n}");
    }
}
