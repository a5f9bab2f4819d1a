// SPDX-License-Identifier: GPL-2.0

//! What a responder may send, and what it must send (sections 9.7.4.1, 9.7.5.1 and 9.7.5.2).

use super::node::distance;
use super::plan::Trouble;
use super::World;
use crate::wire::NakCode;
use crate::wire::Operation;
use crate::wire::Syndrome;
use crate::Packet;
use crate::QpState;

impl World {
    /// Judges an answer.
    pub(super) fn judge_answer(&mut self, node: usize, pkt: &Packet<'_>) {
        let offset = distance(pkt.bth.psn, self.nodes[node].life.rq_psn);
        let text = if pkt.bth.solicited || pkt.bth.ack_req {
            Some("header bits are wrong".into())
        } else if pkt.opcode.op == Operation::Ack {
            self.judge_ack(node, offset, pkt)
        } else {
            self.judge_data(node, offset, pkt)
        };
        if let Some(text) = text {
            self.breach(
                node,
                format!("{:?} of offset {offset}: {text}", pkt.opcode.op),
            );
        }
        let life = &mut self.nodes[node].life;
        let nak = matches!(pkt.aeth, Some(aeth) if !matches!(aeth.syndrome, Syndrome::Ack));
        let covered = if nak { offset } else { offset + 1 };
        if life.owed.is_some_and(|owed| covered >= owed) {
            life.owed = None;
        }
    }

    fn judge_ack(&mut self, node: usize, offset: i32, pkt: &Packet<'_>) -> Option<String> {
        let life = &self.nodes[node].life;
        let Some(aeth) = pkt.aeth else {
            return Some("no AETH".into());
        };
        let expected = life.expected as i32;
        match aeth.syndrome {
            Syndrome::Ack => {
                if offset >= expected {
                    return Some(format!(
                        "acknowledges what has not come, {expected} is next"
                    ));
                }
                self.wrong_msn(node, (offset + 1) as u32, aeth.msn)
            }
            said => {
                let wanted = life.nak;
                let at = offset as u32;
                if wanted == Some((said, at)) {
                    self.nodes[node].life.nak = None;
                    self.cover.met(format!("sent {said:?}"));
                    return self.wrong_msn(node, at, aeth.msn);
                }
                match said {
                    Syndrome::Nak(code) => self.judge_final(node, offset, code),
                    _ => Some(format!("{said:?} instead of {wanted:?}")),
                }
            }
        }
    }

    /// A NAK that ends the connection.
    fn judge_final(&mut self, node: usize, offset: i32, code: NakCode) -> Option<String> {
        self.cover.met(format!("sent Nak({code:?})"));
        let life = &self.nodes[node].life;
        let peer = self.other(node);
        let said = Syndrome::Nak(code);
        if !life.closed && self.nodes[node].end.qp.state() != QpState::Error {
            return Some(format!("{said:?} without a reason"));
        }
        let expected = life.expected as i32;
        let revoked = matches!(
            self.plan.trouble[self.nodes[node].plan.pair],
            Trouble::Revoke { .. }
        );
        if offset != expected && !(revoked && offset < expected) {
            return Some(format!("{said:?} while {expected} is next"));
        }
        let msg = peer.at(offset as u32).map(|n| &peer.msgs[n]);
        let allowed = match msg.and_then(|msg| msg.flaw).and_then(|flaw| flaw.nak()) {
            Some(wanted) => wanted == code,
            None => revoked && matches!(code, NakCode::RemoteAccess | NakCode::RemoteOperational),
        };
        (!allowed).then(|| format!("{said:?} for {:?}", msg.map(|msg| (msg.kind(), msg.flaw))))
    }

    fn wrong_msn(&self, node: usize, upto: u32, msn: u32) -> Option<String> {
        let wanted = self.nodes[node].life.msn(upto) & 0x00ff_ffff;
        (msn != wanted).then(|| format!("MSN {msn} instead of {wanted}"))
    }

    /// READ response or atomic acknowledge.
    fn judge_data(&mut self, node: usize, offset: i32, pkt: &Packet<'_>) -> Option<String> {
        let mtu = self.nodes[node].mtu();
        let at = offset as u32;
        match self.nodes[node].life.asked.get_mut(&at) {
            Some(times) if *times > 0 => *times -= 1,
            _ => return Some("nobody asked, or not so often".into()),
        }
        self.nodes[node].life.due.remove(&at);
        let life = &self.nodes[node].life;
        let there = self.other(node);
        let msg = there.at(at).map(|n| &there.msgs[n])?;
        if let Some((old, _)) = msg.atomic {
            if pkt.opcode.op != Operation::AtomicAck || pkt.atomic_ack != Some(old) {
                return Some(format!("{:x?} instead of {old:x}", pkt.atomic_ack));
            }
        } else {
            let from = ((at - msg.start) * mtu).min(msg.len()) as usize;
            let to = ((at - msg.start + 1) * mtu).min(msg.len()) as usize;
            if pkt.payload != &msg.payload[from..to] {
                return Some("payload is wrong".into());
            }
            let (first, last) = (
                matches!(pkt.opcode.op, Operation::ReadFirst | Operation::ReadOnly),
                matches!(pkt.opcode.op, Operation::ReadLast | Operation::ReadOnly),
            );
            if first && !life.asked_starts.contains(&at)
                || last && !life.asked_ends.contains(&(at + 1))
            {
                return Some("not at that place".into());
            }
        }
        let aeth = pkt.aeth?;
        if aeth.syndrome != Syndrome::Ack {
            return Some(format!("{:?}", aeth.syndrome));
        }
        // The message counts from its request on, which has the PSN of its first answer.
        let fetch = life
            .fetches
            .iter()
            .rev()
            .find(|(first, n)| (*first..first + n).contains(&at));
        let (first, n) = *fetch?;
        self.wrong_msn(node, first + n, aeth.msn)
    }

    /// A queue pair has nothing more to send for now: what it owes must have been sent.
    pub(super) fn drained_answers(&mut self, node: usize) {
        let here = &self.nodes[node];
        let alive = matches!(
            here.end.qp.state(),
            QpState::Rtr | QpState::Rts | QpState::Sqd
        );
        let life = &here.life;
        if !alive || life.closed {
            return;
        }
        if let Some((syndrome, at)) = life.nak {
            self.breach(node, format!("{syndrome:?} of offset {at} was not sent"));
        } else if let Some(at) = life.due.first() {
            self.breach(node, format!("response of offset {at} was not sent"));
        } else if let Some(owed) = life.owed {
            self.breach(
                node,
                format!("nothing below offset {owed} was acknowledged"),
            );
        }
    }
}
