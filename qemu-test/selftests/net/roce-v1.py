#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair --modules none
"""RoCEv1, which has to be asked for: a second GID for each address, and packets with a GRH
directly on Ethernet. The wire is read by a second reading of the specification."""

import ipaddress
import os
import struct
import subprocess
import sys
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
import rc
from ktap import case, eq, main
from packets import Tap, bth, packet_socket
from rc import ADDRESSES, Buffer, pair, pattern, shell
from ud import GRH, datagrams

ETHERTYPE = 0x8915
SEND_ONLY, EXPECTED = 0x04, 0xFFFFFE
V1 = e.IBV_GID_TYPE_SYSFS_IB_ROCE_V1


def gid(address):
    """The GID of an address: IPv4 is mapped into IPv6."""
    ip = ipaddress.ip_address(address)
    return (ip if ip.version == 6 else ipaddress.ip_address(f"::ffff:{ip}")).packed


def icrc(grh, body):
    """The ICRC (chapter 7.8.1): ones for the LRH, class, flow label, hop limit, and the
    fifth byte of the BTH."""
    grh = bytes([grh[0] | 0x0F, 0xFF, 0xFF, 0xFF]) + grh[4:7] + b"\xff" + grh[8:]
    body = body[:4] + b"\xff" + body[5:]
    return struct.pack("<I", zlib.crc32(8 * b"\xff" + grh + body))


def frames(tap):
    """GRH and body of the RoCEv1 frames that were caught."""
    tap.socket.settimeout(0.5)
    found = []
    while True:
        try:
            frame = tap.socket.recv(70000)
        except TimeoutError:
            return found
        if struct.unpack("!H", frame[12:14])[0] == ETHERTYPE:
            length = struct.unpack("!H", frame[18:20])[0]
            found.append((frame[14:54], frame[54 : 54 + length]))


@case("each address has a GID of both kinds")
def both():
    for address in ("10.0.0.2", "fd00::2"):
        kinds = subprocess.run(
            ["bash", "-c", """cd /sys/class/infiniband/fb/ports/1 || exit 1
             for i in {0..15}; do [ "$(cat gids/$i)" = "$1" ] && cat gid_attrs/types/$i; done 2>/dev/null
             true""", "bash", gid(address).hex(":", 2)],
            capture_output=True, text=True, check=True,
        ).stdout.splitlines()
        eq(sorted(kinds), ["IB/RoCE v1", "RoCE v2"], f"kinds of {address}")


def transfer(family):
    """Sends, writes, reads of many lengths; and every frame is right."""
    here, there = map(gid, ADDRESSES[family])
    with Tap() as tap, pair(family, mtu=1024) as (x, y):
        source, target = Buffer(x.pd, 20000), Buffer(y.pd, 20000)
        for seed, length in enumerate((0, 1, 3, 1023, 1024, 1025, 20000)):
            source.put(pattern(length, seed))
            target.put(b"\xdd" * 20000)
            y.post_recv(target.sge())
            x.post(e.IBV_WR_SEND, source.sge(length))
            x.good()
            y.good()
            eq(target.get(length), pattern(length, seed), f"data of a send of {length}")
            x.post(e.IBV_WR_RDMA_WRITE, source.sge(length), remote=(target.mr.rkey, target.address))
            x.good()
            source.put(b"\xee" * 20000)
            x.post(e.IBV_WR_RDMA_READ, source.sge(length), remote=(target.mr.rkey, target.address))
            x.good()
            eq(source.get(length), pattern(length, seed), f"data of a read of {length}")
        caught = frames(tap)
    eq(len(caught) > 60, True, f"{len(caught)} frames are enough")
    for grh, body in caught:
        eq((grh[0] >> 4, grh[6], grh[7]), (6, 0x1B, 64), "version, next header, hop limit")
        eq(grh[8:40] in (here + there, there + here), True, "GIDs")
        eq(body[-4:], icrc(grh, body[:-4]), "ICRC")


for FAMILY in ("v4", "v6"):
    case(f"sends, writes and reads, and their frames, between {FAMILY} GIDs")(
        lambda f=FAMILY: transfer(f)
    )


@case("datagrams, with the GRH in front of the data")
def ud():
    with datagrams() as (x, y):
        source, target = Buffer(x.pd, 500), Buffer(y.pd, 500 + GRH)
        source.put(pattern(500))
        y.post_recv(target.sge())
        x.send(x.handle(y), y.qp.qp_num, source.sge())
        x.good()
        y.good()
        eq(target.get(500, at=GRH), pattern(500), "data")
        eq(target.get(32, at=8), gid("10.0.0.1") + gid("10.0.0.2"), "GIDs in the GRH")


@case("a device talks to itself")
def alone():
    with datagrams() as (x, _):
        source, target = Buffer(x.pd, 100), Buffer(x.pd, 100 + GRH)
        source.put(pattern(100))
        x.post_recv(target.sge(), wr_id=1)
        x.send(x.handle(x), x.qp.qp_num, source.sge(), wr_id=2)
        eq(sorted(wc.wr_id for wc in x.good(2)), [1, 2], "completions")
        eq(target.get(100, at=GRH), pattern(100), "data")


def dropped(name):
    """One counter of fb."""
    time.sleep(0.05)
    with open(f"/sys/class/infiniband/fb/ports/1/hw_counters/{name}", encoding="ascii") as file:
        return int(file.read())


@case("garbage of this ethertype is dropped, and counted where it is for the device")
def garbage():
    from packets import mac

    with pair() as (x, y), packet_socket("va", "a") as wire:
        link = mac("vb", "b") + mac("va", "a") + struct.pack("!H", ETHERTYPE)
        good = bth(SEND_ONLY, y.qp.qp_num, EXPECTED) + bytes(16)
        head = lambda n, hdr=0x1B, src="10.0.0.1": struct.pack("!IHBB", 6 << 28, n, hdr, 64) + gid(src) + gid("10.0.0.2")
        grh = head(len(good) + 4)
        names = ("rcvd_bad_icrc", "rcvd_malformed", "rcvd_wrong_address")
        before = [dropped(name) for name in names]
        wire.send(link + grh + good + bytes(4))
        stranger = head(len(good) + 4, src="10.0.0.77")
        wire.send(link + stranger + good + icrc(stranger, good))
        tiny = head(3)
        wire.send(link + tiny + bytes(40))
        # nobody's: another header, a length beyond the frame, nothing at all
        for body in (head(len(good), hdr=17) + good, head(2000) + good, bytes(2)):
            wire.send(link + body)
        time.sleep(0.2)
        after = [dropped(name) for name in names]
        eq([b - a for a, b in zip(before, after)], [1, 1, 1], f"counts of {names}")
        target, source = Buffer(y.pd, 10), Buffer(x.pd, 10)
        y.post_recv(target.sge())
        x.post(e.IBV_WR_SEND, source.sge())
        x.good()
        y.good()


@case("RoCEv2 goes on beside it")
def both_at_once():
    rc.ROCE_V2 = e.IBV_GID_TYPE_SYSFS_ROCE_V2
    try:
        with pair() as (x, y):
            source, target = Buffer(x.pd, 100), Buffer(y.pd, 100)
            y.post_recv(target.sge())
            x.post(e.IBV_WR_SEND, source.sge())
            x.good()
            y.good()
    finally:
        rc.ROCE_V2 = V1


@case("tshark decodes the frames")
def decoded():
    shell("""
    b timeout 60 tcpdump -U -i vb -w /tmp/v1.pcap ether proto 0x8915 2>/tmp/tcpdump.log &
    within 20 grep -q listening /tmp/tcpdump.log""")
    with pair() as (x, y):
        source, target = Buffer(x.pd, 3000), Buffer(y.pd, 3000)
        x.post(e.IBV_WR_RDMA_WRITE, source.sge(), remote=(target.mr.rkey, target.address))
        x.good()
    time.sleep(1)
    shown = subprocess.run(
        ["tshark", "-r", "/tmp/v1.pcap", "-T", "fields", "-e", "infiniband.bth.opcode", "-e", "_ws.expert.message"],
        capture_output=True, text=True, check=True,
    ).stdout
    subprocess.run(["pkill", "-x", "tcpdump"], check=False)
    rows = [line.split("\t") for line in shown.splitlines()]
    opcodes = {int(row[0], 0) for row in rows if row[0]}
    eq({0x0A, 0x11} <= opcodes or {0x06, 0x08, 0x11} <= opcodes, True, f"opcodes {opcodes}")
    eq([row[1] for row in rows if len(row) > 1 and row[1]], [], "remarks of tshark")


if __name__ == "__main__":
    shell("""
    modprobe -a ib_uverbs rdma_ucm
    ! loaded || rmmod ferroce
    # shellcheck disable=SC2046
    modprobe -a $(modinfo -F depends "$FERROCE_DIR/build/ferroce.ko" | tr , ' ')
    insmod "$FERROCE_DIR/build/ferroce.ko" roce_v1=1
    pair_up""")
    rc.ROCE_V2 = V1
    main()
