# SPDX-License-Identifier: GPL-2.0
"""RoCEv2 packets as bytes, read and built by a second, independent reading of the
specification: `Tap` catches what an interface sends and gets, `Packet` is one of them,
`Sender` puts any packet on the wire."""

import contextlib
import ctypes
import ipaddress
import os
import socket
import struct
import zlib

from ktap import eq

ETH_P_ALL = 0x0003
CLONE_NEWNET = 0x40000000
ROCE_PORT = 4791


@contextlib.contextmanager
def namespace(name):
    """Runs the body in a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        eq(libc.setns(there, CLONE_NEWNET), 0, "setns")
        yield
    finally:
        eq(libc.setns(home, CLONE_NEWNET), 0, "setns back")
        os.close(home)
        os.close(there)


def packet_socket(interface, name):
    """A raw socket on an interface in a namespace."""
    with namespace(name):
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        made.bind((interface, 0))
    return made


class Tap:
    """Catches the frames of an interface, which is vb in namespace b."""

    def __init__(self, interface="vb", name="b"):
        self.socket = packet_socket(interface, name)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)

    def __enter__(self):
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

    ethernet = b""

    def __init__(self, ip_header, udp, body):
        self.ip, self.udp, self.body = ip_header, udp, body
        self.source_port, self.port, self.udp_length, self.checksum = struct.unpack("!HHHH", udp)
        self.opcode, self.flags, self.pkey, self.qpn, self.psn = struct.unpack("!BBHII", body[:12].ljust(12, b"\0"))

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
        packet = cls(frame[14:start], frame[start : start + 8], frame[start + 8 : end])
        packet.ethernet = frame[:14]
        return packet

    @classmethod
    def make(cls, body, src="10.0.0.1", dst="10.0.0.2", port=ROCE_PORT):
        """A packet of this body (BTH to pad), with headers and the right ICRC."""
        src, dst = ipaddress.ip_address(src), ipaddress.ip_address(dst)
        length = 8 + len(body) + 4
        if dst.version == 4:
            ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 1, 0x4000, 64, 17, 0)
            ip += src.packed + dst.packed
        else:
            ip = struct.pack("!IHBB", 6 << 28, length, 17, 64) + src.packed + dst.packed
        udp = struct.pack("!HHHH", 0xC001, port, length, 0)
        if dst.version == 6:
            # no checksum is an error over IPv6; the ICRC does not see it
            pseudo = src.packed + dst.packed + struct.pack("!II", length, 17)
            packet = cls(ip, udp, body + bytes(4))
            whole = body + struct.pack("<I", packet.icrc())
            udp = udp[:6] + struct.pack("!H", checksum(pseudo + udp + whole) or 0xFFFF)
        packet = cls(ip, udp, body + bytes(4))
        packet.body = body + struct.pack("<I", packet.icrc())
        if dst.version == 4:
            packet.fix_ip()
        return packet

    def fix_ip(self):
        """Sets the checksum of an IPv4 header that was changed."""
        bare = self.ip[:10] + bytes(2) + self.ip[12:]
        self.ip = self.ip[:10] + struct.pack("!H", checksum(bare)) + self.ip[12:]

    def frame(self, source, target):
        """The frame with this packet, between two Ethernet addresses."""
        kind = 0x0800 if self.ip[0] >> 4 == 4 else 0x86DD
        return target + source + struct.pack("!H", kind) + self.ip + self.udp + self.body

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


def checksum(data):
    """The Internet checksum."""
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def bth(opcode, qpn, psn, pkey=0xFFFF, flags=0x40, ack=False):
    """A base header."""
    return struct.pack("!BBHII", opcode, flags, pkey, qpn, psn | (0x80000000 if ack else 0))


def mac(interface, name):
    """The Ethernet address of an interface in a namespace."""
    with namespace(name), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as probe:
        probe.bind((interface, 0))
        return probe.getsockname()[4]


class Sender:
    """Puts packets on the wire from va to vb."""

    def __enter__(self):
        self.socket = packet_socket("va", "a")
        self.source, self.target = mac("va", "a"), mac("vb", "b")
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, packet, target=None):
        """Sends one to vb, or to another Ethernet address."""
        self.socket.send(packet.frame(self.source, target or self.target))
