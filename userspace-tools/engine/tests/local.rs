// SPDX-License-Identifier: GPL-2.0

//! Local operations in the send queue: their turn, fences, failures and repetition (section 10.8.3.3).

use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::sim::Verdict;
use ferroce_engine::wire::Operation;
use ferroce_engine::LocalOp;
use ferroce_engine::PostError;
use ferroce_engine::QpState;
use ferroce_engine::QpType;
use ferroce_engine::SendFlags;
use ferroce_engine::SendOp;
use ferroce_engine::WcOpcode;
use ferroce_engine::WcStatus::LocQpOpErr;
use ferroce_engine::WcStatus::Success;
use ferroce_engine::WcStatus::WrFlushErr;

const SPARE: u32 = 77;

fn invalidate(key: u32) -> SendOp {
    SendOp::Local(LocalOp::Invalidate { key })
}

fn bind(mr: u32) -> SendOp {
    SendOp::Local(LocalOp::BindWindow {
        window: 0x500,
        key: 0x501,
        mr,
        va: Endpoint::VA,
        len: 4096,
        access: 2,
    })
}

fn register(mr: u32) -> SendOp {
    SendOp::Local(LocalOp::Register {
        mr,
        key: mr + 1,
        access: 1,
    })
}

fn pair() -> Pair {
    let pair = Pair::new(&Setup::default());
    pair.ends[0].env.mem.register(SPARE, 0x1000, 64);
    pair
}

fn fenced() -> SendFlags {
    SendFlags {
        signaled: true,
        fence: true,
        ..SendFlags::default()
    }
}

fn opcodes(end: &Endpoint) -> Vec<WcOpcode> {
    end.env.send_cq.iter().map(|wc| wc.opcode).collect()
}

#[test]
fn each_kind_runs_once_and_completes_in_order() {
    let mut pair = pair();
    let a = &mut pair.ends[0];
    a.send(1, bind(Endpoint::KEY), &[]).unwrap();
    a.send(2, Endpoint::write(0), &[Endpoint::sge(0, 9000)])
        .unwrap();
    a.send(3, register(SPARE), &[]).unwrap();
    a.send(4, Endpoint::write(0), &[Endpoint::sge(0, 10)])
        .unwrap();
    a.send(5, invalidate(SPARE), &[]).unwrap();
    pair.settle(100);
    let a = &pair.ends[0];
    assert_eq!(a.sent(), [1, 2, 3, 4, 5].map(|n| (n, Success)));
    use WcOpcode::*;
    assert_eq!(opcodes(a), [BindMw, RdmaWrite, RegMr, RdmaWrite, LocalInv]);
    assert_eq!(a.env.locals.len(), 3);
    assert!(a.env.mem.known(SPARE).is_err());
}

#[test]
fn an_empty_queue_needs_no_packet() {
    let mut pair = pair();
    pair.ends[0].send(1, bind(Endpoint::KEY), &[]).unwrap();
    pair.settle(10);
    assert_eq!(pair.ends[0].sent(), [(1, Success)]);
    assert!(pair.sent.is_empty());
    assert_eq!(pair.ends[0].qp.poll_timeout(), None);
}

#[test]
fn unconnected_service_runs_them_too_but_not_datagrams() {
    let setup = Setup {
        qp_type: QpType::Uc,
        ..Setup::default()
    };
    let mut pair = Pair::new(&setup);
    let a = &mut pair.ends[0];
    a.send(1, Endpoint::write(0), &[Endpoint::sge(0, 3000)])
        .unwrap();
    a.send(2, bind(Endpoint::KEY), &[]).unwrap();
    a.send(3, Endpoint::write(0), &[Endpoint::sge(0, 10)])
        .unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [1, 2, 3].map(|n| (n, Success)));
    let setup = Setup {
        qp_type: QpType::Ud,
        ..setup
    };
    let mut pair = Pair::new(&setup);
    let posted = pair.ends[0].send(1, bind(Endpoint::KEY), &[]);
    assert_eq!(posted, Err(PostError::Invalid));
}

#[test]
fn invalidation_waits_for_all_before_it() {
    let mut pair = pair();
    let a = &mut pair.ends[0];
    a.send(1, Endpoint::write(0), &[Endpoint::sge(0, 64)])
        .unwrap();
    a.send(2, invalidate(SPARE), &[]).unwrap();
    pair.transmit(0);
    assert!(
        pair.ends[0].env.locals.is_empty(),
        "the write may have to go again"
    );
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, Success), (2, Success)]);
}

#[test]
fn r11_fenced_local_operation_waits_for_reads() {
    for (flags, at_once) in [(SendFlags::default(), 1), (fenced(), 0)] {
        let mut pair = pair();
        let a = &mut pair.ends[0];
        a.send(1, Endpoint::read(0), &[Endpoint::sge(9000, 64)])
            .unwrap();
        a.send_with(2, bind(Endpoint::KEY), &[], flags).unwrap();
        pair.transmit(0);
        assert_eq!(pair.ends[0].env.locals.len(), at_once);
        pair.settle(100);
        assert_eq!(pair.ends[0].env.locals.len(), 1);
    }
}

#[test]
fn r11_fenced_request_behind_unsignalled_local_operations() {
    let mut pair = pair();
    let a = &mut pair.ends[0];
    let quiet = SendFlags::default();
    a.send_with(1, Endpoint::read(0), &[Endpoint::sge(9000, 64)], quiet)
        .unwrap();
    a.send_with(2, bind(Endpoint::KEY), &[], quiet).unwrap();
    a.send_with(3, invalidate(SPARE), &[], quiet).unwrap();
    a.send_with(4, Endpoint::write(0), &[Endpoint::sge(0, 10)], fenced())
        .unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(4, Success)]);
    assert_eq!(pair.ends[0].env.locals.len(), 2);
}

#[test]
fn r12_repetition_does_not_replay_local_operations() {
    // Every packet is lost once, wherever it stands.
    for lost in 0..6 {
        let mut pair = pair();
        let mut n = 0;
        pair.filter(move |from, _| {
            if from == 1 {
                return Verdict::Pass;
            }
            n += 1;
            if n == lost + 1 {
                Verdict::Drop
            } else {
                Verdict::Pass
            }
        });
        let a = &mut pair.ends[0];
        let sge = [Endpoint::sge(0, 2000)];
        a.send(1, Endpoint::write(0), &sge).unwrap();
        a.send(2, bind(Endpoint::KEY), &[]).unwrap();
        a.send(3, Endpoint::read(0), &[Endpoint::sge(9000, 2000)])
            .unwrap();
        a.send(4, register(SPARE), &[]).unwrap();
        a.send(5, Endpoint::write(0), &sge).unwrap();
        pair.settle(1000);
        let a = &pair.ends[0];
        assert_eq!(a.sent(), [1, 2, 3, 4, 5].map(|n| (n, Success)));
        assert_eq!(a.env.locals.len(), 2, "lost packet {lost}");
    }
}

#[test]
fn r12_lost_acknowledgements_do_not_replay_local_operations() {
    let mut pair = pair();
    let mut lost = 0;
    pair.filter(move |_, pkt| {
        if pkt.opcode.op == Operation::Ack && lost < 3 {
            lost += 1;
            return Verdict::Drop;
        }
        Verdict::Pass
    });
    let a = &mut pair.ends[0];
    for n in 0..3 {
        a.send(2 * n, Endpoint::write(0), &[Endpoint::sge(0, 100)])
            .unwrap();
        a.send(2 * n + 1, bind(Endpoint::KEY), &[]).unwrap();
    }
    pair.settle(1000);
    let a = &pair.ends[0];
    assert_eq!(a.sent(), [0, 1, 2, 3, 4, 5].map(|n| (n, Success)));
    assert_eq!(a.env.locals.len(), 3);
}

#[test]
fn failure_waits_for_its_turn_and_flushes_the_rest() {
    let mut pair = pair();
    let a = &mut pair.ends[0];
    a.send(1, Endpoint::write(0), &[Endpoint::sge(0, 3000)])
        .unwrap();
    a.send(2, bind(0xbad), &[]).unwrap();
    a.send(3, Endpoint::write(0), &[Endpoint::sge(0, 10)])
        .unwrap();
    a.send(4, bind(Endpoint::KEY), &[]).unwrap();
    pair.settle(100);
    let a = &pair.ends[0];
    let expected = [
        (1, Success),
        (2, LocQpOpErr),
        (3, WrFlushErr),
        (4, WrFlushErr),
    ];
    assert_eq!(a.sent(), expected);
    assert_eq!(a.env.locals.len(), 1, "tried once, and none after it");
    assert_eq!(a.qp.state(), QpState::Error);
}

#[test]
fn not_started_before_the_queue_drains() {
    use ferroce_engine::ModifyAttrs;
    let mut pair = pair();
    let a = &mut pair.ends[0];
    a.send(1, Endpoint::write(0), &[Endpoint::sge(0, 3000)])
        .unwrap();
    a.send(2, invalidate(SPARE), &[]).unwrap();
    pair.transmit(0);
    let to = |state| ModifyAttrs {
        state: Some(state),
        ..ModifyAttrs::default()
    };
    let a = &mut pair.ends[0];
    a.qp.modify(&to(QpState::Sqd), &mut a.env).unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, Success)]);
    let a = &mut pair.ends[0];
    a.qp.modify(&to(QpState::Rts), &mut a.env).unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, Success), (2, Success)]);
}
