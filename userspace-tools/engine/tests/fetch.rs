// SPDX-License-Identifier: GPL-2.0

//! Memory that is not there yet (on-demand paging): both sides try again, nothing fails, and no retry is spent at the
//! side whose memory it is.

use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::QpType;
use ferroce_engine::SendOp;
use ferroce_engine::WcStatus::Success;

const KEY: u32 = Endpoint::KEY;
/// Three packets and a bit.
const LEN: u32 = 3 * 1024 + 5;

fn fetch_add() -> SendOp {
    SendOp::FetchAdd {
        va: Endpoint::VA + 7,
        rkey: KEY,
        add: 3,
    }
}

/// A pair in which no timeout and no lost packet is forgiven, but waiting for a receiver is. The timeout is longer than
/// any fetch here takes: the requester of a READ has no other sign of life from the responder meanwhile.
fn strict(qp_type: QpType) -> Pair {
    Pair::new(&Setup {
        qp_type,
        timeout: 14,
        retry_cnt: 0,
        rnr_retry: 7,
        ..Setup::default()
    })
}

/// Data goes from one endpoint to the other while `absent` finds its memory absent for `times` accesses.
fn transfer(op: fn() -> SendOp, reads: bool, absent: usize, times: u32) -> Pair {
    let mut pair = strict(QpType::Rc);
    let source = usize::from(reads);
    let data = pair.ends[source].fill(0, LEN as usize, 7);
    pair.ends[1].recv(5, &[Endpoint::sge(100_000, LEN)]);
    pair.ends[absent].env.mem.page_out(KEY, times);
    let at = if reads { 100_000 } else { 0 };
    pair.ends[0]
        .send(1, op(), &[Endpoint::sge(at, LEN)])
        .unwrap();
    pair.settle(2000);
    assert_eq!(pair.ends[0].sent(), [(1, Success)]);
    assert_eq!(pair.ends[absent].env.mem.still_absent(KEY), 0);
    assert_eq!(pair.ends[1 - source].peek(100_000, LEN as usize), data);
    pair
}

#[test]
fn data_of_a_request_is_fetched_before_it_is_sent() {
    for times in [1, 2, 9] {
        let pair = transfer(|| SendOp::Send, false, 0, times);
        assert_eq!(pair.ends[1].received(), [(5, Success)]);
        transfer(|| Endpoint::write(100_000), false, 0, times);
    }
}

#[test]
fn the_receiver_asks_to_wait_while_it_fetches() {
    for times in [1, 2, 9] {
        let pair = transfer(|| SendOp::Send, false, 1, times);
        assert_eq!(pair.ends[1].received(), [(5, Success)]);
        transfer(|| Endpoint::write(100_000), false, 1, times);
    }
}

#[test]
fn data_of_a_read_is_fetched_on_both_sides() {
    for times in [1, 2, 9] {
        for absent in [0, 1] {
            transfer(|| Endpoint::read(0), true, absent, times);
        }
    }
}

#[test]
fn an_atomic_is_done_once() {
    for absent in [0, 1] {
        for times in [1, 5] {
            let mut pair = strict(QpType::Rc);
            pair.ends[1]
                .env
                .mem
                .poke(KEY, Endpoint::VA + 7, &[4, 0, 0, 0, 0, 0, 0, 0]);
            pair.ends[absent].env.mem.page_out(KEY, times);
            let a = &mut pair.ends[0];
            a.send(1, fetch_add(), &[Endpoint::sge(64, 8)]).unwrap();
            pair.settle(2000);
            assert_eq!(pair.ends[0].sent(), [(1, Success)]);
            assert_eq!(pair.ends[0].peek(64, 8), 4_u64.to_ne_bytes());
            assert_eq!(pair.ends[1].peek(7, 8), 7_u64.to_ne_bytes());
        }
    }
}

/// What is sent behind a request that waits for its memory waits too, and keeps its order.
#[test]
fn order_is_kept() {
    let mut pair = strict(QpType::Rc);
    for i in 0..6 {
        let seed = 20 + i;
        pair.ends[0].fill(i * 5000, 5000, seed);
        pair.ends[1].recv(i, &[Endpoint::sge(200_000 + i * 5000, 5000)]);
        let from = [Endpoint::sge(i * 5000, 5000)];
        pair.ends[0].send(i, SendOp::Send, &from).unwrap();
    }
    for _ in 0..40 {
        pair.ends[0].env.mem.page_out(KEY, 1);
        pair.ends[1].env.mem.page_out(KEY, 1);
        pair.run_for(300_000);
    }
    pair.settle(2000);
    let wanted: Vec<_> = (0..6).map(|i| (i, Success)).collect();
    assert_eq!(pair.ends[0].sent(), wanted);
    assert_eq!(pair.ends[1].received(), wanted);
    assert_eq!(
        pair.ends[0].peek(0, 30_000),
        pair.ends[1].peek(200_000, 30_000)
    );
}

/// Nothing is due while the memory is awaited but the next look at it.
#[test]
fn waiting_ends_by_itself() {
    let mut pair = strict(QpType::Rc);
    pair.ends[0].env.mem.page_out(KEY, 1);
    let from = [Endpoint::sge(0, 64)];
    pair.ends[0].send(1, Endpoint::write(0), &from).unwrap();
    pair.transmit(0);
    assert!(pair.sent.is_empty());
    let at = pair.ends[0]
        .qp
        .poll_timeout()
        .expect("a time to look again");
    assert!(at > pair.now && at.0 - pair.now.0 <= 1_000_000);
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, Success)]);
}

/// A processor that needs longer for a look than the first wait lasts gets to fetch in the end.
#[test]
fn looks_for_the_same_memory_become_rarer() {
    let mut pair = strict(QpType::Rc);
    for wr_id in [1, 2] {
        pair.ends[0].env.mem.page_out(KEY, 9);
        let from = [Endpoint::sge(0, 64)];
        pair.ends[0].send(wr_id, Endpoint::write(0), &from).unwrap();
        let mut waits = Vec::new();
        while pair.ends[0].env.mem.still_absent(KEY) > 0 {
            pair.transmit(0);
            let at = pair.ends[0].qp.poll_timeout().expect("a time to look");
            waits.push((at.0 - pair.now.0) / 1000);
            pair.run_for(at.0 - pair.now.0);
        }
        pair.settle(100);
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 6400, 6400]);
    }
    assert_eq!(pair.ends[0].sent(), [(1, Success), (2, Success)]);
}

#[test]
fn unreliable_requests_wait_too() {
    let uc = (QpType::Uc, SendOp::Send);
    let ud = SendOp::Datagram {
        dest_qpn: 17,
        qkey: 0x11,
        ah: 1,
        imm: None,
    };
    for (qp_type, op, grh) in [(uc.0, uc.1, 0), (QpType::Ud, ud, 40)] {
        let mut pair = strict(qp_type);
        let data = pair.ends[0].fill(0, 1000, 3);
        pair.ends[1].recv(5, &[Endpoint::sge(9000, 1040)]);
        pair.ends[0].env.mem.page_out(KEY, 3);
        pair.ends[0].send(1, op, &[Endpoint::sge(0, 1000)]).unwrap();
        pair.settle(500);
        assert_eq!(pair.ends[0].sent(), [(1, Success)]);
        assert_eq!(pair.ends[1].received(), [(5, Success)]);
        assert_eq!(pair.ends[1].peek(9000 + grh, 1000), data);
    }
}

/// A datagram that finds its buffer absent is lost, the receive is not.
#[test]
fn an_absent_receive_buffer_costs_a_datagram() {
    let mut pair = strict(QpType::Ud);
    let op = SendOp::Datagram {
        dest_qpn: 17,
        qkey: 0x11,
        ah: 1,
        imm: None,
    };
    pair.ends[1].recv(5, &[Endpoint::sge(9000, 1040)]);
    pair.ends[1].env.mem.page_out(KEY, 1);
    for wr_id in [1, 2] {
        pair.ends[0].fill(0, 100, wr_id);
        let from = [Endpoint::sge(0, 100)];
        pair.ends[0].send(wr_id, op, &from).unwrap();
        pair.settle(100);
    }
    assert_eq!(pair.ends[0].sent(), [(1, Success), (2, Success)]);
    assert_eq!(pair.ends[1].received(), [(5, Success)]);
    assert_eq!(pair.ends[1].peek(9040, 100), pair.ends[0].peek(0, 100));
}
