// SPDX-License-Identifier: GPL-2.0

//! Work requests and completions (sections 10.7 and 11.4).

use super::wire::Feth;

/// How a send work request is to be treated.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct SendFlags {
    /// Completes with a completion; others only if they fail.
    pub signaled: bool,
    /// Asks the receiver for a solicited event.
    pub solicited: bool,
    /// Waits for all earlier READs and atomics.
    pub fence: bool,
    /// `data` is the payload itself, not a list of [`super::Sge`].
    pub inline: bool,
}

/// What a send work request does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// SEND.
    Send,
    /// SEND with immediate data, in network byte order.
    SendImm([u8; 4]),
    /// SEND that invalidates the peer's key.
    SendInvalidate(u32),
    /// RDMA WRITE.
    Write {
        /// Address in the peer's memory.
        va: u64,
        /// Key of the peer's memory.
        rkey: u32,
    },
    /// RDMA WRITE with immediate data.
    WriteImm {
        /// Address in the peer's memory.
        va: u64,
        /// Key of the peer's memory.
        rkey: u32,
        /// Immediate data, in network byte order.
        imm: [u8; 4],
    },
    /// RDMA READ.
    Read {
        /// Address in the peer's memory.
        va: u64,
        /// Key of the peer's memory.
        rkey: u32,
    },
    /// Atomic compare and swap of 8 bytes.
    CompareSwap {
        /// Address in the peer's memory, a multiple of 8.
        va: u64,
        /// Key of the peer's memory.
        rkey: u32,
        /// Value to compare with.
        compare: u64,
        /// Value to store when equal.
        swap: u64,
    },
    /// Atomic fetch and add of 8 bytes.
    FetchAdd {
        /// Address in the peer's memory, a multiple of 8.
        va: u64,
        /// Key of the peer's memory.
        rkey: u32,
        /// Value to add.
        add: u64,
    },
    /// SEND on an unreliable datagram queue pair.
    Datagram {
        /// Number of the peer's queue pair.
        dest_qpn: u32,
        /// Queue key to send; with the high bit set the queue pair's own is sent (section 10.2.5).
        qkey: u32,
        /// The caller's name for the address handle, given back by [`super::Transmit::ah`].
        ah: u64,
        /// Immediate data, in network byte order.
        imm: Option<[u8; 4]>,
    },
    /// FLUSH: what was written before gets where `kind` says, before this completes.
    Flush {
        /// Address in the peer's memory.
        va: u64,
        /// Key of the peer's memory.
        rkey: u32,
        /// Bytes, unless the whole region is meant.
        len: u32,
        /// How far, and how much.
        kind: Feth,
    },
    /// Write of 8 bytes that is seen whole or not at all.
    AtomicWrite {
        /// Address in the peer's memory, a multiple of 8.
        va: u64,
        /// Key of the peer's memory.
        rkey: u32,
        /// The bytes, as they will stand in memory.
        data: [u8; 8],
    },
    /// An operation of this side, which nothing is sent for. Not on a datagram queue pair.
    Local(LocalOp),
    /// A request that the caller found malformed: completes with [`WcStatus::LocQpOpErr`] when its turn comes.
    Malformed,
    /// A request that was [`PostError::TooLong`]: completes with [`WcStatus::LocLenErr`] when its turn comes.
    TooLong,
}

/// What a work request does on this side; the engine gives it its turn, [`super::Env::local`] does it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LocalOp {
    /// Takes a key away from a memory region or a window. Runs when all before it is complete.
    Invalidate {
        /// The key.
        key: u32,
    },
    /// Binds a memory window.
    BindWindow {
        /// Key of the window as it is.
        window: u32,
        /// Its key from now on.
        key: u32,
        /// Key of the memory region.
        mr: u32,
        /// First address.
        va: u64,
        /// Bytes; 0 unbinds.
        len: u64,
        /// What the peer may do, bits of `enum ib_access_flags`.
        access: u32,
    },
    /// Gives a fast registration its key.
    Register {
        /// The memory region, by its key so far.
        mr: u32,
        /// Its key from now on.
        key: u32,
        /// What may be done, bits of `enum ib_access_flags`.
        access: u32,
    },
}

impl SendOp {
    /// The opcode that its completion shows.
    pub fn wc_opcode(&self) -> WcOpcode {
        match self {
            Self::Write { .. } | Self::WriteImm { .. } => WcOpcode::RdmaWrite,
            Self::Read { .. } => WcOpcode::RdmaRead,
            Self::CompareSwap { .. } => WcOpcode::CompSwap,
            Self::FetchAdd { .. } => WcOpcode::FetchAdd,
            Self::Flush { .. } => WcOpcode::Flush,
            Self::AtomicWrite { .. } => WcOpcode::AtomicWrite,
            Self::Local(LocalOp::BindWindow { .. }) => WcOpcode::BindMw,
            Self::Local(LocalOp::Invalidate { .. }) => WcOpcode::LocalInv,
            Self::Local(LocalOp::Register { .. }) => WcOpcode::RegMr,
            _ => WcOpcode::Send,
        }
    }

    /// It has an answer of its own, which counts among those that may be outstanding: READ, atomics, FLUSH.
    pub(super) fn fetches(&self) -> bool {
        self.is_read() || self.is_atomic() || self.is_placement()
    }

    /// An atomic that returns the old value.
    pub(super) fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Takes a turn in the queue but no packet.
    pub(super) fn sends_nothing(&self) -> bool {
        matches!(self, Self::Malformed | Self::TooLong | Self::Local(_))
    }

    /// FLUSH or ATOMIC WRITE: answered by an empty READ response.
    pub(super) fn is_placement(&self) -> bool {
        matches!(self, Self::Flush { .. } | Self::AtomicWrite { .. })
    }

    /// READ.
    pub(super) fn is_read(&self) -> bool {
        matches!(self, Self::Read { .. })
    }
}

/// A send work request; its data goes beside it.
#[derive(Copy, Clone, Debug)]
pub struct SendWr {
    /// The user's name for it.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// XRC: number of the peer's shared receive queue, which also stands for its protection domain.
    pub srq: u32,
    /// How.
    pub flags: SendFlags,
}

/// A receive work request; its scatter list is in the buffer given to [`super::Env::next_recv`].
#[derive(Copy, Clone, Debug)]
pub struct RecvWr {
    /// The user's name for it.
    pub wr_id: u64,
    /// Elements of the scatter list.
    pub num_sge: u32,
    /// Bytes it has room for.
    pub total: u32,
}

/// Why [`super::Qp::post_send`] took nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue pair is not in a state that takes send work requests.
    State,
    /// No free slot.
    Full,
    /// Opcode, lengths or counts that this queue pair cannot do.
    Invalid,
    /// A longer message than 2^31 bytes, or than the path MTU for a datagram.
    TooLong,
}

/// Status of a completion; values of `enum ib_wc_status` (section 11.6.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WcStatus {
    /// Done.
    Success = 0,
    /// The message is longer than the receive buffer.
    LocLenErr = 1,
    /// A work request that the queue pair cannot execute.
    LocQpOpErr = 2,
    /// A local key, address or permission is wrong.
    LocProtErr = 4,
    /// Not executed: the queue pair is in error.
    WrFlushErr = 5,
    /// A window could not be bound.
    MwBindErr = 6,
    /// The peer's answer makes no sense.
    BadRespErr = 7,
    /// A write with immediate data failed at the receiver.
    LocAccessErr = 8,
    /// The peer cannot execute the request.
    RemInvReqErr = 9,
    /// A remote key, address or permission is wrong.
    RemAccessErr = 10,
    /// The peer failed.
    RemOpErr = 11,
    /// No answer, after all retries.
    RetryExcErr = 12,
    /// The peer had no receive buffer, after all retries.
    RnrRetryExcErr = 13,
}

/// Opcode of a completion; values of `enum ib_wc_opcode`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WcOpcode {
    /// SEND.
    Send = 0,
    /// RDMA WRITE.
    RdmaWrite = 1,
    /// RDMA READ.
    RdmaRead = 2,
    /// Compare and swap.
    CompSwap = 3,
    /// Fetch and add.
    FetchAdd = 4,
    /// A window was bound.
    BindMw = 5,
    /// A key was invalidated.
    LocalInv = 6,
    /// What was written has been flushed.
    Flush = 8,
    /// ATOMIC WRITE.
    AtomicWrite = 9,
    /// A fast registration was made.
    RegMr = 10,
    /// A message was received.
    Recv = 128,
    /// An RDMA WRITE with immediate data was received.
    RecvRdmaWithImm = 129,
}

/// A finished work request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The user's name for the work request.
    pub wr_id: u64,
    /// How it went.
    pub status: WcStatus,
    /// What it was.
    pub opcode: WcOpcode,
    /// Bytes transferred: received, read, or sent.
    pub byte_len: u32,
    /// Immediate data, in network byte order.
    pub imm: Option<[u8; 4]>,
    /// The key that the peer's SEND has invalidated.
    pub invalidated_rkey: Option<u32>,
    /// Sender's queue pair (UD), else the peer's.
    pub src_qp: u32,
    /// This queue pair.
    pub qpn: u32,
    /// The sender asked for a solicited event.
    pub solicited: bool,
    /// The first 40 bytes of the buffer are the GRH area (UD).
    pub with_grh: bool,
}
