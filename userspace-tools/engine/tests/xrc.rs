// SPDX-License-Identifier: GPL-2.0

//! Extended reliable connection (annex A14): the receiver's shared receive queue is chosen by each message.

use ferroce_engine::sim::craft;
use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Faults;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::sim::Verdict;
use ferroce_engine::wire::Operation;
use ferroce_engine::ModifyAttrs;
use ferroce_engine::ModifyError;
use ferroce_engine::Mtu;
use ferroce_engine::Packet;
use ferroce_engine::PostError;
use ferroce_engine::QpEvent;
use ferroce_engine::QpState;
use ferroce_engine::QpType;
use ferroce_engine::SendOp;
use ferroce_engine::Sge;
use ferroce_engine::WcStatus;
use ferroce_engine::WcStatus::Success;
use ferroce_engine::WcStatus::WrFlushErr;
use std::collections::VecDeque;

const SETUP: fn() -> Setup = || Setup {
    qp_type: QpType::XrcIni,
    ..Setup::default()
};

/// A pair whose target has shared receive queues 7 and 0xabcdef.
fn pair_with(setup: &Setup) -> Pair {
    let mut pair = Pair::new(setup);
    for number in [7, 0xab_cdef] {
        pair.ends[1].env.srqs.insert(number, VecDeque::new());
    }
    pair
}

fn pair() -> Pair {
    pair_with(&SETUP())
}

fn post(pair: &mut Pair, srq: u32, wr_id: u64, sge: Sge) {
    let queue = pair.ends[1].env.srqs.get_mut(&srq).expect("a queue");
    queue.push_back((wr_id, vec![sge]));
}

#[test]
fn each_message_chooses_its_queue() {
    let mut pair = pair();
    let data = pair.ends[0].fill(0, 5000, 3);
    post(&mut pair, 7, 70, Endpoint::sge(0, 6000));
    post(&mut pair, 0xab_cdef, 80, Endpoint::sge(10_000, 6000));
    let a = &mut pair.ends[0];
    let sge = [Endpoint::sge(0, 5000)];
    a.send_to(0xab_cdef, 1, SendOp::Send, &sge).unwrap();
    a.send_to(7, 2, SendOp::SendImm([1, 2, 3, 4]), &sge)
        .unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, Success), (2, Success)]);
    assert_eq!(pair.ends[1].received(), [(80, Success), (70, Success)]);
    assert_eq!(pair.ends[1].peek(10_000, 5000), data);
    assert_eq!(pair.ends[1].peek(0, 5000), data);
}

/// BTH opcode 0xa4, then 8 reserved bits and the number of the queue.
#[test]
fn bytes_on_the_wire() {
    let mut pair = pair();
    let a = &mut pair.ends[0];
    a.send_to(0xab_cdef, 1, SendOp::SendImm([9; 4]), &[])
        .unwrap();
    let t = a.qp.poll_transmit(pair.now, 9, &mut a.env).expect("a run");
    let mut bytes = vec![0xee; t.packet_len(0)];
    a.qp.write_packet(&t, 0, &mut bytes, &a.env.mem).unwrap();
    let expected = [
        0xa5, 0x40, 0xff, 0xff, 0, 0, 0, 17, 0x80, 0xff, 0xff, 0xfa, 0, 0xab, 0xcd, 0xef, 9, 9, 9,
        9,
    ];
    assert_eq!(bytes, expected);
    let pkt = Packet::parse(&bytes).unwrap();
    assert_eq!((pkt.xrc_srq, pkt.imm), (Some(0xab_cdef), Some([9; 4])));
}

/// Every operation, with messages of several packets, on a bad wire.
#[test]
fn all_operations_under_loss() {
    for seed in 1..40 {
        let mut pair = pair_with(&Setup {
            seed,
            mtu: Mtu::M256,
            timeout: 6,
            faults: Faults {
                loss: 50,
                duplicate: 50,
                reorder: 50,
                ..Faults::NONE
            },
            ..SETUP()
        });
        let data = pair.ends[0].fill(0, 3000, seed);
        for n in 0..2 {
            post(&mut pair, 7, n, Endpoint::sge(100_000, 4000));
        }
        let va = Endpoint::VA + 7;
        let rkey = Endpoint::KEY;
        let sge = [Endpoint::sge(0, 3000)];
        let word = [Endpoint::sge(3001, 8)];
        let a = &mut pair.ends[0];
        let add = |add| SendOp::FetchAdd { va, rkey, add };
        let imm = SendOp::WriteImm {
            va: va + 1000,
            rkey,
            imm: [1; 4],
        };
        a.send_to(7, 1, add(5), &word).unwrap();
        a.send_to(7, 2, SendOp::Send, &sge).unwrap();
        a.send_to(7, 3, imm, &sge).unwrap();
        a.send_to(7, 4, Endpoint::read(1007), &[Endpoint::sge(9000, 3000)])
            .unwrap();
        a.send_to(7, 5, add(6), &word).unwrap();
        pair.settle(10_000);
        assert_eq!(pair.ends[0].sent(), [1, 2, 3, 4, 5].map(|n| (n, Success)));
        assert_eq!(pair.ends[1].received(), [(0, Success), (1, Success)]);
        assert_eq!(pair.ends[1].peek(7, 8), 11_u64.to_ne_bytes());
        assert_eq!(pair.ends[1].peek(100_000, 3000), data);
        assert_eq!(pair.ends[0].peek(9000, 3000), data);
    }
}

#[test]
fn unknown_queue_is_an_invalid_request() {
    for op in [SendOp::Send, Endpoint::write(0), Endpoint::read(0)] {
        let mut pair = pair();
        pair.ends[0]
            .send_to(8, 1, op, &[Endpoint::sge(0, 10)])
            .unwrap();
        pair.settle(100);
        assert_eq!(pair.ends[0].sent(), [(1, WcStatus::RemInvReqErr)]);
        assert_eq!(pair.ends[1].qp.state(), QpState::Error);
        let events = &pair.ends[1].env.events;
        assert_eq!(*events, [QpEvent::RequestError, QpEvent::LastWqeReached]);
    }
}

#[test]
fn empty_queue_is_receiver_not_ready() {
    let mut pair = pair();
    post(&mut pair, 0xab_cdef, 80, Endpoint::sge(0, 64));
    let sge = [Endpoint::sge(0, 10)];
    pair.ends[0].send_to(7, 1, SendOp::Send, &sge).unwrap();
    pair.run_for(50_000);
    assert_eq!(pair.ends[0].sent(), []);
    post(&mut pair, 7, 70, Endpoint::sge(0, 64));
    pair.settle(100);
    assert_eq!(pair.ends[1].received(), [(70, Success)]);
}

#[test]
fn a_message_stays_with_its_queue() {
    let mut pair = pair();
    post(&mut pair, 7, 70, Endpoint::sge(0, 4000));
    let packet = |op, psn, srq: u32| {
        let mut bytes = craft(op, 17, psn, &[&srq.to_be_bytes(), &[1; 1024]]);
        bytes[0] |= 0xa0;
        bytes
    };
    pair.hand(1, &packet(Operation::SendFirst, 0xff_fffa, 7));
    pair.hand(1, &packet(Operation::SendLast, 0xff_fffb, 0xab_cdef));
    assert_eq!(pair.ends[1].qp.state(), QpState::Error);
    assert_eq!(pair.ends[1].received(), [(70, WrFlushErr)]);
}

#[test]
fn the_queue_goes_away() {
    // between the packets of a message
    let mut pair = pair();
    post(&mut pair, 7, 70, Endpoint::sge(0, 4000));
    let mut count = 0;
    pair.filter(move |_, _| {
        count += 1;
        match count {
            2 => Verdict::Drop,
            _ => Verdict::Pass,
        }
    });
    let sge = [Endpoint::sge(0, 3000)];
    pair.ends[0].send_to(7, 1, SendOp::Send, &sge).unwrap();
    pair.run_for(6_000);
    pair.ends[1].env.srqs.remove(&7);
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, WcStatus::RemInvReqErr)]);
    assert_eq!(pair.ends[1].received(), [], "nobody to tell");
    // before the answer to a READ
    let mut pair = pair_with(&SETUP());
    let b = &mut pair.ends[1];
    let reth = [
        &Endpoint::VA.to_be_bytes()[..],
        &[0, 0, 0x12, 0x34, 0, 0, 0, 8],
    ]
    .concat();
    let mut read = craft(
        Operation::ReadRequest,
        17,
        0xff_fffa,
        &[&[0, 0, 0, 7], &reth],
    );
    read[0] |= 0xa0;
    let pkt = Packet::parse(&read).unwrap();
    b.qp.handle_packet(pair.now, &pkt, &mut b.env);
    b.env.srqs.remove(&7);
    pair.transmit(1);
    assert_eq!(
        pair.sent.iter().map(|s| s.op).collect::<Vec<_>>(),
        [Operation::Ack]
    );
    assert_eq!(pair.ends[1].qp.state(), QpState::Error);
}

#[test]
fn each_side_has_its_direction() {
    let mut pair = pair();
    let b = &mut pair.ends[1];
    assert_eq!(b.send(1, SendOp::Send, &[]), Err(PostError::Invalid));
    // requests to the initiator and answers to the target do nothing
    let mut send = craft(Operation::SendOnly, 16, 0x12_3456, &[&[0, 0, 0, 7]]);
    send[0] |= 0xa0;
    pair.hand(0, &send);
    let mut ack = craft(Operation::Ack, 17, 0xff_fffa, &[&[0x1f, 0, 0, 0]]);
    ack[0] |= 0xa0;
    pair.hand(1, &ack);
    pair.settle(10);
    assert!(pair.sent.is_empty());
    assert_eq!(pair.ends[0].qp.state(), QpState::Rts);
    assert_eq!(pair.ends[1].qp.state(), QpState::Rts);
}

/// The attributes that the two transitions need (section A14.5, as `qp_state_table` of the kernel's verbs.c has it).
#[test]
fn attributes_by_side() {
    use ferroce_engine::sim::HostEnv;
    use ferroce_engine::sim::VecStore;
    use ferroce_engine::Qp;
    use ferroce_engine::QpConfig;
    use ferroce_engine::QpStorage;
    use ferroce_engine::ReadReplay;
    let rtr = ModifyAttrs {
        state: Some(QpState::Rtr),
        path_mtu: Some(Mtu::M1024),
        dest_qpn: Some(1),
        rq_psn: Some(1),
        ..ModifyAttrs::default()
    };
    let serving = ModifyAttrs {
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(1),
        ..rtr
    };
    let rts = ModifyAttrs {
        state: Some(QpState::Rts),
        sq_psn: Some(1),
        timeout: Some(1),
        ..ModifyAttrs::default()
    };
    let asking = ModifyAttrs {
        retry_cnt: Some(1),
        rnr_retry: Some(1),
        max_rd_atomic: Some(1),
        ..rts
    };
    let missing = Err(ModifyError::Missing);
    for (qp_type, steps) in [
        (
            QpType::XrcIni,
            [(rtr, Ok(())), (rts, missing), (asking, Ok(()))],
        ),
        (
            QpType::XrcTgt,
            [(rtr, missing), (serving, Ok(())), (rts, Ok(()))],
        ),
    ] {
        let cfg = QpConfig {
            qpn: 5,
            qp_type,
            sq_sig_all: false,
            srq: false,
            check_pkey: true,
            max_send_sge: 1,
            max_inline: 0,
            sq_stride: 16,
            window: QpConfig::WINDOW,
        };
        let store = QpStorage {
            sq: Vec::new(),
            sq_data: Vec::new(),
            rq_sges: vec![0; 16],
            replay: vec![ReadReplay::ZERO; 4],
        };
        let mut env = HostEnv::default();
        let mut qp: Qp<VecStore> = Qp::new(cfg, store);
        let init = ModifyAttrs {
            state: Some(QpState::Init),
            ..ModifyAttrs::default()
        };
        qp.modify(&init, &mut env).unwrap();
        for (change, expected) in steps {
            assert_eq!(qp.modify(&change, &mut env), expected, "{qp_type:?}");
        }
    }
}
