// SPDX-License-Identifier: GPL-2.0

//! The send queue: a ring of work requests between `head`, the oldest that is not complete, and `tail`.
//!
//! PSNs are given out when a request is posted, and so is a place in the stream of bytes that the queue pair sends.
//! With both, the amount in flight between two points of the queue is a subtraction.

use super::Mtu;
use super::Psn;
use super::SendFlags;
use super::SendOp;
use super::Store;

/// A send queue entry. Made and read by the engine only; callers allocate them as [`SendWqe::ZERO`].
#[derive(Copy, Clone)]
pub struct SendWqe {
    pub(super) wr_id: u64,
    pub(super) op: SendOp,
    pub(super) flags: SendFlags,
    /// Packets of a message, except the last: a READ may be asked for in several. A power of two for READs.
    pub(super) piece: u32,
    /// Packets of a request that repeats a part of a piece: a power of two that is not larger than `piece`.
    pub(super) part: u32,
    /// Number of its last message, modulo 2^24 (the specification's SSN).
    pub(super) message: Psn,
    /// XRC: the peer's shared receive queue.
    pub(super) srq: Option<u32>,
    /// Bytes of its data in `sq_data`.
    pub(super) data_len: u32,
    /// Bytes of the message.
    pub(super) len: u32,
    /// PSN of its first packet.
    pub(super) first: Psn,
    /// PSNs it takes: request packets, or response packets of a READ.
    pub(super) packets: u32,
    /// Bytes posted before it.
    pub(super) stream: u64,
}

impl SendWqe {
    /// An unused entry.
    pub const ZERO: Self = Self {
        wr_id: 0,
        op: SendOp::Malformed,
        flags: SendFlags {
            signaled: false,
            solicited: false,
            fence: false,
            inline: false,
        },
        piece: 0,
        part: 0,
        message: Psn::new(0),
        srq: None,
        data_len: 0,
        len: 0,
        first: Psn::new(0),
        packets: 0,
        stream: 0,
    };

    /// Bytes of the message that lie before packet `k`.
    pub(super) fn offset(&self, k: u32, mtu: Mtu) -> u32 {
        k.saturating_mul(mtu.bytes()).min(self.len)
    }
}

impl Default for SendWqe {
    fn default() -> Self {
        Self::ZERO
    }
}

/// A place between two packets of the send queue.
#[derive(Copy, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Work request, counted since RESET.
    pub(super) wqe: u64,
    /// Packets of it that lie before this place.
    pub(super) packet: u32,
}

/// Ends of the ring. Work requests are counted from RESET on, so that the counters never wrap.
#[derive(Copy, Clone, Default)]
pub(super) struct Ring {
    /// The first place that is not acknowledged, in the oldest request that is not complete.
    pub(super) head: Place,
    /// Number that the next posted request will have.
    pub(super) tail: u64,
    /// PSN that the next posted request will start with.
    pub(super) psn: Psn,
    /// Bytes posted.
    pub(super) stream: u64,
}

impl<S: Store> super::Qp<S> {
    /// Index of work request `n` in the ring's storage.
    fn slot(&self, n: u64) -> usize {
        let capacity = self.store.sq.len().max(1) as u64;
        (n % capacity) as usize
    }

    /// Work request `n`, if it is in the ring.
    pub(super) fn wqe(&self, n: u64) -> Option<&SendWqe> {
        if n < self.ring.head.wqe || n >= self.ring.tail {
            return None;
        }
        self.store.sq.get(self.slot(n))
    }

    /// Work request `n`, to be changed.
    pub(super) fn wqe_mut(&mut self, n: u64) -> Option<&mut SendWqe> {
        self.wqe(n)?;
        let slot = self.slot(n);
        self.store.sq.get_mut(slot)
    }

    /// Scatter/gather list or inline bytes of work request `n`.
    pub(super) fn wqe_data(&self, n: u64) -> &[u8] {
        let Some(wqe) = self.wqe(n) else { return &[] };
        let from = self.slot(n) * self.cfg.sq_stride as usize;
        let to = from + wqe.data_len as usize;
        self.store.sq_data.get(from..to).unwrap_or(&[])
    }

    /// Appends a work request that fits; `false` if the storage is smaller than promised.
    pub(super) fn push_wqe(&mut self, wqe: SendWqe, data: &[u8]) -> bool {
        let slot = self.slot(self.ring.tail);
        let from = slot * self.cfg.sq_stride as usize;
        let room = self.store.sq_data.get_mut(from..from + data.len());
        let (Some(room), Some(entry)) = (room, self.store.sq.get_mut(slot)) else {
            return false;
        };
        room.copy_from_slice(data);
        *entry = SendWqe {
            data_len: data.len() as u32,
            first: self.ring.psn,
            stream: self.ring.stream,
            ..wqe
        };
        self.ring.tail += 1;
        self.ring.psn = self.ring.psn.plus(wqe.packets);
        self.ring.stream = self.ring.stream.wrapping_add(u64::from(wqe.len));
        true
    }

    /// PSN of the packet after `place`.
    pub(super) fn psn_at(&self, place: Place) -> Psn {
        match self.wqe(place.wqe) {
            Some(wqe) => wqe.first.plus(place.packet),
            None => self.ring.psn,
        }
    }

    /// Bytes of the stream before `place`.
    pub(super) fn stream_at(&self, place: Place) -> u64 {
        match self.wqe(place.wqe) {
            Some(wqe) => {
                let inside = wqe.offset(place.packet, self.attrs.path_mtu);
                wqe.stream.wrapping_add(u64::from(inside))
            }
            None => self.ring.stream,
        }
    }
}
