// SPDX-License-Identifier: GPL-2.0

//! What the engine asks of the kernel while it works under a QP's lock.

use super::{
    cq::Pushed,
    due::CqDue,
    memory::PdMemory,
    qp::{
        Engine,
        Qp,
        Side, //
    },
    wqe,
    Ah,
    Cq,
    Srq, //
};
use crate::{
    bindings,
    engine::{
        self,
        Completion,
        Count,
        LocalOp,
        Mtu,
        PostError,
        QpEvent,
        QpState,
        QpType,
        RecvWr,
        SendOp,
        WcStatus, //
    },
    kernel_ext::timer,
};
use kernel::sync::{
    rcu,
    Arc,
    ArcBorrow, //
};

/// How soon it is looked for receives posted in Error, and how often that time doubles (to a
/// second).
const FIRST_LOOK_NS: u64 = 1_000_000;
const MAX_LOOK_DOUBLINGS: u32 = 10;

/// The kernel's side of one run of the engine.
pub(super) struct Env<'a> {
    pub(super) qp: &'a Qp,
    pub(super) mem: PdMemory<'a>,
    pub(super) rcu: &'a rcu::Guard,
    pub(super) side: &'a mut Side,
    /// What an XRC target's requests are about now.
    pub(super) srq: Option<ArcBorrow<'a, Srq>>,
}

impl Env<'_> {
    /// Copies new work requests from the ring into the engine, as many as it has room for.
    pub(super) fn take_sends(&mut self, engine: &mut Engine) {
        let end = self.qp.sq.producer();
        if let Some(mtu) = Mtu::from_ib(self.qp.dev.mtu()) {
            engine.set_port_mtu(mtu);
        }
        let mut payload: wqe::Payload = [0; _];
        while self.side.sq_next != end && engine.sq_space() > 0 {
            let datagram = self.qp.caps.kind.is_datagram();
            let next = self.side.sq_next;
            let (mut wr, data) = wqe::read_send(&self.qp.sq, next, datagram, &mut payload);
            self.address(&mut wr.op);
            self.side.sq_next = self.qp.sq.next(self.side.sq_next);
            wr.op = match engine.post_send(&wr, data) {
                Err(PostError::Invalid) => SendOp::Malformed,
                Err(PostError::TooLong) => SendOp::TooLong,
                _ => continue,
            };
            // There is room, so this cannot fail.
            let _ = engine.post_send(&wr, &[]);
        }
    }

    /// Whether a packet with this IP header is from the peer of a connected QP (IBTA 9.6.1.2,
    /// A17.4.3); a QP without a connection hears everybody.
    pub(super) fn is_from_peer(&self, engine: &Engine, ip: &[u8]) -> bool {
        let path = self.side.path.as_ref();
        engine.config().qp_type == QpType::Ud || path.is_none_or(|path| path.is_answered_by(ip))
    }

    /// Refuses a datagram whose address handle may not be used.
    fn address(&self, op: &mut SendOp) {
        if let SendOp::Datagram { ah, .. } = op {
            if self.ah(*ah).is_none() {
                *op = SendOp::Malformed;
            }
        }
    }

    /// An address handle of the QP's protection domain.
    pub(super) fn ah(&self, number: u64) -> Option<ArcBorrow<'_, Ah>> {
        let ah = self.qp.dev.ahs.get(number as u32, self.rcu)?;
        (ah.pd == self.qp.pd).then_some(ah)
    }

    /// Shows user space which elements of the send ring it may use again.
    pub(super) fn release_sends(&mut self, engine: &Engine) {
        let in_use = self.qp.sq.capacity() as usize - engine.sq_space();
        engine::Env::sends_left(self, in_use as u32);
    }

    /// Completes what an error left in the queues.
    pub(super) fn flush(&mut self, engine: &mut Engine) {
        if engine.state() == QpState::Error && self.side.rq_next != self.qp.rq.producer() {
            engine.receive_posted();
            self.side.looks = 0;
        }
        // A round is for 64 of each queue. Who goes on filling a ring waits for the next look.
        let longest = self.qp.sq.capacity().max(self.qp.rq.capacity());
        for _ in 0..longest.div_ceil(64) + 2 {
            if !engine.needs_flush() {
                break;
            }
            self.take_sends(engine);
            engine.flush(self);
        }
    }

    /// When to look for receives that a process posts in Error: that is no system call, and
    /// they are to be flushed. More and more seldom while there are none.
    pub(super) fn next_look(&mut self, engine: &Engine) -> Option<u64> {
        let own = !self.qp.caps.kernel && self.qp.srq.is_none();
        if engine.state() != QpState::Error || !own {
            return None;
        }
        let pause = FIRST_LOOK_NS << self.side.looks;
        self.side.looks = (self.side.looks + 1).min(MAX_LOOK_DOUBLINGS);
        Some(timer::now() + pause)
    }

    /// Forgets send requests that were posted when that is not allowed.
    pub(super) fn refuse_sends(&mut self) {
        self.side.sq_next = self.qp.sq.producer();
    }

    /// Forgets what is in the rings, for a QP that goes back to Reset.
    pub(super) fn reset_rings(&mut self) {
        self.refuse_sends();
        self.side.rq_next = self.qp.rq.producer();
        self.qp.rq.set_consumer(self.side.rq_next);
    }

    /// Takes a receive from a shared queue.
    fn take_shared(&mut self, srq: ArcBorrow<'_, Srq>, sges: &mut [u8]) -> Option<RecvWr> {
        // One queue's event at a time: another one's waits for the next receive taken there.
        let due = &mut self.side.due.srq;
        let (wr, limit) = srq.take(sges, due.is_none())?;
        if limit {
            *due = Some(srq.into());
        }
        Some(wr)
    }

    /// Puts a completion into `cq`, and notes what its owner is to be told.
    fn complete(&mut self, cq: &Cq, c: &Completion) -> CqDue {
        let pushed = cq.push(c, self.side.vlan);
        self.side.overrun |= matches!(pushed, Pushed::Lost | Pushed::FirstLost);
        CqDue {
            completion: pushed == Pushed::Notify,
            overrun: pushed == Pushed::FirstLost,
        }
    }

    /// A QP whose completions do not fit into its CQ is of no use any more (IBTA 11.6.3.2).
    pub(super) fn fail_if_overrun(&mut self, engine: &mut Engine) {
        let overrun = core::mem::take(&mut self.side.overrun);
        if overrun && engine.state() != QpState::Error {
            self.side.due.events |= 1 << bindings::ib_event_type_IB_EVENT_QP_FATAL;
            engine.set_error(self);
        }
    }
}

impl<'a> engine::Env for Env<'a> {
    type Mem = PdMemory<'a>;

    fn mem(&self) -> &Self::Mem {
        &self.mem
    }

    fn select_srq(&mut self, number: u32) -> bool {
        let dev = &self.qp.dev;
        let found = dev.srqs.get(number, self.rcu);
        let found = found.filter(|srq| srq.xrc.as_ref().map(|xrc| xrc.xrcd) == self.qp.xrcd);
        self.srq = found.filter(|_| self.qp.xrcd.is_some());
        let Some(srq) = self.srq else {
            return false;
        };
        self.mem = PdMemory::new(dev, srq.pd, self.qp.serial, self.rcu);
        true
    }

    fn next_recv(&mut self, sges: &mut [u8]) -> Option<RecvWr> {
        let own = self.qp.srq.as_ref().map(Arc::as_arc_borrow);
        if let Some(srq) = self.srq.or(own) {
            let told = srq
                .xrc
                .as_ref()
                .is_none_or(|xrc| self.side.xrc_due.has_room(&xrc.cq));
            return told.then(|| self.take_shared(srq, sges)).flatten();
        }
        let ring = &self.qp.rq;
        let index = self.side.rq_next;
        if index == ring.producer() {
            return None;
        }
        let wr = wqe::read_recv(ring, index, sges);
        self.side.rq_next = ring.next(index);
        ring.set_consumer(self.side.rq_next);
        Some(wr)
    }

    fn receives_waiting(&self) -> Option<u32> {
        Some(self.qp.rq.len())
    }

    fn local(&mut self, op: &LocalOp) -> Result<(), WcStatus> {
        self.mem.local(op)
    }

    fn sends_left(&mut self, left: u32) {
        let consumer = self.side.sq_next.wrapping_sub(left);
        self.qp.sq.set_consumer(consumer);
    }

    fn complete_send(&mut self, c: Completion) {
        if let Some(cq) = &self.qp.send_cq {
            let due = self.complete(cq, &c);
            self.side.due.send |= due;
        }
    }

    fn complete_recv(&mut self, c: Completion) {
        let xrc = self.srq.as_ref().and_then(|srq| srq.xrc.as_ref());
        if let Some(cq) = xrc.map(|xrc| xrc.cq.clone()) {
            let due = self.complete(&cq, &c);
            self.side.xrc_due.add(&cq, due);
        } else if let Some(cq) = &self.qp.recv_cq {
            let due = self.complete(cq, &c);
            self.side.due.recv |= due;
        }
    }

    fn event(&mut self, e: QpEvent) {
        let event = match e {
            QpEvent::Fatal => bindings::ib_event_type_IB_EVENT_QP_FATAL,
            QpEvent::RequestError => bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
            QpEvent::AccessError => bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
            QpEvent::CommEstablished => bindings::ib_event_type_IB_EVENT_COMM_EST,
            QpEvent::SqDrained => bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
            QpEvent::LastWqeReached => bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
        };
        self.side.due.events |= 1 << event;
    }

    fn count(&mut self, what: Count) {
        self.qp.dev.counters.add(what, 1);
    }
}
