// SPDX-License-Identifier: GPL-2.0

//! Unreliable datagrams and unreliable connections.

use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Faults;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::sim::Verdict;
use ferroce_engine::Mtu;
use ferroce_engine::PostError;
use ferroce_engine::QpState;
use ferroce_engine::QpType;
use ferroce_engine::SendOp;
use ferroce_engine::Sge;
use ferroce_engine::WcOpcode;
use ferroce_engine::WcStatus;
use ferroce_engine::WcStatus::Success;
use ferroce_engine::WcStatus::WrFlushErr;

const KEY: u32 = Endpoint::KEY;
const VA: u64 = Endpoint::VA;

fn pair(qp_type: QpType) -> Pair {
    Pair::new(&Setup {
        qp_type,
        ..Setup::default()
    })
}

fn datagram(qkey: u32, imm: Option<[u8; 4]>) -> SendOp {
    SendOp::Datagram {
        dest_qpn: 17,
        qkey,
        ah: 99,
        imm,
    }
}

/// The payload lies behind the 40 bytes of the GRH area: case R42.
#[test]
fn r42_datagram_behind_the_grh_area() {
    for len in [0, 1, 3, 1000, 1024] {
        let mut pair = pair(QpType::Ud);
        let data = pair.ends[0].fill(0, len as usize, 1);
        // The area and the payload each cross a border between elements.
        let to = [
            Endpoint::sge(0, 30),
            Endpoint::sge(5000, 11),
            Endpoint::sge(6000, 2000),
        ];
        pair.ends[1].recv(5, &to);
        let from = [Endpoint::sge(0, len)];
        let op = datagram(0x11, Some([4, 3, 2, 1]));
        pair.ends[0].send(1, op, &from).unwrap();
        pair.settle(100);
        assert_eq!(pair.ends[0].sent(), [(1, Success)]);
        let wc = pair.ends[1].env.recv_cq[0];
        assert_eq!((wc.status, wc.opcode), (Success, WcOpcode::Recv));
        assert_eq!((wc.byte_len, wc.with_grh), (40 + len, true));
        assert_eq!((wc.src_qp, wc.imm), (16, Some([4, 3, 2, 1])));
        let mut got = pair.ends[1].peek(0, 30);
        got.extend(pair.ends[1].peek(5000, 11));
        got.extend(pair.ends[1].peek(6000, 2000));
        assert_eq!(got[..40], [0x45; 40]);
        assert_eq!(got[40..40 + len as usize], data);
        assert!(got[40 + len as usize..].iter().all(|&b| b == 0));
    }
}

/// A datagram that does not fit vanishes, and its receive waits for one that does: case R27.
#[test]
fn r27_datagram_larger_than_the_receive() {
    let mut pair = pair(QpType::Ud);
    pair.ends[1].recv(5, &[Endpoint::sge(0, 140)]);
    for (id, len) in [(1, 101), (2, 1024), (3, 100)] {
        let from = [Endpoint::sge(0, len)];
        pair.ends[0].send(id, datagram(0x11, None), &from).unwrap();
    }
    pair.settle(100);
    assert_eq!(pair.ends[1].received(), [(5, Success)]);
    assert_eq!(pair.ends[1].env.recv_cq[0].byte_len, 140);
    assert_eq!(pair.ends[1].qp.state(), QpState::Rts);
    let sent = [(1, Success), (2, Success), (3, Success)];
    assert_eq!(pair.ends[0].sent(), sent);
}

#[test]
fn datagram_with_a_wrong_key_or_no_receive() {
    let mut pair = pair(QpType::Ud);
    let from = [Endpoint::sge(0, 8)];
    pair.ends[0].send(1, datagram(0x11, None), &from).unwrap();
    pair.settle(100);
    pair.ends[1].recv(5, &[Endpoint::sge(0, 100)]);
    pair.ends[0].send(2, datagram(0x12, None), &from).unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[1].received(), []);
    assert_eq!(pair.ends[1].qp.state(), QpState::Rts);
    assert_eq!(pair.sent.len(), 2, "no answers");
}

#[test]
fn datagram_is_no_longer_than_the_mtu() {
    let mut pair = pair(QpType::Ud);
    let [a, _] = &mut pair.ends;
    let long = [Endpoint::sge(0, 1025)];
    let posted = a.send(1, datagram(0x11, None), &long);
    assert_eq!(posted, Err(PostError::TooLong));
    let posted = a.send(1, SendOp::Send, &long[..0]);
    assert_eq!(posted, Err(PostError::Invalid));
}

/// What was posted before the port's MTU shrank goes out whole; what is posted after it may be no longer than that.
#[test]
fn datagrams_follow_the_mtu_of_the_port() {
    let mut pair = pair(QpType::Ud);
    let data = pair.ends[0].fill(0, 1024, 1);
    pair.ends[1].recv(7, &[Endpoint::sge(0, 2000)]);
    let [a, _] = &mut pair.ends;
    let long = [Endpoint::sge(0, 1024)];
    a.send(1, datagram(0x11, None), &long).unwrap();
    a.qp.set_port_mtu(Mtu::M512);
    let posted = a.send(2, datagram(0x11, None), &[Endpoint::sge(0, 513)]);
    assert_eq!(posted, Err(PostError::TooLong));
    pair.settle(100);
    assert_eq!(pair.ends[1].env.recv_cq[0].byte_len, 40 + 1024);
    assert_eq!(pair.ends[1].peek(40, 1024), data);
    let [a, _] = &mut pair.ends;
    a.qp.set_port_mtu(Mtu::M1024);
    a.send(3, datagram(0x11, None), &long).unwrap();
}

/// A local error stops only the send queue of an unreliable queue pair, which can go on.
#[test]
fn send_queue_error_and_recovery() {
    use ferroce_engine::ModifyAttrs;
    let mut pair = pair(QpType::Ud);
    let bad = Sge {
        lkey: 666,
        ..Endpoint::sge(0, 8)
    };
    let good = [Endpoint::sge(0, 8)];
    let op = datagram(0x11, None);
    pair.ends[0].recv(7, &good);
    pair.ends[0].send(1, op, &good).unwrap();
    pair.ends[0].send(2, op, &[bad]).unwrap();
    pair.ends[0].send(3, op, &good).unwrap();
    pair.settle(100);
    let expected = [(1, Success), (2, WcStatus::LocProtErr), (3, WrFlushErr)];
    assert_eq!(pair.ends[0].sent(), expected);
    assert_eq!(pair.ends[0].qp.state(), QpState::Sqe);
    assert_eq!(pair.ends[0].received(), []);
    let rts = ModifyAttrs {
        state: Some(QpState::Rts),
        ..ModifyAttrs::default()
    };
    let [a, b] = &mut pair.ends;
    a.qp.modify(&rts, &mut a.env).unwrap();
    a.send(4, op, &good).unwrap();
    b.recv(1, &[Endpoint::sge(0, 100)]);
    pair.settle(100);
    assert_eq!(pair.ends[0].sent()[3..], [(4, Success)]);
    assert_eq!(pair.ends[1].received(), [(1, Success)]);
}

#[test]
fn connection_carries_messages_of_any_size() {
    for len in [0, 1, 1023, 1024, 1025, 2048, 9999, 1 << 20] {
        let mut pair = Pair::new(&Setup {
            qp_type: QpType::Uc,
            window: 64 << 10,
            ..Setup::default()
        });
        let data = pair.ends[0].fill(0, len as usize, 1);
        pair.ends[1].recv(5, &[Endpoint::sge(2 << 20, len)]);
        let from = [Endpoint::sge(0, len)];
        pair.ends[0].send(1, Endpoint::write(0), &from).unwrap();
        pair.ends[0].send(2, SendOp::Send, &from).unwrap();
        pair.settle(1000);
        assert_eq!(pair.ends[0].sent(), [(1, Success), (2, Success)]);
        assert_eq!(pair.ends[1].received(), [(5, Success)]);
        assert_eq!(pair.ends[1].peek(0, len as usize), data);
        assert_eq!(pair.ends[1].peek(2 << 20, len as usize), data);
        assert!(pair.sent.iter().all(|s| s.from == 0 && !s.ack_req));
    }
}

/// A lost packet costs its message and no other; its receive serves the next.
#[test]
fn connection_drops_whole_messages() {
    for lost in 0..9 {
        let mut pair = pair(QpType::Uc);
        let mut count = 0;
        pair.filter(move |_, _| {
            count += 1;
            if count == lost + 1 {
                Verdict::Drop
            } else {
                Verdict::Pass
            }
        });
        let mut data = Vec::new();
        for id in 0..3 {
            data.push(pair.ends[0].fill(id * 3000, 3000, id));
            pair.ends[1].recv(id, &[Endpoint::sge(id * 3000, 3000)]);
        }
        for id in 0..3 {
            let from = [Endpoint::sge(id * 3000, 3000)];
            pair.ends[0].send(id, SendOp::Send, &from).unwrap();
        }
        pair.settle(100);
        assert_eq!(pair.ends[0].env.send_cq.len(), 3);
        assert_eq!(pair.ends[1].received(), [(0, Success), (1, Success)]);
        data.remove(lost / 3);
        for (at, data) in data.iter().enumerate() {
            assert_eq!(&pair.ends[1].peek(at as u64 * 3000, 3000), data);
        }
    }
}

#[test]
fn connection_under_loss_delivers_only_whole_messages() {
    for seed in 0..50 {
        let mut pair = Pair::new(&Setup {
            qp_type: QpType::Uc,
            mtu: Mtu::M256,
            seed,
            faults: Faults {
                loss: 30,
                reorder: 30,
                duplicate: 30,
                corrupt: 30,
                ..Faults::NONE
            },
            ..Setup::default()
        });
        for id in 0..30 {
            // Every byte of a message names it.
            let byte = 1 + id as u8;
            let mem = &pair.ends[0].env.mem;
            mem.poke(KEY, VA + id * 1000, &[byte; 1000]);
            pair.ends[1].recv(id, &[Endpoint::sge(id * 1000, 1000)]);
            let from = [Endpoint::sge(id * 1000, 1000)];
            pair.ends[0].send(id, SendOp::Send, &from).unwrap();
        }
        pair.settle(1000);
        assert_eq!(pair.ends[0].env.send_cq.len(), 30);
        let received = pair.ends[1].received();
        assert!(received.len() < 30, "30 of 1000 are lost");
        let mut last = 0;
        for (at, (id, status)) in received.into_iter().enumerate() {
            assert_eq!((id, status), (at as u64, Success));
            let got = pair.ends[1].peek(id * 1000, 1000);
            assert!(got.iter().all(|&b| b == got[0]), "seed {seed}");
            assert!(got[0] > 0 && got[0] != last, "seed {seed}");
            last = got[0];
        }
    }
}
