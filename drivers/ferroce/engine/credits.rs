// SPDX-License-Identifier: GPL-2.0

//! End-to-end flow control (section 9.7.7.2): the responder tells how many receives it has, and the requester sends no
//! more messages that take one than that, but for a single packet which asks how things stand.

use super::queue::Place;
use super::queue::SendWqe;
use super::wire::Aeth;
use super::wire::Credits;
use super::wire::Syndrome;
use super::Env;
use super::Psn;
use super::Qp;
use super::QpType;
use super::SendOp;
use super::Store;

/// What the requester knows of the peer's receives.
#[derive(Copy, Clone, Default)]
pub(super) struct Limit {
    /// Number of the last message that the peer has credits for, modulo 2^24.
    last: Psn,
    /// The peer counts no credits.
    unlimited: bool,
    /// The one packet that was sent beyond the credits.
    pub(super) asking: Option<Asking>,
}

/// A packet that asks for credits.
#[derive(Copy, Clone)]
pub(super) struct Asking {
    /// The place behind it.
    behind: Place,
    /// The message it belongs to.
    message: Psn,
}

impl Limit {
    /// Whether the peer has no credits for this message.
    fn excludes(&self, message: Psn) -> bool {
        let ahead = message.since(self.last);
        !self.unlimited && ahead > 0 && ahead < Psn::HALF
    }
}

impl<S: Store> Qp<S> {
    /// An acknowledgement tells of credits. They are never taken back, so the smaller number is the older one.
    pub(super) fn credited(&mut self, aeth: &Aeth) {
        if aeth.syndrome != Syndrome::Ack {
            return;
        }
        let limit = &mut self.req.limit;
        limit.unlimited = aeth.credits.count().is_none();
        if let Some(count) = aeth.credits.count() {
            let last = Psn::new(aeth.msn).plus(count);
            if last.since(limit.last) < Psn::HALF {
                limit.last = last;
            }
        }
    }

    /// Whether the request at `place` is beyond the peer's credits. Not if it has begun to take the message.
    pub(super) fn is_limited(&self, place: Place, wqe: &SendWqe) -> bool {
        let begun = self.ring.head.wqe == place.wqe && self.ring.head.packet > 0;
        self.cfg.qp_type == QpType::Rc
            && takes_receive(&wqe.op)
            && self.req.limit.excludes(wqe.message)
            && !begun
    }

    /// Whether a limited request at `place` has to wait: there is a packet beyond the credits already.
    pub(super) fn waits_for_credits(&self, place: Place) -> bool {
        let limit = &self.req.limit;
        let unanswered =
            |asking: Asking| asking.behind > self.ring.head && limit.excludes(asking.message);
        place.packet > 0 || limit.asking.is_some_and(unanswered)
    }

    /// The packet before the cursor, of this message, asks for credits.
    pub(super) fn ask_for_credits(&mut self, message: Psn) {
        self.req.limit.asking = Some(Asking {
            behind: self.req.cursor,
            message,
        });
    }

    /// What lies behind `place` was not sent after all.
    pub(super) fn forget_asking(&mut self, place: Place) {
        let asking = &mut self.req.limit.asking;
        *asking = asking.filter(|asking| asking.behind <= place);
    }

    /// Whether the packet before `place` asks for credits.
    pub(super) fn asks_for_credits(&self, place: Place) -> bool {
        let asking = self.req.limit.asking;
        asking.is_some_and(|asking| asking.behind == place)
    }

    /// What this side has to tell of its receives. The one of a message in progress still counts, since the message
    /// does not count yet.
    pub(super) fn own_credits(&self, env: &impl Env) -> Credits {
        if self.cfg.srq || self.cfg.qp_type != QpType::Rc {
            return Credits::NONE;
        }
        let held = u32::from(self.resp.recv.is_some());
        let waiting = env.receives_waiting();
        waiting.map_or(Credits::NONE, |n| Credits::of(n.saturating_add(held)))
    }
}

fn takes_receive(op: &SendOp) -> bool {
    use SendOp::*;
    matches!(op, Send | SendImm(_) | SendInvalidate(_) | WriteImm { .. })
}
