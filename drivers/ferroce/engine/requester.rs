// SPDX-License-Identifier: GPL-2.0

//! The requester: which part of the send queue goes out next, and what happens when it has to go again
//! (sections 9.7.3 and 9.7.5.1.1).

use super::credits::Limit;
use super::queue::Place;
use super::queue::SendWqe;
use super::sgl;
use super::timer::FetchWait;
use super::transmit::padded;
use super::transmit::run;
use super::transmit::Source;
use super::transmit::Transmit;
use super::window::Window;
use super::wire::AtomicEth;
use super::wire::Bth;
use super::wire::Credits;
use super::wire::Deth;
use super::wire::Feth;
use super::wire::Operation;
use super::wire::Reth;
use super::Access;
use super::Count;
use super::Env;
use super::Instant;
use super::Mtu;
use super::Psn;
use super::Qp;
use super::QpState;
use super::SendOp;
use super::Store;
use super::WcStatus;

/// Most packets in flight: far below half of the PSN space.
const MAX_IN_FLIGHT: u32 = 1 << 21;

/// State of the requester.
#[derive(Copy, Clone, Default)]
pub(super) struct Requester {
    /// What goes out next.
    pub(super) cursor: Place,
    /// Where the cursor has been at most.
    pub(super) furthest: Place,
    /// One past the newest work request of which something was sent.
    pub(super) started: u64,
    /// Requests with an answer of their own (READ, atomics, FLUSH) between head and cursor.
    pub(super) fetching: u32,
    /// Retries left before a timeout or sequence error is final.
    pub(super) retries: u8,
    /// Retries left before RNR is final.
    pub(super) rnr_retries: u8,
    /// When the wait for an acknowledgement ends.
    pub(super) deadline: Option<Instant>,
    /// When sending goes on after RNR.
    pub(super) rnr_until: Option<Instant>,
    /// The wait for memory that is being fetched.
    pub(super) stalled: FetchWait,
    /// The cursor has gone back and nothing has been acknowledged since: further complaints about PSNs before this one
    /// are about packets that were sent before.
    pub(super) recovering: Option<Psn>,
    /// RNR was answered: one message at a time until the peer has taken one.
    pub(super) probing: bool,
    /// A work request that cannot go on, and how: it fails when it is the oldest.
    pub(super) broken: Option<(u64, WcStatus)>,
    /// How much may be in flight.
    pub(super) window: Window,
    /// Messages of the work requests that have started, modulo 2^24.
    pub(super) messages: Psn,
    /// How many messages the peer has receives for.
    pub(super) limit: Limit,
}

/// A request packet: its operation, length of its headers after the BTH, and payload.
pub(super) struct Shape {
    pub(super) op: Operation,
    pub(super) payload: u32,
    extension: u32,
}

impl Shape {
    /// Bytes from BTH to pad.
    fn len(&self) -> u32 {
        Bth::SIZE as u32 + self.extension + padded(self.payload)
    }
}

/// A SEND packet with this operation, or one with immediate data, makes an event at a receiver that asked for one.
pub(super) fn may_solicit(op: Operation) -> bool {
    op.ends() && (op.is_send() || op.has_imm())
}

/// Operation of packet `k` of a SEND or WRITE by its position.
fn operation(wqe: &SendWqe, k: u32) -> Operation {
    use Operation::*;
    let place = (k == 0, k + 1 == wqe.packets);
    match (&wqe.op, place) {
        (SendOp::Read { .. }, _) => ReadRequest,
        (SendOp::CompareSwap { .. }, _) => CompareSwap,
        (SendOp::FetchAdd { .. }, _) => FetchAdd,
        (SendOp::Flush { .. }, _) => Flush,
        (SendOp::AtomicWrite { .. }, _) => AtomicWrite,
        (SendOp::Datagram { imm: Some(_), .. }, _) => SendOnlyImm,
        (SendOp::Datagram { .. }, _) => SendOnly,
        (SendOp::Write { .. }, (true, true)) => WriteOnly,
        (SendOp::Write { .. }, (false, true)) => WriteLast,
        (SendOp::WriteImm { .. }, (true, true)) => WriteOnlyImm,
        (SendOp::WriteImm { .. }, (false, true)) => WriteLastImm,
        (SendOp::Write { .. } | SendOp::WriteImm { .. }, (true, false)) => WriteFirst,
        (SendOp::Write { .. } | SendOp::WriteImm { .. }, (false, false)) => WriteMiddle,
        (SendOp::SendImm(_), (true, true)) => SendOnlyImm,
        (SendOp::SendImm(_), (false, true)) => SendLastImm,
        (SendOp::SendInvalidate(_), (true, true)) => SendOnlyInv,
        (SendOp::SendInvalidate(_), (false, true)) => SendLastInv,
        (_, (true, true)) => SendOnly,
        (_, (false, true)) => SendLast,
        (_, (true, false)) => SendFirst,
        (_, (false, false)) => SendMiddle,
    }
}

/// Packet `k` of a work request.
pub(super) fn shape(wqe: &SendWqe, k: u32, mtu: Mtu) -> Shape {
    let op = operation(wqe, k);
    let mut extension = 0;
    let datagram = matches!(wqe.op, SendOp::Datagram { .. });
    for (has, size) in [
        (op.has_reth(), Reth::SIZE),
        (op == Operation::Flush, Feth::SIZE),
        (op.is_atomic(), AtomicEth::SIZE),
        (op.has_imm() || op.has_ieth(), 4),
        (datagram, Deth::SIZE),
        (wqe.srq.is_some(), 4),
    ] {
        extension += if has { size as u32 } else { 0 };
    }
    let payload = if wqe.op.is_read() || wqe.op.is_atomic() {
        0
    } else {
        (wqe.len - wqe.offset(k, mtu)).min(mtu.bytes())
    };
    Shape {
        op,
        payload,
        extension,
    }
}

impl<S: Store> Qp<S> {
    /// RTR to RTS: the send queue starts.
    pub(super) fn start_sending(&mut self) {
        self.ring.psn = Psn::new(self.attrs.sq_psn);
        self.req.retries = self.attrs.retry_cnt;
        self.req.rnr_retries = self.attrs.rnr_retry;
        self.req.window = Window::new(self.cfg.window);
    }

    /// SQE to RTS: what was posted before is flushed, what comes now is sent.
    pub(super) fn resume_sending(&mut self, env: &mut impl Env) {
        while self.ring.head.wqe != self.ring.tail {
            self.complete_head(WcStatus::WrFlushErr, env);
        }
        self.req.cursor = self.ring.head;
        self.req.furthest = self.ring.head;
        self.req.started = self.ring.head.wqe;
    }

    /// Bytes that may be in flight: without acknowledgements there is nothing to tell how much is good.
    fn window(&self) -> u32 {
        match self.cfg.qp_type.is_reliable() {
            true => self.req.window.bytes(),
            false => self.cfg.window,
        }
    }

    /// Bytes in flight.
    pub(super) fn in_flight(&self) -> u64 {
        self.stream_at(self.req.cursor)
            .wrapping_sub(self.stream_at(self.ring.head))
    }

    /// Whether the packet at `place` asks for an acknowledgement: the last of a message, the one beyond the peer's
    /// credits, and one in each quarter of the window.
    pub(super) fn wants_ack(&self, place: Place) -> bool {
        let Some(wqe) = self.wqe(place.wqe) else {
            return false;
        };
        if !self.cfg.qp_type.is_reliable() {
            return false;
        }
        let next = Place {
            packet: place.packet + 1,
            ..place
        };
        let quarter = u64::from((self.window() / 4).max(1));
        place.packet + 1 == wqe.packets
            || self.asks_for_credits(next)
            || self.stream_at(place) / quarter != self.stream_at(next) / quarter
    }

    /// The next run of request packets.
    pub(super) fn poll_request(
        &mut self,
        now: Instant,
        max_packets: u32,
        env: &mut impl Env,
    ) -> Option<Transmit> {
        let limit = match self.state {
            QpState::Rts => self.ring.tail,
            QpState::Sqd => self.req.started,
            _ => return None,
        };
        if self.held_back() {
            return None;
        }
        self.run_local(limit, env);
        let at = self.req.cursor;
        if at.wqe >= limit || self.held_back() {
            return None;
        }
        let oldest = at.wqe == self.ring.head.wqe;
        self.number_messages(at.wqe);
        let wqe = *self.wqe(at.wqe)?;
        if let Err(status) = self.check_request(at, &wqe, env) {
            // Its turn to fail comes when all before it are done.
            if oldest {
                self.fail_send(status, env);
            }
            return None;
        }
        if matches!(wqe.op, SendOp::Local(_)) {
            return None;
        }
        let waits = wqe.flags.fence && at.packet == 0 && self.req.fetching > 0;
        let many = wqe.op.fetches() && self.req.fetching >= u32::from(self.attrs.max_rd_atomic);
        if waits || many {
            return None;
        }
        let limited = self.is_limited(at, &wqe);
        if limited && self.waits_for_credits(at) {
            return None;
        }
        let t = if wqe.op.is_read() {
            self.read_request(at)?
        } else {
            self.request_run(at, &wqe, if limited { 1 } else { max_packets })?
        };
        if limited {
            self.ask_for_credits(wqe.message);
        }
        self.arm(now);
        self.req.window.sent(now, self.stream_at(self.req.cursor));
        Some(t)
    }

    /// The peer is not ready: nothing is sent before the time that it asked for, and then only the oldest request.
    fn held_back(&self) -> bool {
        let oldest = self.req.cursor.wqe == self.ring.head.wqe;
        let waits = self.req.rnr_until.is_some() || self.req.stalled.until().is_some();
        waits || self.req.probing && !oldest
    }

    /// Whether a work request can start.
    fn check_request(&self, at: Place, wqe: &SendWqe, env: &impl Env) -> Result<(), WcStatus> {
        match wqe.op {
            SendOp::Malformed => return Err(WcStatus::LocQpOpErr),
            SendOp::TooLong => return Err(WcStatus::LocLenErr),
            _ => (),
        }
        if let Some((_, status)) = self.req.broken.filter(|(broken, _)| *broken == at.wqe) {
            return Err(status);
        }
        if at.packet > 0 || wqe.flags.inline {
            return Ok(());
        }
        let access = if wqe.op.fetches() {
            Access::LocalWrite
        } else {
            Access::LocalRead
        };
        sgl::check(env.mem(), self.wqe_data(at.wqe), access).map_err(|_| WcStatus::LocProtErr)
    }

    /// A run of packets of a SEND, WRITE or atomic.
    fn request_run(&mut self, at: Place, wqe: &SendWqe, max_packets: u32) -> Option<Transmit> {
        let mtu = self.attrs.path_mtu;
        let room = u64::from(self.window()).saturating_sub(self.in_flight());
        let by_window = (room / u64::from(mtu.bytes())) as u32;
        let outstanding = self.psn_at(at).since(self.psn_at(self.ring.head));
        let first = shape(wqe, at.packet, mtu);
        let fits = u64::from(first.payload) <= room || outstanding == 0;
        if !fits || outstanding >= MAX_IN_FLIGHT {
            return None;
        }
        let max = max_packets.min(by_window.max(1));
        let len = |k| shape(wqe, k, mtu).len();
        let (count, last_len) = run(at.packet, wqe.packets, max, len);
        if wqe.op.fetches() {
            self.req.fetching += 1;
        }
        let full = first.len();
        Some(self.sent(at, wqe, count, count, full, last_len, Source::Request))
    }

    /// Moves the cursor over `psns` PSNs and describes the run.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of a run, named at both call sites"
    )]
    pub(super) fn sent(
        &mut self,
        at: Place,
        wqe: &SendWqe,
        psns: u32,
        count: u32,
        len: u32,
        last_len: u32,
        source: Source,
    ) -> Transmit {
        let packet = at.packet + psns;
        self.req.cursor = if packet == wqe.packets {
            Place {
                wqe: at.wqe + 1,
                packet: 0,
            }
        } else {
            Place { packet, ..at }
        };
        self.req.furthest = self.req.furthest.max(self.req.cursor);
        if self.req.started <= at.wqe {
            self.req.started = at.wqe + 1;
            self.req.messages = wqe.message;
        }
        let (dest_qpn, ah) = match wqe.op {
            SendOp::Datagram { dest_qpn, ah, .. } => (dest_qpn & 0x00ff_ffff, Some(ah)),
            _ => (self.attrs.dest_qpn, None),
        };
        Transmit {
            source,
            wqe: at.wqe,
            packet: at.packet,
            psn: wqe.first.plus(at.packet),
            msn: 0,
            credits: Credits::NONE,
            count,
            len,
            last_len,
            dest_qpn,
            ah,
        }
    }

    /// Starts the wait for an acknowledgement, unless one is going on.
    fn arm(&mut self, now: Instant) {
        if self.cfg.qp_type.is_reliable() && self.req.deadline.is_none() {
            self.restart_timer(now);
        }
    }

    /// Starts the wait for an acknowledgement anew if something is in flight.
    pub(super) fn restart_timer(&mut self, now: Instant) {
        let timeout = super::ack_timeout_ns(self.attrs.timeout);
        self.req.deadline = timeout
            .filter(|_| self.req.cursor != self.ring.head)
            .map(|ns| now.after(ns));
    }

    /// Everything that is not acknowledged will be sent again.
    pub(super) fn go_back(&mut self) {
        self.req.cursor = self.ring.head;
        self.req.fetching = 0;
        self.req.limit.asking = None;
        self.req.deadline = None;
    }

    /// No acknowledgement came in time (section 9.7.6.1.3).
    pub(super) fn ack_timed_out(&mut self, env: &mut impl Env) {
        if self.retry(env) {
            self.req.recovering = None;
            self.req.window.timed_out();
        }
    }

    /// Goes back if retries are left, else fails the oldest request; `false` then.
    pub(super) fn retry(&mut self, env: &mut impl Env) -> bool {
        let Some(left) = self.req.retries.checked_sub(1) else {
            env.count(Count::RetryExceeded);
            self.fail_send(WcStatus::RetryExcErr, env);
            return false;
        };
        env.count(Count::Retry);
        self.req.retries = left;
        self.go_back();
        self.req.window.lost();
        self.req.recovering = Some(self.psn_at(self.req.furthest));
        true
    }

    /// The memory of the request at `place` is being fetched: it goes out later.
    pub(super) fn request_stalled(&mut self, place: Place) {
        if self.req.cursor > place {
            self.req.cursor = place;
        }
        if self.req.cursor == self.ring.head {
            self.req.deadline = None;
        }
        self.forget_asking(place);
        self.req.stalled.begin(self.polled, self.psn_at(place));
    }

    /// The memory of the request at `place` has vanished between check and copy.
    pub(super) fn request_failed(&mut self, place: Place, env: &mut impl Env) {
        if self.wqe(place.wqe).is_none() {
            return;
        }
        self.req.broken = Some((place.wqe, WcStatus::LocProtErr));
        if self.req.cursor > place {
            self.req.cursor = place;
        }
        if place.wqe == self.ring.head.wqe {
            self.fail_send(WcStatus::LocProtErr, env);
        }
    }

    /// UC and UD: what has been sent is complete (section 9.8.2.2).
    pub(super) fn complete_unacknowledged(&mut self, env: &mut impl Env) {
        if self.cfg.qp_type.is_reliable() || self.state == QpState::Error {
            return;
        }
        while self.ring.head.wqe < self.req.cursor.wqe {
            self.complete_head(WcStatus::Success, env);
        }
        self.ring.head = self.ring.head.max(self.req.cursor);
        self.check_drained(env);
    }
}
