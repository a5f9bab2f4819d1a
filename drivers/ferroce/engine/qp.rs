// SPDX-License-Identifier: GPL-2.0

//! A queue pair: its parts, its life, and the calls that drive it.
//!
//! Every call is made under the queue pair's lock. After a post, a batch of packets or a timeout the caller polls for
//! runs to send until there are none, and reads the next timeout.

use super::attrs::QpState;
use super::queue::Place;
use super::queue::Ring;
use super::queue::SendWqe;
use super::requester::Requester;
use super::responder::Responder;
use super::sgl;
use super::Count;
use super::Env;
use super::Instant;
use super::MemError;
use super::ModifyAttrs;
use super::ModifyError;
use super::Mtu;
use super::Packet;
use super::PostError;
use super::Psn;
use super::QpAttrs;
use super::QpConfig;
use super::QpEvent;
use super::QpStorage;
use super::QpType;
use super::SendOp;
use super::SendWr;
use super::Store;
use super::Transmit;
use super::WcOpcode;
use super::WcStatus;

/// A queue pair.
pub struct Qp<S: Store> {
    pub(super) cfg: QpConfig,
    pub(super) state: QpState,
    pub(super) attrs: QpAttrs,
    pub(super) store: QpStorage<S>,
    pub(super) ring: Ring,
    pub(super) req: Requester,
    pub(super) resp: Responder,
    /// More receives may be waiting to be flushed.
    pub(super) flush_recv: bool,
    /// The state is SQD and its completion is still to be reported.
    pub(super) report_drained: bool,
    /// The peer has been heard since RTR.
    pub(super) established: bool,
    /// Requests go before answers in the next poll; they take turns.
    pub(super) requests_first: bool,
    /// When [`Qp::poll_transmit`] was called last.
    pub(super) polled: Instant,
    /// What a datagram may have.
    port_mtu: Mtu,
}

impl<S: Store> Qp<S> {
    /// A queue pair in RESET.
    pub fn new(cfg: QpConfig, store: QpStorage<S>) -> Self {
        Self {
            attrs: initial_attrs(cfg.qp_type),
            cfg,
            state: QpState::Reset,
            store,
            ring: Ring::default(),
            req: Requester::default(),
            resp: Responder::default(),
            flush_recv: false,
            report_drained: false,
            established: false,
            requests_first: false,
            polled: Instant(0),
            port_mtu: Mtu::M4096,
        }
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// What it was made with.
    pub fn config(&self) -> &QpConfig {
        &self.cfg
    }

    /// Its attributes, with the PSNs as they are now.
    pub fn query(&self) -> QpAttrs {
        QpAttrs {
            rq_psn: self.resp.expected.get(),
            sq_psn: self.psn_at(self.req.cursor).get(),
            ..self.attrs
        }
    }

    /// Bytes of requests and answers that may be on their way.
    pub fn send_window(&self) -> u32 {
        self.req.window.bytes()
    }

    /// Free entries of the send queue.
    pub fn sq_space(&self) -> usize {
        let used = self.ring.tail - self.ring.head.wqe;
        (self.store.sq.len() as u64).saturating_sub(used) as usize
    }

    /// The MTU of the port: no datagram that is posted from now on may be longer (section 9.8.3). Those that wait are
    /// sent as they are.
    pub fn set_port_mtu(&mut self, mtu: Mtu) {
        self.port_mtu = mtu;
    }

    /// Changes attributes and state, all or nothing (section 11.2.4.2).
    pub fn modify(&mut self, change: &ModifyAttrs, env: &mut impl Env) -> Result<(), ModifyError> {
        let from = self.state;
        let to = change.state.unwrap_or(from);
        if change.cur_state.is_some_and(|state| state != from) || !from.may_become(to) {
            return Err(ModifyError::Transition);
        }
        if matches!(to, QpState::Reset | QpState::Error) {
            match to {
                QpState::Reset => self.reset(),
                _ => self.set_error(env),
            }
            return Ok(());
        }
        change.check(self.cfg.qp_type, from, to, self.store.replay.len())?;
        self.apply(change, to);
        self.state = to;
        if from == QpState::Init && to == QpState::Rtr {
            self.resp.expected = Psn::new(self.attrs.rq_psn);
        }
        if from == QpState::Rtr && to == QpState::Rts {
            self.start_sending();
        }
        if from == QpState::Sqe && to == QpState::Rts {
            self.resume_sending(env);
        }
        if to == QpState::Sqd {
            self.report_drained = change.sqd_event;
            self.check_drained(env);
        }
        Ok(())
    }

    fn apply(&mut self, change: &ModifyAttrs, to: QpState) {
        let attrs = &mut self.attrs;
        set(&mut attrs.access, change.access);
        set(&mut attrs.pkey, change.pkey);
        set(&mut attrs.qkey, change.qkey);
        set(&mut attrs.dest_qpn, change.dest_qpn);
        set(&mut attrs.path_mtu, change.path_mtu);
        set(&mut attrs.rq_psn, change.rq_psn);
        set(&mut attrs.sq_psn, change.sq_psn);
        set(&mut attrs.timeout, change.timeout);
        set(&mut attrs.retry_cnt, change.retry_cnt);
        set(&mut attrs.rnr_retry, change.rnr_retry);
        set(&mut attrs.min_rnr_timer, change.min_rnr_timer);
        set(&mut attrs.max_rd_atomic, change.max_rd_atomic);
        let replays = attrs.max_dest_rd_atomic;
        set(&mut attrs.max_dest_rd_atomic, change.max_dest_rd_atomic);
        if attrs.max_dest_rd_atomic != replays {
            self.forget_answers();
        }
        if to == QpState::Rts {
            self.report_drained = false;
        }
    }

    /// Back to RESET: all work requests vanish without completion (section 10.3.1.1).
    fn reset(&mut self) {
        self.state = QpState::Reset;
        self.attrs = initial_attrs(self.cfg.qp_type);
        self.ring = Ring::default();
        self.req = Requester::default();
        self.resp = Responder::default();
        self.flush_recv = false;
        self.report_drained = false;
        self.established = false;
    }

    /// Takes one work request. `data` holds its encoded scatter/gather list or, with `inline`, its bytes. In SQE and
    /// ERROR it is taken and flushed: see [`Qp::needs_flush`].
    pub fn post_send(&mut self, wr: &SendWr, data: &[u8]) -> Result<(), PostError> {
        if matches!(self.state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(PostError::State);
        }
        if self.sq_space() == 0 {
            return Err(PostError::Full);
        }
        let len = self.message_len(wr, data)?;
        let (packets, data) = match wr.op {
            op if op.sends_nothing() => (0, &[][..]),
            SendOp::Flush { .. } | SendOp::AtomicWrite { .. } => (1, &[][..]),
            _ => (self.attrs.path_mtu.packets(len), data),
        };
        let wqe = SendWqe {
            wr_id: wr.wr_id,
            op: wr.op,
            flags: wr.flags,
            srq: (self.cfg.qp_type == QpType::XrcIni).then_some(wr.srq),
            len,
            packets,
            ..SendWqe::ZERO
        };
        if self.push_wqe(wqe, data) {
            Ok(())
        } else {
            Err(PostError::Full)
        }
    }

    /// Bytes of a work request's message, unless this queue pair cannot do it.
    fn message_len(&self, wr: &SendWr, data: &[u8]) -> Result<u32, PostError> {
        let op = &wr.op;
        if !self.serves(op) {
            return Err(PostError::Invalid);
        }
        match op {
            SendOp::Flush { .. } => Ok(0),
            SendOp::AtomicWrite { .. } => Ok(8),
            op if op.sends_nothing() => Ok(0),
            _ => self.data_len(wr, data),
        }
    }

    /// Whether the request is one of the transport service (section 11.4.1.1), and well-formed but for its data.
    fn serves(&self, op: &SendOp) -> bool {
        let datagram = matches!(op, SendOp::Datagram { .. });
        let service = match self.cfg.qp_type {
            QpType::Rc | QpType::XrcIni => !datagram,
            QpType::Uc => !datagram && !op.fetches() && !matches!(op, SendOp::SendInvalidate(_)),
            QpType::Ud => datagram || op.sends_nothing() && !matches!(op, SendOp::Local(_)),
            QpType::XrcTgt => false,
        };
        let aligned = match op {
            SendOp::CompareSwap { va, .. }
            | SendOp::FetchAdd { va, .. }
            | SendOp::AtomicWrite { va, .. } => va & 7 == 0,
            SendOp::Flush { kind, .. } => kind.is_valid(),
            _ => true,
        };
        service && aligned && (!op.fetches() || self.attrs.max_rd_atomic > 0)
    }

    /// Bytes of the data that goes with a work request.
    fn data_len(&self, wr: &SendWr, data: &[u8]) -> Result<u32, PostError> {
        let most = match wr.flags.inline {
            true => self.cfg.max_inline as usize,
            false => self.cfg.max_send_sge as usize * sgl::Sge::SIZE,
        };
        if data.len() > most || wr.flags.inline && wr.op.fetches() {
            return Err(PostError::Invalid);
        }
        let len = match wr.flags.inline {
            true => data.len() as u32,
            false => sgl::total(data).ok_or(PostError::TooLong)?,
        };
        let datagram = matches!(wr.op, SendOp::Datagram { .. });
        if datagram && len > self.port_mtu.bytes().min(self.attrs.path_mtu.bytes()) {
            return Err(PostError::TooLong);
        }
        if wr.op.is_atomic() && len != 8 {
            return Err(PostError::Invalid);
        }
        Ok(len)
    }

    /// Takes one packet that has passed its ICRC and is addressed to this queue pair.
    pub fn handle_packet(&mut self, now: Instant, pkt: &Packet<'_>, env: &mut impl Env) {
        if let Err(why) = self.accepts(pkt) {
            env.count(why);
            return;
        }
        if self.state == QpState::Rtr && !self.established {
            self.established = true;
            env.event(QpEvent::CommEstablished);
        }
        if pkt.opcode.op.is_response() {
            if self.state.sends() {
                self.handle_response(now, pkt, env);
                self.check_drained(env);
            }
        } else {
            self.handle_request(pkt, env);
        }
    }

    /// The next run of packets to send, of at most `max_packets`; `None` when there is nothing for now. All packets of
    /// the run are written before the next call.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        max_packets: usize,
        env: &mut impl Env,
    ) -> Option<Transmit> {
        let max = u32::try_from(max_packets).unwrap_or(u32::MAX).max(1);
        self.polled = now;
        self.complete_unacknowledged(env);
        self.requests_first = !self.requests_first;
        if self.requests_first {
            let request = self.poll_request(now, max, env);
            request.or_else(|| self.poll_response(max, env))
        } else {
            let response = self.poll_response(max, env);
            response.or_else(|| self.poll_request(now, max, env))
        }
    }

    /// The run cannot be sent because its memory is not there (any more, or yet).
    pub fn transmit_failed(&mut self, t: &Transmit, error: MemError, env: &mut impl Env) {
        use super::transmit::Source;
        match t.source {
            Source::Request | Source::ReadRequest(_) => {
                let place = Place {
                    wqe: t.wqe,
                    packet: t.packet,
                };
                match error {
                    MemError::Absent => self.request_stalled(place),
                    _ => self.request_failed(place, env),
                }
            }
            Source::ReadResponse(n) if error == MemError::Absent => {
                self.response_stalled(n, t.packet);
            }
            Source::ReadResponse(_) => self.response_failed(t.psn, error, env),
            Source::AtomicAck(_) | Source::Ack(_) => (),
        }
    }

    /// When [`Qp::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let waits = [
            self.req.deadline,
            self.req.rnr_until,
            self.req.stalled.until(),
            self.resp.stalled.until(),
        ];
        waits.into_iter().flatten().min()
    }

    /// Time has come to what [`Qp::poll_timeout`] has said; harmless if it has not.
    pub fn handle_timeout(&mut self, now: Instant, env: &mut impl Env) {
        if self.req.rnr_until.is_some_and(|at| at <= now) {
            self.req.rnr_until = None;
        }
        self.req.stalled.pass(now);
        self.resp.stalled.pass(now);
        if self.req.deadline.is_some_and(|at| at <= now) {
            self.req.deadline = None;
            self.ack_timed_out(env);
        }
    }

    /// Whether the packet is of this queue pair's state, service and partition (section 9.6.1).
    fn accepts(&self, pkt: &Packet<'_>) -> Result<(), Count> {
        let qp_type = self.cfg.qp_type;
        let wanted = match pkt.opcode.op.is_response() {
            true => qp_type.requests(),
            false => qp_type.responds(),
        };
        let service = pkt.opcode.service == qp_type.service();
        let checks = [
            (self.state.receives(), Count::WrongState),
            (wanted && service, Count::WrongService),
            (
                !self.cfg.check_pkey || pkey_matches(pkt.bth.pkey, self.attrs.pkey),
                Count::WrongPkey,
            ),
        ];
        match checks.into_iter().find(|(holds, _)| !holds) {
            Some((_, why)) => Err(why),
            None => Ok(()),
        }
    }

    /// No request of which something was sent is incomplete.
    pub fn is_drained(&self) -> bool {
        self.ring.head.wqe >= self.req.started
    }

    /// Reports, once, that a queue pair in SQD has no request in flight.
    pub(super) fn check_drained(&mut self, env: &mut impl Env) {
        let drained = self.is_drained();
        if self.state == QpState::Sqd && self.report_drained && drained {
            self.report_drained = false;
            env.event(QpEvent::SqDrained);
        }
    }

    /// Completes the oldest send work request, and if it went well the local operations behind it that have run.
    pub(super) fn complete_head(&mut self, status: WcStatus, env: &mut impl Env) {
        self.complete_oldest(status, env);
        if status == WcStatus::Success {
            self.complete_local(env);
        }
    }

    /// Completes the oldest send work request.
    pub(super) fn complete_oldest(&mut self, status: WcStatus, env: &mut impl Env) {
        let Some(wqe) = self.wqe(self.ring.head.wqe).copied() else {
            return;
        };
        self.ring.head = Place {
            wqe: self.ring.head.wqe + 1,
            packet: 0,
        };
        if wqe.op.wc_opcode() == WcOpcode::Send {
            env.count(Count::Sent);
        }
        if status != WcStatus::Success || wqe.flags.signaled || self.cfg.sq_sig_all {
            env.sends_left((self.ring.tail - self.ring.head.wqe) as u32);
            env.complete_send(self.send_completion(&wqe, status));
        }
    }
}

/// Whether two partition keys let their holders talk: the same partition, and not both limited members (section 10.9.3).
fn pkey_matches(a: u16, b: u16) -> bool {
    (a ^ b) & 0x7fff == 0 && (a | b) & 0x8000 != 0
}

fn initial_attrs(qp_type: QpType) -> QpAttrs {
    let mut attrs = QpAttrs::RESET;
    if qp_type == QpType::Ud {
        attrs.path_mtu = Mtu::M4096;
    }
    attrs
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}
