// SPDX-License-Identifier: GPL-2.0

//! What a requester may send, and what it must send (sections 9.7.3, 9.7.5.1 and 9.7.6).

use super::node::distance;
use super::plan::Trouble;
use super::work::Msg;
use super::World;
use crate::wire::Operation;
use crate::Packet;
use crate::QpState;
use crate::QpType;
use crate::SendOp;

/// Operation of packet `k` of a message.
fn operation(msg: &Msg, k: u32) -> Option<Operation> {
    use Operation::*;
    let only = msg.packets == 1;
    let (first, last) = (k == 0, k + 1 == msg.packets);
    let place = |ops: [Operation; 4]| {
        let [start, middle, end, single] = ops;
        match (first, last) {
            _ if only => single,
            (true, _) => start,
            (_, true) => end,
            _ => middle,
        }
    };
    Some(match msg.wr.op {
        SendOp::Send => place([SendFirst, SendMiddle, SendLast, SendOnly]),
        SendOp::SendImm(_) => place([SendFirst, SendMiddle, SendLastImm, SendOnlyImm]),
        SendOp::SendInvalidate(_) => place([SendFirst, SendMiddle, SendLastInv, SendOnlyInv]),
        SendOp::Write { .. } => place([WriteFirst, WriteMiddle, WriteLast, WriteOnly]),
        SendOp::WriteImm { .. } => place([WriteFirst, WriteMiddle, WriteLastImm, WriteOnlyImm]),
        SendOp::Read { .. } => ReadRequest,
        SendOp::CompareSwap { .. } => CompareSwap,
        SendOp::FetchAdd { .. } => FetchAdd,
        SendOp::Datagram { imm: None, .. } => SendOnly,
        SendOp::Datagram { imm: Some(_), .. } => SendOnlyImm,
        SendOp::Flush { .. } => Flush,
        SendOp::AtomicWrite { .. } => AtomicWrite,
        SendOp::Local(_) | SendOp::Malformed | SendOp::TooLong => return None,
    })
}

impl World {
    /// Judges a request packet.
    pub(super) fn judge_request(&mut self, node: usize, pkt: &Packet<'_>) {
        let offset = distance(pkt.bth.psn, self.nodes[node].life.sq_psn);
        let found = u32::try_from(offset)
            .ok()
            .and_then(|at| self.nodes[node].life.at(at));
        let Some(msg) = found else {
            self.breach(
                node,
                format!("PSN {:#x} is of no work request", pkt.bth.psn.get()),
            );
            return;
        };
        let offset = offset as u32;
        let text = self.wrong_contents(node, msg, offset, pkt);
        if let Some(text) = text.or_else(|| self.wrong_time(node, msg, offset)) {
            self.breach(node, format!("request {msg}, offset {offset}: {text}"));
        }
        let now = self.now;
        let mtu = self.nodes[node].mtu();
        let life = &mut self.nodes[node].life;
        let span = match pkt.reth {
            Some(reth) if pkt.opcode.op == Operation::ReadRequest => reth.len.div_ceil(mtu).max(1),
            _ => 1,
        };
        life.msgs[msg].started = true;
        life.furthest = life.furthest.max(offset + span);
        let end = (offset + span) as usize;
        if life.covers.len() < end {
            life.covers.resize(end, (0, now));
        }
        for cover in &mut life.covers[offset as usize..end] {
            *cover = (cover.0 + 1, now);
        }
        if life.resend == Some(offset) {
            life.resend = None;
        }
    }

    /// Headers and payload must be those of the work request.
    fn wrong_contents(
        &self,
        node: usize,
        msg: usize,
        offset: u32,
        pkt: &Packet<'_>,
    ) -> Option<String> {
        let here = &self.nodes[node];
        let mtu = here.mtu();
        let msg = &here.life.msgs[msg];
        let k = offset - msg.start;
        let last = k + 1 == msg.packets;
        let op = operation(msg, k);
        if op != Some(pkt.opcode.op) {
            return Some(format!("{:?} instead of {op:?}", pkt.opcode.op));
        }
        let from = (k * mtu).min(msg.len()) as usize;
        let to = ((k + 1) * mtu).min(msg.len()) as usize;
        let payload = if let SendOp::AtomicWrite { data, .. } = &msg.wr.op {
            &data[..]
        } else if msg.fetches() {
            &[][..]
        } else {
            &msg.payload[from..to]
        };
        if pkt.payload != payload {
            return Some("payload is wrong".into());
        }
        let reth = pkt.reth.map(|reth| (reth.va, reth.rkey, reth.len));
        let wanted = match msg.wr.op {
            SendOp::Write { va, rkey } | SendOp::WriteImm { va, rkey, .. } if k == 0 => {
                Some((va, rkey, msg.len()))
            }
            SendOp::Read { va, rkey } => {
                let len = reth.map_or(0, |(_, _, len)| len);
                let rest = msg.len() - from as u32;
                let whole = len == rest || len < rest && len > 0 && len % mtu == 0;
                whole.then_some((va.wrapping_add(from as u64), rkey, len))
            }
            SendOp::Flush { va, rkey, len, .. } => Some((va, rkey, len)),
            SendOp::AtomicWrite { va, rkey, .. } => Some((va, rkey, 8)),
            _ => None,
        };
        if reth != wanted {
            return Some(format!("RETH {reth:x?} instead of {wanted:x?}"));
        }
        let srq = (here.plan.qp_type == QpType::XrcIni).then_some(msg.wr.srq);
        if pkt.xrc_srq != srq {
            return Some(format!("XRCETH {:?} instead of {srq:?}", pkt.xrc_srq));
        }
        if let Some(text) = wrong_extras(msg, last, here.qpn(), pkt) {
            return Some(text);
        }
        let may = last && pkt.opcode.op.is_send() || pkt.imm.is_some();
        if pkt.bth.solicited != (msg.wr.flags.solicited && may) {
            return Some("solicited bit is wrong".into());
        }
        let reliable = here.plan.reliable();
        if reliable && last && !pkt.bth.ack_req || !reliable && pkt.bth.ack_req {
            return Some("acknowledge request bit is wrong".into());
        }
        None
    }

    /// There are times when a request may not be sent.
    fn wrong_time(&self, node: usize, msg: usize, offset: u32) -> Option<String> {
        let here = &self.nodes[node];
        let life = &here.life;
        let state = here.end.qp.state();
        if !matches!(state, QpState::Rts | QpState::Sqd)
            || life.failed.is_some_and(|(n, _)| msg >= n)
        {
            return Some(format!("sent in {state:?}"));
        }
        if life.limit.is_some_and(|limit| msg >= limit) {
            return Some("started after the drain".into());
        }
        if offset > life.furthest {
            return Some(format!("leaves out PSNs from offset {} on", life.furthest));
        }
        if !here.plan.reliable() {
            return (offset < life.furthest).then(|| "repeated".into());
        }
        let this = &life.msgs[msg];
        let open = life.msgs[..msg].iter().skip(life.completed);
        let open = open.filter(|m| m.fetches() && !life.answered(m)).count();
        if this.wr.flags.fence && offset == this.start && open > 0 {
            return Some("not held back by its fence".into());
        }
        if this.fetches() && open + 1 > usize::from(here.plan.rd_atomic) {
            return Some(format!("{open} READs and atomics are in flight"));
        }
        if life.quiet.is_some_and(|until| self.now < until) {
            return Some("sent before the RNR delay is over".into());
        }
        let earlier = life.covers.get(offset as usize).filter(|(n, _)| *n > 0);
        if let Some((_, at)) = earlier.filter(|_| self.plan.calm() && offset == life.acked) {
            let timeout = super::numbers::ack_timeout(here.plan.timeout);
            let asked = life.complaint.is_some_and(|when| when >= *at);
            if !asked && self.now.0 - at.0 < timeout {
                return Some("repeated without a reason".into());
            }
        }
        None
    }

    /// A queue pair has nothing more to send for now; `asked` if it has sent requests.
    pub(super) fn drained(&mut self, node: usize, asked: bool) {
        let now = self.now;
        let state = self.nodes[node].end.qp.state();
        if asked {
            self.nodes[node].life.quiet = None;
        }
        if matches!(state, QpState::Rts | QpState::Sqd) {
            let life = &self.nodes[node].life;
            let unfinished = life.completed < life.msgs.len();
            if life.quiet.is_some_and(|at| now >= at) && unfinished && state == QpState::Rts {
                self.breach(node, "does not go on after the RNR delay");
            }
            if let Some(offset) = self.nodes[node].life.resend {
                self.breach(
                    node,
                    format!("does not repeat offset {offset} after a sequence NAK"),
                );
            }
        }
        self.nodes[node].life.resend = None;
        self.drained_answers(node);
    }

    /// A work request has run out of retries: they must have been as many as agreed.
    pub(super) fn judge_retries(&mut self, node: usize, msg: usize, rnr: bool) {
        let here = &self.nodes[node];
        let life = &here.life;
        if !self.plan.calm() {
            return;
        }
        if rnr {
            let agreed = u32::from(here.plan.rnr_retry);
            if life.rnr != agreed + 1 {
                let text = format!("{} RNR NAKs, {agreed} retries were agreed", life.rnr);
                self.breach(node, text);
            }
            return;
        }
        let dark = self.plan.trouble[here.plan.pair] == Trouble::Dark;
        let this = &life.msgs[msg];
        let missing = (this.start..this.end()).find(|at| !life.got.contains(at));
        let head = match missing.filter(|_| this.fetches()) {
            Some(at) => at,
            None => this.start.max(life.acked),
        };
        let (covers, at) = life.covers.get(head as usize).copied().unwrap_or_default();
        let agreed = u32::from(here.plan.retry_cnt) + 1;
        let rnrs = life.rnrs;
        let timeout = super::numbers::ack_timeout(here.plan.timeout);
        let waited = self.now.0 - at.0;
        if dark && !(timeout..=4 * timeout).contains(&waited) {
            self.breach(node, format!("waited {waited} ns for the last answer"));
        } else if dark && rnrs == 0 && covers != agreed {
            let text =
                format!("gives up after sending offset {head} {covers} times instead of {agreed}");
            self.breach(node, text);
        }
    }
}

/// Headers other than BTH and RETH.
fn wrong_extras(msg: &Msg, last: bool, qpn: u32, pkt: &Packet<'_>) -> Option<String> {
    let imm = msg.imm().filter(|_| last);
    if pkt.imm != imm {
        return Some(format!("immediate {:?} instead of {imm:?}", pkt.imm));
    }
    let key = match msg.wr.op {
        SendOp::SendInvalidate(key) if last => Some(key),
        _ => None,
    };
    if pkt.ieth != key {
        return Some(format!("IETH {:?} instead of {key:?}", pkt.ieth));
    }
    let kind = match msg.wr.op {
        SendOp::Flush { kind, .. } => Some(kind),
        _ => None,
    };
    if pkt.feth != kind {
        return Some(format!("FETH {:?} instead of {kind:?}", pkt.feth));
    }
    let atomic = pkt
        .atomic
        .map(|eth| (eth.va, eth.rkey, eth.swap_add, eth.compare));
    let wanted = match msg.wr.op {
        SendOp::CompareSwap {
            va,
            rkey,
            compare,
            swap,
        } => Some((va, rkey, swap, compare)),
        SendOp::FetchAdd { va, rkey, add } => Some((va, rkey, add, 0)),
        _ => None,
    };
    if atomic != wanted {
        return Some(format!("AtomicETH {atomic:x?} instead of {wanted:x?}"));
    }
    let deth = pkt.deth.map(|deth| (deth.qkey, deth.src_qpn));
    let wanted = match msg.wr.op {
        SendOp::Datagram { qkey, .. } => Some((qkey, qpn)),
        _ => None,
    };
    (deth != wanted).then(|| format!("DETH {deth:x?} instead of {wanted:x?}"))
}
