#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""Datagrams and address handles: every length, the area for the GRH, what must be dropped."""

import ipaddress
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import case, eq, main, raises
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QPAttr
from rc import ADDRESSES, Buffer, pattern, shell, status
from ud import GRH, QKEY, datagrams

IMM = 0x01020304
MTU = 4096
# the kernel's RDMA core sets the route's default, whatever the handle asks for
HOPS = 64


def packed(address):
    """An address as bytes."""
    return ipaddress.ip_address(address).packed


def check_grh(family, grh, tclass, ttl, length):
    """The area in front of the data holds the IP header (R42)."""
    here, there = (packed(address) for address in ADDRESSES[family])
    if family == "v4":
        ip = grh[20:]
        eq(ip[0], 0x45, "version and length")
        eq(ip[1], tclass, "TOS")
        eq(int.from_bytes(ip[2:4], "big"), length, "total length")
        eq((ip[8], ip[9]), (ttl, 17), "TTL and protocol")
        eq(ip[12:20], here + there, "addresses")
    else:
        eq(int.from_bytes(grh[:4], "big") >> 20, 6 << 8 | tclass, "version and traffic class")
        eq((grh[6], grh[7]), (17, ttl), "next header and hop limit")
        eq(grh[8:40], here + there, "addresses")


def transfer(family):
    """Datagrams of many lengths, with and without immediate data."""
    with datagrams(family) as (x, y):
        handle = x.handle(y, traffic_class=0x48)
        source = Buffer(x.pd, MTU, offset=3)
        target = Buffer(y.pd, MTU + GRH, offset=1)
        for seed, length in enumerate([0, 1, 2, 3, 4, 5, 255, 256, 257, MTU - 1, MTU]):
            imm = IMM + seed if seed % 2 else None
            source.put(pattern(length, seed))
            target.put(b"\xdd" * (MTU + GRH))
            y.post_recv(target.sge(), wr_id=seed)
            x.send(handle, y.qp.qp_num, source.sge(length), imm=imm)
            x.good()
            (wc,) = y.good()
            eq((wc.wr_id, wc.opcode), (seed, e.IBV_WC_RECV), "receive")
            eq(wc.byte_len, length + GRH, "byte_len")
            eq(wc.src_qp, x.qp.qp_num, "src_qp")
            eq(wc.pkey_index, 0, "pkey_index")
            eq(bool(wc.wc_flags & e.IBV_WC_GRH), True, "WC_GRH")
            eq(bool(wc.wc_flags & e.IBV_WC_WITH_IMM), imm is not None, "WITH_IMM")
            if imm is not None:
                eq(wc.imm_data, int.from_bytes(imm.to_bytes(4, "big"), "little"), "immediate")
            whole = 20 + 8 + 12 + 8 + (4 if imm else 0) + (length + 3 & ~3) + 4
            check_grh(family, target.get(GRH), 0x48, HOPS, whole)
            eq(target.get(length, at=GRH), pattern(length, seed), "data")
            rest = target.get(MTU - length, at=GRH + length)
            eq(rest.count(0xDD), len(rest), "bytes left alone behind the data")
            target.check_guards()


for FAMILY in ("v4", "v6"):
    case(f"R42 datagrams of every length over {FAMILY}")(lambda f=FAMILY: transfer(f))


@case("R42 the header area and the data are scattered over several pieces")
def scattered():
    with datagrams() as (x, y):
        source = Buffer(x.pd, 1000)
        source.put(pattern(1000))
        pieces = [Buffer(y.pd, n, offset=n) for n in (13, 27 + 5, 500, 495)]
        y.post_recv(*(piece.sge() for piece in pieces))
        x.send(x.handle(y), y.qp.qp_num, source.sge(400), source.sge(600, at=400))
        x.good()
        y.good()
        got = b"".join(piece.get() for piece in pieces)
        eq(got[GRH:], pattern(1000), "data")
        for piece in pieces:
            piece.check_guards()


@case("r27_ud_packet_longer_than_buffer_is_dropped")
def longer():
    with datagrams() as (x, y):
        handle = x.handle(y)
        source, target = Buffer(x.pd, 200), Buffer(y.pd, 100 + GRH)
        source.put(pattern(200))
        y.post_recv(target.sge(), wr_id=1)
        x.send(handle, y.qp.qp_num, source.sge(101))
        x.good()
        y.nothing()
        x.send(handle, y.qp.qp_num, source.sge(100))
        x.good()
        eq(y.good()[0].wr_id, 1, "the receive that the long one did not take")
        eq(target.get(100, at=GRH), pattern(200)[:100], "data")
        target.check_guards()


@case("the longest datagram follows the MTU of the port, without a change of the queue pair")
def port_mtu():
    def link(mtu):
        shell(f"ip -n a link set va mtu {mtu}; ip -n b link set vb mtu {mtu}")

    with datagrams() as (x, y):
        source, target = Buffer(x.pd, MTU), Buffer(y.pd, MTU + GRH)
        source.put(pattern(MTU))
        handle = x.handle(y)
        try:
            for mtu, longest, name in ((1500, 1024, e.IBV_MTU_1024), (4200, 4096, e.IBV_MTU_4096)):
                link(mtu)
                eq(x.qp.query(e.IBV_QP_PATH_MTU)[0].path_mtu, name, f"path MTU at {mtu}")
                y.post_recv(target.sge())
                x.send(handle, y.qp.qp_num, source.sge(longest))
                x.good()
                eq(y.good()[0].byte_len, longest + GRH, "byte_len")
                eq(target.get(longest, at=GRH), pattern(MTU)[:longest], "data")
            link(1500)
            x.send(handle, y.qp.qp_num, source.sge(1025))
            eq([status(wc) for wc in x.completions(1)], ["IBV_WC_LOC_LEN_ERR"], "one byte more")
        finally:
            link(4200)


def dropped(x, y, handle, source, target, **how):
    """One datagram that must not arrive, then one that must."""
    y.post_recv(target.sge(), wr_id=5)
    x.send(handle, how.pop("qpn", y.qp.qp_num), source.sge(), **how)
    x.good()
    y.nothing()
    x.send(handle, y.qp.qp_num, source.sge())
    x.good()
    eq(y.good()[0].wr_id, 5, "receive")


@case("a datagram with another Q_Key, or for a queue pair that is not there, is dropped")
def foreign():
    with datagrams() as (x, y):
        handle = x.handle(y)
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64 + GRH)
        dropped(x, y, handle, source, target, qkey=QKEY + 1)
        dropped(x, y, handle, source, target, qpn=0xFFFFFE)
        # nobody has posted a receive
        x.send(handle, y.qp.qp_num, source.sge())
        x.good()
        y.nothing()


@case("a Q_Key with the top bit set stands for that of the queue pair")
def controlled():
    with datagrams() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64 + GRH)
        y.post_recv(target.sge())
        x.send(x.handle(y), y.qp.qp_num, source.sge(), qkey=0x80000001)
        x.good()
        y.good()


def recover(x, y, source, target):
    """The send queue is in error: it takes nothing until it is brought back."""
    eq(x.qp.query(e.IBV_QP_STATE)[0].qp_state, e.IBV_QPS_SQE, "state")
    handle = x.handle(y)
    x.send(handle, y.qp.qp_num, source.sge(), wr_id=9)
    (wc,) = x.completions(1)
    eq((wc.wr_id, status(wc)), (9, "IBV_WC_WR_FLUSH_ERR"), "posted in SQE")
    # receives go on meanwhile
    x.post_recv(target[0].sge())
    y.send(y.handle(x), x.qp.qp_num, target[1].sge(8))
    y.good()
    x.good()
    attr = QPAttr()
    attr.qp_state = e.IBV_QPS_RTS
    x.qp.modify(attr, e.IBV_QP_STATE)
    y.post_recv(target[1].sge())
    x.send(handle, y.qp.qp_num, source.sge())
    x.good()
    y.good()


@case("a failed datagram stops the send queue, receives go on, RTS brings it back")
def stops():
    with datagrams() as (x, y):
        source = Buffer(x.pd, 64)
        target = (Buffer(x.pd, 64 + GRH), Buffer(y.pd, 64 + GRH))
        other = PD(x.ctx)
        strange = x.handle(y, pd=other)
        good = x.handle(y)
        long = Buffer(x.pd, MTU + 1)
        for handle, sge in ((strange, source.sge()), (good, long.sge())):
            x.send(handle, y.qp.qp_num, sge, wr_id=3)
            (wc,) = x.completions(1)
            eq(wc.wr_id, 3, "wr_id")
            eq(status(wc) in ("IBV_WC_LOC_QP_OP_ERR", "IBV_WC_LOC_LEN_ERR"), True, f"error, {status(wc)},")
            recover(x, y, source, target)
        strange.close()
        other.close()


@case("address handles that cannot be are refused")
def refused():
    with datagrams() as (x, y):
        wrong = {
            "a GID index that is not in the table": {"dgid": y.gid(), "sgid_index": 255},
            "two address families": {"dgid": GID("fd00:0000:0000:0000:0000:0000:0000:0002"), "sgid_index": x.gid_index},
        }
        for why, route in wrong.items():
            attr = AHAttr(gr=GlobalRoute(**route), is_global=1, port_num=1)
            raises(PyverbsError, AH, x.pd, attr=attr)
            print(f"# refused: {why}")
        route = GlobalRoute(dgid=y.gid(), sgid_index=x.gid_index)
        raises(PyverbsError, AH, x.pd, attr=AHAttr(gr=route, is_global=1, port_num=2))
        raises(PyverbsError, AH, x.pd, attr=AHAttr(gr=route, is_global=0, port_num=1))


@case("a thousand address handles at once, made and given back several times")
def many():
    with datagrams() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64 + GRH)
        for _ in range(3):
            handles = [x.handle(y) for _ in range(1000)]
            for handle in (handles[0], handles[-1]):
                y.post_recv(target.sge())
                x.send(handle, y.qp.qp_num, source.sge())
                x.good()
                y.good()
            for handle in handles:
                handle.close()


@case("datagrams arrive in order, all of a long row")
def row():
    with datagrams(depth=128) as (x, y):
        handle = x.handle(y)
        source, target = Buffer(x.pd, 4), Buffer(y.pd, 100 * (4 + GRH))
        for i in range(100):
            y.post_recv(target.sge(4 + GRH, at=i * (4 + GRH)), wr_id=i)
        for i in range(100):
            source.put(i.to_bytes(4, "big"))
            x.send(handle, y.qp.qp_num, source.sge(), flags=e.IBV_SEND_SIGNALED if i % 10 == 9 else 0)
            if i % 10 == 9:
                x.good()
        eq([wc.wr_id for wc in y.good(100)], list(range(100)), "order")
        got = [int.from_bytes(target.get(4, at=i * (4 + GRH) + GRH), "big") for i in range(100)]
        eq(got, list(range(100)), "data")


if __name__ == "__main__":
    shell("pair_up")
    main()
