// SPDX-License-Identifier: GPL-2.0

//! The responder: requests of the peer in the order of their PSNs, and the answers they get (sections 9.7.4, 9.8.3).

use super::rnr_delay_ns;
use super::timer::FetchWait;
use super::wire::Credits;
use super::wire::NakCode;
use super::wire::Operation;
use super::wire::Syndrome;
use super::Count;
use super::Env;
use super::MemError;
use super::Packet;
use super::Psn;
use super::Qp;
use super::QpEvent;
use super::QpState;
use super::QpType;
use super::RecvWr;
use super::Store;
use super::Transmit;
use super::WcStatus;

/// The message in progress.
#[derive(Copy, Clone, Default, PartialEq, Eq)]
pub(super) enum Message {
    /// Between messages.
    #[default]
    None,
    /// A SEND of which `len` bytes are placed.
    Send {
        /// Bytes placed.
        len: u32,
    },
    /// An RDMA WRITE.
    Write {
        /// Where it goes.
        va: u64,
        /// Key of the memory.
        rkey: u32,
        /// Bytes placed.
        done: u32,
        /// Bytes that it said it has.
        total: u32,
    },
}

/// State of the responder.
#[derive(Copy, Clone, Default)]
pub(super) struct Responder {
    /// The PSN that comes next.
    pub(super) expected: Psn,
    /// Messages completed.
    pub(super) msn: u32,
    /// The message in progress.
    pub(super) message: Message,
    /// XRC: shared receive queue of the message in progress, or of the last one.
    pub(super) srq: u32,
    /// A receive that was taken and is not complete; its list is in `rq_sges`.
    pub(super) recv: Option<RecvWr>,
    /// `expected` was refused: nothing more is said until it comes (section 9.7.5.2.3).
    refused: bool,
    /// A NAK to send, and its PSN.
    nak: Option<(Syndrome, Psn)>,
    /// All before `expected` is to be acknowledged.
    ack: bool,
    /// In ERROR with a NAK still to send.
    pub(super) closing: bool,
    /// READs and atomics remembered since RESET.
    pub(super) replays: u64,
    /// Those of them that have not been answered once.
    pub(super) unanswered: u32,
    /// Remembered entries of which an answer is still to be sent.
    pub(super) answers: u32,
    /// The wait for the data of an answer, which is being fetched.
    pub(super) stalled: FetchWait,
}

/// Why a request is not executed.
pub(super) enum Refusal {
    /// No receive buffer.
    NotReady,
    /// The memory is being fetched.
    Absent,
    /// The request is wrong or not allowed.
    Nak(NakCode),
    /// The request is fine or not, but the receive taken for it fails with this status.
    Receive(WcStatus, NakCode),
}

impl<S: Store> Qp<S> {
    /// A request packet.
    pub(super) fn handle_request(&mut self, pkt: &Packet<'_>, env: &mut impl Env) {
        match self.cfg.qp_type {
            QpType::Rc | QpType::XrcIni | QpType::XrcTgt => self.reliable(pkt, env),
            QpType::Uc => self.unreliable(pkt, env),
            QpType::Ud => self.datagram(pkt, env),
        }
    }

    fn reliable(&mut self, pkt: &Packet<'_>, env: &mut impl Env) {
        let ahead = pkt.bth.psn.since(self.resp.expected);
        if ahead >= Psn::HALF {
            env.count(Count::DuplicateRequest);
            self.duplicate(pkt);
            return;
        }
        if ahead > 0 {
            self.refuse(Syndrome::Nak(NakCode::Sequence), env);
            return;
        }
        self.resp.refused = false;
        self.resp.nak = None;
        match self.execute(pkt, env) {
            Ok(psns) => {
                self.resp.expected = self.resp.expected.plus(psns);
                // The answer to a READ or atomic acknowledges all before it.
                let answered = !pkt.opcode.op.is_send() && !pkt.opcode.op.is_write();
                self.resp.ack = !answered && (self.resp.ack || pkt.bth.ack_req);
            }
            Err(Refusal::NotReady) => self.refuse(Syndrome::Rnr(self.attrs.min_rnr_timer), env),
            Err(Refusal::Absent) => {
                let timer = fetch_timer(self.attrs.min_rnr_timer);
                self.refuse(Syndrome::Rnr(timer), env);
            }
            Err(Refusal::Nak(code)) => self.close(code, env),
            Err(Refusal::Receive(status, code)) => {
                self.fail_receive(status, env);
                self.close(code, env);
            }
        }
    }

    /// Says once why `expected` is not taken; what follows it is dropped in silence.
    fn refuse(&mut self, syndrome: Syndrome, env: &mut impl Env) {
        if !self.resp.refused {
            env.count(match syndrome {
                Syndrome::Rnr(_) => Count::RnrSent,
                _ => Count::OutOfSequenceRequest,
            });
            self.resp.refused = true;
            self.resp.nak = Some((syndrome, self.resp.expected));
        }
    }

    /// A request seen before (section 9.7.4.1.2): data is acknowledged again, answers are given again.
    fn duplicate(&mut self, pkt: &Packet<'_>) {
        if pkt.opcode.op == Operation::ReadRequest {
            self.repeat(pkt.bth.psn, pkt.reth.as_ref());
        } else if pkt.opcode.op.is_atomic() || pkt.opcode.op.is_placement() {
            self.repeat(pkt.bth.psn, None);
        } else {
            self.resp.ack = true;
        }
    }

    /// An error that ends the connection: NAK, event, ERROR (section 9.9.3, class C).
    fn close(&mut self, code: NakCode, env: &mut impl Env) {
        self.resp.nak = Some((Syndrome::Nak(code), self.resp.expected));
        self.resp.closing = true;
        env.event(match code {
            NakCode::RemoteAccess => QpEvent::AccessError,
            NakCode::RemoteOperational => QpEvent::Fatal,
            NakCode::InvalidRequest | NakCode::Sequence => QpEvent::RequestError,
        });
        self.enter_error(env);
    }

    /// UC: a gap ends the message in progress, and the next first packet starts anew (section 9.8.3.2.2).
    fn unreliable(&mut self, pkt: &Packet<'_>, env: &mut impl Env) {
        if pkt.bth.psn != self.resp.expected {
            self.resp.message = Message::None;
        }
        self.resp.expected = pkt.bth.psn.plus(1);
        if pkt.opcode.op.starts() {
            self.resp.message = Message::None;
        }
        match self.execute(pkt, env) {
            Ok(_) => (),
            Err(
                Refusal::NotReady
                | Refusal::Absent
                | Refusal::Nak(_)
                | Refusal::Receive(WcStatus::LocLenErr, _),
            ) => {
                self.resp.message = Message::None;
            }
            Err(Refusal::Receive(status, _)) => {
                self.fail_receive(status, env);
                env.event(QpEvent::Fatal);
                self.set_error(env);
            }
        }
    }

    /// Completes the receive in progress with an error.
    pub(super) fn fail_receive(&mut self, status: WcStatus, env: &mut impl Env) {
        self.resp.message = Message::None;
        if let Some(recv) = self.resp.recv.take() {
            self.fail_recv(&recv, status, env);
        }
    }

    /// The data of a READ response cannot be read any more.
    pub(super) fn response_failed(&mut self, psn: Psn, error: MemError, env: &mut impl Env) {
        if self.state == QpState::Error && !self.resp.closing {
            return;
        }
        self.forget_answers();
        let code = remote_error(error);
        // A later request may have been refused already: then only the NAK is another one.
        if !self.resp.closing {
            self.close(code, env);
        }
        self.resp.nak = Some((Syndrome::Nak(code), psn));
    }

    /// The next run of answers: READ data in the order of PSNs, then the NAK or ACK that covers all before.
    pub(super) fn poll_response(
        &mut self,
        max_packets: u32,
        env: &mut impl Env,
    ) -> Option<Transmit> {
        let serves = self.state.receives() || self.state == QpState::Error && self.resp.closing;
        if !serves || self.resp.stalled.until().is_some() {
            return None;
        }
        if let Some(t) = self.poll_answer(max_packets, env) {
            return Some(t);
        }
        let (syndrome, psn) = match self.resp.nak.take() {
            Some(nak) => nak,
            None if self.resp.ack => (Syndrome::Ack, self.resp.expected.prev()),
            None => return None,
        };
        self.resp.ack = false;
        self.resp.closing = false;
        let credits = self.own_credits(env);
        Some(self.ack(syndrome, psn, credits))
    }

    fn ack(&self, syndrome: Syndrome, psn: Psn, credits: Credits) -> Transmit {
        use super::transmit::Source;
        use super::wire::Aeth;
        use super::wire::Bth;
        let len = (Bth::SIZE + Aeth::SIZE) as u32;
        Transmit {
            source: Source::Ack(syndrome),
            wqe: 0,
            packet: 0,
            psn,
            msn: self.resp.msn,
            credits,
            count: 1,
            len,
            last_len: len,
            dest_qpn: self.attrs.dest_qpn,
            ah: None,
        }
    }
}

/// What is said about memory that a request of the peer cannot reach.
pub(super) fn refusal(error: MemError) -> Refusal {
    match error {
        MemError::Absent => Refusal::Absent,
        _ => Refusal::Nak(remote_error(error)),
    }
}

fn remote_error(error: MemError) -> NakCode {
    match error {
        MemError::Key | MemError::Access | MemError::Range => NakCode::RemoteAccess,
        MemError::Fault | MemError::Absent => NakCode::RemoteOperational,
    }
}

/// The RNR timer that a peer gets while memory is fetched: long enough that few retries are spent on it.
fn fetch_timer(least: u8) -> u8 {
    const MILLISECOND: u8 = 14;
    if rnr_delay_ns(least) < rnr_delay_ns(MILLISECOND) {
        MILLISECOND
    } else {
        least
    }
}
