#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""The packets themselves, caught on the wire and judged by a second, independent reading
of the specification: lengths, ports, header fields, and the ICRC."""

import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import case, eq, main
from packets import Tap
from rc import Buffer, pair, pattern, shell

SIZES = (0, 1, 2, 3, 4, 64, 1000)


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
