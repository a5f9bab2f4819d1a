// SPDX-License-Identifier: GPL-2.0

//! The IP and UDP headers around a RoCEv2 packet: read, written, and seen by the ICRC.

use super::ROCE_PORT;
use crate::engine::icrc::Pseudo;
use crate::kernel_ext::route::{
    Addrs,
    Flow, //
};
use core::net::IpAddr;

const PROTO_UDP: u8 = 17;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
/// Bytes of a UDP header.
pub(super) const UDP_LEN: usize = 8;
/// More fragments, or an offset.
const FRAGMENT_MASK: u16 = 0x3fff;
const DONT_FRAGMENT: u16 = 0x4000;
/// "Next header" of a GRH: a BTH follows (IBTA 8.3.3).
const GRH_NEXT: u8 = 0x1b;

/// The headers of a received packet, checked.
pub(super) struct Headers<'a> {
    /// The IP header with its options.
    pub(super) ip: &'a [u8],
    /// The UDP header.
    pub(super) udp: &'a [u8],
    /// What follows, as long as the UDP header says.
    pub(super) payload: &'a [u8],
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

fn is_v6(ip: &[u8]) -> bool {
    ip.first().is_some_and(|byte| byte >> 4 == 6)
}

/// How many bytes the IP header at the start of `bytes` has, if it holds a whole UDP datagram.
/// An IPv6 packet with extension headers is none of RoCEv2's.
pub(super) fn udp_offset(bytes: &[u8]) -> Option<usize> {
    let first = *bytes.first()?;
    match first >> 4 {
        4 => {
            let len = usize::from(first & 15) * 4;
            let whole = be16(bytes, 6)? & FRAGMENT_MASK == 0;
            (len >= IPV4_LEN && whole && *bytes.get(9)? == PROTO_UDP).then_some(len)
        }
        6 => (*bytes.get(6)? == PROTO_UDP).then_some(IPV6_LEN),
        _ => None,
    }
}

/// Whether the UDP header at `offset` names our port; `None` if it is not there.
pub(super) fn is_roce(bytes: &[u8], offset: usize) -> Option<bool> {
    Some(be16(bytes, offset + 2)? == ROCE_PORT)
}

impl<'a> Headers<'a> {
    /// Takes a packet apart. A GSO packet's payload is all that is there.
    pub(super) fn parse(bytes: &'a [u8], gso: bool) -> Option<Self> {
        let (ip, rest) = bytes.split_at_checked(udp_offset(bytes)?)?;
        let (udp, rest) = rest.split_at_checked(UDP_LEN)?;
        let len = match gso {
            true => rest.len(),
            false => usize::from(be16(udp, 4)?).checked_sub(UDP_LEN)?,
        };
        let payload = rest.get(..len)?;
        Some(Self { ip, udp, payload })
    }
}

/// A GID of RoCEv1 holds an IPv4 address as one of RoCEv2 does.
fn gid(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
        IpAddr::V6(addr) => addr.octets(),
    }
}

/// Takes a packet of RoCEv1 apart, behind its Ethernet header. What pads the frame is left
/// out.
pub(super) fn parse_grh(bytes: &[u8]) -> Option<Headers<'_>> {
    let (ip, rest) = bytes.split_at_checked(IPV6_LEN)?;
    if !is_v6(ip) || *ip.get(6)? != GRH_NEXT {
        return None;
    }
    Some(Headers {
        ip,
        udp: &[],
        payload: rest.get(..usize::from(be16(ip, 4)?))?,
    })
}

/// The destination address of an IP header.
pub(super) fn destination(ip: &[u8]) -> Option<IpAddr> {
    if is_v6(ip) {
        Some(<[u8; 16]>::try_from(ip.get(24..40)?).ok()?.into())
    } else {
        Some(<[u8; 4]>::try_from(ip.get(16..20)?).ok()?.into())
    }
}

/// What the ICRCs of the segments of a packet begin with: each is a datagram of its own on
/// the wire.
pub(super) struct Pseudos {
    pseudo: Pseudo,
    /// IPv4 ID of the first one.
    id: u16,
    udp_len: usize,
}

impl Pseudos {
    /// For a packet with these headers.
    pub(super) fn new(ip: &[u8], udp: &[u8]) -> Option<Self> {
        Some(Self {
            pseudo: Pseudo::new(ip, udp)?,
            id: be16(ip, 4).unwrap_or_default(),
            udp_len: udp.len(),
        })
    }

    /// That of segment `index`, with `payload` bytes.
    pub(super) fn of(&mut self, index: usize, payload: usize) -> &mut Pseudo {
        let id = self.id.wrapping_add(index as u16);
        self.pseudo.set_segment((self.udp_len + payload) as u16, id);
        &mut self.pseudo
    }
}

/// The headers of a flow's packets, all but the lengths, the IP ID and the checksums.
pub(super) struct Template {
    bytes: [u8; IPV6_LEN + UDP_LEN],
    len: usize,
    ip_len: usize,
    /// The pseudo-header's sum of what is constant, for the UDP checksum.
    sum: u32,
}

impl Template {
    /// For packets of `flow`.
    pub(super) fn new(flow: &Flow, hop_limit: u8) -> Self {
        let mut bytes = [0; IPV6_LEN + UDP_LEN];
        let (ip_len, addrs) = match flow.addrs {
            Addrs::V4(src, dst) => {
                bytes[0] = 0x45;
                bytes[1] = flow.tclass;
                bytes[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
                bytes[8] = hop_limit;
                bytes[9] = PROTO_UDP;
                bytes[12..16].copy_from_slice(&src.octets());
                bytes[16..20].copy_from_slice(&dst.octets());
                (IPV4_LEN, 12..20)
            }
            Addrs::V6(src, dst) => {
                let class = u32::from(flow.tclass) << 20;
                let first = 6 << 28 | class | (flow.flow_label & 0xf_ffff);
                bytes[0..4].copy_from_slice(&first.to_be_bytes());
                bytes[6] = PROTO_UDP;
                bytes[7] = hop_limit;
                bytes[8..24].copy_from_slice(&src.octets());
                bytes[24..40].copy_from_slice(&dst.octets());
                (IPV6_LEN, 8..40)
            }
        };
        let sum = bytes[addrs]
            .chunks_exact(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum::<u32>()
            + u32::from(PROTO_UDP);
        let len = ip_len + UDP_LEN;
        put16(&mut bytes, ip_len, flow.sport);
        put16(&mut bytes, ip_len + 2, flow.dport);
        Self {
            bytes,
            len,
            ip_len,
            sum,
        }
    }

    /// For packets of RoCEv1: a GRH, which is laid out as an IPv6 header, and nothing behind
    /// it (IBTA annex A16).
    pub(super) fn grh(src: IpAddr, dst: IpAddr, tclass: u8, flow_label: u32, hops: u8) -> Self {
        let mut bytes = [0; IPV6_LEN + UDP_LEN];
        let first = 6 << 28 | u32::from(tclass) << 20 | (flow_label & 0xf_ffff);
        bytes[0..4].copy_from_slice(&first.to_be_bytes());
        bytes[6] = GRH_NEXT;
        bytes[7] = hops;
        bytes[8..24].copy_from_slice(&gid(src));
        bytes[24..40].copy_from_slice(&gid(dst));
        Self {
            bytes,
            len: IPV6_LEN,
            ip_len: IPV6_LEN,
            sum: 0,
        }
    }

    /// Whether `ip` is the header of a packet that goes the other way.
    pub(super) fn is_answered_by(&self, ip: &[u8]) -> bool {
        let (src, dst) = match is_v6(&self.bytes) {
            true => (8..24, 24..40),
            false => (12..16, 16..20),
        };
        is_v6(ip) == is_v6(&self.bytes)
            && (!is_v6(ip) || ip.get(6) == self.bytes.get(6))
            && ip.get(src.clone()) == self.bytes.get(dst.clone())
            && ip.get(dst) == self.bytes.get(src)
    }

    /// Bytes of the IP and UDP headers.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the IP header.
    pub(super) fn ip_len(&self) -> usize {
        self.ip_len
    }

    /// Writes the headers of a packet with `payload` bytes. `checksum`: whether the
    /// UDP checksum field is to hold the pseudo-header's sum for somebody who
    /// completes it; else it says that there is none.
    pub(super) fn write(&self, out: &mut [u8], id: u16, payload: usize, checksum: bool) {
        let Some(headers) = out.get_mut(..self.len) else {
            return;
        };
        headers.copy_from_slice(&self.bytes[..self.len]);
        let (ip, udp) = headers.split_at_mut(self.ip_len());
        let udp_len = (udp.len() + payload) as u16;
        if is_v6(ip) {
            put16(ip, 4, udp_len);
        } else {
            put16(ip, 2, ip.len() as u16 + udp_len);
            put16(ip, 4, id);
        }
        if udp.is_empty() {
            return;
        }
        put16(udp, 4, udp_len);
        if checksum {
            put16(udp, 6, fold(self.sum + u32::from(udp_len)));
        }
    }
}

/// A one's complement sum in 16 bits.
fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}
