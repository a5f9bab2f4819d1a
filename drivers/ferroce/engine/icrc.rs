// SPDX-License-Identifier: GPL-2.0

//! The invariant CRC (section A17.3.3): CRC-32 over eight bytes of ones, the headers with all that a router may
//! change replaced by ones, and the packet up to its pad.

/// A CRC-32 (polynomial 0x04c11db7, bits reflected) without initial or final inversion: the kernel's `crc32_le`.
pub trait Crc {
    /// Takes `bytes` into `state`.
    fn update(&self, state: u32, bytes: &[u8]) -> u32;

    /// Takes `first` and `then`.
    fn chain(&self, state: u32, first: &[u8], then: &[u8]) -> u32 {
        self.update(self.update(state, first), then)
    }
}

/// Bytes that stand for the link header.
const LINK: usize = 8;
/// "Next header" of a GRH in front of a BTH (section 8.3.3).
const GRH_NEXT: u8 = 0x1b;
/// Bytes of a UDP header.
const UDP: usize = 8;
/// Longest IP header: IPv4 with all options; IPv6 has 40 bytes and no extension header.
const IP_MAX: usize = 60;
/// Bytes of an IPv6 header.
const IPV6: usize = 40;
/// Bytes of a BTH.
const BTH: usize = 12;

/// The masked headers in front of a packet's BTH.
#[derive(Copy, Clone)]
pub struct Pseudo {
    bytes: [u8; LINK + IP_MAX + UDP + BTH],
    ip_len: usize,
    len: usize,
}

impl Pseudo {
    /// Masks an IPv4 or IPv6 header and a UDP header, or a GRH (section A16.4.3 has nothing of the Ethernet header),
    /// which is laid out as an IPv6 header, and no UDP header. `None` if they are not that.
    pub fn new(ip: &[u8], udp: &[u8]) -> Option<Self> {
        let masked: &[usize] = match (ip.first()? >> 4, ip.len()) {
            // Type of service, time to live, checksum.
            (4, 20..=IP_MAX) => &[1, 8, 10, 11],
            // Flow label and hop limit; the traffic class shares bytes 0 and 1 and is set below.
            (6, IPV6) => &[1, 2, 3, 7],
            _ => return None,
        };
        let is_grh = ip.len() == IPV6 && ip.get(6) == Some(&GRH_NEXT);
        if udp.len() != if is_grh { 0 } else { UDP } {
            return None;
        }
        let mut bytes = [0xff; LINK + IP_MAX + UDP + BTH];
        let len = LINK + ip.len() + udp.len();
        let (head, tail) = bytes.get_mut(LINK..len)?.split_at_mut(ip.len());
        head.copy_from_slice(ip);
        for &at in masked {
            *head.get_mut(at)? = 0xff;
        }
        if ip.first()? >> 4 == 6 {
            *head.first_mut()? |= 0x0f;
        }
        tail.copy_from_slice(udp);
        if let Some(checksum) = tail.get_mut(6..) {
            checksum.fill(0xff);
        }
        Some(Self {
            bytes,
            ip_len: ip.len(),
            len,
        })
    }

    /// Sets what differs between the packets of one run: the bytes of a UDP datagram (or of what follows a GRH), and the
    /// ID of an IPv4 header.
    pub fn set_segment(&mut self, len: u16, id: u16) {
        let ip_len = self.ip_len;
        let v6 = self.bytes.get(LINK).is_some_and(|byte| byte >> 4 == 6);
        let mut put = |at: usize, value: u16| {
            if let Some(field) = self.bytes.get_mut(LINK + at..LINK + at + 2) {
                field.copy_from_slice(&value.to_be_bytes());
            }
        };
        if v6 {
            put(4, len);
        } else {
            put(2, len.wrapping_add(ip_len as u16));
            put(4, id);
        }
        if self.len == LINK + ip_len + UDP {
            put(ip_len + 4, len);
        }
    }

    /// All that the CRC begins with: these headers behind the ones that stand for the link header, and the 12 bytes of
    /// `bth`, whose fifth byte a router may change.
    fn with_bth(&mut self, bth: &[u8; BTH]) -> &[u8] {
        let end = self.len + BTH;
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(bth);
            if let Some(byte) = room.get_mut(4) {
                *byte = 0xff;
            }
        }
        self.bytes.get(..end).unwrap_or(&[])
    }
}

/// The four bytes that a final `state` of the CRC puts on the wire.
pub fn finish(state: u32) -> [u8; 4] {
    (!state).to_le_bytes()
}

/// ICRC of a packet; `body` is the BTH to the end of the pad. `None` if it is shorter than a BTH.
pub fn icrc(crc: &impl Crc, pseudo: &mut Pseudo, body: &[u8]) -> Option<[u8; 4]> {
    let (bth, rest) = body.split_first_chunk::<BTH>()?;
    Some(finish(crc.chain(!0, pseudo.with_bth(bth), rest)))
}
