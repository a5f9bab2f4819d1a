#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""Unreliable connections: data at every edge of a packet, and what this service cannot do."""

import itertools
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import case, eq, main
from rc import Buffer, pair, pattern, shell, status

IMM = 0x01020304


def around(mtu):
    """Lengths at the edges of packets and of runs of packets."""
    edges = {n * mtu + d for n in (1, 2, 3, 16) for d in (-1, 0, 1)}
    return sorted({0, 1, 3, 4, 5} | edges | {65537, 300001})


def move(verb, family, mtu):
    """Moves each length and compares all bytes."""
    with pair(family, kind=e.IBV_QPT_UC, mtu=mtu) as (x, y):
        top = max(around(mtu))
        source, target = Buffer(x.pd, top, offset=3), Buffer(y.pd, top, offset=1)
        note = Buffer(y.pd, 8)
        for seed, length in enumerate(around(mtu)):
            source.put(pattern(length, seed))
            target.put(b"\xdd" * top)
            remote = (target.mr.rkey, target.address)
            if verb == "write":
                # nothing tells the sender that a write has arrived
                y.post_recv(note.sge())
                x.post(e.IBV_WR_RDMA_WRITE, source.sge(length), remote=remote, flags=0)
                x.post(e.IBV_WR_SEND, source.sge(0))
            elif verb == "write with immediate":
                y.post_recv()
                x.post(e.IBV_WR_RDMA_WRITE_WITH_IMM, source.sge(length), remote=remote, imm=IMM)
            else:
                y.post_recv(target.sge())
                opcode, imm = (e.IBV_WR_SEND, None) if verb == "send" else (e.IBV_WR_SEND_WITH_IMM, IMM)
                x.post(opcode, source.sge(length), imm=imm)
            x.good()
            (wc,) = y.good()
            eq(wc.byte_len, 0 if verb == "write" else length, "byte_len")
            eq(wc.qp_num, y.qp.qp_num, "qp_num")
            eq(bool(wc.wc_flags & e.IBV_WC_WITH_IMM), "immediate" in verb, "WITH_IMM")
            if target.get(length) != pattern(length, seed):
                raise AssertionError(f"wrong data in a {verb} of {length} bytes")
            rest = target.get(top - length, at=length)
            eq(rest.count(0xDD), len(rest), "bytes left alone behind the data")
            target.check_guards()


VERBS = ("send", "send with immediate", "write", "write with immediate")
for VERB, (FAMILY, SIZE) in itertools.product(VERBS, (("v4", 1024), ("v6", 4096))):
    case(f"R37 UC {VERB}, {FAMILY}, MTU {SIZE}")(lambda v=VERB, f=FAMILY, m=SIZE: move(v, f, m))


@case("a send without a receive is lost, the next one arrives")
def lost():
    with pair(kind=e.IBV_QPT_UC) as (x, y):
        source, target = Buffer(x.pd, 9000), Buffer(y.pd, 9000)
        source.put(pattern(9000))
        x.post(e.IBV_WR_SEND, source.sge())
        x.good()
        y.nothing()
        y.post_recv(target.sge(), wr_id=2)
        x.post(e.IBV_WR_SEND, source.sge())
        x.good()
        eq(y.good()[0].wr_id, 2, "receive")
        eq(target.get(), pattern(9000), "data")


@case("a write with a bad key is dropped in silence")
def bad_key():
    with pair(kind=e.IBV_QPT_UC) as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        source.put(pattern(64))
        x.post(e.IBV_WR_RDMA_WRITE, source.sge(), remote=(target.mr.rkey ^ 1, target.address))
        x.good()
        y.post_recv()
        remote = (target.mr.rkey, target.address)
        x.post(e.IBV_WR_RDMA_WRITE_WITH_IMM, source.sge(), remote=remote, imm=IMM)
        x.good()
        y.good()
        eq(target.get(), pattern(64), "data")


@case("reads are refused: the send queue stops until it is brought back")
def no_read():
    with pair(kind=e.IBV_QPT_UC) as (x, y):
        here, there = Buffer(x.pd, 64), Buffer(y.pd, 64)
        x.post(e.IBV_WR_RDMA_READ, here.sge(), remote=(there.mr.rkey, there.address))
        eq(status(x.completions(1)[0]), "IBV_WC_LOC_QP_OP_ERR", "a read")
        eq(x.qp.query(e.IBV_QP_STATE)[0].qp_state, e.IBV_QPS_SQE, "state")


if __name__ == "__main__":
    shell("pair_up")
    main()
