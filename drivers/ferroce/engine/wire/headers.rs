// SPDX-License-Identifier: GPL-2.0

//! Extended transport headers (section 9.3).

use super::Credits;

/// Reads a big-endian number off the front of `bytes`.
fn be32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (head, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*head), rest))
}

/// Reads a big-endian number off the front of `bytes`.
fn be64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (head, rest) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*head), rest))
}

/// Puts byte strings after one another into an array of their total length.
fn join<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut out = [0; N];
    let all = parts.iter().flat_map(|part| part.iter());
    for (to, from) in out.iter_mut().zip(all) {
        *to = *from;
    }
    out
}

/// RDMA extended transport header.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Remote address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Bytes of the message.
    pub len: u32,
}

impl Reth {
    /// Bytes on the wire.
    pub const SIZE: usize = 16;

    /// Reads the header off the front of `bytes`.
    pub fn take(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (va, rest) = be64(bytes)?;
        let (rkey, rest) = be32(rest)?;
        let (len, rest) = be32(rest)?;
        Some((Self { va, rkey, len }, rest))
    }

    /// Bytes of the header.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        join(&[
            &self.va.to_be_bytes(),
            &self.rkey.to_be_bytes(),
            &self.len.to_be_bytes(),
        ])
    }
}

/// FLUSH extended transport header (annex A19).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Feth {
    /// How far written data is to get: [`Feth::GLOBAL`] and [`Feth::PERSISTENT`].
    pub placement: u8,
    /// What is flushed: [`Feth::RANGE`], [`Feth::REGION`], or a reserved value.
    pub selectivity: u8,
}

impl Feth {
    /// Bytes on the wire.
    pub const SIZE: usize = 4;

    /// Placement: visible to everything in the peer's machine.
    pub const GLOBAL: u8 = 1;
    /// Placement: survives a loss of power.
    pub const PERSISTENT: u8 = 2;
    /// Selectivity: the range that the RETH names.
    pub const RANGE: u8 = 0;
    /// Selectivity: the whole memory region.
    pub const REGION: u8 = 1;

    /// Reads the header off the front of `bytes`.
    pub fn take(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (word, rest) = be32(bytes)?;
        let header = Self {
            placement: (word & 0x0f) as u8,
            selectivity: ((word >> 4) & 0x03) as u8,
        };
        Some((header, rest))
    }

    /// Bytes of the header; reserved bits are 0.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        [
            0,
            0,
            0,
            ((self.selectivity & 0x03) << 4) | (self.placement & 0x0f),
        ]
    }

    /// The placement is one that there is, and so is the selectivity.
    pub fn is_valid(&self) -> bool {
        let known = Self::GLOBAL | Self::PERSISTENT;
        self.placement != 0 && self.placement & !known == 0 && self.selectivity <= Self::REGION
    }
}

/// Datagram extended transport header.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// Sender's queue pair.
    pub src_qpn: u32,
}

impl Deth {
    /// Bytes on the wire.
    pub const SIZE: usize = 8;

    /// Reads the header off the front of `bytes`.
    pub fn take(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (qkey, rest) = be32(bytes)?;
        let (src, rest) = be32(rest)?;
        let src_qpn = src & 0x00ff_ffff;
        Some((Self { qkey, src_qpn }, rest))
    }

    /// Bytes of the header.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let src = self.src_qpn & 0x00ff_ffff;
        join(&[&self.qkey.to_be_bytes(), &src.to_be_bytes()])
    }
}

/// Atomic extended transport header.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Remote address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Value to swap in or to add.
    pub swap_add: u64,
    /// Value to compare with.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes on the wire.
    pub const SIZE: usize = 28;

    /// Reads the header off the front of `bytes`.
    pub fn take(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (va, rest) = be64(bytes)?;
        let (rkey, rest) = be32(rest)?;
        let (swap_add, rest) = be64(rest)?;
        let (compare, rest) = be64(rest)?;
        let header = Self {
            va,
            rkey,
            swap_add,
            compare,
        };
        Some((header, rest))
    }

    /// Bytes of the header.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        join(&[
            &self.va.to_be_bytes(),
            &self.rkey.to_be_bytes(),
            &self.swap_add.to_be_bytes(),
            &self.compare.to_be_bytes(),
        ])
    }
}

/// Reason of a NAK (section 9.7.5.2, table "NAK codes").
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NakCode {
    /// A PSN was missing.
    Sequence = 0,
    /// The request cannot be executed.
    InvalidRequest = 1,
    /// Key, address or permission is wrong.
    RemoteAccess = 2,
    /// The responder failed.
    RemoteOperational = 3,
}

/// Meaning of an AETH.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Acknowledged.
    Ack,
    /// No receive buffer; the code of the delay to wait for.
    Rnr(u8),
    /// Refused.
    Nak(NakCode),
}

/// ACK extended transport header.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// What it says.
    pub syndrome: Syndrome,
    /// Receives that the responder has waiting; told with [`Syndrome::Ack`] only.
    pub credits: Credits,
    /// Messages that the responder has completed, modulo 2^24.
    pub msn: u32,
}

impl Aeth {
    /// Bytes on the wire.
    pub const SIZE: usize = 4;

    /// Reads the header off the front of `bytes`; reserved syndromes are `None`.
    pub fn take(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (word, rest) = be32(bytes)?;
        let [byte, ..] = word.to_be_bytes();
        let value = byte & 0x1f;
        let syndrome = match byte >> 5 {
            0 => Syndrome::Ack,
            1 => Syndrome::Rnr(value),
            3 => Syndrome::Nak(match value {
                0 => NakCode::Sequence,
                1 => NakCode::InvalidRequest,
                2 => NakCode::RemoteAccess,
                3 => NakCode::RemoteOperational,
                _ => return None,
            }),
            _ => return None,
        };
        let header = Self {
            syndrome,
            credits: match syndrome {
                Syndrome::Ack => Credits::from_bits(value),
                _ => Credits::NONE,
            },
            msn: word & 0x00ff_ffff,
        };
        Some((header, rest))
    }

    /// Bytes of the header.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let byte = match self.syndrome {
            Syndrome::Ack => self.credits.bits(),
            Syndrome::Rnr(code) => (1 << 5) | (code & 0x1f),
            Syndrome::Nak(code) => (3 << 5) | code as u8,
        };
        ((u32::from(byte) << 24) | (self.msn & 0x00ff_ffff)).to_be_bytes()
    }
}
