// SPDX-License-Identifier: GPL-2.0

//! Work requests as user space writes them into a ring: `struct rxe_send_wqe` and
//! `struct rxe_recv_wqe` of include/uapi/rdma/rdma_user_rxe.h.
//!
//! An element is copied once and only the copy is looked at.

use super::device::limits;
use crate::{
    bindings,
    engine::{
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
    let (op, data) = match (operation(&raw, datagram), data) {
        (Some(op), Some(data)) => (op, data),
        _ => (SendOp::Malformed, &[][..]),
    };
    (
        SendWr {
            wr_id: u64_at(&raw, 0),
            op,
            srq: 0,
            flags,
        },
        data,
    )
}

fn operation(raw: &[u8; SEND_HEADER], datagram: bool) -> Option<SendOp> {
    let imm = u32_at(raw, 20).to_ne_bytes();
    let (va, rkey) = (u64_at(raw, 24), u32_at(raw, 32));
    let opcode = u32_at(raw, 12);
    if datagram {
        let imm = match opcode {
            bindings::ib_wr_opcode_IB_WR_SEND => None,
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => Some(imm),
            _ => return None,
        };
        return Some(SendOp::Datagram {
            dest_qpn: u32_at(raw, 24),
            qkey: u32_at(raw, 28),
            ah: u32_at(raw, 36).into(),
            imm,
        });
    }
    Some(match opcode {
        bindings::ib_wr_opcode_IB_WR_SEND => SendOp::Send,
        bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => SendOp::SendImm(imm),
        bindings::ib_wr_opcode_IB_WR_RDMA_WRITE => SendOp::Write { va, rkey },
        bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteImm { va, rkey, imm },
        bindings::ib_wr_opcode_IB_WR_RDMA_READ => SendOp::Read { va, rkey },
        _ => return None,
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
