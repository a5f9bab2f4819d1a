// SPDX-License-Identifier: GPL-2.0

//! The work that a run does: every message has fresh memory at both ends, so that each byte has one right value.

use super::heap::pattern;
use super::node::INLINE;
use super::plan::Plan;
use super::plan::Trouble;
use super::work::Buf;
use super::work::Flaw;
use super::work::Msg;
use super::World;
use crate::sim::Endpoint;
use crate::sim::Rng;
use crate::QpType;
use crate::SendFlags;
use crate::SendOp;
use crate::SendWr;
use crate::Sge;

/// Key that no host has.
pub const NO_KEY: u32 = 0xdead;
/// Key of memory that allows nothing remote.
pub const DENIED_KEY: u32 = 0x2222;
/// Shared receive queues of an XRC target, and a number that none has.
pub const XRC_QUEUES: [u32; 2] = [7, 0x00ab_cdef];
const NO_QUEUE: u32 = 9;
/// Room of a receive that any message fits into whose receive is not known beforehand.
pub const ANY_ROOM: u32 = 3_000;
/// Room in front of a datagram.
pub const GRH: u32 = 40;

fn length(rng: &mut Rng, mtu: u32) -> u32 {
    match rng.below(20) {
        0..5 => rng.below(16) as u32,
        5..10 => mtu * rng.below(5) as u32 + rng.below(3) as u32,
        10..15 => (mtu * (1 + rng.below(4) as u32)).saturating_sub(rng.below(3) as u32),
        15..19 => rng.below(6_000) as u32,
        _ => rng.below(20_000) as u32,
    }
}

impl World {
    /// Draws the work of a node.
    pub(super) fn add_load(&mut self, rng: &mut Rng, node: usize) {
        let plan = self.nodes[node].plan;
        let flawed = match self.plan.trouble[plan.pair] {
            Trouble::Flaw { side } if side == plan.side && plan.load > 0 => {
                Some(rng.below(plan.load as u64) as usize)
            }
            _ => None,
        };
        let drawn = flawed.map(|_| self.draw_flaw(rng, node));
        self.banned = &[];
        if drawn == Some(Flaw::Disabled) {
            let (kinds, bit): (&[u64], u32) =
                rng.pick(&[(&[3, 4, 9][..], 2), (&[5], 4), (&[6, 7], 8), (&[8], 0x300)]);
            self.banned = kinds;
            self.nodes[Plan::peer(node)].plan.access &= !bit;
        }
        for n in 0..plan.load {
            let flaw = drawn.filter(|_| flawed == Some(n));
            let msg = if plan.qp_type == QpType::Ud {
                self.draw_datagram(rng, node, flaw)
            } else {
                self.draw_message(rng, node, flaw)
            };
            self.nodes[node].work.push_back(msg);
        }
    }

    fn draw_flaw(&self, rng: &mut Rng, node: usize) -> Flaw {
        use Flaw::*;
        let peer = &self.nodes[Plan::peer(node)].plan;
        match (self.nodes[node].plan.qp_type, peer.srq) {
            (QpType::Rc, false) => rng.pick(&[
                RemoteKey,
                RemoteRange,
                RemoteDenied,
                Disabled,
                TooLong,
                BadReceive,
                BadInvalidate,
                LocalKey,
                LocalInvalidate,
                Malformed,
            ]),
            (QpType::XrcIni, _) => rng.pick(&[
                RemoteKey,
                RemoteRange,
                RemoteDenied,
                Disabled,
                TooLong,
                BadReceive,
                BadInvalidate,
                LocalKey,
                NoQueue,
            ]),
            (QpType::Rc, true) => {
                rng.pick(&[RemoteKey, RemoteDenied, Disabled, BadInvalidate, LocalKey])
            }
            (QpType::Uc, _) => rng.pick(&[RemoteKey, RemoteRange, LocalKey, Malformed]),
            _ => rng.pick(&[TooLong, QueueKey, LocalKey, Malformed]),
        }
    }

    fn draw_message(&mut self, rng: &mut Rng, node: usize, flaw: Option<Flaw>) -> Msg {
        let plan = self.nodes[node].plan;
        let peer = Plan::peer(node);
        let reliable = plan.reliable();
        let kind = match flaw {
            Some(Flaw::TooLong | Flaw::BadReceive) => rng.below(2),
            Some(Flaw::BadInvalidate) => 2,
            Some(Flaw::LocalInvalidate) => 10,
            Some(Flaw::NoQueue) => rng.below(10),
            Some(Flaw::LocalKey) => rng.pick(if reliable {
                &[0, 1, 2, 3, 4, 5, 6, 7]
            } else {
                &[0, 1, 3, 4]
            }),
            Some(Flaw::Disabled) => rng.pick(self.banned),
            Some(Flaw::RemoteKey | Flaw::RemoteRange | Flaw::RemoteDenied) => {
                rng.pick(if reliable {
                    &[3, 4, 5, 6, 7, 8, 9]
                } else {
                    &[3, 4]
                })
            }
            _ => rng.pick(if reliable {
                &[0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11]
            } else {
                &[0, 1, 3, 4, 10]
            }),
        };
        let kind = if flaw.is_none() && self.banned.contains(&kind) {
            0
        } else {
            kind
        };
        let mut len = length(rng, plan.mtu.bytes());
        if kind < 3 && (self.nodes[peer].plan.srq || !reliable) {
            len = len.min(ANY_ROOM);
        }
        if flaw.is_some() {
            len = len.max(1);
        }
        let imm = (rng.next_u64() as u32).to_be_bytes();
        let source = self.draw_source(rng, node, len, kind);
        let Source {
            sges,
            payload,
            inline,
            fence,
        } = source;
        let (op, payload, atomic, sges) = match kind {
            0 => (SendOp::Send, payload, None, sges),
            1 => (SendOp::SendImm(imm), payload, None, sges),
            2 => (self.draw_invalidate(peer, flaw), payload, None, sges),
            3 | 4 => {
                let there = self.alloc(peer, payload.len() as u32);
                let (va, rkey) = (there.addr, there.lkey);
                let op = if kind == 3 {
                    SendOp::Write { va, rkey }
                } else {
                    SendOp::WriteImm { va, rkey, imm }
                };
                (op, payload, None, sges)
            }
            5 => self.draw_read(rng, node, len, flaw.is_none()),
            6 | 7 => self.draw_atomic(rng, node, kind == 6),
            8 => (
                self.draw_flush(rng, node, len),
                Vec::new(),
                None,
                Vec::new(),
            ),
            9 => self.draw_atomic_write(rng, node),
            _ => (
                self.draw_local(rng, node, kind == 10, flaw),
                Vec::new(),
                None,
                Vec::new(),
            ),
        };
        let mut msg = self.message(rng, node, (op, sges, payload));
        msg.atomic = atomic;
        if plan.qp_type == QpType::XrcIni {
            msg.wr.srq = rng.pick(&XRC_QUEUES);
        }
        msg.inline = inline && kind < 5;
        msg.wr.flags.inline = msg.inline;
        msg.wr.flags.fence |= fence;
        self.spoil(&mut msg, flaw);
        self.draw_receive(rng, peer, &msg);
        msg
    }

    fn message(
        &mut self,
        rng: &mut Rng,
        node: usize,
        (op, sges, payload): (SendOp, Vec<Sge>, Vec<u8>),
    ) -> Msg {
        Msg {
            wr: SendWr {
                wr_id: 0,
                op,
                srq: 0,
                flags: SendFlags {
                    signaled: rng.per_mille(700),
                    solicited: rng.per_mille(300),
                    fence: rng.per_mille(200),
                    inline: false,
                },
            },
            dest: Plan::peer(node),
            sges,
            inline: false,
            payload,
            atomic: None,
            flaw: None,
            start: 0,
            packets: 0,
            started: false,
            arrived: false,
        }
    }

    /// What a SEND or WRITE sends: fresh bytes, or, behind a fence, those that an earlier READ brings.
    fn draw_source(&mut self, rng: &mut Rng, node: usize, len: u32, kind: u64) -> Source {
        let earlier = self.nodes[node].work.iter().rev().take(6).find(|msg| {
            matches!(msg.wr.op, SendOp::Read { .. }) && msg.flaw.is_none() && msg.len() > 0
        });
        let fits = kind < 5 && !self.nodes[Plan::peer(node)].plan.srq;
        if let Some(read) = earlier.filter(|_| fits && rng.per_mille(300)) {
            return Source {
                sges: read.sges.clone(),
                payload: read.payload.clone(),
                inline: false,
                fence: true,
            };
        }
        let inline = len as usize <= INLINE && rng.per_mille(400);
        let payload = pattern(rng, len);
        let sges = if kind >= 5 || inline {
            Vec::new()
        } else {
            self.pieces(rng, node, len)
        };
        self.poke(node, &sges, &payload);
        Source {
            sges,
            payload,
            inline,
            fence: false,
        }
    }

    fn draw_datagram(&mut self, rng: &mut Rng, node: usize, flaw: Option<Flaw>) -> Msg {
        let peers: Vec<usize> = (0..self.nodes.len())
            .filter(|&n| n != node && self.nodes[n].plan.qp_type == QpType::Ud)
            .collect();
        let dest = if rng.per_mille(700) {
            Plan::peer(node)
        } else {
            rng.pick(&peers)
        };
        let mut len = rng.pick(&[0, 1, 7, 100, 511, 1024, 2000, 4095, 4096]);
        if flaw == Some(Flaw::TooLong) {
            len = 4096;
        }
        let payload = pattern(rng, len);
        let inline = len as usize <= INLINE && rng.per_mille(500);
        let sges = if inline {
            Vec::new()
        } else {
            self.pieces(rng, node, len)
        };
        self.poke(node, &sges, &payload);
        let there = &self.nodes[dest];
        let wrong = u32::from(flaw == Some(Flaw::QueueKey));
        let op = SendOp::Datagram {
            dest_qpn: there.qpn(),
            qkey: there.plan.qkey + wrong,
            ah: there.plan.host as u64,
            imm: rng
                .per_mille(400)
                .then(|| (rng.next_u64() as u32).to_be_bytes()),
        };
        let mut msg = self.message(rng, node, (op, sges, payload));
        msg.dest = dest;
        msg.inline = inline;
        msg.wr.flags.inline = inline;
        self.spoil(&mut msg, flaw);
        let room = GRH + if rng.per_mille(900) { 4096 } else { len };
        let sges = self.pieces(rng, dest, room);
        self.nodes[dest].receives.push_back(Buf {
            sges,
            queue: 0,
            done: false,
        });
        msg
    }

    /// Makes a message fail.
    fn spoil(&self, msg: &mut Msg, flaw: Option<Flaw>) {
        msg.flaw = flaw;
        if flaw == Some(Flaw::NoQueue) {
            msg.wr.srq = NO_QUEUE;
        }
        let new_key = match flaw {
            Some(Flaw::RemoteKey) => NO_KEY,
            Some(Flaw::RemoteDenied) => DENIED_KEY,
            _ => Endpoint::KEY,
        };
        let beyond = flaw == Some(Flaw::RemoteRange);
        match &mut msg.wr.op {
            SendOp::Write { va, rkey }
            | SendOp::WriteImm { va, rkey, .. }
            | SendOp::Read { va, rkey }
            | SendOp::CompareSwap { va, rkey, .. }
            | SendOp::FetchAdd { va, rkey, .. }
            | SendOp::AtomicWrite { va, rkey, .. }
            | SendOp::Flush { va, rkey, .. } => {
                if matches!(flaw, Some(Flaw::RemoteKey | Flaw::RemoteDenied)) {
                    *rkey = new_key;
                }
                if beyond {
                    *va = (Endpoint::VA + Endpoint::LEN as u64).next_multiple_of(8);
                }
            }
            _ => (),
        }
        if flaw == Some(Flaw::LocalKey) {
            msg.inline = false;
            msg.wr.flags.inline = false;
            if msg.sges.is_empty() || msg.sges.iter().all(|sge| sge.len == 0) {
                msg.payload = if msg.fetches() { Vec::new() } else { vec![0] };
                msg.sges = vec![Sge {
                    addr: Endpoint::VA,
                    len: 1,
                    lkey: NO_KEY,
                }];
            }
            msg.sges.iter_mut().for_each(|sge| sge.lkey = NO_KEY);
        }
        if flaw == Some(Flaw::Malformed) {
            msg.wr.op = SendOp::Malformed;
        }
    }

    /// The receive that a message takes.
    fn draw_receive(&mut self, rng: &mut Rng, peer: usize, msg: &Msg) {
        if self.nodes[peer].plan.srq || msg.receive().is_none() {
            return;
        }
        let len = match msg.wr.op {
            SendOp::WriteImm { .. } => 0,
            _ => msg.len(),
        };
        let room = match msg.flaw {
            Some(Flaw::TooLong) => rng.below(u64::from(len)) as u32,
            _ => len + rng.below(100) as u32,
        };
        let room = if self.nodes[peer].plan.qp_type == QpType::Uc {
            room.max(ANY_ROOM)
        } else {
            room
        };
        let mut sges = self.pieces(rng, peer, room);
        if msg.flaw == Some(Flaw::BadReceive) {
            sges.iter_mut().for_each(|sge| sge.lkey = NO_KEY);
        }
        self.nodes[peer].receives.push_back(Buf {
            sges,
            queue: msg.wr.srq,
            done: false,
        });
    }
}

/// Where a message comes from.
struct Source {
    sges: Vec<Sge>,
    payload: Vec<u8>,
    inline: bool,
    fence: bool,
}
