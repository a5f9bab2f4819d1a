// SPDX-License-Identifier: GPL-2.0

//! Work requests as user space writes them into a ring: `struct rxe_send_wqe` and
//! `struct rxe_recv_wqe` of include/uapi/rdma/rdma_user_rxe.h.
//!
//! An element is copied once and only the copy is looked at.

use super::device::limits;
use crate::{
    bindings,
    engine::{
        wire::Feth,
        LocalOp,
        RecvWr,
        SendFlags,
        SendOp,
        SendWr, //
    },
    kernel_ext::ring::Ring, //
};
use kernel::prelude::*;

/// Bytes before the scatter/gather list (or inline data) of a send element.
pub(crate) const SEND_HEADER: usize = size_of::<bindings::rxe_send_wqe>();
/// Bytes before the scatter/gather list of a receive element.
pub(crate) const RECV_HEADER: usize = size_of::<bindings::rxe_recv_wqe>();
/// Bytes of `struct rxe_sge`.
pub(crate) const SGE: usize = 16;

const _: () = assert!(SEND_HEADER == 208 && RECV_HEADER == 40);

const SEND_FENCE: u32 = bindings::ib_send_flags_IB_SEND_FENCE as u32;
const SEND_SIGNALED: u32 = bindings::ib_send_flags_IB_SEND_SIGNALED as u32;
const SEND_SOLICITED: u32 = bindings::ib_send_flags_IB_SEND_SOLICITED as u32;
const SEND_INLINE: u32 = bindings::ib_send_flags_IB_SEND_INLINE as u32;

/// Room for one work request's scatter/gather list or inline data.
pub(crate) type Payload = [u8; limits::INLINE as usize];

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |b| u32::from_ne_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |b| u64::from_ne_bytes(*b))
}

/// Copies send element `index` out: the request, and its data as a part of `payload`.
///
/// `datagram`: whether a SEND names where it goes. What makes no sense becomes [`SendOp::Malformed`], which fails when its turn comes.
pub(crate) fn read_send<'p>(
    ring: &Ring,
    index: u32,
    datagram: bool,
    payload: &'p mut Payload,
) -> (SendWr, &'p [u8]) {
    let mut raw = [0; SEND_HEADER];
    let copied = ring.read(index, 0, &mut raw);
    let bits = u32_at(&raw, 16);
    let flags = SendFlags {
        signaled: bits & SEND_SIGNALED != 0,
        solicited: bits & SEND_SOLICITED != 0,
        fence: bits & SEND_FENCE != 0,
        inline: bits & SEND_INLINE != 0,
    };
    let len = match flags.inline {
        true => u32_at(&raw, 184) as usize,
        false => (u32_at(&raw, 196) as usize).saturating_mul(SGE),
    };
    let data = payload
        .get_mut(..len)
        .filter(|_| copied.is_ok())
        .and_then(|data| ring.read(index, SEND_HEADER, data).ok().map(|()| &*data));
    let op = match u32_at(&raw, 12) {
        opcode if datagram => datagram_operation(opcode, &raw),
        bindings::ib_wr_opcode_IB_WR_ATOMIC_WRITE => atomic_write(&raw, ring, index),
        opcode => operation(opcode, &raw),
    };
    let (op, data) = match (op, data) {
        (Some(op), Some(data)) => (op, data),
        _ => (SendOp::Malformed, &[][..]),
    };
    (
        SendWr {
            wr_id: u64_at(&raw, 0),
            op,
            // `reserved` of struct rxe_send_wr: the uABI has no XRC, and no other use for it.
            srq: u32_at(&raw, 8),
            flags,
        },
        data,
    )
}

/// The request in `raw` of a QP whose SENDs name where they go.
fn datagram_operation(opcode: u32, raw: &[u8; SEND_HEADER]) -> Option<SendOp> {
    let imm = match opcode {
        bindings::ib_wr_opcode_IB_WR_SEND => None,
        bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => Some(u32_at(raw, 20).to_ne_bytes()),
        _ => return None,
    };
    Some(SendOp::Datagram {
        dest_qpn: u32_at(raw, 24),
        qkey: u32_at(raw, 28),
        ah: u32_at(raw, 36).into(),
        imm,
    })
}

/// The request in `raw`, whose fields behind byte 24 are a union.
fn operation(opcode: u32, raw: &[u8; SEND_HEADER]) -> Option<SendOp> {
    let key = u32_at(raw, 20);
    let imm = key.to_ne_bytes();
    let (va, rkey) = (u64_at(raw, 24), u32_at(raw, 32));
    Some(match opcode {
        bindings::ib_wr_opcode_IB_WR_SEND => SendOp::Send,
        bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => SendOp::SendImm(imm),
        bindings::ib_wr_opcode_IB_WR_RDMA_WRITE => SendOp::Write { va, rkey },
        bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteImm { va, rkey, imm },
        bindings::ib_wr_opcode_IB_WR_RDMA_READ => SendOp::Read { va, rkey },
        // A process that writes this has no region for it.
        bindings::ib_wr_opcode_IB_WR_REG_MR => SendOp::Local(LocalOp::Register {
            mr: u32_at(raw, 24),
            key: rkey,
            access: u32_at(raw, 36),
        }),
        bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP => SendOp::CompareSwap {
            va,
            rkey: u32_at(raw, 48),
            compare: u64_at(raw, 32),
            swap: u64_at(raw, 40),
        },
        bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd {
            va,
            rkey: u32_at(raw, 48),
            add: u64_at(raw, 32),
        },
        bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV => SendOp::SendInvalidate(key),
        bindings::ib_wr_opcode_IB_WR_FLUSH => SendOp::Flush {
            va,
            rkey: u32_at(raw, 36),
            len: u32_at(raw, 32),
            kind: Feth {
                placement: raw[40],
                selectivity: raw[41],
            },
        },
        bindings::ib_wr_opcode_IB_WR_LOCAL_INV => SendOp::Local(LocalOp::Invalidate { key }),
        bindings::ib_wr_opcode_IB_WR_BIND_MW => SendOp::Local(LocalOp::BindWindow {
            window: u32_at(raw, 44),
            key: u32_at(raw, 48),
            mr: u32_at(raw, 40),
            va,
            len: u64_at(raw, 32),
            access: u32_at(raw, 52),
        }),
        _ => return None,
    })
}

/// An ATOMIC WRITE, whose 8 bytes stand where others have their list.
fn atomic_write(raw: &[u8; SEND_HEADER], ring: &Ring, index: u32) -> Option<SendOp> {
    let mut data = [0; 8];
    ring.read(index, SEND_HEADER, &mut data).ok()?;
    Some(SendOp::AtomicWrite {
        va: u64_at(raw, 24),
        rkey: u32_at(raw, 32),
        data,
    })
}

/// Copies receive element `index` out: the request, and its list into `sges`.
///
/// A list that is longer than the queue allows becomes an empty one, into which no
/// message fits.
pub(crate) fn read_recv(ring: &Ring, index: u32, sges: &mut [u8]) -> RecvWr {
    let mut raw = [0; RECV_HEADER];
    let copied = ring.read(index, 0, &mut raw);
    let wr_id = u64_at(&raw, 0);
    let num_sge = u32_at(&raw, 28);
    let list = (num_sge as usize).saturating_mul(SGE);
    let list = sges.get_mut(..list).filter(|_| copied.is_ok());
    let Some(list) = list.and_then(|list| ring.read(index, RECV_HEADER, list).ok().map(|()| list))
    else {
        return RecvWr {
            wr_id,
            num_sge: 0,
            total: 0,
        };
    };
    let total = list
        .chunks_exact(SGE)
        .fold(0u32, |sum, sge| sum.saturating_add(u32_at(sge, 8)));
    RecvWr {
        wr_id,
        num_sge,
        total,
    }
}
