// SPDX-License-Identifier: GPL-2.0

//! The header codecs against tables of bit positions, written down from the figures of sections 9.2 and 9.3 (and annexes
//! A14, A17 and A19) and used without the codecs; PSN arithmetic for every distance.

use ferroce_engine::wire::Aeth;
use ferroce_engine::wire::AtomicEth;
use ferroce_engine::wire::Bth;
use ferroce_engine::wire::Deth;
use ferroce_engine::wire::Feth;
use ferroce_engine::wire::Opcode;
use ferroce_engine::wire::Reth;
use ferroce_engine::Packet;
use ferroce_engine::Psn;

/// A field: its name, its first bit (0 is the highest of the first byte) and its width.
type Field = (&'static str, usize, usize);

/// Puts a value into a field of a header.
fn set(bytes: &mut [u8], (_, first, width): Field, value: u64) {
    for bit in 0..width {
        let at = first + width - 1 - bit;
        let mask = 0x80 >> (at % 8);
        if (value >> bit) & 1 == 1 {
            bytes[at / 8] |= mask;
        } else {
            bytes[at / 8] &= !mask;
        }
    }
}

/// Values for a field: all if they are few, else each bit alone, runs of bits, and some others.
fn values(width: usize) -> Vec<u64> {
    if width <= 16 {
        return (0..1 << width).collect();
    }
    let all = u64::MAX >> (64 - width);
    let bits = (0..width).map(|bit| 1 << bit);
    let runs = (0..width).map(|bit| all >> bit);
    let others = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210].map(|value| value & all);
    bits.chain(runs).chain(others).chain([0, all]).collect()
}

/// Each field alone, on a background of zeroes and of ones: `decode` gives the fields' values in the order of the
/// table, `None` stands for a header that is refused; `again` gives the bytes of the decoded header.
fn check(
    size: usize,
    fields: &[Field],
    decode: impl Fn(&[u8]) -> Option<(Vec<u64>, Vec<u8>)>,
    may_refuse: impl Fn(&[u8]) -> bool,
) {
    for background in [0, 0xff] {
        for (index, field) in fields.iter().enumerate() {
            for value in values(field.2) {
                let mut bytes = vec![0; size];
                for other in fields {
                    set(
                        &mut bytes,
                        *other,
                        if background == 0 { 0 } else { u64::MAX },
                    );
                }
                set(&mut bytes, *field, value);
                let Some((got, again)) = decode(&bytes) else {
                    assert!(may_refuse(&bytes), "{} = {value:#x} is refused", field.0);
                    continue;
                };
                assert!(!may_refuse(&bytes), "{} = {value:#x} is taken", field.0);
                assert_eq!(got[index], value, "{}", field.0);
                for (other, (name, _, width)) in
                    fields.iter().enumerate().filter(|(n, _)| *n != index)
                {
                    let full = if background == 0 {
                        0
                    } else {
                        u64::MAX >> (64 - width)
                    };
                    assert_eq!(got[other], full, "{name} when {} is {value:#x}", field.0);
                }
                assert_eq!(again, bytes, "{} = {value:#x}", field.0);
            }
        }
    }
}

#[test]
fn base_transport_header() {
    let fields = [
        ("opcode", 0, 8),
        ("solicited event", 8, 1),
        ("migration", 9, 1),
        ("pad", 10, 2),
        ("partition key", 16, 16),
        ("forward congestion", 32, 1),
        ("backward congestion", 33, 1),
        ("destination", 40, 24),
        ("acknowledge request", 64, 1),
        ("PSN", 72, 24),
    ];
    let decode = |bytes: &[u8]| {
        let bth = Bth::decode(bytes.first_chunk()?)?;
        let values = vec![
            bth.opcode.into(),
            bth.solicited.into(),
            bth.migrated.into(),
            bth.pad.into(),
            bth.pkey.into(),
            bth.fecn.into(),
            bth.becn.into(),
            bth.dest_qpn.into(),
            bth.ack_req.into(),
            bth.psn.get().into(),
        ];
        Some((values, bth.encode().to_vec()))
    };
    check(12, &fields, decode, |_| false);
}

/// A version other than 0 is refused, reserved bits are not looked at and sent as 0.
#[test]
fn reserved_bits_of_the_base_header() {
    let plain = Bth::decode(&[0; 12]).unwrap();
    for version in 1..16 {
        assert_eq!(
            Bth::decode(&[0, version, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            None
        );
    }
    for reserved in 0..=u8::MAX {
        let bytes = [
            0,
            0,
            0,
            0,
            reserved & 0x3f,
            0,
            0,
            0,
            reserved & 0x7f,
            0,
            0,
            0,
        ];
        assert_eq!(Bth::decode(&bytes), Some(plain));
    }
    assert_eq!(plain.encode(), [0; 12]);
}

#[test]
fn extended_headers() {
    let address = ("virtual address", 0, 64);
    let key = ("remote key", 64, 32);
    let reth = |bytes: &[u8]| {
        let (h, _) = Reth::take(bytes)?;
        Some((vec![h.va, h.rkey.into(), h.len.into()], h.encode().to_vec()))
    };
    check(16, &[address, key, ("length", 96, 32)], reth, |_| false);
    let atomic = |bytes: &[u8]| {
        let (h, _) = AtomicEth::take(bytes)?;
        let values = vec![h.va, h.rkey.into(), h.swap_add, h.compare];
        Some((values, h.encode().to_vec()))
    };
    let fields = [address, key, ("swap or add", 96, 64), ("compare", 160, 64)];
    check(28, &fields, atomic, |_| false);
    let deth = |bytes: &[u8]| {
        let (h, _) = Deth::take(bytes)?;
        Some((vec![h.qkey.into(), h.src_qpn.into()], h.encode().to_vec()))
    };
    check(8, &[("queue key", 0, 32), ("source", 40, 24)], deth, |_| {
        false
    });
    let feth = |bytes: &[u8]| {
        let (h, _) = Feth::take(bytes)?;
        Some((
            vec![h.selectivity.into(), h.placement.into()],
            h.encode().to_vec(),
        ))
    };
    check(
        4,
        &[("selectivity", 26, 2), ("placement", 28, 4)],
        feth,
        |_| false,
    );
}

/// The syndrome is a kind of two bits behind a reserved one, and a value of five (table "AETH syndrome field").
#[test]
fn acknowledge_header() {
    let fields = [("syndrome", 0, 8), ("MSN", 8, 24)];
    let decode = |bytes: &[u8]| {
        let (h, _) = Aeth::take(bytes)?;
        let again = h.encode().to_vec();
        Some((vec![again[0].into(), h.msn.into()], again))
    };
    let refused = |bytes: &[u8]| match bytes[0] >> 5 {
        0 | 1 => false,
        3 => bytes[0] & 0x1f > 3,
        _ => true,
    };
    check(4, &fields, decode, refused);
}

/// Bytes of the headers behind the BTH, `None` for reserved opcodes (table "OpCode field").
fn extensions(opcode: u8) -> Option<usize> {
    let (service, op) = (opcode >> 5, opcode & 0x1f);
    let (imm, aeth, reth, atomic, feth) = (4, 4, 16, 28, 4);
    let plain = match op {
        0x00 | 0x01 | 0x02 | 0x04 | 0x07 | 0x08 | 0x0e => 0,
        0x03 | 0x05 | 0x09 | 0x16 | 0x17 => imm,
        0x06 | 0x0a | 0x0c | 0x1d => reth,
        0x0b => reth + imm,
        0x0d | 0x0f | 0x10 | 0x11 => aeth,
        0x12 => aeth + 8,
        0x13 | 0x14 => atomic,
        0x1c => feth + reth,
        _ => return None,
    };
    let answer = matches!(op, 0x0d..=0x12);
    match service {
        0 => Some(plain),
        1 if op <= 0x0b => Some(plain),
        3 if op == 0x04 || op == 0x05 => Some(8 + plain),
        5 => Some(plain + if answer { 0 } else { 4 }),
        _ => None,
    }
}

/// Every opcode with every length and pad: taken if and only if the table says so, and then the payload is what lies
/// between headers and pad.
#[test]
fn every_opcode_at_every_length() {
    for opcode in 0..=u8::MAX {
        assert_eq!(
            Opcode::from_byte(opcode).is_some(),
            extensions(opcode).is_some()
        );
        for pad in 0..4_usize {
            for len in 0..90_usize {
                let mut bytes: Vec<u8> = (0..len as u8).collect();
                if let [first, second, ..] = &mut bytes[..] {
                    (*first, *second) = (opcode, (pad as u8) << 4);
                }
                // A syndrome that there is.
                if let Some(byte) = bytes
                    .get_mut(12)
                    .filter(|_| matches!(opcode & 0x1f, 0x0d..=0x12))
                {
                    *byte = 0;
                }
                let head = extensions(opcode).map(|more| 12 + more);
                let fits = head.filter(|head| len >= head + pad && len % 4 == 0);
                let payload = Packet::parse(&bytes).ok().map(|pkt| pkt.payload);
                assert_eq!(
                    payload,
                    fits.map(|head| &bytes[head..len - pad]),
                    "{opcode:#04x} {len} {pad}"
                );
            }
        }
    }
}

/// Every distance, from starts on both sides of the wrap and of the middle.
#[test]
fn psn_arithmetic_at_every_distance() {
    const SPACE: u64 = 1 << 24;
    for start in [0, 1, 0x7f_ffff, 0x80_0000, 0xff_ffff] {
        let from = Psn::new(start);
        for distance in 0..SPACE as u32 {
            let to = from.plus(distance);
            assert_eq!(
                u64::from(to.get()),
                (u64::from(start) + u64::from(distance)) % SPACE
            );
            assert_eq!(to.since(from), distance);
        }
    }
}

/// The distance does not change when both ends move, by any power of two or up to the wrap.
#[test]
fn psn_distance_is_the_same_everywhere() {
    let edges = |n: u32| [n.wrapping_sub(1), n, n.wrapping_add(1)];
    let points: Vec<u32> = (0..=24).flat_map(|bit| edges(1 << bit)).collect();
    for &distance in &points {
        for &start in &points {
            let from = Psn::new(start);
            let to = from.plus(distance);
            assert_eq!(to.since(from), distance & Psn::MASK);
            assert_eq!(from.since(to), distance.wrapping_neg() & Psn::MASK);
            assert_eq!(from.plus(1).prev(), from);
            for &shift in &points {
                assert_eq!(to.plus(shift).since(from.plus(shift)), distance & Psn::MASK);
            }
        }
    }
}

/// A number keeps its low 24 bits.
#[test]
fn psn_keeps_24_bits() {
    for high in 0..=u8::MAX {
        for low in [0, 1, 0x80_0000, 0xff_ffff] {
            assert_eq!(Psn::new((u32::from(high) << 24) | low).get(), low);
        }
    }
}
