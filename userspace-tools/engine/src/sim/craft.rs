// SPDX-License-Identifier: GPL-2.0

//! Packets that no engine has sent.

use crate::wire::Bth;
use crate::wire::Operation;
use crate::Psn;

/// An RC packet from BTH to pad: `rest` is what follows the BTH, without pad.
pub fn craft(op: Operation, dest_qpn: u32, psn: u32, rest: &[&[u8]]) -> Vec<u8> {
    let rest = rest.concat();
    let pad = rest.len().wrapping_neg() & 3;
    let bth = Bth {
        opcode: op as u8,
        solicited: false,
        migrated: true,
        pad: pad as u8,
        pkey: 0xffff,
        fecn: false,
        becn: false,
        dest_qpn,
        ack_req: true,
        psn: Psn::new(psn),
    };
    let mut packet = bth.encode().to_vec();
    packet.extend(rest);
    packet.resize(packet.len() + pad, 0);
    packet
}
