// SPDX-License-Identifier: GPL-2.0

//! Properties of single messages for sizes, offsets and cuts that proptest chooses: case R37.

use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Faults;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Setup;
use ferroce_engine::Mtu;
use ferroce_engine::SendOp;
use ferroce_engine::Sge;
use ferroce_engine::WcStatus::Success;
use proptest::prelude::*;

const KEY: u32 = Endpoint::KEY;
const VA: u64 = Endpoint::VA;

fn mtus() -> impl Strategy<Value = Mtu> {
    prop_oneof![
        Just(Mtu::M256),
        Just(Mtu::M512),
        Just(Mtu::M1024),
        Just(Mtu::M2048),
        Just(Mtu::M4096),
    ]
}

/// A length near a multiple of the MTU, or any.
fn lengths(mtu: u32) -> impl Strategy<Value = u32> {
    let near = (0..20_u32, -4..=4_i32);
    prop_oneof![
        3 => near.prop_map(move |(n, d)| (n * mtu).saturating_add_signed(d)),
        1 => 0..100_000_u32,
    ]
}

fn cases() -> impl Strategy<Value = (Mtu, u32, u64, Vec<u32>, u32, u64)> {
    mtus().prop_flat_map(|mtu| {
        let cuts = proptest::collection::vec(0..100_000_u32, 0..7);
        (
            Just(mtu),
            lengths(mtu.bytes()),
            0..5000_u64,
            cuts,
            any::<u32>(),
            any::<u64>(),
        )
    })
}

/// `len` bytes from `offset` on, cut into elements.
fn cut(offset: u64, len: u32, cuts: &[u32]) -> Vec<Sge> {
    let mut ends: Vec<u32> = cuts.iter().map(|c| c % (len + 1)).collect();
    ends.push(len);
    ends.sort_unstable();
    let mut from = 0;
    let mut sges = Vec::new();
    for end in ends {
        sges.push(Endpoint::sge(offset + u64::from(from), end - from));
        from = end;
    }
    sges
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn r37_messages_arrive_whole(
        (mtu, len, offset, cuts, psn, seed) in cases(),
        loss in prop_oneof![Just(0_u64), Just(30)],
    ) {
        let mut pair = Pair::new(&Setup {
            mtu,
            psn: [psn & 0xff_ffff, !psn & 0xff_ffff],
            seed,
            faults: Faults { loss, ..Faults::NONE },
            ..Setup::default()
        });
        let size = len as usize;
        let local = cut(offset, len, &cuts);
        let far = 1 << 20;
        let data = pair.ends[0].fill(offset, size, seed);
        let remote = pair.ends[1].fill(far + offset, size, !seed);
        pair.ends[1].recv(1, &cut(2 * far + offset, len, &cuts));
        let va = VA + offset;
        let end = &mut pair.ends[0];
        end.send(1, SendOp::Write { va, rkey: KEY }, &local).unwrap();
        let back = cut(2 * far + offset, len, &cuts);
        end.send(2, SendOp::Read { va: va + far, rkey: KEY }, &back).unwrap();
        end.send(3, SendOp::Send, &local).unwrap();
        pair.settle(100_000);
        let sent = [(1, Success), (2, Success), (3, Success)];
        prop_assert_eq!(pair.ends[0].sent(), sent);
        prop_assert_eq!(pair.ends[1].peek(offset, size), &data[..]);
        prop_assert_eq!(pair.ends[1].peek(2 * far + offset, size), &data[..]);
        prop_assert_eq!(pair.ends[0].peek(2 * far + offset, size), &remote[..]);
        let behind = pair.ends[1].env.mem.writes(KEY, va + u64::from(len), 64);
        prop_assert_eq!(behind, vec![0; 64]);
    }
}
