// SPDX-License-Identifier: GPL-2.0

//! The completer: answers of the peer, and what they finish or force to be repeated (sections 9.7.5.1 and 9.7.6).

use super::queue::Place;
use super::queue::SendWqe;
use super::sgl;
use super::wire::NakCode;
use super::wire::Operation;
use super::wire::Syndrome;
use super::Count;
use super::Env;
use super::Instant;
use super::MemError;
use super::Packet;
use super::Psn;
use super::Qp;
use super::Store;
use super::WcStatus;

impl<S: Store> Qp<S> {
    /// An answer. Those to nothing that is outstanding are duplicates or ghosts, and dropped (section 9.7.5.1.1).
    pub(super) fn handle_response(&mut self, now: Instant, pkt: &Packet<'_>, env: &mut impl Env) {
        let psn = pkt.bth.psn;
        let unacked = self.psn_at(self.ring.head);
        let outstanding = self.psn_at(self.req.furthest).since(unacked);
        let again = psn.plus(1) == unacked;
        if let Some(aeth) = pkt
            .aeth
            .filter(|_| again || psn.since(unacked) < outstanding)
        {
            self.credited(&aeth);
        }
        if psn.since(unacked) >= outstanding {
            env.count(Count::StaleResponse);
            return;
        }
        if pkt.opcode.op.is_read_response() {
            self.read_response(now, pkt, env);
        } else if pkt.opcode.op == Operation::AtomicAck {
            self.atomic_response(now, pkt, env);
        } else if let Some(aeth) = pkt.aeth {
            match aeth.syndrome {
                Syndrome::Ack => {
                    self.acknowledge(now, psn.plus(1), psn, env);
                }
                Syndrome::Rnr(code) => {
                    env.count(Count::RnrReceived);
                    self.not_ready(now, psn, code, env);
                }
                Syndrome::Nak(code) => self.refused(now, psn, code, env),
            }
        }
    }

    /// Everything before `upto` has arrived. Stops at a READ or atomic, which only its own answer finishes: if that
    /// is missing while something later is answered, it was lost, and all is sent again from there on
    /// (section 9.7.5.1.1, implied NAK). `psn` is that of the answer. Returns whether `upto` is now the oldest PSN
    /// without answer.
    fn acknowledge(&mut self, now: Instant, upto: Psn, psn: Psn, env: &mut impl Env) -> bool {
        let mut left = upto.since(self.psn_at(self.ring.head));
        let mut moved = false;
        while left > 0 {
            let head = self.ring.head;
            let Some(wqe) = self.wqe(head.wqe) else { break };
            let step = left.min(wqe.packets.saturating_sub(head.packet));
            if wqe.op.fetches() || step == 0 {
                break;
            }
            let done = head.packet + step == wqe.packets;
            self.ring.head.packet += step;
            left -= step;
            moved = true;
            if done {
                self.complete_head(WcStatus::Success, env);
            }
        }
        if moved {
            self.progress(now);
        }
        if left > 0 {
            self.lost(psn, env);
        }
        left == 0
    }

    /// The packet at the head was lost, as the answer with this PSN tells. One loss makes one repetition: complaints
    /// that follow are about packets sent before it, or come while the peer has asked to wait.
    fn lost(&mut self, psn: Psn, env: &mut impl Env) {
        let sent_before = |upto: Psn| psn.since(upto) >= Psn::HALF;
        let known = self.req.recovering.is_some_and(sent_before);
        if !known && self.req.rnr_until.is_none() {
            self.retry(env);
        }
    }

    /// The head has moved: retries count from here on.
    fn progress(&mut self, now: Instant) {
        if self.req.cursor < self.ring.head {
            self.req.cursor = self.ring.head;
            self.req.fetching = 0;
        }
        self.req.retries = self.attrs.retry_cnt;
        self.req.rnr_retries = self.attrs.rnr_retry;
        self.req.recovering = None;
        self.req.probing = false;
        self.req.rnr_until = None;
        let timeout = super::ack_timeout_ns(self.attrs.timeout);
        let arrived = self.stream_at(self.ring.head);
        self.req.window.acknowledged(now, arrived, timeout);
        self.restart_timer(now);
    }

    /// RNR NAK: wait as long as the peer asks, then send again from `psn` on (section 9.7.5.2.8).
    fn not_ready(&mut self, now: Instant, psn: Psn, code: u8, env: &mut impl Env) {
        if !self.acknowledge(now, psn, psn, env) || self.req.rnr_until.is_some() {
            return;
        }
        if self.attrs.rnr_retry != 7 {
            let Some(left) = self.req.rnr_retries.checked_sub(1) else {
                env.count(Count::RnrRetryExceeded);
                self.fail_send(WcStatus::RnrRetryExcErr, env);
                return;
            };
            self.req.rnr_retries = left;
        }
        self.go_back();
        self.req.probing = true;
        self.req.recovering = None;
        self.req.rnr_until = Some(now.after(super::rnr_delay_ns(code)));
    }

    /// NAK: send again from `psn` on, or the request at `psn` has failed (section 9.7.5.2).
    fn refused(&mut self, now: Instant, psn: Psn, code: NakCode, env: &mut impl Env) {
        if !self.acknowledge(now, psn, psn, env) {
            return;
        }
        let status = match code {
            NakCode::Sequence => {
                env.count(Count::SequenceErrorReceived);
                self.lost(psn, env);
                return;
            }
            NakCode::InvalidRequest => WcStatus::RemInvReqErr,
            NakCode::RemoteAccess => WcStatus::RemAccessErr,
            NakCode::RemoteOperational => WcStatus::RemOpErr,
        };
        self.fail_send(status, env);
    }

    /// A packet of a READ response: the next one of the oldest request is placed, others are duplicates or tell of a
    /// loss.
    fn read_response(&mut self, now: Instant, pkt: &Packet<'_>, env: &mut impl Env) {
        if !self.acknowledge(now, pkt.bth.psn, pkt.bth.psn, env) {
            return;
        }
        let head = self.ring.head;
        let Some(wqe) = self.wqe(head.wqe) else {
            return;
        };
        if !self.makes_sense(wqe, head.packet, pkt) {
            self.fail_send(WcStatus::BadRespErr, env);
            return;
        }
        let from = wqe.offset(head.packet, self.attrs.path_mtu);
        let data = self.wqe_data(head.wqe);
        let placed = sgl::scatter(env.mem(), data, from, pkt.payload);
        self.placed(now, placed, env);
    }

    /// Whether a READ response can be the answer to packet `k` of a request (section 9.9.2, class B errors): its length,
    /// that it acknowledges, and that an answer ends there. Where answers begin depends on what was asked for again.
    fn makes_sense(&self, wqe: &SendWqe, k: u32, pkt: &Packet<'_>) -> bool {
        let op = pkt.opcode.op;
        let accepts = pkt.aeth.is_none_or(|aeth| aeth.syndrome == Syndrome::Ack);
        if wqe.op.is_placement() {
            return accepts && op == Operation::ReadOnly && pkt.payload.is_empty();
        }
        let mtu = self.attrs.path_mtu;
        let len = wqe.offset(k + 1, mtu) - wqe.offset(k, mtu);
        let may_end = wqe.part_end(k) == k + 1;
        let must_end = k + 1 == wqe.packets;
        let ends = if op.ends() { may_end } else { !must_end };
        wqe.op.is_read() && accepts && ends && pkt.payload.len() == len as usize
    }

    /// The answer to an atomic: the old value goes to the local buffer in the machine's byte order.
    fn atomic_response(&mut self, now: Instant, pkt: &Packet<'_>, env: &mut impl Env) {
        if !self.acknowledge(now, pkt.bth.psn, pkt.bth.psn, env) {
            return;
        }
        let head = self.ring.head.wqe;
        let atomic = self.wqe(head).is_some_and(|wqe| wqe.op.is_atomic());
        let accepts = pkt.aeth.is_some_and(|aeth| aeth.syndrome == Syndrome::Ack);
        let Some(old) = pkt.atomic_ack.filter(|_| atomic && accepts) else {
            self.fail_send(WcStatus::BadRespErr, env);
            return;
        };
        let data = self.wqe_data(head);
        let placed = sgl::scatter(env.mem(), data, 0, &old.to_ne_bytes());
        self.placed(now, placed, env);
    }

    /// One packet of the oldest READ or atomic has been placed, or not. An answer for memory that is being fetched is
    /// asked for again, which costs no retry: nothing was lost.
    fn placed(&mut self, now: Instant, placed: Result<(), MemError>, env: &mut impl Env) {
        match placed {
            Ok(()) => self.fetched(now, env),
            Err(MemError::Absent) => {
                self.go_back();
                self.req.recovering = Some(self.psn_at(self.req.furthest));
                self.req.stalled.begin(now, self.psn_at(self.ring.head));
            }
            Err(_) => self.fail_send(WcStatus::LocProtErr, env),
        }
    }

    /// One packet of the oldest READ or atomic has been placed.
    fn fetched(&mut self, now: Instant, env: &mut impl Env) {
        let head = self.ring.head;
        let next = Place {
            packet: head.packet + 1,
            ..head
        };
        let wqe = self.wqe(head.wqe);
        let done = wqe.is_some_and(|wqe| wqe.packets == next.packet);
        let answered = wqe.is_some_and(|wqe| self.ends_answer(wqe, next));
        self.ring.head = next;
        if done {
            self.complete_head(WcStatus::Success, env);
        }
        if answered {
            self.req.fetching = self.req.fetching.saturating_sub(1);
        }
        self.progress(now);
    }
}
