// SPDX-License-Identifier: GPL-2.0

//! RoCEv2 over UDP: who gets the datagrams of port 4791, and how ours go out.
//!
//! - [`stack`]: which interface belongs to which RDMA device; one per module.
//! - [`port`]: UDP port 4791 of a namespace while a device is in it.
//! - [`datagram`]: what arrived.
//! - [`path`]: where a queue pair sends, [`frame`]: what it sends.
//! - [`link`]: RoCEv1, which is not over UDP.
//! - [`header`]: the IP and UDP bytes of both directions.

pub(crate) mod datagram;
pub(crate) mod frame;
mod header;
mod link;
pub(crate) mod path;
mod port;
pub(crate) mod stack;

pub(crate) use self::{
    datagram::Datagram,
    frame::Frame,
    path::{
        Path,
        PathConfig, //
    },
    port::Endpoint,
    stack::{
        Attachment,
        Interface,
        Stack, //
    },
};

/// The UDP port of RoCEv2.
pub(crate) const ROCE_PORT: u16 = 4791;
