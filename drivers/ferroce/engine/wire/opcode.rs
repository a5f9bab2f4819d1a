// SPDX-License-Identifier: GPL-2.0

//! Opcodes: three bits of transport service, five of operation (section 9.2.1, table "OpCode field").

/// Transport service of a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Unreliable datagram.
    Ud = 3,
    /// Extended reliable connection (annex A14).
    Xrc = 5,
}

/// Operation of a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// SEND first.
    SendFirst = 0x00,
    /// SEND middle.
    SendMiddle = 0x01,
    /// SEND last.
    SendLast = 0x02,
    /// SEND last with immediate data.
    SendLastImm = 0x03,
    /// SEND only.
    SendOnly = 0x04,
    /// SEND only with immediate data.
    SendOnlyImm = 0x05,
    /// RDMA WRITE first.
    WriteFirst = 0x06,
    /// RDMA WRITE middle.
    WriteMiddle = 0x07,
    /// RDMA WRITE last.
    WriteLast = 0x08,
    /// RDMA WRITE last with immediate data.
    WriteLastImm = 0x09,
    /// RDMA WRITE only.
    WriteOnly = 0x0a,
    /// RDMA WRITE only with immediate data.
    WriteOnlyImm = 0x0b,
    /// RDMA READ request.
    ReadRequest = 0x0c,
    /// RDMA READ response first.
    ReadFirst = 0x0d,
    /// RDMA READ response middle.
    ReadMiddle = 0x0e,
    /// RDMA READ response last.
    ReadLast = 0x0f,
    /// RDMA READ response only.
    ReadOnly = 0x10,
    /// Acknowledge.
    Ack = 0x11,
    /// Atomic acknowledge.
    AtomicAck = 0x12,
    /// Compare and swap.
    CompareSwap = 0x13,
    /// Fetch and add.
    FetchAdd = 0x14,
    /// SEND last with invalidate.
    SendLastInv = 0x16,
    /// SEND only with invalidate.
    SendOnlyInv = 0x17,
    /// FLUSH (annex A19).
    Flush = 0x1c,
    /// ATOMIC WRITE (annex A19).
    AtomicWrite = 0x1d,
}

use Operation::*;

/// Every operation, in the order of its number; 0x15 and 0x18 to 0x1b are reserved.
const ALL: [Operation; 25] = [
    SendFirst,
    SendMiddle,
    SendLast,
    SendLastImm,
    SendOnly,
    SendOnlyImm,
    WriteFirst,
    WriteMiddle,
    WriteLast,
    WriteLastImm,
    WriteOnly,
    WriteOnlyImm,
    ReadRequest,
    ReadFirst,
    ReadMiddle,
    ReadLast,
    ReadOnly,
    Ack,
    AtomicAck,
    CompareSwap,
    FetchAdd,
    SendLastInv,
    SendOnlyInv,
    Flush,
    AtomicWrite,
];

impl Operation {
    /// The operation with this 5-bit number.
    pub fn from_bits(bits: u8) -> Option<Self> {
        let at = match bits {
            0x00..=0x14 => bits,
            0x16 | 0x17 => bits - 1,
            0x1c | 0x1d => bits - 5,
            _ => return None,
        };
        ALL.get(usize::from(at)).copied()
    }

    /// Starts a request message (all but middle and last).
    pub fn starts(self) -> bool {
        !matches!(
            self,
            SendMiddle
                | SendLast
                | SendLastImm
                | SendLastInv
                | WriteMiddle
                | WriteLast
                | WriteLastImm
        )
    }

    /// Ends a message (all but first and middle).
    pub fn ends(self) -> bool {
        !matches!(
            self,
            SendFirst | SendMiddle | WriteFirst | WriteMiddle | ReadFirst | ReadMiddle
        )
    }

    /// Part of a SEND.
    pub fn is_send(self) -> bool {
        matches!(
            self,
            SendFirst
                | SendMiddle
                | SendLast
                | SendLastImm
                | SendLastInv
                | SendOnly
                | SendOnlyImm
                | SendOnlyInv
        )
    }

    /// Part of an RDMA WRITE.
    pub fn is_write(self) -> bool {
        matches!(
            self,
            WriteFirst | WriteMiddle | WriteLast | WriteLastImm | WriteOnly | WriteOnlyImm
        )
    }

    /// A packet from responder to requester.
    pub fn is_response(self) -> bool {
        matches!(
            self,
            ReadFirst | ReadMiddle | ReadLast | ReadOnly | Ack | AtomicAck
        )
    }

    /// Part of an RDMA READ response.
    pub fn is_read_response(self) -> bool {
        matches!(self, ReadFirst | ReadMiddle | ReadLast | ReadOnly)
    }

    /// Has an RDMA extended transport header.
    pub fn has_reth(self) -> bool {
        matches!(
            self,
            WriteFirst | WriteOnly | WriteOnlyImm | ReadRequest | Flush | AtomicWrite
        )
    }

    /// Has immediate data.
    pub fn has_imm(self) -> bool {
        matches!(
            self,
            SendLastImm | SendOnlyImm | WriteLastImm | WriteOnlyImm
        )
    }

    /// Has an invalidate extended transport header.
    pub fn has_ieth(self) -> bool {
        matches!(self, SendLastInv | SendOnlyInv)
    }

    /// Has an ACK extended transport header.
    pub fn has_aeth(self) -> bool {
        matches!(self, ReadFirst | ReadLast | ReadOnly | Ack | AtomicAck)
    }

    /// Is answered by an empty READ response (annex A19).
    pub fn is_placement(self) -> bool {
        matches!(self, Flush | AtomicWrite)
    }

    /// Is an atomic request that returns the old value.
    pub fn is_atomic(self) -> bool {
        matches!(self, CompareSwap | FetchAdd)
    }
}

/// A service and an operation that it has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Opcode {
    /// Transport service.
    pub service: Service,
    /// Operation.
    pub op: Operation,
}

impl Opcode {
    /// The opcode of a BTH byte, `None` if the service has no such operation.
    pub fn from_byte(byte: u8) -> Option<Self> {
        let op = Operation::from_bits(byte & 0x1f)?;
        let service = match byte >> 5 {
            0 => Service::Rc,
            1 if (op as u8) <= WriteOnlyImm as u8 => Service::Uc,
            5 => Service::Xrc,
            3 if matches!(op, SendOnly | SendOnlyImm) => Service::Ud,
            _ => return None,
        };
        Some(Self { service, op })
    }

    /// Has an XRC extended transport header: all requests of that service.
    pub fn has_xrceth(self) -> bool {
        self.service == Service::Xrc && !self.op.is_response()
    }

    /// The byte in the BTH.
    pub fn to_byte(self) -> u8 {
        ((self.service as u8) << 5) | self.op as u8
    }
}
