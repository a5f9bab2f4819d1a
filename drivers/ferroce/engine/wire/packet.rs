// SPDX-License-Identifier: GPL-2.0

//! A checked view of a packet.

use super::Aeth;
use super::AtomicEth;
use super::Bth;
use super::Deth;
use super::Feth;
use super::Opcode;
use super::Operation;
use super::Reth;
use super::Service;

/// Why bytes are not a packet; such packets are dropped (section 9.6).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Shorter than its headers and pad, or not of whole 32-bit words (section 9.2.4).
    Short,
    /// Unknown header version.
    Version,
    /// Unknown or reserved opcode.
    Opcode,
    /// Reserved value in an ACK header.
    Syndrome,
}

/// A packet from BTH to pad. Headers that its opcode has are `Some`, all others `None`.
#[derive(Copy, Clone, Debug)]
pub struct Packet<'a> {
    /// Base header.
    pub bth: Bth,
    /// Its opcode, decoded.
    pub opcode: Opcode,
    /// Shared receive queue that the XRC header names.
    pub xrc_srq: Option<u32>,
    /// Datagram header.
    pub deth: Option<Deth>,
    /// FLUSH header.
    pub feth: Option<Feth>,
    /// RDMA header.
    pub reth: Option<Reth>,
    /// ACK header.
    pub aeth: Option<Aeth>,
    /// Atomic header.
    pub atomic: Option<AtomicEth>,
    /// Old value in an atomic acknowledge.
    pub atomic_ack: Option<u64>,
    /// Immediate data, in network byte order.
    pub imm: Option<[u8; 4]>,
    /// Key to invalidate.
    pub ieth: Option<u32>,
    /// Payload, without pad.
    pub payload: &'a [u8],
    /// What goes into the first 40 bytes of a UD receive buffer, to be set by the caller (section A17.4.5.1).
    pub grh: Option<[u8; 40]>,
}

impl<'a> Packet<'a> {
    /// Checks the bytes from BTH to pad, without ICRC.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (head, mut rest) = bytes.split_first_chunk().ok_or(ParseError::Short)?;
        if bytes.len() % 4 != 0 {
            return Err(ParseError::Short);
        }
        let bth = Bth::decode(head).ok_or(ParseError::Version)?;
        let opcode = Opcode::from_byte(bth.opcode).ok_or(ParseError::Opcode)?;
        let mut packet = Self {
            bth,
            opcode,
            xrc_srq: None,
            deth: None,
            feth: None,
            reth: None,
            aeth: None,
            atomic: None,
            atomic_ack: None,
            imm: None,
            ieth: None,
            payload: &[],
            grh: None,
        };
        if opcode.has_xrceth() {
            let word = u32::from_be_bytes(chunk(&mut rest)?);
            packet.xrc_srq = Some(word & 0x00ff_ffff);
        }
        if opcode.service == Service::Ud {
            packet.deth = Some(next(&mut rest, Deth::take)?);
        }
        if opcode.op == Operation::Flush {
            packet.feth = Some(next(&mut rest, Feth::take)?);
        }
        if opcode.op.has_reth() {
            packet.reth = Some(next(&mut rest, Reth::take)?);
        }
        if opcode.op.is_atomic() {
            packet.atomic = Some(next(&mut rest, AtomicEth::take)?);
        }
        if opcode.op.has_aeth() {
            packet.aeth = Some(take_aeth(&mut rest)?);
        }
        if opcode.op == Operation::AtomicAck {
            packet.atomic_ack = Some(u64::from_be_bytes(chunk(&mut rest)?));
        }
        if opcode.op.has_imm() {
            packet.imm = Some(chunk(&mut rest)?);
        }
        if opcode.op.has_ieth() {
            packet.ieth = Some(u32::from_be_bytes(chunk(&mut rest)?));
        }
        let len = rest.len().checked_sub(usize::from(bth.pad));
        packet.payload = len
            .and_then(|len| rest.get(..len))
            .ok_or(ParseError::Short)?;
        Ok(packet)
    }
}

/// Takes a header off the front of `rest`.
fn next<'a, T>(
    rest: &mut &'a [u8],
    take: impl FnOnce(&'a [u8]) -> Option<(T, &'a [u8])>,
) -> Result<T, ParseError> {
    let (header, after) = take(rest).ok_or(ParseError::Short)?;
    *rest = after;
    Ok(header)
}

/// Takes an ACK header off the front of `rest`, telling a reserved syndrome from a short packet.
fn take_aeth(rest: &mut &[u8]) -> Result<Aeth, ParseError> {
    if rest.len() < Aeth::SIZE {
        return Err(ParseError::Short);
    }
    next(rest, Aeth::take).map_err(|_| ParseError::Syndrome)
}

/// Takes `N` bytes off the front of `rest`.
fn chunk<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], ParseError> {
    next(rest, |bytes| {
        let (head, after) = bytes.split_first_chunk()?;
        Some((*head, after))
    })
}
