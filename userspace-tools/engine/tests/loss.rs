// SPDX-License-Identifier: GPL-2.0

//! Chosen packets are lost, repeated or late; retries and timers are counted exactly.

use ferroce_engine::ack_timeout_ns;
use ferroce_engine::rnr_delay_ns;
use ferroce_engine::sim::craft;
use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::sim::Verdict;
use ferroce_engine::wire::Aeth;
use ferroce_engine::wire::Credits;
use ferroce_engine::wire::NakCode;
use ferroce_engine::wire::Operation;
use ferroce_engine::wire::Reth;
use ferroce_engine::wire::Syndrome;
use ferroce_engine::QpState;
use ferroce_engine::SendOp;
use ferroce_engine::WcStatus;
use ferroce_engine::WcStatus::Success;

const KEY: u32 = Endpoint::KEY;
const VA: u64 = Endpoint::VA;

fn aeth(syndrome: Syndrome, msn: u32) -> [u8; 4] {
    let credits = Credits::NONE;
    Aeth {
        syndrome,
        credits,
        msn,
    }
    .encode()
}

/// Loses the `n`th packet (from 0) that endpoint `side` sends.
fn lose_nth(pair: &mut Pair, side: usize, n: usize) {
    let mut count = 0;
    pair.filter(move |from, _| {
        if from != side {
            return Verdict::Pass;
        }
        count += 1;
        if count == n + 1 {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    });
}

/// A mixed load of 21 packets from side 0.
fn mixed_load(pair: &mut Pair) -> [Vec<u8>; 2] {
    let data = pair.ends[0].fill(0, 5000, 1);
    let remote = pair.ends[1].fill(1 << 20, 5000, 2);
    let [a, b] = &mut pair.ends;
    b.recv(1, &[Endpoint::sge(100_000, 5000)]);
    b.recv(2, &[Endpoint::sge(200_000, 5000)]);
    let out = [Endpoint::sge(0, 5000)];
    let back = |at| [Endpoint::sge(at, 5000)];
    a.send(1, Endpoint::write(0), &out).unwrap();
    a.send(2, Endpoint::read(1 << 20), &back(500_000)).unwrap();
    a.send(3, SendOp::Send, &out).unwrap();
    a.send(4, Endpoint::read(1 << 20), &back(600_000)).unwrap();
    a.send(5, SendOp::SendImm([1; 4]), &out).unwrap();
    [data, remote]
}

fn check_mixed_load(pair: &Pair, [data, remote]: &[Vec<u8>; 2]) {
    let sent: Vec<_> = (1..=5).map(|id| (id, Success)).collect();
    assert_eq!(pair.ends[0].sent(), sent);
    assert_eq!(pair.ends[1].received(), [(1, Success), (2, Success)]);
    for at in [0, 100_000, 200_000] {
        assert_eq!(&pair.ends[1].peek(at, 5000), data);
        let writes = pair.ends[1].env.mem.writes(KEY, VA + at, 5000);
        assert!(writes.iter().all(|&n| n == 1), "placed once");
    }
    for at in [500_000, 600_000] {
        assert_eq!(&pair.ends[0].peek(at, 5000), remote);
        let writes = pair.ends[0].env.mem.writes(KEY, VA + at, 5000);
        assert!(writes.iter().all(|&n| n == 1), "placed once");
    }
}

#[test]
fn any_one_packet_may_be_lost() {
    for side in 0..2 {
        for n in 0..21 {
            let mut pair = Pair::new(&Setup::default());
            lose_nth(&mut pair, side, n);
            let expected = mixed_load(&mut pair);
            pair.settle(1000);
            check_mixed_load(&pair, &expected);
        }
    }
}

#[test]
fn any_two_packets_may_be_lost() {
    for first in 0..20 {
        for second in first + 1..24 {
            let mut pair = Pair::new(&Setup::default());
            let mut count = 0;
            pair.filter(move |_, _| {
                count += 1;
                if count == first + 1 || count == second + 1 {
                    Verdict::Drop
                } else {
                    Verdict::Pass
                }
            });
            let expected = mixed_load(&mut pair);
            pair.settle(1000);
            check_mixed_load(&pair, &expected);
        }
    }
}

#[test]
fn every_packet_twice() {
    let mut pair = Pair::new(&Setup::default());
    pair.filter(|_, _| Verdict::Twice);
    let expected = mixed_load(&mut pair);
    pair.settle(1000);
    check_mixed_load(&pair, &expected);
}

#[test]
fn duplicate_atomic_is_not_executed_again() {
    let mut pair = Pair::new(&Setup::default());
    lose_nth(&mut pair, 1, 0);
    let word = 8 - (VA & 7);
    let op = SendOp::FetchAdd {
        va: VA + word,
        rkey: KEY,
        add: 1,
    };
    pair.ends[0].send(1, op, &[Endpoint::sge(0, 8)]).unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, Success)]);
    assert_eq!(pair.ends[0].peek(0, 8), 0_u64.to_ne_bytes());
    assert_eq!(pair.ends[1].peek(word, 8), 1_u64.to_ne_bytes());
    let requests = pair.sent.iter().filter(|s| s.from == 0).count();
    assert_eq!(requests, 2);
}

#[test]
fn a_gap_makes_one_nak_and_one_repetition() {
    let mut pair = Pair::new(&Setup::default());
    lose_nth(&mut pair, 0, 2);
    let sge = [Endpoint::sge(0, 10 * 1024)];
    pair.ends[0].send(1, Endpoint::write(0), &sge).unwrap();
    pair.settle(100);
    let requests = pair.sent.iter().filter(|s| s.from == 0).count();
    assert_eq!(requests, 10 + 8, "all from the lost one on");
    let answers = pair.sent.iter().filter(|s| s.from == 1).count();
    assert_eq!(answers, 2, "a NAK and an ACK");
    let late = pair.sent.iter().any(|s| s.at.0 > 1_100_000);
    assert!(!late, "without waiting for a timeout");
}

/// `retry_cnt` repetitions, no more and no less, and then the error: case R7.
#[test]
fn r7_retry_count_is_exact() {
    for retry_cnt in 0..=7 {
        let setup = Setup {
            retry_cnt,
            ..Setup::default()
        };
        let mut pair = Pair::new(&setup);
        pair.filter(|_, _| Verdict::Drop);
        let [a, _] = &mut pair.ends;
        a.send(1, Endpoint::write(0), &[Endpoint::sge(0, 8)])
            .unwrap();
        a.send(2, Endpoint::write(0), &[Endpoint::sge(0, 8)])
            .unwrap();
        pair.settle(100);
        let first = pair.sent.iter().filter(|s| s.psn.get() == 0xff_fffa);
        let times: Vec<u64> = first.map(|s| s.at.0).collect();
        assert_eq!(times.len(), 1 + usize::from(retry_cnt));
        let wait = ack_timeout_ns(setup.timeout).unwrap();
        assert!(times.windows(2).all(|w| w[1] - w[0] == wait));
        let expected = [(1, WcStatus::RetryExcErr), (2, WcStatus::WrFlushErr)];
        assert_eq!(pair.ends[0].sent(), expected);
        assert_eq!(pair.ends[0].qp.state(), QpState::Error);
    }
}

/// Progress gives all retries back: case R7.
#[test]
fn r7_retries_count_from_the_last_progress() {
    let setup = Setup {
        retry_cnt: 1,
        ..Setup::default()
    };
    let mut pair = Pair::new(&setup);
    let mut seen = std::collections::HashSet::new();
    // The first copy of every packet is lost.
    pair.filter(move |from, pkt| {
        if from == 0 && seen.insert(pkt.bth.psn.get()) {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    });
    for i in 0..20 {
        let sge = [Endpoint::sge(0, 8)];
        pair.ends[0].send(i, Endpoint::write(0), &sge).unwrap();
        pair.settle(100);
    }
    assert!(pair.ends[0].sent().iter().all(|(_, s)| *s == Success));
    assert_eq!(pair.ends[0].env.send_cq.len(), 20);
}

#[test]
fn without_timeout_nothing_is_repeated() {
    let setup = Setup {
        timeout: 0,
        ..Setup::default()
    };
    let mut pair = Pair::new(&setup);
    pair.filter(|_, _| Verdict::Drop);
    let sge = [Endpoint::sge(0, 8)];
    pair.ends[0].send(1, Endpoint::write(0), &sge).unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), []);
    assert_eq!(pair.sent.len(), 1);
}

/// The sender waits as long as each of the 32 codes says: case R5.
#[test]
fn r5_rnr_timer_at_every_code() {
    for code in 0..32 {
        let setup = Setup {
            min_rnr_timer: code,
            timeout: 20,
            ..Setup::default()
        };
        let mut pair = Pair::new(&setup);
        let sge = [Endpoint::sge(0, 8)];
        pair.ends[0].send(1, SendOp::Send, &sge).unwrap();
        pair.run_for(15_000);
        let refused = pair.now;
        assert_eq!(pair.sent.len(), 2, "a SEND and an RNR NAK");
        pair.ends[1].recv(1, &sge);
        pair.settle(100);
        let sends: Vec<_> = pair.sent.iter().filter(|s| s.from == 0).collect();
        assert_eq!(sends.len(), 2);
        let waited = sends[1].at.0 - sends[0].at.0;
        assert_eq!(waited, 10_000 + rnr_delay_ns(code), "code {code}");
        assert!(refused.0 > sends[0].at.0);
        assert_eq!(pair.ends[0].sent(), [(1, Success)]);
        assert_eq!(pair.ends[1].received(), [(1, Success)]);
    }
}

/// 0 to 6 RNR retries are exact: case R7.
#[test]
fn r7_rnr_retry_is_exact() {
    for rnr_retry in 0..=6 {
        let setup = Setup {
            rnr_retry,
            ..Setup::default()
        };
        let mut pair = Pair::new(&setup);
        let [a, _] = &mut pair.ends;
        a.send(1, SendOp::Send, &[Endpoint::sge(0, 8)]).unwrap();
        a.send(2, SendOp::Send, &[Endpoint::sge(0, 8)]).unwrap();
        pair.settle(1000);
        let sends = pair.sent.iter().filter(|s| s.psn.get() == 0xff_fffa);
        assert_eq!(
            sends.filter(|s| s.from == 0).count(),
            1 + usize::from(rnr_retry)
        );
        let expected = [(1, WcStatus::RnrRetryExcErr), (2, WcStatus::WrFlushErr)];
        assert_eq!(pair.ends[0].sent(), expected);
    }
}

/// 7 RNR retries are without end: case R7.
#[test]
fn r7_rnr_retry_7_never_gives_up() {
    let mut pair = Pair::new(&Setup::default());
    let sge = [Endpoint::sge(0, 8)];
    pair.ends[0].send(1, SendOp::Send, &sge).unwrap();
    pair.run_for(1_000 * rnr_delay_ns(12));
    assert_eq!(pair.ends[0].sent(), []);
    assert!(pair.sent.len() > 1900);
    pair.ends[1].recv(1, &sge);
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, Success)]);
}

/// While the receiver is not ready one message probes, not a whole window: case R6.
#[test]
fn r6_rnr_does_not_storm() {
    let setup = Setup {
        min_rnr_timer: 1,
        ..Setup::default()
    };
    let mut pair = Pair::new(&setup);
    for i in 0..64 {
        let sge = [Endpoint::sge(0, 8)];
        pair.ends[0].send(i, SendOp::Send, &sge).unwrap();
    }
    for i in 0..64 {
        pair.run_for(200_000);
        pair.ends[1].recv(i, &[Endpoint::sge(0, 8)]);
    }
    pair.settle(1000);
    assert_eq!(pair.ends[1].env.recv_cq.len(), 64);
    let sends = pair.sent.iter().filter(|s| s.from == 0).count();
    // A turn takes 20 µs: ten probes for each 200 µs, and a window after each success.
    assert!(sends < 64 * (11 + 64), "{sends} packets for 64 messages");
}

/// A write with immediate data is refused at its last packet only, and its data is placed once: case R5.
#[test]
fn r5_rnr_in_the_middle_of_a_write() {
    let mut pair = Pair::new(&Setup::default());
    let data = pair.ends[0].fill(0, 5000, 1);
    let op = SendOp::WriteImm {
        va: VA,
        rkey: KEY,
        imm: [1; 4],
    };
    pair.ends[0].send(1, op, &[Endpoint::sge(0, 5000)]).unwrap();
    pair.run_for(100_000);
    pair.ends[1].recv(1, &[]);
    pair.settle(100);
    assert_eq!(pair.ends[1].peek(0, 5000), data);
    let last = pair.sent.iter().filter(|s| s.op == Operation::WriteLastImm);
    assert_eq!(last.count(), 2);
    assert_eq!(pair.sent.iter().filter(|s| s.from == 0).count(), 6);
    let writes = pair.ends[1].env.mem.writes(KEY, VA, 5000);
    assert!(writes.iter().all(|&n| n == 1));
}

/// Lost READ responses are asked for again from where they broke off: case R14.
#[test]
fn r14_lost_read_responses() {
    for n in 0..10 {
        let mut pair = Pair::new(&Setup::default());
        lose_nth(&mut pair, 1, n);
        let data = pair.ends[1].fill(0, 10_000, 1);
        let sge = [Endpoint::sge(0, 10_000)];
        pair.ends[0].send(1, Endpoint::read(0), &sge).unwrap();
        pair.settle(1000);
        assert_eq!(pair.ends[0].peek(0, 10_000), data);
        let writes = pair.ends[0].env.mem.writes(KEY, VA, 10_000);
        assert!(writes.iter().all(|&n| n == 1));
        let responses = pair.sent.iter().filter(|s| s.from == 1).count();
        assert_eq!(responses, 10 + 10 - n, "from the lost one on");
        let again = pair.sent.iter().filter(|s| s.from == 1).nth(10);
        let single = if n == 9 {
            Operation::ReadOnly
        } else {
            Operation::ReadFirst
        };
        assert_eq!(again.map(|s| s.op), Some(single));
    }
}

#[test]
fn answers_to_nothing_change_nothing() {
    let mut pair = Pair::new(&Setup::default());
    let sge = [Endpoint::sge(0, 8)];
    pair.ends[0].send(1, Endpoint::write(0), &sge).unwrap();
    pair.settle(100);
    let syndromes = [
        Syndrome::Ack,
        Syndrome::Rnr(1),
        Syndrome::Nak(NakCode::Sequence),
        Syndrome::Nak(NakCode::RemoteAccess),
    ];
    for syndrome in syndromes {
        for psn in [0xff_fff9, 0xff_fffa, 0xff_fffb, 0x7f_0000] {
            let aeth = aeth(syndrome, 9);
            let body = craft(Operation::Ack, 16, psn, &[&aeth]);
            pair.inject(0, &body);
        }
    }
    pair.settle(100);
    assert_eq!(pair.ends[0].qp.state(), QpState::Rts);
    pair.ends[0].send(2, Endpoint::write(0), &sge).unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, Success), (2, Success)]);
}

/// A sequence NAK that follows an RNR NAK for the same PSN costs no retry: some peers send both.
#[test]
fn sequence_nak_behind_an_rnr_nak() {
    let mut pair = Pair::new(&Setup {
        retry_cnt: 0,
        ..Setup::default()
    });
    let sge = [Endpoint::sge(0, 8)];
    pair.ends[0].send(1, SendOp::Send, &sge).unwrap();
    pair.ends[0].send(2, SendOp::Send, &sge).unwrap();
    pair.run_for(12_000);
    let syndrome = Syndrome::Nak(NakCode::Sequence);
    let aeth = aeth(syndrome, 0);
    let body = craft(Operation::Ack, 16, 0xff_fffa, &[&aeth]);
    pair.inject(0, &body);
    pair.run_for(12_000);
    pair.ends[1].recv(1, &sge);
    pair.ends[1].recv(2, &sge);
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, Success), (2, Success)]);
}

/// The acknowledgement comes after the timeout and before the repetition: nothing is repeated.
#[test]
fn late_acknowledgement() {
    let mut pair = Pair::new(&Setup::default());
    let sge = [Endpoint::sge(0, 5000)];
    pair.ends[0].send(1, Endpoint::write(0), &sge).unwrap();
    pair.ends[0].send(2, Endpoint::write(0), &sge).unwrap();
    pair.filter(|_, _| Verdict::Drop);
    pair.transmit(0);
    let [a, _] = &mut pair.ends;
    pair.now = a.qp.poll_timeout().unwrap();
    a.qp.handle_timeout(pair.now, &mut a.env);
    let syndrome = Syndrome::Ack;
    let aeth = aeth(syndrome, 2);
    pair.hand(0, &craft(Operation::Ack, 16, 0xff_fffa + 9, &[&aeth]));
    assert_eq!(pair.ends[0].sent(), [(1, Success), (2, Success)]);
    assert_eq!(pair.ends[0].qp.poll_timeout(), None);
    pair.filter(|_, _| Verdict::Pass);
    pair.ends[0].send(3, Endpoint::write(0), &sge).unwrap();
    pair.transmit(0);
    assert_eq!(pair.sent.len(), 15, "each packet once");
}

/// A gap that closes within one batch is not worth a NAK.
#[test]
fn reordered_within_a_batch() {
    let mut pair = Pair::new(&Setup::default());
    let write = |psn: u32| {
        let (va, rkey, len) = (VA + u64::from(psn & 1), KEY, 1);
        let reth = Reth { va, rkey, len }.encode();
        craft(Operation::WriteOnly, 17, psn, &[&reth, &[9]])
    };
    pair.hand(1, &write(0xff_fffb));
    pair.hand(1, &write(0xff_fffa));
    pair.transmit(1);
    let ops: Vec<_> = pair.sent.iter().map(|s| (s.op, s.psn.get())).collect();
    assert_eq!(ops, [(Operation::Ack, 0xff_fffa)]);
    assert_eq!(
        pair.ends[1].peek(0, 2),
        [9, 0],
        "the second is to come again"
    );
}

/// Somewhere on the way is a queue for `room` packets, and what does not fit is lost: case R14. Returns the virtual time
/// that a READ of 1 MiB takes, in local ACK timeouts, and the packets that the peer sent for it.
fn read_through_a_short_queue(room: u32, rd_atomic: u8) -> (u64, usize) {
    let mut pair = Pair::new(&Setup {
        rd_atomic,
        ..Setup::default()
    });
    let len = 1 << 20;
    let data = pair.ends[1].fill(0, len, 3);
    let sge = [Endpoint::sge(1 << 20, len as u32)];
    let mut queued = 0;
    // The queue is empty again when the next request arrives.
    pair.filter(move |from, _| {
        queued = if from == 0 { 0 } else { queued + 1 };
        match queued > room {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    });
    let start = pair.now;
    pair.ends[0].send(1, Endpoint::read(0), &sge).unwrap();
    pair.settle(100_000);
    assert_eq!(pair.ends[0].sent(), [(1, Success)]);
    assert_eq!(pair.ends[0].peek(1 << 20, len), data);
    let took = (pair.now.0 - start.0) / ack_timeout_ns(8).unwrap();
    let answers = pair.sent.iter().filter(|s| s.from == 1).count();
    (took, answers)
}

#[test]
fn r14_read_responses_that_the_stack_drops() {
    for room in [32, 48, 64, 100, 256] {
        for rd_atomic in [1, 4] {
            let (timeouts, answers) = read_through_a_short_queue(room, rd_atomic);
            assert!(timeouts <= 5, "{timeouts} timeouts, queue of {room}");
            assert!(answers < 2 * 1024, "{answers} packets, queue of {room}");
        }
    }
}
