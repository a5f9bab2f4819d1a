#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""What a device says it can do, it can; what is beyond is refused, and nothing leaks."""

import errno
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import case, eq, main
from pyverbs.qp import QP, QPCap, QPInitAttr
from rc import Buffer, Endpoint, pair, pattern, resources, shell, statuses
from states import refused
from ud import datagrams

KINDS = {"RC": e.IBV_QPT_RC, "UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}


def create(end, kind, **cap):
    """A queue pair with these capabilities."""
    init = QPInitAttr(qp_type=kind, scq=end.cq, rcq=end.cq, cap=QPCap(**cap))
    return QP(end.pd, init)


@case("queue pairs at the limits are made, beyond they are refused, and nothing is left")
def sizes():
    end = Endpoint("fa", "10.0.0.1")
    most = end.ctx.query_device()
    good = {"max_send_wr": 4, "max_recv_wr": 4, "max_send_sge": 1, "max_recv_sge": 1}
    limits = {
        "max_send_wr": most.max_qp_wr,
        "max_recv_wr": most.max_qp_wr,
        "max_send_sge": most.max_sge,
        "max_recv_sge": most.max_sge,
        "max_inline_data": 1024,
    }
    before = resources()
    for kind in KINDS.values():
        for name, limit in limits.items():
            qp = create(end, kind, **{**good, name: limit})
            attr, _ = qp.query(e.IBV_QP_CAP)
            eq(getattr(attr.cap, name) >= limit, True, f"{name} of the new queue pair")
            qp.close()
            for wrong in (limit + 1, 0x7FFFFFFF, 0xFFFFFFFF):
                refused(errno.EINVAL, f"{name} = {wrong}", create, end, kind, **{**good, name: wrong})
    refused(errno.EOPNOTSUPP, "a raw packet queue pair", create, end, e.IBV_QPT_RAW_PACKET, **good)
    eq(resources(), before, "objects that are left")
    end.close()


@case("64 entries on both sides, of any length")
def entries():
    lengths = [(i * 7 + 1) % 129 for i in range(64)]
    total = sum(lengths)
    with pair(sges=64, mtu=1024) as (x, y):
        eq(x.ctx.query_device().max_sge, 64, "max_sge")
        source, target = Buffer(x.pd, 64 * 200), Buffer(y.pd, 64 * 200)
        source.put(pattern(64 * 200))
        out = [source.sge(n, at=200 * i) for i, n in enumerate(lengths)]
        into = [target.sge(n, at=200 * (63 - i)) for i, n in enumerate(reversed(lengths))]
        data = b"".join(source.get(n, at=200 * i) for i, n in enumerate(lengths))
        y.post_recv(*into)
        x.post(e.IBV_WR_SEND, *out)
        x.good()
        eq(y.good()[0].byte_len, total, "byte_len")
        got = b"".join(target.get(n, at=200 * (63 - i)) for i, n in enumerate(reversed(lengths)))
        eq(got, data, "data sent")
        there = Buffer(y.pd, total)
        x.post(e.IBV_WR_RDMA_WRITE, *out, remote=(there.mr.rkey, there.address))
        x.good()
        eq(there.get(), data, "data written")
        source.put(bytes(64 * 200))
        x.post(e.IBV_WR_RDMA_READ, *out, remote=(there.mr.rkey, there.address))
        x.good()
        got = b"".join(source.get(n, at=200 * i) for i, n in enumerate(lengths))
        eq(got, data, "data read")


@case("1024 bytes of inline data, out of several pieces")
def inline():
    flags = e.IBV_SEND_INLINE | e.IBV_SEND_SIGNALED
    with pair(inline=1024) as (x, y):
        source, target = Buffer(x.pd, 1024), Buffer(y.pd, 1024)
        source.put(pattern(1024))
        pieces = [source.sge(n, at=at) for at, n in ((0, 1), (1, 500), (501, 0), (501, 523))]
        y.post_recv(target.sge())
        x.post(e.IBV_WR_SEND, *pieces, flags=flags)
        source.put(bytes(1024))
        x.good()
        y.good()
        eq(target.get(), pattern(1024), "data sent")
        source.put(pattern(1024, 1))
        x.post(e.IBV_WR_RDMA_WRITE, *pieces, remote=(target.mr.rkey, target.address), flags=flags)
        x.good()
        eq(target.get(), pattern(1024, 1), "data written")


@case("a message that is too long is a length error of its own queue pair")
def too_long():
    with pair() as (x, y):
        # four times a gigabyte of the same memory, without a key: the length is looked at first
        buffer = Buffer(x.pd, 64)
        huge = buffer.sge()
        huge.length = 1 << 30
        there = (buffer.mr.rkey, buffer.address)
        x.post(e.IBV_WR_RDMA_WRITE, huge, huge, huge, huge, remote=there)
        eq(statuses(x.completions(1)), ["IBV_WC_LOC_LEN_ERR"], "4 GiB")
        y.nothing(0)
    with datagrams() as (x, y):
        buffer = Buffer(x.pd, 4097)
        x.send(x.handle(y), y.qp.qp_num, buffer.sge())
        eq(statuses(x.completions(1)), ["IBV_WC_LOC_LEN_ERR"], "a datagram above the MTU")


@case("a process that is killed leaves nothing behind")
def killed():
    before = resources()
    script = """
import sys; sys.path.insert(0, %r)
import os, signal
from rc import Buffer, Endpoint
from ud import Datagrams
ends = [Endpoint("fa", "10.0.0.1", shared=16), Datagrams("fb", "10.0.0.2")]
handles = [ends[1].handle(ends[0]) for _ in range(50)]
buffers = [Buffer(end.pd, 9000) for end in ends]
qps = [end.new_qp() for end in ends for _ in range(10)]
os.kill(os.getpid(), signal.SIGKILL)
""" % os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib")
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    eq(done.returncode, -9, f"exit status ({done.stderr[-300:]})")
    eq(resources(), before, "objects that are left")


if __name__ == "__main__":
    shell("pair_up")
    main()
