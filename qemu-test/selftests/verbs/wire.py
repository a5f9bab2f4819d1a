#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""The packets themselves, caught on the wire and judged by a second, independent reading
of the specification: lengths, ports, header fields, and the ICRC."""

import ctypes
import os
import socket
import struct
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import case, eq, main
from rc import Buffer, pair, pattern, shell

ETH_P_ALL = 0x0003
CLONE_NEWNET = 0x40000000
SIZES = (0, 1, 2, 3, 4, 64, 1000)


class Tap:
    """Catches the frames of vb, inside namespace b."""

    def __enter__(self):
        libc = ctypes.CDLL(None, use_errno=True)
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        there = os.open("/run/netns/b", os.O_RDONLY)
        eq(libc.setns(there, CLONE_NEWNET), 0, "setns")
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.bind(("vb", 0))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        eq(libc.setns(home, CLONE_NEWNET), 0, "setns back")
        os.close(home)
        os.close(there)
        return self

    def __exit__(self, *_):
        self.socket.close()

    def packets(self):
        """All RoCEv2 packets caught so far, as Packet."""
        self.socket.settimeout(0.5)
        found = []
        while True:
            try:
                frame = self.socket.recv(70000)
            except TimeoutError:
                return found
            packet = Packet.of(frame)
            if packet:
                found.append(packet)


class Packet:
    """One frame, taken apart."""

    def __init__(self, ip_header, udp, body):
        self.ip, self.udp, self.body = ip_header, udp, body
        self.source_port, self.port, self.udp_length, self.checksum = struct.unpack("!HHHH", udp)
        self.opcode, self.flags, self.pkey, self.qpn, self.psn = struct.unpack("!BBHII", body[:12])

    @classmethod
    def of(cls, frame):
        """The packet in a frame, or None where it is not RoCEv2."""
        kind = struct.unpack("!H", frame[12:14])[0]
        if kind == 0x0800 and frame[23] == 17:
            length = (frame[14] & 15) * 4
            end = 14 + struct.unpack("!H", frame[16:18])[0]
        elif kind == 0x86DD and frame[20] == 17:
            length = 40
            end = 54 + struct.unpack("!H", frame[18:20])[0]
        else:
            return None
        start = 14 + length
        if struct.unpack("!H", frame[start + 2 : start + 4])[0] != 4791:
            return None
        return cls(frame[14:start], frame[start : start + 8], frame[start + 8 : end])

    def icrc(self):
        """The ICRC as the specification has it (annex A17, chapter 7.8)."""
        ip = bytearray(self.ip)
        if ip[0] >> 4 == 4:
            ip[1] = ip[8] = ip[10] = ip[11] = 0xFF
        else:
            ip[0] |= 0x0F
            ip[1] = ip[2] = ip[3] = ip[7] = 0xFF
        udp = bytearray(self.udp)
        udp[6] = udp[7] = 0xFF
        body = bytearray(self.body[:-4])
        body[4] = 0xFF
        return zlib.crc32(bytes(8 * [0xFF]) + bytes(ip) + bytes(udp) + bytes(body))

    def check(self):
        """What holds for every packet of a reliable connection."""
        eq(self.udp_length, 8 + len(self.body), "UDP length")
        eq(self.body[-4:], struct.pack("<I", self.icrc()), f"ICRC of opcode {self.opcode:#x}")
        eq(0xC000 <= self.source_port <= 0xFFFF, True, f"source port {self.source_port:#x} is ephemeral")
        eq(self.flags & 0x0F, 0, "transport version")
        eq(self.flags & 0x40, 0x40, "R36 MigReq")
        eq(self.pkey, 0xFFFF, "R36 P_Key")
        eq(self.qpn >> 24, 0, "R36 reserved byte before the QPN")
        eq(self.psn >> 24 & 0x7F, 0, "R36 reserved bits before the PSN")
        eq(len(self.body) % 4, 0, "R36 length is padded to 4")


def catch(family, mtu=1024):
    """Packets of small sends, writes and reads in both directions."""
    with Tap() as tap, pair(family, mtu=mtu) as (x, y):
        qpns = x.qp.qp_num, y.qp.qp_num
        source, target = Buffer(x.pd, 1000), Buffer(y.pd, 1000)
        source.put(pattern(1000))
        for size in SIZES:
            y.post_recv(target.sge())
            x.post(e.IBV_WR_SEND_WITH_IMM, source.sge(size), imm=size)
            x.post(e.IBV_WR_RDMA_WRITE, source.sge(size), remote=(target.mr.rkey, target.address))
            x.post(e.IBV_WR_RDMA_READ, source.sge(size), remote=(target.mr.rkey, target.address))
            x.good(3)
            y.good()
        return tap.packets(), qpns


def judge(family):
    """Every packet is right, and each kind was seen."""
    packets, (mine, peers) = catch(family)
    for packet in packets:
        packet.check()
        eq(packet.qpn in (mine, peers), True, f"destination QPN {packet.qpn:#x} is known")
    seen = {packet.opcode for packet in packets}
    for opcode, name in {
        0x05: "SEND ONLY WITH IMMEDIATE",
        0x0A: "RDMA WRITE ONLY",
        0x0C: "RDMA READ REQUEST",
        0x10: "RDMA READ RESPONSE ONLY",
        0x11: "ACKNOWLEDGE",
    }.items():
        eq(opcode in seen, True, f"{name} was seen")
    for packet in packets:
        if packet.opcode == 0x05:
            # BTH, immediate, payload with pad, ICRC
            size = len(packet.body) - 12 - 4 - 4 - (packet.flags >> 4 & 3)
            eq(packet.body[16 : 16 + size], pattern(1000)[:size], "payload")
            eq(struct.unpack("!I", packet.body[12:16])[0], size, "immediate")


@case("R36 every packet over IPv4: fields, pad and ICRC")
def ipv4():
    judge("v4")


@case("R36 every packet over IPv6: fields, pad and ICRC")
def ipv6():
    judge("v6")


@case("the source port is of the connection, and stays")
def source_port():
    packets, (mine, peers) = catch("v4")
    for qpn in (mine, peers):
        ports = {packet.source_port for packet in packets if packet.qpn == qpn}
        eq(len(ports), 1, f"number of source ports towards QPN {qpn:#x}")


@case("packet numbers go up by one and wrap at 24 bits")
def numbers():
    with Tap() as tap, pair(mtu=256) as (x, y):
        source, target = Buffer(x.pd, 1000), Buffer(y.pd, 1000)
        for _ in range(3):
            x.post(e.IBV_WR_RDMA_WRITE, source.sge(200), remote=(target.mr.rkey, target.address))
            x.good()
        got = [p.psn & 0xFFFFFF for p in tap.packets() if p.opcode == 0x0A]
    eq(got, [0xFFFFFE, 0xFFFFFF, 0], "PSNs of three writes")


if __name__ == "__main__":
    shell("pair_up")
    main()
