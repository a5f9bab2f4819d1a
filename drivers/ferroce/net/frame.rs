// SPDX-License-Identifier: GPL-2.0

//! A run of packets on its way out: one buffer with the IP and UDP headers written,
//! to be filled in place and sent at once.

use super::{
    header::Pseudos,
    link::Link, //
};
use crate::engine::icrc::Pseudo;
use crate::kernel_ext::{
    route::Route,
    skb::SkBuff, //
};
use kernel::prelude::*;

/// How a frame leaves.
pub(super) enum Way {
    /// Through the IP stack.
    Route(Route),
    /// As it is, out of an interface.
    Link(Link),
}

/// Made by [`super::Path::frame`]. Dropped unsent, it just goes.
pub(crate) struct Frame {
    pub(super) skb: SkBuff,
    pub(super) way: Way,
    pub(super) pseudos: Pseudos,
    pub(super) ip_len: usize,
    /// Bytes of the UDP header, which RoCEv1 has not.
    pub(super) udp_len: usize,
    pub(super) segment_len: usize,
    pub(super) count: usize,
    /// How many segments were given out to be filled, from the first one on.
    pub(super) filled: usize,
}

impl Frame {
    /// Segment `index`: the bytes from the BTH to the ICRC, all of which the caller
    /// writes, and what the ICRC begins with. Segments are filled in order.
    pub(crate) fn segment(&mut self, index: usize) -> Result<(&mut [u8], &mut Pseudo)> {
        if index != self.filled || index >= self.count {
            return Err(EINVAL);
        }
        self.filled += 1;
        let start = self.ip_len + self.udp_len + index * self.segment_len;
        let rest = self.skb.bytes().get_mut(start..).ok_or(EINVAL)?;
        let len = rest.len().min(self.segment_len);
        let body = rest.get_mut(..len).ok_or(EINVAL)?;
        Ok((body, self.pseudos.of(index, len)))
    }

    /// How many packets these are, and their bytes from the IP header to the ICRC.
    pub(crate) fn volume(&self) -> (u64, u64) {
        let headers = (self.ip_len + self.udp_len) * (self.count - 1);
        (self.count as u64, (self.skb.len() + headers) as u64)
    }

    /// Hands the packets to the IP stack. Fails with `EINVAL` if a segment was left
    /// out, and with what the stack says. The peer may run inside this call when the
    /// link is a virtual one, so no lock that receiving takes may be held.
    pub(crate) fn send(self) -> Result {
        if self.filled != self.count {
            return Err(EINVAL);
        }
        match self.way {
            Way::Route(route) => self.skb.send(route),
            Way::Link(link) => link.send(self.skb),
        }
    }
}
