// SPDX-License-Identifier: GPL-2.0

//! Packets that reach a queue pair: what they mean for it, told from the packets alone (sections 9.7.4 and 9.8.3).

use super::load::GRH;
use super::node::distance;
use super::plan::Plan;
use super::World;
use crate::wire::NakCode;
use crate::wire::Operation;
use crate::wire::Syndrome;
use crate::Packet;
use crate::QpState;
use crate::QpType;

fn receives(state: QpState) -> bool {
    matches!(
        state,
        QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
    )
}

impl World {
    /// Hands a packet to its queue pair and tells what must come of it.
    pub(super) fn hand(&mut self, node: usize, pkt: &Packet<'_>) {
        let state = self.nodes[node].end.qp.state();
        let qp_type = self.nodes[node].plan.qp_type;
        let reliable = self.nodes[node].plan.reliable();
        if pkt.opcode.op.is_response() {
            if matches!(state, QpState::Rts | QpState::Sqd) {
                self.learn_answer(node, pkt);
            }
            self.with(node, |end, now| {
                end.qp.handle_packet(now, pkt, &mut end.env)
            });
            if self.nodes[node].end.qp.state() == QpState::Error {
                self.nodes[node].life.quiet = None;
                self.nodes[node].life.resend = None;
            }
            return;
        }
        let has_receive = self.nodes[node].life.held || self.receives_wait(node, pkt);
        let alive = receives(state);
        if alive && qp_type == QpType::Uc {
            self.foresee_uc(node, pkt, has_receive);
        } else if alive && qp_type == QpType::Ud {
            self.foresee_ud(node, pkt, has_receive);
        }
        self.with(node, |end, now| {
            end.qp.handle_packet(now, pkt, &mut end.env)
        });
        if alive && reliable {
            self.learn_request(node, pkt, has_receive);
        }
        let life = &self.nodes[node].life;
        let late = life.arriving.front().copied();
        if let Some((from, msg)) =
            late.filter(|_| self.nodes[node].end.qp.state() != QpState::Error)
        {
            self.breach(node, format!("message {msg} of qp{from} was not delivered"));
        }
    }

    fn receives_wait(&self, node: usize, pkt: &Packet<'_>) -> bool {
        let here = &self.nodes[node];
        if let Some(number) = pkt.xrc_srq {
            return here
                .end
                .env
                .srqs
                .get(&number)
                .is_some_and(|queue| !queue.is_empty());
        }
        if here.plan.srq {
            !self.hosts[here.plan.host].srq.is_empty()
        } else {
            !here.end.env.recvs.is_empty()
        }
    }

    /// A request at a reliable responder.
    fn learn_request(&mut self, node: usize, pkt: &Packet<'_>, has_receive: bool) {
        let op = pkt.opcode.op;
        let mtu = self.nodes[node].mtu();
        let failed = self.nodes[node].end.qp.state() == QpState::Error;
        let rnr = Syndrome::Rnr(self.nodes[node].plan.min_rnr_timer);
        let depth = usize::from(self.nodes[Plan::peer(node)].plan.rd_atomic);
        let life = &mut self.nodes[node].life;
        let ahead = distance(pkt.bth.psn, life.rq_psn) - life.expected as i32;
        if life.closed {
            return;
        }
        if failed {
            life.closed = true;
            let offset = life.expected.wrapping_add_signed(ahead);
            self.judge_closing(node, offset);
            return;
        }
        if ahead > 0 {
            if !life.complained {
                life.complained = true;
                life.nak = Some((Syndrome::Nak(NakCode::Sequence), life.expected));
            }
            return;
        }
        let offset = life.expected.wrapping_add_signed(ahead);
        let len = pkt.reth.map_or(0, |reth| reth.len);
        let packets = if op == Operation::ReadRequest {
            len.div_ceil(mtu).max(1)
        } else {
            1
        };
        let fetch = op == Operation::ReadRequest || op.is_atomic() || op.is_placement();
        if ahead < 0 {
            // More may be remembered, and answered, than were agreed on.
            let whole = |(first, n): &(u32, u32)| *first <= offset && offset + packets <= first + n;
            let known = life.fetches.iter().rev().position(whole);
            if let Some(age) = known.filter(|_| fetch) {
                let (first, n) = life.fetches[life.fetches.len() - 1 - age];
                // The latest request for a part says what is still missing.
                life.due.retain(|at| !(first..first + n).contains(at));
                life.ask(offset, packets);
                if age >= depth {
                    life.due.retain(|at| !(first..first + n).contains(at));
                }
            } else if !fetch {
                life.owed = life.owed.max(Some(0));
            }
            return;
        }
        let takes = op.is_send() && op.starts() || op.is_write() && op.has_imm();
        life.nak = None;
        if takes && !has_receive {
            life.complained = true;
            life.nak = Some((rnr, life.expected));
            return;
        }
        life.complained = false;
        life.expected += packets;
        if op.ends() || fetch {
            let done = life.msns.last().map_or(0, |(_, n)| *n);
            life.msns.push((life.expected, done + 1));
        }
        if fetch {
            life.fetches.push((offset, packets));
            // A repetition of what is now forgotten is of no use to anybody.
            let oldest = life.fetches.len().saturating_sub(depth);
            let oldest = life.fetches[oldest].0;
            life.due.retain(|at| *at >= oldest);
            life.ask(offset, packets);
            life.owed = None;
        } else if pkt.bth.ack_req {
            life.owed = Some(life.expected as i32);
        }
    }

    /// The request at `offset` has ended a connection: the receive that it took must say why.
    fn judge_closing(&mut self, node: usize, offset: u32) {
        let other = self.other(node);
        let flaw = other.at(offset).and_then(|n| other.msgs[n].flaw);
        let wanted = flaw.and_then(|flaw| flaw.receive());
        let got = self.nodes[node].life.failed_receive;
        if wanted.is_some() && wanted != got {
            self.breach(
                node,
                format!("the receive ended {got:?} instead of {wanted:?}"),
            );
        }
    }

    /// An answer at a reliable requester.
    fn learn_answer(&mut self, node: usize, pkt: &Packet<'_>) {
        let calm = self.plan.calm();
        let now = self.now;
        let life = &mut self.nodes[node].life;
        let offset = distance(pkt.bth.psn, life.sq_psn);
        if offset < 0 || offset as u32 >= life.furthest {
            return;
        }
        let offset = offset as u32;
        let before = life.acked;
        let syndrome = pkt.aeth.map(|aeth| aeth.syndrome);
        if pkt.opcode.op != Operation::Ack {
            life.got.insert(offset);
            life.acked = life.acked.max(offset);
        } else if let Some(Syndrome::Nak(_) | Syndrome::Rnr(_)) = syndrome {
            life.acked = life.acked.max(offset);
            life.complaint = Some(now);
        } else {
            life.acked = life.acked.max(offset + 1);
        }
        if life.acked > before {
            life.rnr = 0;
        }
        let arrived = |at: u32| life.acked > at || life.got.contains(&at);
        life.resend = life.resend.filter(|at| !arrived(*at));
        let fetching = life
            .msgs
            .iter()
            .skip(life.completed)
            .take_while(|msg| msg.start < offset);
        let blocked = fetching
            .filter(|msg| msg.fetches())
            .any(|msg| !life.answered(msg));
        match syndrome {
            Some(Syndrome::Nak(NakCode::Sequence)) if pkt.opcode.op == Operation::Ack => {
                let once = life
                    .covers
                    .get(offset as usize)
                    .is_some_and(|(n, _)| *n == 1);
                let known = life.rnrs > 0 || life.got.contains(&offset);
                if once && !blocked && !known && offset >= before {
                    life.resend = Some(offset);
                }
            }
            Some(Syndrome::Rnr(code)) if pkt.opcode.op == Operation::Ack => {
                life.rnr += 1;
                life.rnrs += 1;
                if calm && offset >= before && !blocked {
                    life.quiet = Some(now.after(super::numbers::rnr_delay(code)));
                }
            }
            _ => (),
        }
    }

    /// UC: the packets of a message must come one after the other, or all of it is dropped (section 9.8.3.2).
    fn foresee_uc(&mut self, node: usize, pkt: &Packet<'_>, has_receive: bool) {
        let peer = Plan::peer(node);
        let offset = distance(pkt.bth.psn, self.nodes[peer].life.sq_psn);
        let known = u32::try_from(offset)
            .ok()
            .and_then(|offset| self.nodes[peer].life.at(offset));
        let Some(msg) = known else {
            self.breach(node, "a UC packet of no message");
            return;
        };
        let there = &self.nodes[peer].life.msgs[msg];
        let k = offset as u32 - there.start;
        let last = k + 1 == there.packets;
        let takes = there.receive().is_some();
        let send = pkt.opcode.op.is_send();
        let refused = there.flaw.is_some_and(|flaw| flaw.nak().is_some());
        let life = &mut self.nodes[node].life;
        let next = if k == 0 { Some((msg, 0)) } else { life.current };
        let wants = takes && (if send { k == 0 } else { last });
        let goes_on = next == Some((msg, k)) && !refused && (!wants || has_receive);
        life.current = goes_on.then_some((msg, k + 1)).filter(|_| !last);
        if goes_on && last {
            self.nodes[peer].life.msgs[msg].arrived = true;
            if takes {
                self.nodes[node].life.arriving.push_back((peer, msg));
            }
        }
    }

    /// UD: a datagram with the right key that fits the next receive is delivered (section 9.8.3.3).
    fn foresee_ud(&mut self, node: usize, pkt: &Packet<'_>, has_receive: bool) {
        let deth = pkt.deth.expect("a datagram has a DETH");
        let from = deth.src_qpn.wrapping_sub(super::node::FIRST_QPN) as usize;
        let Some(there) = self.nodes.get(from) else {
            self.breach(node, "a datagram of nobody");
            return;
        };
        let offset = distance(pkt.bth.psn, there.life.sq_psn) as u32;
        let Some(msg) = there.life.at(offset) else {
            self.breach(node, "a datagram of no message");
            return;
        };
        let here = &self.nodes[node];
        let room = if here.life.held {
            here.life.held_room
        } else if here.plan.srq {
            let srq = &self.hosts[here.plan.host].srq;
            srq.front()
                .map_or(0, |(_, sges)| sges.iter().map(|sge| sge.len).sum())
        } else {
            let front = here.end.env.recvs.front();
            front.map_or(0, |(_, sges)| sges.iter().map(|sge| sge.len).sum())
        };
        let right_key = deth.qkey == here.plan.qkey;
        let fits = room as usize >= pkt.payload.len() + GRH as usize;
        let life = &mut self.nodes[node].life;
        if right_key && has_receive {
            life.held_room = room;
        }
        if right_key && has_receive && fits {
            life.arriving.push_back((from, msg));
        }
    }
}

impl super::node::Life {
    /// Responses were asked for.
    fn ask(&mut self, offset: u32, packets: u32) {
        for at in offset..offset + packets {
            *self.asked.entry(at).or_default() += 1;
            self.due.insert(at);
        }
        self.asked_starts.insert(offset);
        self.asked_ends.insert(offset + packets);
    }
}
