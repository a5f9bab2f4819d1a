// SPDX-License-Identifier: GPL-2.0

//! The ERROR and SQE states: work requests complete unexecuted, in order (section 10.3.1).

use super::queue::SendWqe;
use super::requester::Requester;
use super::Completion;
use super::Env;
use super::Qp;
use super::QpEvent;
use super::QpState;
use super::QpType;
use super::RecvWr;
use super::Store;
use super::WcOpcode;
use super::WcStatus;

/// Most work requests of each queue that one call flushes.
const BATCH: usize = 64;

impl<S: Store> Qp<S> {
    /// Puts the queue pair into ERROR and flushes a first batch. Nothing more is sent.
    pub fn set_error(&mut self, env: &mut impl Env) {
        self.resp.closing = false;
        self.enter_error(env);
    }

    /// Whether [`Qp::flush`] has work: to be asked, in ERROR and SQE, after every call and every posted receive.
    pub fn needs_flush(&self) -> bool {
        let failed = matches!(self.state, QpState::Error | QpState::Sqe);
        let sends = self.ring.head.wqe != self.ring.tail;
        failed && sends || self.state == QpState::Error && self.flush_recv
    }

    /// A receive was posted, perhaps in ERROR: then it is to be flushed.
    pub fn receive_posted(&mut self) {
        self.flush_recv |= self.state == QpState::Error && !self.shares_receives();
    }

    /// Receives come from a shared receive queue.
    fn shares_receives(&self) -> bool {
        self.cfg.srq || self.cfg.qp_type == QpType::XrcTgt
    }

    /// Flushes a bounded number of work requests.
    pub fn flush(&mut self, env: &mut impl Env) {
        if matches!(self.state, QpState::Error | QpState::Sqe) {
            for _ in 0..BATCH {
                self.complete_head(WcStatus::WrFlushErr, env);
            }
        }
        if self.state == QpState::Error && self.flush_recv {
            self.flush_receives(env);
        }
    }

    fn flush_receives(&mut self, env: &mut impl Env) {
        let shared = self.shares_receives();
        for _ in 0..BATCH {
            let held = self.resp.recv.take();
            let next = match held {
                Some(recv) => Some(recv),
                None if shared => None,
                None => env.next_recv(&mut self.store.rq_sges),
            };
            let Some(recv) = next else {
                self.flush_recv = false;
                if shared {
                    env.event(QpEvent::LastWqeReached);
                }
                return;
            };
            self.fail_recv(&recv, WcStatus::WrFlushErr, env);
        }
    }

    /// ERROR, for whatever reason; the responder may still have a NAK to send.
    pub(super) fn enter_error(&mut self, env: &mut impl Env) {
        if self.state != QpState::Error {
            self.state = QpState::Error;
            self.flush_recv = true;
        }
        self.req = Requester::default();
        self.flush(env);
    }

    /// Completes the oldest send work request with an error and stops the send queue: ERROR for RC, SQE else
    /// (section 10.3.1.6).
    pub(super) fn fail_send(&mut self, status: WcStatus, env: &mut impl Env) {
        self.complete_head(status, env);
        if self.cfg.qp_type.is_reliable() {
            self.set_error(env);
        } else {
            self.state = QpState::Sqe;
            self.req = Requester::default();
            self.flush(env);
        }
    }

    /// Completes a receive with an error, unless its queue is gone.
    pub(super) fn fail_recv(&self, recv: &RecvWr, status: WcStatus, env: &mut impl Env) {
        if self.cfg.qp_type == QpType::XrcTgt && !env.select_srq(self.resp.srq) {
            return;
        }
        env.complete_recv(Completion {
            wr_id: recv.wr_id,
            status,
            ..self.recv_completion(WcOpcode::Recv)
        });
    }

    /// A completion of a send work request.
    pub(super) fn send_completion(&self, wqe: &SendWqe, status: WcStatus) -> Completion {
        Completion {
            wr_id: wqe.wr_id,
            status,
            opcode: wqe.op.wc_opcode(),
            byte_len: wqe.len,
            ..self.recv_completion(WcOpcode::Send)
        }
    }

    /// A completion of a receive, to be filled in.
    pub(super) fn recv_completion(&self, opcode: WcOpcode) -> Completion {
        Completion {
            wr_id: 0,
            status: WcStatus::Success,
            opcode,
            byte_len: 0,
            imm: None,
            invalidated_rkey: None,
            src_qp: self.attrs.dest_qpn,
            qpn: self.cfg.qpn,
            solicited: false,
            with_grh: false,
        }
    }
}
