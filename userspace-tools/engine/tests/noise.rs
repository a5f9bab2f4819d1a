// SPDX-License-Identifier: GPL-2.0

//! Random packets against a queue pair of each service.

use ferroce_engine::sim::Endpoint;
use ferroce_engine::sim::Pair;
use ferroce_engine::sim::Rng;
use ferroce_engine::sim::Setup;
use ferroce_engine::QpType;

/// Packets that make no sense: nothing panics, and what is placed stays in bounds.
#[test]
fn noise_does_no_harm() {
    for seed in 0..90 {
        let qp_type = [QpType::Rc, QpType::Uc, QpType::Ud][seed as usize % 3];
        let mut pair = Pair::new(&Setup {
            qp_type,
            seed,
            ..Setup::default()
        });
        for id in 0..20 {
            pair.ends[1].recv(id, &[Endpoint::sge(0, 2000)]);
        }
        let base = pair.ends[1].qp.query().rq_psn;
        for _ in 0..200 {
            let body = noise(&mut pair.rng, base, qp_type);
            pair.inject(1, &body);
        }
        pair.run_for(1_000_000);
        let received = pair.ends[1].env.recv_cq.len();
        assert!(received <= 20);
    }
}

fn noise(rng: &mut Rng, base: u32, qp_type: QpType) -> Vec<u8> {
    let len = rng.pick(&[0, 1, 7, 12, 100, 1024, 1025, 4096]);
    let mut body: Vec<u8> = (0..12 + len).map(|_| rng.next_u64() as u8).collect();
    let service = [0, 0, 0, 1, 3][qp_type as usize];
    body[0] = (service << 5) | rng.below(0x18) as u8;
    body[1] &= 0xf0;
    body[2..4].copy_from_slice(&[0xff, 0xff]);
    let near = base.wrapping_add(rng.below(6) as u32).wrapping_sub(1);
    if rng.per_mille(900) {
        body[9..12].copy_from_slice(&near.to_be_bytes()[1..]);
    }
    if rng.per_mille(700) && body.len() >= 28 {
        body[12..20].copy_from_slice(&(Endpoint::VA + rng.below(100)).to_be_bytes());
        body[20..24].copy_from_slice(&Endpoint::KEY.to_be_bytes());
        let len = rng.pick(&[0, 1, 7, 1024, 4096, 1 << 31, u32::MAX]);
        body[24..28].copy_from_slice(&len.to_be_bytes());
    }
    body
}
