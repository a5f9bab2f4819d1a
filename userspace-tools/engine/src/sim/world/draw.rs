// SPDX-License-Identifier: GPL-2.0

//! Operations of work requests, and what they must bring.

use super::heap::pattern;
use super::load::NO_KEY;
use super::plan::Plan;
use super::work::Flaw;
use super::World;
use crate::sim::Rng;
use crate::wire::Feth;
use crate::LocalOp;
use crate::SendOp;
use crate::Sge;

/// First key of the regions that messages invalidate.
const INVALIDATE_KEY: u32 = 0x4000_0000;

/// Operation, payload, effect of an atomic, and scatter list of a message.
pub(super) type Drawn = (SendOp, Vec<u8>, Option<(u64, u64)>, Vec<Sge>);

impl World {
    pub(super) fn draw_invalidate(&mut self, peer: usize, flaw: Option<Flaw>) -> SendOp {
        if flaw == Some(Flaw::BadInvalidate) {
            return SendOp::SendInvalidate(NO_KEY);
        }
        self.keys += 1;
        let key = INVALIDATE_KEY + self.keys;
        self.nodes[peer].end.env.mem.register(key, 0x1000, 8);
        SendOp::SendInvalidate(key)
    }

    pub(super) fn draw_read(
        &mut self,
        rng: &mut Rng,
        node: usize,
        len: u32,
        may_follow: bool,
    ) -> Drawn {
        let peer = Plan::peer(node);
        let written = self.nodes[node]
            .work
            .iter()
            .rev()
            .take(6)
            .find(|msg| matches!(msg.wr.op, SendOp::Write { .. }) && msg.flaw.is_none());
        let written = written.map(|msg| (msg.wr.op, msg.payload.clone()));
        let (va, rkey, payload) = match written.filter(|_| may_follow && rng.per_mille(300)) {
            Some((SendOp::Write { va, rkey }, payload)) => (va, rkey, payload),
            _ => {
                let there = self.alloc(peer, len);
                let payload = pattern(rng, len);
                self.poke(peer, &[there], &payload);
                (there.addr, there.lkey, payload)
            }
        };
        let sges = self.pieces(rng, node, payload.len() as u32);
        (SendOp::Read { va, rkey }, payload, None, sges)
    }

    /// A FLUSH of what an earlier WRITE has written, or of anything.
    pub(super) fn draw_flush(&mut self, rng: &mut Rng, node: usize, len: u32) -> SendOp {
        let there = self.alloc(Plan::peer(node), len);
        let earlier = self.nodes[node].work.iter().rev().take(6);
        let written = earlier
            .filter(|msg| msg.flaw.is_none())
            .find_map(|msg| match msg.wr.op {
                SendOp::Write { va, rkey } => Some((va, rkey, msg.len())),
                _ => None,
            });
        let fresh = (there.addr, there.lkey, len);
        let (va, rkey, len) = written.filter(|_| rng.per_mille(500)).unwrap_or(fresh);
        SendOp::Flush {
            va,
            rkey,
            len,
            kind: Feth {
                placement: rng.pick(&[1, 2, 3]),
                selectivity: Feth::RANGE,
            },
        }
    }

    pub(super) fn draw_atomic_write(&mut self, rng: &mut Rng, node: usize) -> Drawn {
        let there = self.alloc(Plan::peer(node), 16);
        let va = there.addr.next_multiple_of(8);
        let data = rng.next_u64().to_le_bytes();
        let op = SendOp::AtomicWrite {
            va,
            rkey: there.lkey,
            data,
        };
        (op, Vec::new(), None, Vec::new())
    }

    /// An operation of this side, on a region of its own that can be invalidated only once.
    pub(super) fn draw_local(
        &mut self,
        rng: &mut Rng,
        node: usize,
        takes_away: bool,
        flaw: Option<Flaw>,
    ) -> SendOp {
        if flaw == Some(Flaw::LocalInvalidate) {
            return SendOp::Local(LocalOp::Invalidate { key: NO_KEY });
        }
        self.keys += 1;
        let key = INVALIDATE_KEY + self.keys;
        self.nodes[node].end.env.mem.register(key, 0x1000, 8);
        SendOp::Local(match (takes_away, rng.per_mille(500)) {
            (true, _) => LocalOp::Invalidate { key },
            (_, true) => LocalOp::Register {
                mr: key,
                key,
                access: 0,
            },
            _ => LocalOp::BindWindow {
                window: 1,
                key: self.keys,
                mr: key,
                va: 0x1000,
                len: 8,
                access: 0,
            },
        })
    }

    /// An atomic on a word of its own or on one that earlier atomics of this queue pair have changed.
    pub(super) fn draw_atomic(&mut self, rng: &mut Rng, node: usize, swap: bool) -> Drawn {
        let peer = Plan::peer(node);
        let earlier = self.nodes[node]
            .work
            .iter()
            .rev()
            .take(8)
            .find(|m| m.atomic.is_some() && m.flaw.is_none());
        let earlier = earlier
            .map(|msg| (msg.wr.op, msg.atomic))
            .filter(|_| rng.per_mille(500));
        let (va, rkey, old) = match earlier {
            Some((
                SendOp::CompareSwap { va, rkey, .. } | SendOp::FetchAdd { va, rkey, .. },
                Some((_, new)),
            )) => (va, rkey, new),
            _ => {
                let mut there = self.alloc(peer, 16);
                there.addr = there.addr.next_multiple_of(8);
                there.len = 8;
                let old = rng.next_u64();
                self.poke(peer, &[there], &old.to_ne_bytes());
                (there.addr, there.lkey, old)
            }
        };
        let value = rng.next_u64();
        let (op, new) = if swap {
            let hit = rng.per_mille(600);
            let compare = if hit { old } else { !old };
            (
                SendOp::CompareSwap {
                    va,
                    rkey,
                    compare,
                    swap: value,
                },
                if hit { value } else { old },
            )
        } else {
            (
                SendOp::FetchAdd {
                    va,
                    rkey,
                    add: value,
                },
                old.wrapping_add(value),
            )
        };
        let sges = vec![self.alloc(node, 8)];
        (op, Vec::new(), Some((old, new)), sges)
    }
}
