// SPDX-License-Identifier: GPL-2.0

//! The send window on links that a fixed one would fill for longer than the ACK timeout.

use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Faults;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::WcStatus;

const MESSAGES: u64 = 50;
const LEN: u32 = 64 << 10;
const PACKETS: usize = 64;

/// Writes messages to a peer whose link takes `packet_ns` for each packet; returns how many packets that took.
fn write_over(packet_ns: u64) -> usize {
    let faults = Faults {
        packet_ns,
        ..Faults::NONE
    };
    let setup = Setup {
        timeout: 14,
        faults,
        ..Setup::default()
    };
    let mut pair = Pair::new(&setup);
    for id in 0..MESSAGES {
        let sge = [Endpoint::sge(0, LEN)];
        let write = Endpoint::write(0);
        pair.ends[0].send(id, write, &sge).expect("there is room");
    }
    pair.settle(100_000);
    let done: Vec<_> = (0..MESSAGES).map(|id| (id, WcStatus::Success)).collect();
    assert_eq!(pair.ends[0].sent(), done);
    pair.sent.iter().filter(|sent| sent.from == 0).count()
}

#[test]
fn a_fast_link_repeats_nothing() {
    assert_eq!(write_over(1_000), MESSAGES as usize * PACKETS);
}

/// 1 MiB in flight would take half a second here, and the timeout is 67 ms.
#[test]
fn a_slow_link_is_not_filled_beyond_the_timeout() {
    assert_eq!(write_over(500_000), MESSAGES as usize * PACKETS);
}

/// Even the first window takes longer than the timeout: it has to be found out, and then all goes on.
#[test]
fn a_crawling_link_gets_through() {
    let sent = write_over(1_500_000);
    let needed = MESSAGES as usize * PACKETS;
    assert!(sent < needed + needed / 4, "{sent} packets for {needed}");
}
