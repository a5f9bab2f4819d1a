// SPDX-License-Identifier: GPL-2.0

//! Ethernet frames as they would be on a real wire, so that a capture of a run can be read by other programs.

use crate::crc::TableCrc;
use crate::icrc;

const ETHERNET: usize = 14;
const UDP: usize = 8;
/// UDP port of RoCEv2.
const PORT: u16 = 4791;

/// Address family of a run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Sum of 16-bit words with end-around carry (RFC 1071).
fn ones_sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn mac(host: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, host as u8 + 1]
}

fn ipv4(from: usize, to: usize, len: usize) -> Vec<u8> {
    let [hi, lo] = ((20 + len) as u16).to_be_bytes();
    let mut ip = vec![0x45, 0, hi, lo, 0, 0, 0x40, 0, 64, 17, 0, 0];
    for host in [from, to] {
        ip.extend([10, 0, 0, host as u8 + 1]);
    }
    let sum = (!ones_sum(&ip)).to_be_bytes();
    ip[10..12].copy_from_slice(&sum);
    ip
}

fn ipv6(from: usize, to: usize, len: usize) -> Vec<u8> {
    let [hi, lo] = (len as u16).to_be_bytes();
    let mut ip = vec![0x60, 0, 0, 0, hi, lo, 17, 64];
    for host in [from, to] {
        ip.extend([0xfd; 1]);
        ip.extend([0; 14]);
        ip.push(host as u8 + 1);
    }
    ip
}

/// Puts `body`, BTH to pad, into a frame from host to host.
pub fn wrap(family: Family, from: usize, to: usize, qpn: u32, body: &[u8]) -> Vec<u8> {
    let len = UDP + body.len() + 4;
    let (ethertype, ip) = match family {
        Family::V4 => ([0x08, 0x00], ipv4(from, to, len)),
        Family::V6 => ([0x86, 0xdd], ipv6(from, to, len)),
    };
    let mut udp = Vec::with_capacity(UDP);
    for field in [0xc000 | (qpn as u16 & 0x3fff), PORT, len as u16, 0] {
        udp.extend(field.to_be_bytes());
    }
    if family == Family::V6 {
        // IPv6 forbids UDP without a checksum. The ICRC covers it with ones, so it is computed last.
        udp[6..].copy_from_slice(&[0, 0]);
    }
    let mut pseudo = icrc::Pseudo::new(&ip, &udp).expect("headers of the right length");
    let icrc = icrc::icrc(&TableCrc, &mut pseudo, body).expect("a packet has a BTH");
    if family == Family::V6 {
        let sum = udp6_checksum(&ip, &udp, body, &icrc).to_be_bytes();
        udp[6..].copy_from_slice(&sum);
    }
    let mut frame = Vec::with_capacity(ETHERNET + ip.len() + len);
    for part in [
        &mac(to)[..],
        &mac(from)[..],
        &ethertype[..],
        &ip[..],
        &udp[..],
        body,
        &icrc[..],
    ] {
        frame.extend_from_slice(part);
    }
    frame
}

fn udp6_checksum(ip: &[u8], udp: &[u8], body: &[u8], icrc: &[u8]) -> u16 {
    let len = (udp.len() + body.len() + icrc.len()) as u16;
    let mut all = ip[8..40].to_vec();
    all.extend(len.to_be_bytes());
    all.extend([0, 17]);
    for part in [udp, body, icrc] {
        all.extend_from_slice(part);
    }
    match !ones_sum(&all) {
        0 => 0xffff,
        sum => sum,
    }
}

/// A frame that a host takes in: its BTH to pad, and what the first 40 bytes of a UD receive show.
pub struct Opened {
    /// BTH to pad.
    pub body: Vec<u8>,
    /// GRH area (section A17.4.5.1): the IPv4 header in its last 20 bytes, or the IPv6 header.
    pub grh: [u8; 40],
}

/// Takes a frame apart as a host would; `None` for what its network stack or its ICRC check drops.
pub fn open(family: Family, host: usize, frame: &[u8]) -> Option<Opened> {
    let rest = frame.get(ETHERNET..)?;
    let (len, own): (usize, Vec<u8>) = match family {
        Family::V4 => (20, ipv4(0, host, 0)[16..].to_vec()),
        Family::V6 => (40, ipv6(0, host, 0)[24..].to_vec()),
    };
    let (ip, rest) = rest.split_at_checked(len)?;
    let sound = match family {
        Family::V4 => ip[0] == 0x45 && ip[9] == 17 && ones_sum(ip) == 0xffff,
        Family::V6 => ip[0] >> 4 == 6 && ip[6] == 17,
    };
    if !sound || !ip.ends_with(&own) {
        return None;
    }
    let said = match family {
        Family::V4 => usize::from(u16::from_be_bytes([ip[2], ip[3]])).checked_sub(20)?,
        Family::V6 => usize::from(u16::from_be_bytes([ip[4], ip[5]])),
    };
    if said != rest.len() {
        return None;
    }
    let (udp, rest) = rest.split_at_checked(UDP)?;
    let (body, icrc) = rest.split_last_chunk::<4>()?;
    if udp[2..4] != PORT.to_be_bytes() || usize::from(u16::from_be_bytes([udp[4], udp[5]])) != said
    {
        return None;
    }
    let mut pseudo = icrc::Pseudo::new(ip, udp)?;
    if icrc::icrc(&TableCrc, &mut pseudo, body)? != *icrc {
        return None;
    }
    let mut grh = [0; 40];
    grh[40 - len..].copy_from_slice(ip);
    Some(Opened {
        body: body.to_vec(),
        grh,
    })
}
