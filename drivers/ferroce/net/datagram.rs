// SPDX-License-Identifier: GPL-2.0

//! What arrived on UDP port 4791.

use super::header::{
    self,
    Headers, //
};
use crate::engine::icrc::Pseudo;

/// One UDP datagram to port 4791, or a run of them that the stack did not cut.
/// All headers are checked; the ICRC is not.
pub(crate) struct Datagram<'a> {
    /// The IP header with its options.
    pub(crate) ip: &'a [u8],
    /// The UDP header.
    pub(crate) udp: &'a [u8],
    /// The BTH and what follows, of all segments.
    pub(crate) payload: &'a [u8],
    /// Payload bytes of a segment, of which only the last one may be shorter;
    /// 0: it is one datagram.
    pub(crate) gso_size: usize,
}

impl<'a> Datagram<'a> {
    pub(super) fn new(headers: &Headers<'a>, gso_size: usize) -> Self {
        Self {
            ip: headers.ip,
            udp: headers.udp,
            payload: headers.payload,
            gso_size,
        }
    }

    /// The datagrams one by one: what the ICRC begins with, and the bytes from the
    /// BTH to the ICRC.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (Pseudo, &'a [u8])> + '_ {
        let size = match self.gso_size {
            0 => self.payload.len().max(1),
            size => size,
        };
        let bodies = self.payload.chunks(size).enumerate();
        bodies.filter_map(|(index, body)| {
            Some((header::pseudo(self.ip, self.udp, index, body.len())?, body))
        })
    }
}
