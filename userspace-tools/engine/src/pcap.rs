// SPDX-License-Identifier: GPL-2.0

//! Capture files: reads the RoCEv2 packets of one, writes one.

/// A RoCEv2 packet of a capture.
#[derive(Clone, Debug)]
pub struct Captured {
    /// IP header.
    pub ip: Vec<u8>,
    /// UDP header.
    pub udp: Vec<u8>,
    /// BTH to pad.
    pub body: Vec<u8>,
    /// The ICRC that the sender wrote.
    pub icrc: [u8; 4],
}

/// The RoCEv2 packets in the bytes of a little-endian Ethernet capture file; anything else in it is skipped.
/// `None` if it is not such a file.
pub fn roce_packets(file: &[u8]) -> Option<Vec<Captured>> {
    let (header, mut rest) = file.split_first_chunk::<24>()?;
    let micro = [0xd4, 0xc3, 0xb2, 0xa1];
    let nano = [0x4d, 0x3c, 0xb2, 0xa1];
    if !header.starts_with(&micro) && !header.starts_with(&nano) || header[20] != 1 {
        return None;
    }
    let mut packets = Vec::new();
    while let Some((record, after)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes(*record[8..].first_chunk()?) as usize;
        let (frame, next) = after.split_at_checked(len)?;
        packets.extend(roce(frame));
        rest = next;
    }
    Some(packets)
}

fn roce(frame: &[u8]) -> Option<Captured> {
    let (ethernet, rest) = frame.split_at_checked(14)?;
    let (header, length, protocol) = match (ethernet[12], ethernet[13]) {
        (0x08, 0x00) => (
            usize::from(rest.first()? & 15) * 4,
            usize::from(u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?])),
            *rest.get(9)?,
        ),
        (0x86, 0xdd) => (
            40,
            40 + usize::from(u16::from_be_bytes([*rest.get(4)?, *rest.get(5)?])),
            *rest.get(6)?,
        ),
        _ => return None,
    };
    let (ip, rest) = rest.get(..length)?.split_at_checked(header)?;
    let (udp, rest) = rest.split_at_checked(8)?;
    let (body, icrc) = rest.split_last_chunk::<4>()?;
    (protocol == 17 && udp[2..4] == 4791_u16.to_be_bytes()).then(|| Captured {
        ip: ip.to_vec(),
        udp: udp.to_vec(),
        body: body.to_vec(),
        icrc: *icrc,
    })
}

/// A capture file, with times in nanoseconds, of Ethernet frames.
pub fn write<'a>(frames: impl Iterator<Item = (u64, &'a [u8])>) -> Vec<u8> {
    const ETHERNET: u32 = 1;
    let mut file = vec![0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0];
    for word in [0, 0, 1 << 16, ETHERNET] {
        file.extend(word.to_le_bytes());
    }
    for (at, frame) in frames {
        let (seconds, rest) = (at / 1_000_000_000, at % 1_000_000_000);
        let len = frame.len() as u32;
        for word in [seconds as u32, rest as u32, len, len] {
            file.extend(word.to_le_bytes());
        }
        file.extend_from_slice(frame);
    }
    file
}
