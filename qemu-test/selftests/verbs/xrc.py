#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""Extended reliable connections: one target, and the requests say which queue they are for."""

import errno
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import case, eq, main, raises
from pyverbs.pd import PD
from pyverbs.xrcd import XRCD, XRCDInitAttr
from rc import Buffer, Endpoint, pattern, shell
from rings import INI, TGT, Cq, Qp, Srq, Xrcd
from states import refused

OK, FLUSHED = int(e.IBV_WC_SUCCESS), int(e.IBV_WC_WR_FLUSH_ERR)
ATOMIC = 8


def part(buffer, length=None):
    """A scatter/gather entry for the start of a buffer."""
    return buffer.address, buffer.length if length is None else length, buffer.mr.lkey


def remote(buffer):
    """What a peer needs to reach it."""
    return buffer.mr.rkey, buffer.address


class Pair:
    """An initiator on fa; on fb a domain with a target and two queues with a CQ each."""

    def __init__(self, pds=1):
        self.x, self.y = Endpoint("fa", "10.0.0.1"), Endpoint("fb", "10.0.0.2")
        self.pds = [self.y.pd] + [PD(self.y.ctx) for _ in range(pds - 1)]
        self.xrcd = Xrcd(self.y.ctx)
        self.cqs = [Cq(self.y.ctx) for _ in range(2)]
        self.srqs = [Srq(self.y.ctx, self.pds[i % pds], self.xrcd, cq) for i, cq in enumerate(self.cqs)]
        self.cq = Cq(self.x.ctx)
        self.ini = Qp(self.x.ctx, INI, self.x.pd, self.cq)
        self.tgt = Qp(self.y.ctx, TGT, self.xrcd)
        gids = [bytes.fromhex(end.gid().gid.replace(":", "")) for end in (self.x, self.y)]
        self.ini.connect(gids[1], self.x.gid_index, self.tgt.number)
        self.tgt.connect(gids[0], self.y.gid_index, self.ini.number)

    def sent(self, wanted=OK):
        """The next completion of the initiator has this status."""
        eq(self.cq.one()[1], wanted, "status at the initiator")

    def close(self):
        """Gives everything back."""
        for made in (self.ini, self.tgt, *self.srqs, self.xrcd):
            made.close()
        self.x.close()
        self.y.close()


@case("sends go to the queue that they name, and complete on its CQ")
def sends():
    p = Pair()
    source = Buffer(p.x.pd, 5000)
    target = [Buffer(p.y.pd, 5000) for _ in range(2)]
    for i in range(12):
        which, length = i * 5 % 3 % 2, (0, 1, 1024, 5000)[i % 4]
        source.put(pattern(5000, i))
        target[which].put(bytes(5000))
        p.srqs[which].post_recv(part(target[which]), wr_id=i)
        opcode, imm = (e.IBV_WR_SEND_WITH_IMM, i) if i % 2 else (e.IBV_WR_SEND, 0)
        p.ini.post(opcode, p.srqs[which].number, part(source, length), imm=imm)
        p.sent()
        wr_id, status, _, got, ex, number, _, flags = p.cqs[which].one()
        eq((wr_id, status, got, number), (i, OK, length, p.tgt.number), "receive")
        eq((bool(flags & e.IBV_WC_WITH_IMM), ex), (bool(imm), imm), "immediate")
        eq(target[which].get(length), pattern(5000, i)[:length], "data")
    p.close()


@case("writes, reads and atomics reach the memory of the queue's protection domain")
def memory():
    p = Pair()
    here, there = Buffer(p.x.pd, 20000), Buffer(p.y.pd, 20000, access=15)
    here.put(pattern(20000))
    number = p.srqs[0].number
    p.ini.post(e.IBV_WR_RDMA_WRITE, number, part(here), remote=remote(there))
    p.sent()
    eq(there.get(), pattern(20000), "data written")
    here.put(bytes(20000))
    p.ini.post(e.IBV_WR_RDMA_READ, number, part(here), remote=remote(there))
    p.sent()
    eq(here.get(), pattern(20000), "data read")
    there.put(struct.pack("=Q", 40))
    where = dict(remote=remote(there), values=(2, 0))
    p.ini.post(e.IBV_WR_ATOMIC_FETCH_AND_ADD, number, part(here, 8), **where)
    p.sent()
    where["values"] = (42, 7)
    p.ini.post(e.IBV_WR_ATOMIC_CMP_AND_SWP, number, part(here, 8), **where)
    p.sent()
    eq((here.get(8), there.get(8)), (struct.pack("=Q", 42), struct.pack("=Q", 7)), "words")
    p.close()


@case("memory of another protection domain than the queue's is refused")
def foreign():
    p = Pair(pds=2)
    here = Buffer(p.x.pd, 64)
    there = [Buffer(pd, 64) for pd in p.pds]
    for i in (1, 0):
        p.ini.post(e.IBV_WR_RDMA_WRITE, p.srqs[i].number, part(here), remote=remote(there[i]))
        p.sent()
    p.ini.post(e.IBV_WR_RDMA_WRITE, p.srqs[0].number, part(here), remote=remote(there[1]))
    p.sent(int(e.IBV_WC_REM_ACCESS_ERR))
    p.close()


@case("a queue that is not in the target's domain cannot be named")
def strange():
    for which in range(3):
        p = Pair()
        plain = p.y.new_srq(8)
        domain = Xrcd(p.y.ctx)
        other = Srq(p.y.ctx, p.y.pd, domain, p.cqs[0])
        here = Buffer(p.x.pd, 64)
        number = (0, other.number, other.number - 1)[which]
        p.ini.post(e.IBV_WR_SEND, number, part(here))
        p.sent(int(e.IBV_WC_REM_INV_REQ_ERR))
        plain.close()
        other.close()
        domain.close()
        p.close()


@case("an empty queue makes the initiator wait, the other one is served")
def waits():
    p = Pair()
    source, target = Buffer(p.x.pd, 64), Buffer(p.y.pd, 64)
    p.ini.post(e.IBV_WR_SEND, p.srqs[0].number, part(source), wr_id=1)
    p.srqs[1].post_recv(part(target), wr_id=5)
    raises(AssertionError, p.cq.one, 0.2)
    p.srqs[0].post_recv(part(target), wr_id=4)
    p.sent()
    eq(p.cqs[0].one()[0], 4, "receive")
    p.ini.post(e.IBV_WR_SEND, p.srqs[1].number, part(source))
    p.sent()
    eq(p.cqs[1].one()[0], 5, "receive")
    p.close()


@case("a queue or a domain that is in use stays, and one that is destroyed is gone")
def life():
    p = Pair()
    eq(raises(OSError, p.xrcd.close).errno, errno.EBUSY, "errno")
    number = p.srqs[1].number
    p.srqs[1].close()
    here = Buffer(p.x.pd, 64)
    p.ini.post(e.IBV_WR_SEND, number, part(here))
    p.sent(int(e.IBV_WC_REM_INV_REQ_ERR))
    p.close()


@case("stock rdma-core's provider cannot open an XRC domain")
def stock():
    x = Endpoint("fa", "10.0.0.1")
    eq(bool(x.ctx.query_device().device_cap_flags & (1 << 20)), True, "the device's XRC bit")
    init = XRCDInitAttr(e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS, os.O_CREAT, -1)
    refused(errno.EOPNOTSUPP, "ibv_open_xrcd", XRCD, x.ctx, init)
    x.close()


if __name__ == "__main__":
    if os.environ.get("FERROCE_DRIVER") == "rxe":
        sys.exit(print("KTAP version 1\n1..0 # SKIP rdma_rxe has no XRC"))
    shell("pair_up")
    main()
