// SPDX-License-Identifier: GPL-2.0

//! Work requests, and what must come of them.

use crate::wire::NakCode;
use crate::LocalOp;
use crate::QpEvent;
use crate::SendOp;
use crate::SendWr;
use crate::Sge;
use crate::WcOpcode;
use crate::WcStatus;

/// Why a work request cannot succeed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Unknown remote key.
    RemoteKey,
    /// Beyond the end of the remote region.
    RemoteRange,
    /// The remote region does not allow it.
    RemoteDenied,
    /// The remote queue pair does not allow it.
    Disabled,
    /// Longer than the receive.
    TooLong,
    /// The receive names memory that is not there.
    BadReceive,
    /// Invalidates a key that does not exist.
    BadInvalidate,
    /// Unknown local key.
    LocalKey,
    /// Malformed.
    Malformed,
    /// Wrong queue key (UD).
    QueueKey,
    /// Invalidates a key of this side that does not exist.
    LocalInvalidate,
    /// Names a shared receive queue that does not exist (XRC).
    NoQueue,
}

impl Flaw {
    /// What a reliable sender learns (sections 9.9.2 and 11.6.2).
    pub fn status(self) -> WcStatus {
        match self {
            Self::RemoteKey | Self::RemoteRange | Self::RemoteDenied | Self::BadInvalidate => {
                WcStatus::RemAccessErr
            }
            Self::Disabled | Self::TooLong | Self::NoQueue => WcStatus::RemInvReqErr,
            Self::BadReceive => WcStatus::RemOpErr,
            Self::LocalKey => WcStatus::LocProtErr,
            Self::Malformed | Self::LocalInvalidate => WcStatus::LocQpOpErr,
            Self::QueueKey => WcStatus::Success,
        }
    }

    /// The NAK that says so, if it is the responder's to say.
    pub fn nak(self) -> Option<NakCode> {
        match self.status() {
            WcStatus::RemAccessErr => Some(NakCode::RemoteAccess),
            WcStatus::RemInvReqErr => Some(NakCode::InvalidRequest),
            WcStatus::RemOpErr => Some(NakCode::RemoteOperational),
            _ => None,
        }
    }

    /// The sender finds it before anything is sent.
    pub fn local(self) -> bool {
        matches!(
            self,
            Self::LocalKey | Self::Malformed | Self::LocalInvalidate
        )
    }

    /// How the receive ends that was taken for it.
    pub fn receive(self) -> Option<WcStatus> {
        match self {
            Self::TooLong => Some(WcStatus::LocLenErr),
            Self::BadReceive => Some(WcStatus::LocProtErr),
            Self::BadInvalidate => Some(WcStatus::LocAccessErr),
            _ => None,
        }
    }

    /// The event at the responder.
    pub fn event(self) -> Option<QpEvent> {
        self.nak().map(event_of)
    }
}

/// The event of a responder that has sent this NAK.
pub fn event_of(code: NakCode) -> QpEvent {
    match code {
        NakCode::RemoteAccess => QpEvent::AccessError,
        NakCode::RemoteOperational => QpEvent::Fatal,
        NakCode::InvalidRequest | NakCode::Sequence => QpEvent::RequestError,
    }
}

/// A send work request and what is known about it.
#[derive(Clone, Debug)]
pub struct Msg {
    /// What is posted; `wr_id` is its index.
    pub wr: SendWr,
    /// Node that it goes to.
    pub dest: usize,
    /// Scatter/gather list.
    pub sges: Vec<Sge>,
    /// The payload, if it is posted inline.
    pub inline: bool,
    /// What travels: to the peer, or back from it.
    pub payload: Vec<u8>,
    /// What an atomic brings back, and what it leaves behind.
    pub atomic: Option<(u64, u64)>,
    /// Why it cannot succeed.
    pub flaw: Option<Flaw>,
    /// Packets between the queue pair's first PSN and its own.
    pub start: u32,
    /// PSNs it takes.
    pub packets: u32,
    /// It was sent, at least in part.
    pub started: bool,
    /// UC: all of it has arrived.
    pub arrived: bool,
}

impl Msg {
    /// Bytes of the message; an atomic has none.
    pub fn len(&self) -> u32 {
        self.payload.len() as u32
    }

    /// Bytes that its completion shows.
    pub fn byte_len(&self) -> u32 {
        match self.wr.op {
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } | SendOp::AtomicWrite { .. } => 8,
            _ => self.len(),
        }
    }

    /// Its answer brings data.
    pub fn fetches(&self) -> bool {
        matches!(
            self.wr.op,
            SendOp::Read { .. }
                | SendOp::CompareSwap { .. }
                | SendOp::FetchAdd { .. }
                | SendOp::Flush { .. }
                | SendOp::AtomicWrite { .. }
        )
    }

    /// Nothing of it is sent.
    pub fn is_local(&self) -> bool {
        matches!(self.wr.op, SendOp::Local(_) | SendOp::Malformed)
    }

    /// Packets of an answer bring data into the scatter list.
    pub fn brings(&self) -> bool {
        self.fetches()
            && !matches!(
                self.wr.op,
                SendOp::Flush { .. } | SendOp::AtomicWrite { .. }
            )
    }

    /// Immediate data that the receiver sees.
    pub fn imm(&self) -> Option<[u8; 4]> {
        match self.wr.op {
            SendOp::SendImm(imm) | SendOp::WriteImm { imm, .. } => Some(imm),
            SendOp::Datagram { imm, .. } => imm,
            _ => None,
        }
    }

    /// Takes a receive, which completes with this opcode.
    pub fn receive(&self) -> Option<WcOpcode> {
        match self.wr.op {
            SendOp::Send
            | SendOp::SendImm(_)
            | SendOp::SendInvalidate(_)
            | SendOp::Datagram { .. } => Some(WcOpcode::Recv),
            SendOp::WriteImm { .. } => Some(WcOpcode::RecvRdmaWithImm),
            _ => None,
        }
    }

    /// The memory of the peer that it writes.
    pub fn target(&self) -> Option<(u64, u32)> {
        match self.wr.op {
            SendOp::Write { va, .. } | SendOp::WriteImm { va, .. } => Some((va, self.len())),
            SendOp::CompareSwap { va, .. }
            | SendOp::FetchAdd { va, .. }
            | SendOp::AtomicWrite { va, .. } => Some((va, 8)),
            _ => None,
        }
    }

    /// Name of its kind, for reports.
    pub fn kind(&self) -> &'static str {
        match self.wr.op {
            SendOp::Send => "Send",
            SendOp::SendImm(_) => "SendImm",
            SendOp::SendInvalidate(_) => "SendInvalidate",
            SendOp::Write { .. } => "Write",
            SendOp::WriteImm { .. } => "WriteImm",
            SendOp::Read { .. } => "Read",
            SendOp::CompareSwap { .. } => "CompareSwap",
            SendOp::FetchAdd { .. } => "FetchAdd",
            SendOp::Datagram { .. } => "Datagram",
            SendOp::Flush { .. } => "Flush",
            SendOp::AtomicWrite { .. } => "AtomicWrite",
            SendOp::Local(LocalOp::Invalidate { .. }) => "Invalidate",
            SendOp::Local(_) => "Register",
            SendOp::Malformed => "Malformed",
            SendOp::TooLong => "TooLong",
        }
    }

    /// One past its last PSN, counted like `start`.
    pub fn end(&self) -> u32 {
        self.start + self.packets
    }
}

/// A receive.
#[derive(Clone, Debug)]
pub struct Buf {
    /// Its scatter list.
    pub sges: Vec<Sge>,
    /// XRC: the queue it is posted to.
    pub queue: u32,
    /// It has completed.
    pub done: bool,
}
