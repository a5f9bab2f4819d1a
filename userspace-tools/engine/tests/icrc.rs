// SPDX-License-Identifier: GPL-2.0

//! The ICRC against published vectors and against packets of another implementation.

use ferroce_engine::crc::TableCrc;
use ferroce_engine::icrc::icrc;
use ferroce_engine::icrc::Pseudo;
use ferroce_engine::pcap::roce_packets;
use ferroce_engine::Packet;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|d| (d[0] * 16 + d[1]) as u8).collect()
}

/// ICRC of a packet that starts with an IP header of `ip_len` bytes.
fn icrc_of(packet: &[u8], ip_len: usize) -> [u8; 4] {
    let (ip, rest) = packet.split_at(ip_len);
    let (udp, body) = rest.split_at(8);
    let mut pseudo = Pseudo::new(ip, udp).expect("headers");
    icrc(&TableCrc, &mut pseudo, body).expect("a BTH")
}

#[test]
fn ipv4_with_payload() {
    let mut packet =
        hex("45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff4000011800000000");
    packet.extend([0; 16]);
    assert_eq!(icrc_of(&packet, 20).to_vec(), hex("82fd002a"));
}

#[test]
fn ipv4_rdma_header() {
    let packet = hex(
        "45010040047840004011b4d5c0a80007c0a80007c00012b7002caca22460ffff000000d300cf1710\
         4630818be28935d90e9a95505401be885e500000",
    );
    assert_eq!(icrc_of(&packet, 20).to_vec(), hex("78f353f3"));
}

#[test]
fn ipv6() {
    let packet = hex("61212345001c1140\
         20010db8000000000000000000000001\
         20010db8000000000000000000000002\
         c00012b7001c00001140ffff00000011001234561f000001");
    assert_eq!(icrc_of(&packet, 40).to_vec(), hex("e929da5f"));
}

/// Computed by zlib over the bytes that section 7.8.1 names.
#[test]
fn grh_of_roce_v1() {
    let grh =
        hex("6481234500181b4000000000000000000000ffff0a00000100000000000000000000ffff0a000002");
    let body = hex("0440ffff0000001200fffffe524f4345524f4345");
    let mut pseudo = Pseudo::new(&grh, &[]).expect("a GRH");
    let sum = icrc(&TableCrc, &mut pseudo, &body).expect("a BTH");
    assert_eq!(sum.to_vec(), hex("4994b8e8"));
    // With a UDP header behind it, it is no GRH; without one, it is nothing else.
    assert!(Pseudo::new(&grh, &[0; 8]).is_none());
    let mut ip = grh;
    ip[6] = 17;
    assert!(Pseudo::new(&ip, &[]).is_none());
}

#[test]
fn what_routers_change_is_not_covered() {
    let packet = hex(
        "45010040047840004011b4d5c0a80007c0a80007c00012b7002caca22460ffff000000d300cf1710\
         4630818be28935d90e9a95505401be885e500000",
    );
    let icrc = icrc_of(&packet, 20);
    // TOS, TTL, IP checksum, UDP checksum, FECN and BECN.
    let masked = [1, 8, 10, 11, 26, 27, 32];
    for at in 0..packet.len() {
        let mut changed = packet.clone();
        changed[at] ^= 0x01;
        if at == 0 || Pseudo::new(&changed[..20], &changed[20..28]).is_none() {
            continue;
        }
        let same = icrc_of(&changed, 20) == icrc;
        assert_eq!(same, masked.contains(&at), "byte {at}");
    }
}

#[test]
fn only_ip_headers_are_taken() {
    assert!(Pseudo::new(&[], &[0; 8]).is_none());
    assert!(Pseudo::new(&[0x45; 19], &[0; 8]).is_none());
    assert!(Pseudo::new(&[0x4f; 64], &[0; 8]).is_none());
    assert!(Pseudo::new(&[0x60; 48], &[0; 8]).is_none());
    assert!(Pseudo::new(&[0x45; 20], &[0; 7]).is_none());
    assert!(Pseudo::new(&[0x4f; 60], &[0; 8]).is_some());
}

#[test]
fn packets_of_rdma_rxe() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures");
    let mut packets = 0;
    for entry in std::fs::read_dir(dir).expect("the captures") {
        let path = entry.expect("a directory entry").path();
        if path.extension().is_none_or(|ext| ext != "pcap") {
            continue;
        }
        let file = std::fs::read(&path).expect("a capture");
        let captured = roce_packets(&file).expect("a capture file");
        assert!(!captured.is_empty(), "{path:?} has no packets");
        for packet in captured {
            let mut pseudo = Pseudo::new(&packet.ip, &packet.udp).expect("headers");
            let computed = icrc(&TableCrc, &mut pseudo, &packet.body);
            assert_eq!(computed, Some(packet.icrc), "{path:?}");
            let view = Packet::parse(&packet.body).expect("a valid packet");
            let head = packet.body.first_chunk().expect("a BTH");
            assert_eq!(&view.bth.encode(), head, "{path:?}: {view:?}");
            packets += 1;
        }
    }
    assert!(packets > 100, "only {packets} packets");
}
