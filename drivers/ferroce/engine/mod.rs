// SPDX-License-Identifier: GPL-2.0

//! The RoCEv2 protocol as a machine without I/O.
//!
//! A [`Qp`] is told what happened ([`Qp::post_send`], [`Qp::handle_packet`], [`Qp::handle_timeout`]) and asked what
//! to do next ([`Qp::poll_transmit`], [`Qp::poll_timeout`]). Time is a parameter, memory and completion queues are
//! reached through [`Env`], storage is handed in. The same source is part of the kernel module and of a host crate,
//! where a simulator loses, repeats and reorders the packets of two of these machines.
//!
//! Nothing here locks: the caller holds the queue pair's lock around each call. Nothing here panics: all input,
//! from the wire and from the user, is hostile. Section numbers refer to the InfiniBand Architecture Specification,
//! volume 1, release 1.4; annex A17 is RoCEv2.

mod attrs;
mod completer;
mod count;
mod credits;
mod datagram;
mod flush;
pub mod icrc;
mod local;
mod mem;
mod pieces;
mod place;
mod psn;
mod qp;
mod queue;
mod replay;
mod requester;
mod responder;
mod sgl;
mod timer;
mod transmit;
mod window;
pub mod wire;
mod wr;

pub use attrs::ModifyAttrs;
pub use attrs::ModifyError;
pub use attrs::Mtu;
pub use attrs::QpAttrs;
pub use attrs::QpConfig;
pub use attrs::QpState;
pub use attrs::QpType;
pub use count::Count;
pub use mem::Access;
pub use mem::AtomicOp;
pub use mem::Env;
pub use mem::MemError;
pub use mem::Memory;
pub use mem::QpEvent;
pub use mem::QpStorage;
pub use mem::Store;
pub use psn::Psn;
pub use qp::Qp;
pub use queue::SendWqe;
pub use replay::ReadReplay;
pub use sgl::Sge;
pub use timer::ack_timeout_ns;
pub use timer::rnr_delay_ns;
pub use timer::Instant;
pub use transmit::Transmit;
pub use wire::Packet;
pub use wr::Completion;
pub use wr::LocalOp;
pub use wr::PostError;
pub use wr::RecvWr;
pub use wr::SendFlags;
pub use wr::SendOp;
pub use wr::SendWr;
pub use wr::WcOpcode;
pub use wr::WcStatus;
