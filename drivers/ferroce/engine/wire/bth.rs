// SPDX-License-Identifier: GPL-2.0

//! The base transport header (section 9.2).

use super::super::Psn;

/// A base transport header. The opcode is kept as a byte: what it means is for [`super::Opcode`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Opcode.
    pub opcode: u8,
    /// Solicited event.
    pub solicited: bool,
    /// Migration state is "migrated": always set where there is no path migration.
    pub migrated: bool,
    /// Pad bytes after the payload, 0 to 3.
    pub pad: u8,
    /// Partition key.
    pub pkey: u16,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// Destination queue pair.
    pub dest_qpn: u32,
    /// Acknowledge request.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Bytes on the wire.
    pub const SIZE: usize = 12;

    /// Reads the header; `None` if its version is not 0.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Option<Self> {
        let [opcode, flags, p0, p1, marks, q0, q1, q2, ack, s0, s1, s2] = *bytes;
        if flags & 0x0f != 0 {
            return None;
        }
        Some(Self {
            opcode,
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            pad: (flags >> 4) & 3,
            pkey: u16::from_be_bytes([p0, p1]),
            fecn: marks & 0x80 != 0,
            becn: marks & 0x40 != 0,
            dest_qpn: u32::from_be_bytes([0, q0, q1, q2]),
            ack_req: ack & 0x80 != 0,
            psn: Psn::new(u32::from_be_bytes([0, s0, s1, s2])),
        })
    }

    /// Bytes of the header; reserved bits are 0.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let bit = |set: bool, at: u8| u8::from(set) << at;
        let flags = bit(self.solicited, 7) | bit(self.migrated, 6) | ((self.pad & 3) << 4);
        let [p0, p1] = self.pkey.to_be_bytes();
        let [_, q0, q1, q2] = self.dest_qpn.to_be_bytes();
        let [_, s0, s1, s2] = self.psn.get().to_be_bytes();
        let marks = bit(self.fecn, 7) | bit(self.becn, 6);
        let ack = bit(self.ack_req, 7);
        [
            self.opcode,
            flags,
            p0,
            p1,
            marks,
            q0,
            q1,
            q2,
            ack,
            s0,
            s1,
            s2,
        ]
    }
}
