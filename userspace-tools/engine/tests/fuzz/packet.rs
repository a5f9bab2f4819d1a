// SPDX-License-Identifier: GPL-2.0

//! Packets: what is taken has all its headers within its bytes, and says the same when it is written again.

use ferroce_engine::Packet;

use super::driver::fuzz;
use super::driver::mix;

fn target(bytes: &[u8]) -> u64 {
    let pkt = match Packet::parse(bytes) {
        Ok(pkt) => pkt,
        Err(error) => return mix(1, error as u64),
    };
    let mut again = pkt.bth.encode().to_vec();
    let xrc = pkt.xrc_srq.map(|number| number.to_be_bytes().to_vec());
    let parts = [
        xrc,
        pkt.deth.map(|header| header.encode().to_vec()),
        pkt.feth.map(|header| header.encode().to_vec()),
        pkt.reth.map(|header| header.encode().to_vec()),
        pkt.atomic.map(|header| header.encode().to_vec()),
        pkt.aeth.map(|header| header.encode().to_vec()),
        pkt.atomic_ack.map(|value| value.to_be_bytes().to_vec()),
        pkt.imm.map(|imm| imm.to_vec()),
        pkt.ieth.map(|key| key.to_be_bytes().to_vec()),
    ];
    let mut what = mix(2, u64::from(pkt.bth.opcode));
    for part in parts.iter().flatten() {
        what = mix(what, part.len() as u64);
        again.extend(part);
    }
    again.extend(pkt.payload);
    assert_eq!(
        again.len() + usize::from(pkt.bth.pad),
        bytes.len(),
        "bytes are left over"
    );
    assert!(
        bytes.ends_with(&bytes[again.len()..])
            && bytes[again.len() - pkt.payload.len()..].starts_with(pkt.payload)
    );
    let second = Packet::parse(&[again, vec![0; usize::from(pkt.bth.pad)]].concat())
        .map(|pkt| format!("{pkt:?}"));
    assert_eq!(
        second,
        Ok(format!("{pkt:?}")),
        "it does not say the same again"
    );
    mix(
        what,
        (u64::from(pkt.bth.pad) << 8) | pkt.payload.len().min(9) as u64,
    )
}

#[test]
fn packets() {
    fuzz("packet", 60_000, target);
}
