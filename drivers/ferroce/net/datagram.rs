// SPDX-License-Identifier: GPL-2.0

//! What arrived on UDP port 4791.

use super::header::{
    self,
    Headers,
    Pseudos, //
};
use crate::engine::icrc::Pseudo;
use core::net::IpAddr;

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
    /// The VLAN whose interface it came through.
    pub(crate) vlan: Option<u16>,
}

impl<'a> Datagram<'a> {
    pub(super) fn new(headers: &Headers<'a>, gso_size: usize, vlan: Option<u16>) -> Self {
        Self {
            ip: headers.ip,
            udp: headers.udp,
            payload: headers.payload,
            gso_size,
            vlan,
        }
    }

    /// The GID of the multicast group that it is for, if it is for one.
    pub(crate) fn group(&self) -> Option<[u8; 16]> {
        match header::destination(self.ip)? {
            IpAddr::V4(ip) if ip.is_multicast() => Some(ip.to_ipv6_mapped().octets()),
            IpAddr::V6(ip) if ip.is_multicast() => Some(ip.octets()),
            _ => None,
        }
    }

    /// The datagrams one by one.
    pub(crate) fn segments(&self) -> Segments<'a> {
        Segments {
            pseudos: Pseudos::new(self.ip, self.udp),
            rest: self.payload,
            size: match self.gso_size {
                0 => self.payload.len(),
                size => size,
            },
            index: 0,
        }
    }
}

/// What is left of a run of datagrams.
pub(crate) struct Segments<'a> {
    pseudos: Option<Pseudos>,
    rest: &'a [u8],
    size: usize,
    index: usize,
}

impl<'a> Segments<'a> {
    /// The next one: what its ICRC begins with, and its bytes from the BTH to the ICRC.
    pub(crate) fn next(&mut self) -> Option<(&mut Pseudo, &'a [u8])> {
        let size = self.size.min(self.rest.len());
        if size == 0 {
            return None;
        }
        let (body, rest) = self.rest.split_at_checked(size)?;
        let pseudo = self.pseudos.as_mut()?.of(self.index, size);
        self.rest = rest;
        self.index += 1;
        Some((pseudo, body))
    }
}
