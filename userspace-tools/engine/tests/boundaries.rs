// SPDX-License-Identifier: GPL-2.0

//! The last value that is still right and the first that is wrong, where random runs do not come by.

use ferroce_engine::sim::craft;
use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::wire::NakCode;
use ferroce_engine::wire::Operation;
use ferroce_engine::wire::Syndrome;
use ferroce_engine::Packet;
use ferroce_engine::Psn;
use ferroce_engine::QpState;

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
