// SPDX-License-Identifier: GPL-2.0

//! Reliable connection on a wire that loses nothing.

use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::sim::Verdict;
use ferroce_engine::wire::Operation;
use ferroce_engine::Mtu;
use ferroce_engine::QpEvent;
use ferroce_engine::SendFlags;
use ferroce_engine::SendOp;
use ferroce_engine::WcOpcode;
use ferroce_engine::WcStatus::Success;

const KEY: u32 = Endpoint::KEY;
const VA: u64 = Endpoint::VA;

#[test]
fn send_fills_the_receive() {
    let mut pair = Pair::new(&Setup::default());
    let data = pair.ends[0].fill(0, 5000, 7);
    pair.ends[1].recv(9, &[Endpoint::sge(100, 6000)]);
    let [a, _] = &mut pair.ends;
    a.send(1, SendOp::Send, &[Endpoint::sge(0, 5000)]).unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, Success)]);
    assert_eq!(pair.ends[1].received(), [(9, Success)]);
    let wc = pair.ends[1].env.recv_cq[0];
    assert_eq!(
        (wc.byte_len, wc.opcode, wc.imm),
        (5000, WcOpcode::Recv, None)
    );
    assert_eq!((wc.qpn, wc.src_qp), (17, 16));
    assert_eq!(pair.ends[1].peek(100, 5000), data);
}

/// Who polls a completion may post at once, also into a queue of one place.
#[test]
fn a_place_in_the_queue_is_free_before_its_completion_is_seen() {
    let mut pair = Pair::new(&Setup::default());
    let [a, _] = &mut pair.ends;
    let signaled = SendFlags {
        signaled: true,
        ..SendFlags::default()
    };
    for (wr_id, flags) in [signaled, SendFlags::default(), signaled, signaled]
        .into_iter()
        .enumerate()
    {
        let from = [Endpoint::sge(0, 64)];
        a.send_with(wr_id as u64, Endpoint::write(0), &from, flags)
            .unwrap();
    }
    pair.settle(100);
    assert_eq!(
        pair.ends[0].sent(),
        [(0, Success), (2, Success), (3, Success)]
    );
    assert_eq!(pair.ends[0].env.left_then, [3, 1, 0]);
}

#[test]
fn send_with_immediate_and_solicited() {
    let mut pair = Pair::new(&Setup::default());
    pair.ends[1].recv(9, &[Endpoint::sge(0, 4096)]);
    let flags = SendFlags {
        solicited: true,
        ..SendFlags::default()
    };
    let op = SendOp::SendImm([1, 2, 3, 4]);
    pair.ends[0]
        .send_with(1, op, &[Endpoint::sge(0, 3000)], flags)
        .unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [], "unsignalled");
    let wc = pair.ends[1].env.recv_cq[0];
    assert_eq!((wc.imm, wc.solicited), (Some([1, 2, 3, 4]), true));
}

#[test]
fn send_with_invalidate() {
    let mut pair = Pair::new(&Setup::default());
    pair.ends[1].env.mem.register(77, 0x1000, 64);
    pair.ends[1].recv(9, &[Endpoint::sge(0, 4096)]);
    pair.ends[0]
        .send(1, SendOp::SendInvalidate(77), &[Endpoint::sge(0, 3000)])
        .unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[1].env.recv_cq[0].invalidated_rkey, Some(77));
    use ferroce_engine::Access;
    use ferroce_engine::Memory;
    let mem = &pair.ends[1].env.mem;
    assert!(mem.check(77, 0x1000, 1, Access::LocalRead).is_err());
}

#[test]
fn write_with_immediate_takes_a_receive() {
    let mut pair = Pair::new(&Setup::default());
    let data = pair.ends[0].fill(0, 3333, 3);
    pair.ends[1].recv(5, &[]);
    let op = SendOp::WriteImm {
        va: VA + 7,
        rkey: KEY,
        imm: [9; 4],
    };
    pair.ends[0].send(1, op, &[Endpoint::sge(0, 3333)]).unwrap();
    pair.settle(100);
    let wc = pair.ends[1].env.recv_cq[0];
    assert_eq!(wc.opcode, WcOpcode::RecvRdmaWithImm);
    assert_eq!((wc.wr_id, wc.byte_len, wc.imm), (5, 3333, Some([9; 4])));
    assert_eq!(pair.ends[1].peek(7, 3333), data);
    assert_eq!(pair.ends[0].sent(), [(1, Success)]);
}

#[test]
fn scattered_both_ways() {
    let mut pair = Pair::new(&Setup::default());
    let data = pair.ends[0].fill(0, 3000, 4);
    let from = [
        Endpoint::sge(0, 1),
        Endpoint::sge(1, 0),
        Endpoint::sge(1, 1023),
        Endpoint::sge(1024, 1976),
    ];
    let to = [
        Endpoint::sge(50_000, 2047),
        Endpoint::sge(0, 1),
        Endpoint::sge(60_000, 4000),
    ];
    pair.ends[1].recv(5, &to);
    pair.ends[0].send(1, SendOp::Send, &from).unwrap();
    pair.settle(100);
    let mut got = pair.ends[1].peek(50_000, 2047);
    got.extend(pair.ends[1].peek(0, 1));
    got.extend(pair.ends[1].peek(60_000, 952));
    assert_eq!(got, data);
}

#[test]
fn inline_data_is_taken_at_post() {
    let mut pair = Pair::new(&Setup::default());
    pair.ends[0]
        .send_inline(1, Endpoint::write(10), b"inline")
        .unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[1].peek(10, 6), b"inline");
}

#[test]
fn atomics_return_the_old_value() {
    let mut pair = Pair::new(&Setup::default());
    // The region starts at an odd address; a word of it is at the next multiple of 8.
    let word = 8 - (VA & 7);
    let mem = &pair.ends[1].env.mem;
    mem.poke(KEY, VA + word, &5_u64.to_ne_bytes());
    let va = VA + word;
    let add = SendOp::FetchAdd {
        va,
        rkey: KEY,
        add: 37,
    };
    let swap = |compare, swap| SendOp::CompareSwap {
        va,
        rkey: KEY,
        compare,
        swap,
    };
    let ops = [add, swap(42, 100), swap(42, 7)];
    for (i, op) in ops.into_iter().enumerate() {
        let at = Endpoint::sge(8 * i as u64, 8);
        pair.ends[0].send(i as u64, op, &[at]).unwrap();
    }
    pair.settle(100);
    let old: Vec<u8> = [5_u64, 42, 100]
        .iter()
        .flat_map(|v| v.to_ne_bytes())
        .collect();
    assert_eq!(pair.ends[0].peek(0, 24), old);
    assert_eq!(pair.ends[1].peek(word, 8), 100_u64.to_ne_bytes());
    let opcodes: Vec<WcOpcode> = pair.ends[0].env.send_cq.iter().map(|w| w.opcode).collect();
    let expected = [WcOpcode::FetchAdd, WcOpcode::CompSwap, WcOpcode::CompSwap];
    assert_eq!(opcodes, expected);
}

/// Messages around every multiple of the MTU, written, read and sent: case R37.
#[test]
fn r37_sizes_around_multiples_of_the_mtu() {
    for mtu in [Mtu::M256, Mtu::M512, Mtu::M1024, Mtu::M2048, Mtu::M4096] {
        for packets in 0..=5 {
            for delta in [-3_i64, -2, -1, 0, 1, 2, 3] {
                let len = i64::from(mtu.bytes()) * packets + delta;
                if let Ok(len) = u32::try_from(len) {
                    all_operations(mtu, len);
                }
            }
        }
    }
}

fn all_operations(mtu: Mtu, len: u32) {
    let mut pair = Pair::new(&Setup {
        mtu,
        seed: u64::from(len),
        ..Setup::default()
    });
    let size = len as usize;
    let data = pair.ends[0].fill(0, size, 1);
    let remote = pair.ends[1].fill(1 << 20, size, 2);
    pair.ends[1].recv(5, &[Endpoint::sge(100_000, len)]);
    let sge = [Endpoint::sge(0, len)];
    let back = [Endpoint::sge(500_000, len)];
    pair.ends[0].send(1, Endpoint::write(3), &sge).unwrap();
    pair.ends[0]
        .send(2, Endpoint::read(1 << 20), &back)
        .unwrap();
    pair.ends[0].send(3, SendOp::Send, &sge).unwrap();
    pair.settle(1000);
    let sent = pair.ends[0].sent();
    assert_eq!(sent, [(1, Success), (2, Success), (3, Success)], "{len}");
    assert_eq!(pair.ends[1].peek(3, size), data);
    assert_eq!(pair.ends[1].peek(100_000, size), data);
    assert_eq!(pair.ends[0].peek(500_000, size), remote);
    let guard = pair.ends[1].peek(3 + size as u64, 8);
    assert_eq!(guard, [0; 8], "nothing behind the message");
    assert!(pair.sent.iter().all(|s| s.at < pair.now), "no timeouts");
}

/// The last packet of each message asks for an acknowledgement: case R36.
#[test]
fn r36_acknowledge_request_on_last_packets() {
    let mut pair = Pair::new(&Setup::default());
    for i in 0..4 {
        let sge = [Endpoint::sge(0, 2500)];
        pair.ends[0].send(i, Endpoint::write(0), &sge).unwrap();
    }
    pair.settle(100);
    let requests: Vec<_> = pair.sent.iter().filter(|s| s.from == 0).collect();
    assert_eq!(requests.len(), 12);
    assert!(requests.iter().all(|s| s.op.ends() == s.ack_req));
    let acks = pair.sent.iter().filter(|s| s.op == Operation::Ack).count();
    assert_eq!(acks, 1, "one acknowledgement for a batch");
}

#[test]
fn window_bounds_what_is_in_flight() {
    let setup = Setup {
        window: 64 << 10,
        ..Setup::default()
    };
    let mut pair = Pair::new(&setup);
    let data = pair.ends[0].fill(0, 1 << 20, 1);
    let sge = [Endpoint::sge(0, 1 << 20)];
    pair.ends[0].send(1, Endpoint::write(0), &sge).unwrap();
    pair.transmit(0);
    assert_eq!(pair.sent.len(), 64);
    pair.settle(1000);
    assert_eq!(pair.ends[1].peek(0, 1 << 20), data);
    assert_eq!(pair.ends[0].sent(), [(1, Success)]);
    assert_eq!(pair.sent.iter().filter(|s| s.from == 0).count(), 1024);
}

#[test]
fn long_read_is_asked_for_in_chunks() {
    let setup = Setup {
        window: 64 << 10,
        rd_atomic: 2,
        ..Setup::default()
    };
    let mut pair = Pair::new(&setup);
    let data = pair.ends[1].fill(0, 300_000, 1);
    let sge = [Endpoint::sge(0, 300_000)];
    pair.ends[0].send(1, Endpoint::read(0), &sge).unwrap();
    pair.settle(1000);
    assert_eq!(pair.ends[0].peek(0, 300_000), data);
    let requests = pair.sent.iter().filter(|s| s.from == 0).count();
    assert_eq!(requests, 300_000_usize.div_ceil(32 << 10));
    assert_eq!(pair.sent.iter().filter(|s| s.from == 1).count(), 293);
}

/// A fenced request waits for the READ before it: case R11.
#[test]
fn r11_fence_waits_for_reads() {
    let mut pair = Pair::new(&Setup::default());
    pair.ends[1].fill(0, 8, 1);
    let flags = SendFlags {
        fence: true,
        signaled: true,
        ..SendFlags::default()
    };
    let [a, _] = &mut pair.ends;
    a.send(1, Endpoint::read(0), &[Endpoint::sge(0, 8)])
        .unwrap();
    // Sends back what the READ has brought.
    a.send_with(2, Endpoint::write(64), &[Endpoint::sge(0, 8)], flags)
        .unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[1].peek(64, 8), pair.ends[1].peek(0, 8));
    assert_eq!(pair.ends[0].sent(), [(1, Success), (2, Success)]);
}

#[test]
fn reads_in_flight_are_limited() {
    let setup = Setup {
        rd_atomic: 1,
        ..Setup::default()
    };
    let mut pair = Pair::new(&setup);
    for i in 0..5 {
        let sge = [Endpoint::sge(8 * i, 8)];
        pair.ends[0].send(i, Endpoint::read(0), &sge).unwrap();
    }
    pair.transmit(0);
    assert_eq!(pair.sent.len(), 1);
    pair.settle(100);
    assert_eq!(pair.ends[0].env.send_cq.len(), 5);
}

#[test]
fn sqd_drains_and_reports_once() {
    use ferroce_engine::ModifyAttrs;
    use ferroce_engine::QpState;
    let mut pair = Pair::new(&Setup::default());
    let [a, _] = &mut pair.ends;
    a.send(1, Endpoint::write(0), &[Endpoint::sge(0, 5000)])
        .unwrap();
    pair.transmit(0);
    let change = |state| ModifyAttrs {
        state: Some(state),
        sqd_event: true,
        ..ModifyAttrs::default()
    };
    let [a, _] = &mut pair.ends;
    a.qp.modify(&change(QpState::Sqd), &mut a.env).unwrap();
    a.send(2, Endpoint::write(0), &[Endpoint::sge(0, 10)])
        .unwrap();
    assert_eq!(a.env.events, []);
    pair.settle(100);
    let [a, _] = &mut pair.ends;
    assert_eq!(a.env.events, [QpEvent::SqDrained]);
    assert_eq!(a.sent(), [(1, Success)]);
    a.qp.modify(&change(QpState::Rts), &mut a.env).unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[0].sent(), [(1, Success), (2, Success)]);
}

/// Every packet carries the bits that hardware insists on: case R36.
#[test]
fn r36_header_bits() {
    let mut pair = Pair::new(&Setup::default());
    pair.filter(|_, pkt| {
        assert!(pkt.bth.migrated, "the only path is the migrated one");
        assert_eq!(pkt.bth.pkey, 0xffff, "the default partition");
        assert!(!pkt.bth.fecn && !pkt.bth.becn);
        let len = pkt.payload.len() + usize::from(pkt.bth.pad);
        assert!(len % 4 == 0 && pkt.bth.pad < 4);
        Verdict::Pass
    });
    for len in 0..9 {
        let sge = [Endpoint::sge(0, len)];
        pair.ends[0].send(1, Endpoint::write(0), &sge).unwrap();
        pair.ends[0].send(2, Endpoint::read(0), &sge).unwrap();
    }
    pair.settle(100);
    assert_eq!(pair.ends[0].env.send_cq.len(), 18);
}

#[test]
fn first_packet_in_rtr_is_reported() {
    use ferroce_engine::ModifyAttrs;
    use ferroce_engine::QpState;
    let mut pair = Pair::in_rtr(&Setup::default());
    let rts = ModifyAttrs {
        state: Some(QpState::Rts),
        sq_psn: Some(Setup::default().psn[0]),
        timeout: Some(8),
        retry_cnt: Some(7),
        rnr_retry: Some(7),
        max_rd_atomic: Some(1),
        ..ModifyAttrs::default()
    };
    let [a, b] = &mut pair.ends;
    a.qp.modify(&rts, &mut a.env).unwrap();
    b.recv(1, &[Endpoint::sge(0, 8)]);
    let sge = [Endpoint::sge(0, 8)];
    a.send(1, SendOp::Send, &sge).unwrap();
    a.send(2, Endpoint::write(0), &sge).unwrap();
    pair.settle(100);
    assert_eq!(pair.ends[1].env.events, [QpEvent::CommEstablished]);
    assert_eq!(pair.ends[0].sent(), [(1, Success), (2, Success)]);
}

/// A queue pair on a shared receive queue flushes only the receive it holds.
#[test]
fn shared_receives_outlive_the_queue_pair() {
    use ferroce_engine::WcStatus::WrFlushErr;
    let mut pair = Pair::new(&Setup {
        srq: true,
        ..Setup::default()
    });
    for id in 0..3 {
        pair.ends[1].recv(id, &[Endpoint::sge(0, 5000)]);
    }
    let sge = [Endpoint::sge(0, 5000)];
    pair.ends[0].send(1, SendOp::Send, &sge).unwrap();
    // The message breaks off.
    let mut count = 0;
    pair.filter(move |_, _| {
        count += 1;
        if count > 2 {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    });
    pair.run_for(20_000);
    let [_, b] = &mut pair.ends;
    b.qp.set_error(&mut b.env);
    b.flush();
    assert_eq!(b.received(), [(0, WrFlushErr)]);
    assert_eq!(b.env.events, [QpEvent::LastWqeReached]);
    assert_eq!(b.env.recvs.len(), 2);
}
