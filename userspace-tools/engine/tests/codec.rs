// SPDX-License-Identifier: GPL-2.0

//! Headers, opcodes, PSNs and timer codes.

use ferroce_engine::ack_timeout_ns;
use ferroce_engine::rnr_delay_ns;
use ferroce_engine::wire::Aeth;
use ferroce_engine::wire::AtomicEth;
use ferroce_engine::wire::Bth;
use ferroce_engine::wire::Deth;
use ferroce_engine::wire::NakCode;
use ferroce_engine::wire::Opcode;
use ferroce_engine::wire::ParseError;
use ferroce_engine::wire::Reth;
use ferroce_engine::wire::Syndrome;
use ferroce_engine::Mtu;
use ferroce_engine::Packet;
use ferroce_engine::Psn;
use ferroce_engine::Sge;
use proptest::prelude::*;

/// A header is read back from its bytes and what follows is left, and one byte less is not enough.
fn survives<T: PartialEq + std::fmt::Debug>(
    header: T,
    bytes: &[u8],
    take: impl Fn(&[u8]) -> Option<(T, &[u8])>,
) {
    let longer = [bytes, &[9]].concat();
    assert_eq!(take(&longer), Some((header, &[9][..])));
    assert!(take(&bytes[1..]).is_none());
}

proptest! {
    #[test]
    fn bth_survives(bytes in any::<[u8; 12]>()) {
        if let Some(bth) = Bth::decode(&bytes) {
            // Reserved bits of bytes 4 and 8 are not kept.
            let mut kept = bytes;
            kept[4] &= 0xc0;
            kept[8] &= 0x80;
            prop_assert_eq!(bth.encode(), kept);
        } else {
            prop_assert_ne!(bytes[1] & 0x0f, 0);
        }
    }

    #[test]
    fn extensions_survive(va: u64, rkey: u32, len: u32, swap_add: u64, compare: u64) {
        let reth = Reth { va, rkey, len };
        survives(reth, &reth.encode(), Reth::take);
        let deth = Deth { qkey: rkey, src_qpn: len & 0xff_ffff };
        survives(deth, &deth.encode(), Deth::take);
        let eth = AtomicEth { va, rkey, swap_add, compare };
        survives(eth, &eth.encode(), AtomicEth::take);
    }

    #[test]
    fn parse_takes_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(pkt) = Packet::parse(&bytes) {
            prop_assert!(pkt.payload.len() + usize::from(pkt.bth.pad) + 12 <= bytes.len());
        }
    }

    #[test]
    fn psn_arithmetic(a: u32, n in 0..1_u32 << 24) {
        let psn = Psn::new(a);
        prop_assert_eq!(psn.plus(n).since(psn), n);
        prop_assert_eq!(psn.plus(1).prev(), psn);
        prop_assert_eq!(psn.plus(n).get(), (u64::from(psn.get()) + u64::from(n)) as u32 % (1 << 24));
    }
}

#[test]
fn psn_wraps_at_24_bits() {
    let edges = [0, 1, 0x7f_ffff, 0x80_0000, 0x80_0001, 0xff_fffe, 0xff_ffff];
    for from in edges {
        for to in edges {
            let ahead = Psn::new(to).since(Psn::new(from));
            let expected = (i64::from(to) - i64::from(from)).rem_euclid(1 << 24);
            assert_eq!(i64::from(ahead), expected);
        }
    }
    assert_eq!(Psn::new(0xff_ffff).plus(1), Psn::new(0));
    assert_eq!(Psn::new(0).prev(), Psn::new(0xff_ffff));
    assert_eq!(Psn::new(0x0100_0005), Psn::new(5));
}

#[test]
fn opcodes_of_the_table() {
    let valid: Vec<u8> = (0..=255)
        .filter(|&b| Opcode::from_byte(b).is_some())
        .collect();
    let mut expected: Vec<u8> = (0x00..=0x14).chain([0x16, 0x17, 0x1c, 0x1d]).collect();
    expected.extend(0x20..=0x2b);
    expected.extend([0x64, 0x65]);
    expected.extend((0xa0..=0xb4).chain([0xb6, 0xb7, 0xbc, 0xbd]));
    assert_eq!(valid, expected);
    for byte in valid {
        assert_eq!(Opcode::from_byte(byte).unwrap().to_byte(), byte);
    }
}

/// Bytes of headers after the BTH, from the specification's table of opcodes.
fn extension(byte: u8) -> usize {
    match byte {
        // XRC: responses as RC has them, requests with four bytes more (section A14.3.1)
        0xad..=0xb2 => extension(byte & 0x1f),
        0xa0.. => 4 + extension(byte & 0x1f),
        0x03 | 0x05 | 0x09 | 0x16 | 0x17 | 0x23 | 0x25 | 0x29 => 4,
        0x06 | 0x0a | 0x0c | 0x1d | 0x26 | 0x2a => 16,
        0x0b | 0x1c | 0x2b => 20,
        0x0d | 0x0f | 0x10 | 0x11 => 4,
        0x12 => 12,
        0x13 | 0x14 => 28,
        0x64 => 8,
        0x65 => 12,
        _ => 0,
    }
}

#[test]
fn every_opcode_has_its_headers() {
    for byte in (0..=255).filter(|&b| Opcode::from_byte(b).is_some()) {
        let mut packet = vec![0; 12 + extension(byte)];
        packet[0] = byte;
        packet[1] = 0x30;
        packet.extend([1, 2, 3, 4, 5, 0, 0, 0]);
        let view = Packet::parse(&packet).unwrap();
        assert_eq!(view.payload, [1, 2, 3, 4, 5], "opcode {byte:#x}");
        let short = &packet[..12 + extension(byte) + 2];
        assert_eq!(Packet::parse(short).err(), Some(ParseError::Short));
    }
    assert_eq!(Packet::parse(&[0; 11]).err(), Some(ParseError::Short));
    let version = [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(Packet::parse(&version).err(), Some(ParseError::Version));
    let reserved = [0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(Packet::parse(&reserved).err(), Some(ParseError::Opcode));
}

#[test]
fn syndromes() {
    let at = |byte: u8| Aeth::take(&[byte, 1, 2, 3]).map(|(aeth, _)| aeth);
    for byte in 0..=255 {
        let expected = match byte {
            0x00..=0x1f => Some(Syndrome::Ack),
            0x20..=0x3f => Some(Syndrome::Rnr(byte & 0x1f)),
            0x60 => Some(Syndrome::Nak(NakCode::Sequence)),
            0x61 => Some(Syndrome::Nak(NakCode::InvalidRequest)),
            0x62 => Some(Syndrome::Nak(NakCode::RemoteAccess)),
            0x63 => Some(Syndrome::Nak(NakCode::RemoteOperational)),
            _ => None,
        };
        assert_eq!(at(byte).map(|aeth| aeth.syndrome), expected, "{byte:#x}");
        let again = at(byte).map(|aeth| aeth.encode()[0]);
        assert_eq!(again, expected.map(|_| byte));
    }
    assert_eq!(at(0x1f).map(|aeth| aeth.msn), Some(0x01_0203));
}

/// Microseconds of the 32 codes, from the specification's table: case R5.
#[test]
fn r5_rnr_codes() {
    let table = [
        655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560,
        3_840, 5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880,
        163_840, 245_760, 327_680, 491_520,
    ];
    for (code, us) in table.into_iter().enumerate() {
        assert_eq!(rnr_delay_ns(code as u8), us * 1000, "code {code}");
    }
}

#[test]
fn ack_timeouts() {
    assert_eq!(ack_timeout_ns(0), None);
    assert_eq!(ack_timeout_ns(1), Some(8_192));
    assert_eq!(ack_timeout_ns(14), Some(67_108_864));
    assert_eq!(ack_timeout_ns(31), Some(8_796_093_022_208));
}

#[test]
fn mtu_numbers() {
    for (ib, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
        assert_eq!(Mtu::from_ib(ib).unwrap().bytes(), bytes);
    }
    assert_eq!((Mtu::from_ib(0), Mtu::from_ib(6)), (None, None));
    let packets = [0, 1, 256, 257, 512, u32::MAX].map(|len| Mtu::M256.packets(len));
    assert_eq!(packets, [1, 1, 1, 2, 2, 1 << 24]);
}

#[test]
fn sge_has_the_layout_of_ib_sge() {
    let sge = Sge {
        addr: 0x0102_0304_0506_0708,
        len: 0x1112_1314,
        lkey: 0x2122_2324,
    };
    let mut bytes = sge.addr.to_ne_bytes().to_vec();
    bytes.extend(sge.len.to_ne_bytes());
    bytes.extend(sge.lkey.to_ne_bytes());
    assert_eq!(sge.encode().to_vec(), bytes);
}
