// SPDX-License-Identifier: GPL-2.0

//! READs go out in pieces, so that no more of an answer is under way than the window has room for.
//!
//! Only the requester can see to that, since nobody acknowledges an answer: a peer that is asked for a gigabyte sends a
//! gigabyte, and where the path or the local stack drops what comes too fast, most of it is lost and asked for again.
//! Each piece is a READ message of its own to the peer, and its size is settled when the work request starts. After a
//! loss, pieces larger than the window as it is then are asked for in parts, one at a time. The peer takes a part for a
//! repetition, which has to stay within one request (section 9.7.5.1.3), or for a new request if the first was lost.
//! Either way no later part may cross the end of an earlier one; so sizes are powers of two and only shrink.

use super::queue::Place;
use super::queue::SendWqe;
use super::transmit::Source;
use super::transmit::Transmit;
use super::window::Window;
use super::wire::Bth;
use super::wire::Reth;
use super::Mtu;
use super::Qp;
use super::Store;

impl SendWqe {
    /// Where the part that packet `k` belongs to ends.
    pub(super) fn part_end(&self, k: u32) -> u32 {
        let part = self.part.max(1);
        (k / part + 1).saturating_mul(part).min(self.packets)
    }
}

/// Packets of a piece: half a window, and a whole one if that is the smallest.
fn piece(window: &Window, mtu: Mtu) -> u32 {
    let bytes = (window.bytes() / 2).max(Window::MIN).min(window.bytes());
    let packets = (bytes / mtu.bytes()).max(1);
    1 << packets.ilog2()
}

impl<S: Store> Qp<S> {
    /// Settles, until work request `n` starts, how many messages it makes and which number the last of them has.
    pub(super) fn number_messages(&mut self, n: u64) {
        if n < self.req.started {
            return;
        }
        let piece = piece(&self.req.window, self.attrs.path_mtu);
        let before = self.req.messages;
        if let Some(wqe) = self.wqe_mut(n) {
            wqe.piece = if wqe.op.is_read() { piece } else { wqe.packets };
            wqe.part = wqe.piece;
            wqe.message = before.plus(wqe.packets.div_ceil(wqe.piece.max(1)));
        }
    }

    /// A request for the next piece of a READ, or for a part of one that was asked for before.
    pub(super) fn read_request(&mut self, at: Place) -> Option<Transmit> {
        let mtu = self.attrs.path_mtu;
        let (furthest, room) = (self.req.furthest, self.req.window.bytes() / mtu.bytes());
        let head = self.ring.head;
        let wqe = self.wqe_mut(at.wqe)?;
        if at.packet % wqe.piece.max(1) != 0 && at != head {
            return None;
        }
        let end = wqe.part_end(at.packet);
        if (Place { packet: end, ..at }) <= furthest {
            wqe.part = wqe.part.min(1 << room.max(1).ilog2());
        }
        let wqe = *wqe;
        let end = wqe.part_end(at.packet);
        let bytes = wqe.offset(end, mtu) - wqe.offset(at.packet, mtu);
        let in_flight = self.in_flight();
        if in_flight > 0 && in_flight + u64::from(bytes) > u64::from(self.req.window.bytes()) {
            return None;
        }
        let xrceth = if wqe.srq.is_some() { 4 } else { 0 };
        let len = (Bth::SIZE + Reth::SIZE) as u32 + xrceth;
        self.req.fetching += 1;
        Some(self.sent(
            at,
            &wqe,
            end - at.packet,
            1,
            len,
            len,
            Source::ReadRequest(bytes),
        ))
    }

    /// Whether the answer to a request of this READ ends at `place`: those that are outstanding end where parts do, or at
    /// the cursor.
    pub(super) fn ends_answer(&self, wqe: &SendWqe, place: Place) -> bool {
        wqe.part_end(place.packet.saturating_sub(1)) == place.packet || place == self.req.cursor
    }
}
