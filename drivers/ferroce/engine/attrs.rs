// SPDX-License-Identifier: GPL-2.0

//! What a queue pair is made with, what may be changed in it and when.

use super::wire::Service;

/// Transport service of a queue pair; values of `enum ib_qp_type`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum QpType {
    /// Reliable connection.
    Rc = 2,
    /// Unreliable connection.
    Uc = 3,
    /// Unreliable datagram.
    Ud = 4,
    /// Extended reliable connection, the side that requests (annex A14).
    XrcIni = 9,
    /// Extended reliable connection, the side that serves requests (annex A14).
    XrcTgt = 10,
}

impl QpType {
    /// What is sent is acknowledged.
    pub fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::XrcIni | Self::XrcTgt)
    }

    /// Has a send queue.
    pub fn requests(self) -> bool {
        self != Self::XrcTgt
    }

    /// Serves requests of the peer.
    pub fn responds(self) -> bool {
        self != Self::XrcIni
    }

    /// The service that its packets are of.
    pub(super) fn service(self) -> Service {
        match self {
            Self::Rc => Service::Rc,
            Self::Uc => Service::Uc,
            Self::Ud => Service::Ud,
            Self::XrcIni | Self::XrcTgt => Service::Xrc,
        }
    }
}

/// State of a queue pair; values of `enum ib_qp_state` (section 10.3.1).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum QpState {
    /// Fresh.
    Reset = 0,
    /// May take receive work requests.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// Send queue draining or drained.
    Sqd = 4,
    /// Send queue error (not RC): receives go on.
    Sqe = 5,
    /// Everything is flushed.
    Error = 6,
}

impl QpState {
    /// The state with the number of `enum ib_qp_state`.
    pub fn from_ib(value: u32) -> Option<Self> {
        Some(match value {
            0 => Self::Reset,
            1 => Self::Init,
            2 => Self::Rtr,
            3 => Self::Rts,
            4 => Self::Sqd,
            5 => Self::Sqe,
            6 => Self::Error,
            _ => return None,
        })
    }

    /// Whether `modify` may lead from `self` to `next` (section 10.3.1, figure "QP/EE context state diagram").
    pub(super) fn may_become(self, next: Self) -> bool {
        use QpState::*;
        match next {
            Reset | Error => true,
            Init => matches!(self, Reset | Init),
            Rtr => self == Init,
            Rts => matches!(self, Rtr | Rts | Sqd | Sqe),
            Sqd => matches!(self, Rts | Sqd),
            Sqe => false,
        }
    }

    /// Requests of the peer are served.
    pub(super) fn receives(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe)
    }

    /// Requests are sent, or at least finished, and their answers taken.
    pub(super) fn sends(self) -> bool {
        matches!(self, Self::Rts | Self::Sqd)
    }
}

/// Path MTU; values of `enum ib_mtu`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Mtu {
    /// 256 bytes.
    M256 = 1,
    /// 512 bytes.
    M512 = 2,
    /// 1024 bytes.
    M1024 = 3,
    /// 2048 bytes.
    M2048 = 4,
    /// 4096 bytes.
    M4096 = 5,
}

impl Mtu {
    /// The MTU with the number of `enum ib_mtu`.
    pub fn from_ib(value: u32) -> Option<Self> {
        Some(match value {
            1 => Self::M256,
            2 => Self::M512,
            3 => Self::M1024,
            4 => Self::M2048,
            5 => Self::M4096,
            _ => return None,
        })
    }

    /// Payload bytes of a full packet.
    pub const fn bytes(self) -> u32 {
        128 << (self as u32)
    }

    /// Packets of a message of `len` bytes: an empty one takes a packet too.
    pub const fn packets(self, len: u32) -> u32 {
        if len == 0 {
            1
        } else {
            len.div_ceil(self.bytes())
        }
    }
}

/// What a queue pair is created with.
#[derive(Copy, Clone, Debug)]
pub struct QpConfig {
    /// Its number.
    pub qpn: u32,
    /// Its transport service.
    pub qp_type: QpType,
    /// Every send work request is signalled.
    pub sq_sig_all: bool,
    /// Receives come from a shared receive queue, which is not flushed with the queue pair.
    pub srq: bool,
    /// Packets of another partition are dropped (section 10.9.3).
    pub check_pkey: bool,
    /// Most scatter/gather elements of a send work request.
    pub max_send_sge: u32,
    /// Most inline bytes of a send work request.
    pub max_inline: u32,
    /// Bytes of `QpStorage::sq_data` for each send work request: at least `16 * max_send_sge` and `max_inline`.
    pub sq_stride: u32,
    /// Most bytes that are sent and not yet acknowledged; [`QpConfig::WINDOW`] is a good value.
    pub window: u32,
}

impl QpConfig {
    /// The usual send window.
    pub const WINDOW: u32 = 1 << 20;
}

/// Operations that the peer may do, bits of `enum ib_access_flags`.
pub(super) mod access_flags {
    /// RDMA WRITE.
    pub(crate) const REMOTE_WRITE: u32 = 1 << 1;
    /// RDMA READ.
    pub(crate) const REMOTE_READ: u32 = 1 << 2;
    /// Atomics.
    pub(crate) const REMOTE_ATOMIC: u32 = 1 << 3;
    /// FLUSH to global visibility.
    pub(crate) const FLUSH_GLOBAL: u32 = 1 << 8;
    /// FLUSH to persistence.
    pub(crate) const FLUSH_PERSISTENT: u32 = 1 << 9;
}

/// The attributes of a queue pair as the verbs show them.
#[derive(Copy, Clone, Debug)]
pub struct QpAttrs {
    /// Operations that the peer may do, bits of `enum ib_access_flags`.
    pub access: u32,
    /// Partition key.
    pub pkey: u16,
    /// Queue key (UD).
    pub qkey: u32,
    /// Number of the peer's queue pair.
    pub dest_qpn: u32,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// First PSN expected from the peer; the next one once packets have come.
    pub rq_psn: u32,
    /// First PSN sent; the next one once packets have gone.
    pub sq_psn: u32,
    /// Local ACK timeout, 4.096 µs · 2^timeout, 0 for none.
    pub timeout: u8,
    /// Retries after a timeout or a sequence error, 0 to 7, all exact.
    pub retry_cnt: u8,
    /// Retries after RNR, 0 to 6 exact, 7 without limit.
    pub rnr_retry: u8,
    /// Code of the delay that RNR NAKs of this side ask for.
    pub min_rnr_timer: u8,
    /// Most READs and atomics in flight from this side.
    pub max_rd_atomic: u8,
    /// Most READs and atomics in flight to this side.
    pub max_dest_rd_atomic: u8,
}

impl QpAttrs {
    /// Attributes of a queue pair in RESET.
    pub(super) const RESET: Self = Self {
        access: 0,
        pkey: 0xffff,
        qkey: 0,
        dest_qpn: 0,
        path_mtu: Mtu::M1024,
        rq_psn: 0,
        sq_psn: 0,
        timeout: 0,
        retry_cnt: 0,
        rnr_retry: 0,
        min_rnr_timer: 0,
        max_rd_atomic: 0,
        max_dest_rd_atomic: 0,
    };
}

/// Changes for [`super::Qp::modify`]; `None` leaves a thing as it is.
#[derive(Copy, Clone, Debug, Default)]
pub struct ModifyAttrs {
    /// The state the caller believes the queue pair to be in.
    pub cur_state: Option<QpState>,
    /// The new state.
    pub state: Option<QpState>,
    /// See [`QpAttrs::access`].
    pub access: Option<u32>,
    /// See [`QpAttrs::pkey`].
    pub pkey: Option<u16>,
    /// See [`QpAttrs::qkey`].
    pub qkey: Option<u32>,
    /// See [`QpAttrs::dest_qpn`].
    pub dest_qpn: Option<u32>,
    /// See [`QpAttrs::path_mtu`].
    pub path_mtu: Option<Mtu>,
    /// See [`QpAttrs::rq_psn`].
    pub rq_psn: Option<u32>,
    /// See [`QpAttrs::sq_psn`].
    pub sq_psn: Option<u32>,
    /// See [`QpAttrs::timeout`].
    pub timeout: Option<u8>,
    /// See [`QpAttrs::retry_cnt`].
    pub retry_cnt: Option<u8>,
    /// See [`QpAttrs::rnr_retry`].
    pub rnr_retry: Option<u8>,
    /// See [`QpAttrs::min_rnr_timer`].
    pub min_rnr_timer: Option<u8>,
    /// See [`QpAttrs::max_rd_atomic`].
    pub max_rd_atomic: Option<u8>,
    /// See [`QpAttrs::max_dest_rd_atomic`].
    pub max_dest_rd_atomic: Option<u8>,
    /// With SQD: report when the send queue has drained.
    pub sqd_event: bool,
}

/// Why [`super::Qp::modify`] changed nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ModifyError {
    /// No such transition, or `cur_state` is not the state.
    Transition,
    /// An attribute that the transition needs is missing.
    Missing,
    /// A value is out of its range.
    Value,
}

impl ModifyAttrs {
    /// Whether the change may be made on the way from `from` to `to` (section 11.2.4.2, table "QP state transition
    /// properties"); `replays` is the storage for the peer's READs.
    pub(super) fn check(
        &self,
        qp_type: QpType,
        from: QpState,
        to: QpState,
        replays: usize,
    ) -> Result<(), ModifyError> {
        let over = |value: Option<u8>, most: u8| value.is_some_and(|value| value > most);
        let wide = |value: Option<u32>| value.is_some_and(|value| value > 0x00ff_ffff);
        if over(self.timeout, 31)
            || over(self.min_rnr_timer, 31)
            || over(self.retry_cnt, 7)
            || over(self.rnr_retry, 7)
            || wide(self.dest_qpn)
            || wide(self.rq_psn)
            || wide(self.sq_psn)
            || self
                .max_dest_rd_atomic
                .is_some_and(|n| usize::from(n) > replays)
        {
            return Err(ModifyError::Value);
        }
        let to_rtr = from == QpState::Init && to == QpState::Rtr;
        let to_rts = from == QpState::Rtr && to == QpState::Rts;
        let connected = qp_type != QpType::Ud;
        let for_rtr = self.path_mtu.is_some() || self.rq_psn.is_some() || self.dest_qpn.is_some();
        if for_rtr && !to_rtr || self.sq_psn.is_some() && !to_rts {
            return Err(ModifyError::Transition);
        }
        let has_peer = self.dest_qpn.is_some() && self.path_mtu.is_some() && self.rq_psn.is_some();
        let receives = self.max_dest_rd_atomic.is_some() && self.min_rnr_timer.is_some();
        let retries =
            self.retry_cnt.is_some() && self.rnr_retry.is_some() && self.max_rd_atomic.is_some();
        let reliable = qp_type.is_reliable();
        let complete = (!to_rtr || !connected || has_peer)
            && (!to_rtr || !reliable || !qp_type.responds() || receives)
            && (!to_rts || self.sq_psn.is_some())
            && (!to_rts || !reliable || self.timeout.is_some())
            && (!to_rts || !reliable || !qp_type.requests() || retries);
        if complete {
            Ok(())
        } else {
            Err(ModifyError::Missing)
        }
    }
}
