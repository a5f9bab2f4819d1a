#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""What goes wrong on a reliable connection ends as the specification says."""

import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import case, eq, main, raises
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from rc import ALL_ACCESS, Buffer, Endpoint, join, pair, pattern, shell, status, statuses

WRITE, READ, SEND = e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ, e.IBV_WR_SEND
REFUSED = ("IBV_WC_REM_ACCESS_ERR", "IBV_WC_REM_INV_REQ_ERR")


def refused(x, y, opcode, remote, length=16, first=REFUSED[:1]):
    """Posts one access that the peer must refuse without touching memory."""
    source = Buffer(x.pd, max(length, 1))
    source.put(pattern(length, 5))
    x.post(opcode, source.sge(length), remote=remote)
    (wc,) = x.completions(1)
    if status(wc) not in first:
        raise AssertionError(f"status is {status(wc)}, expected one of {first}")
    eq(source.get(length), pattern(length, 5), "local memory after the failure")
    eq(x.qp.query(e.IBV_QP_STATE)[0].qp_state, e.IBV_QPS_ERR, "state of the requester")
    eq(y.qp.query(e.IBV_QP_STATE)[0].qp_state, e.IBV_QPS_ERR, "state of the responder")


@case("R10 after two writes with a bad rkey everything flushes")
def bad_rkey():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        bad = (target.mr.rkey ^ 0x5A00, target.address)
        x.post(WRITE, source.sge(), remote=bad, wr_id=1)
        x.post(WRITE, source.sge(), remote=bad, wr_id=2)
        for i in range(3, 20):
            x.post(WRITE, source.sge(), remote=(target.mr.rkey, target.address), wr_id=i, flags=0)
        wcs = x.completions(19)
        eq([wc.wr_id for wc in wcs], list(range(1, 20)), "order")
        eq(statuses(wcs), ["IBV_WC_REM_ACCESS_ERR"] + ["IBV_WC_WR_FLUSH_ERR"] * 18, "statuses")
        x.post(WRITE, source.sge(), remote=bad, wr_id=20)
        eq(statuses(x.completions(1)), ["IBV_WC_WR_FLUSH_ERR"], "a request posted afterwards")
        eq(target.get(), b"\xee" * 64, "target")


@case("R10 the other connections live on")
def others_live():
    with pair() as (x, y):
        p, q = Endpoint("fa", "10.0.0.1"), Endpoint("fb", "10.0.0.2")
        join(p, q)
        target, fine = Buffer(y.pd, 64), Buffer(q.pd, 64)
        refused(x, y, WRITE, (target.mr.rkey ^ 0x5A00, target.address))
        source = Buffer(p.pd, 64)
        source.put(pattern(64))
        p.post(WRITE, source.sge(), remote=(fine.mr.rkey, fine.address))
        p.good()
        eq(fine.get(), pattern(64), "data")
        p.close()
        q.close()


@case("a write that ends one byte after the region")
def past_the_end():
    for opcode in (WRITE, READ):
        with pair() as (x, y):
            target = Buffer(y.pd, 5000, offset=100)
            refused(x, y, opcode, (target.mr.rkey, target.address + 5000 - 15))
            eq(target.get(), b"\xee" * 5000, "target")
            target.check_guards()


@case("an access that starts one byte before the region")
def before_the_start():
    for opcode in (WRITE, READ):
        with pair() as (x, y):
            target = Buffer(y.pd, 5000, offset=100)
            refused(x, y, opcode, (target.mr.rkey, target.address - 1))
            target.check_guards()


@case("R23 an address that wraps at 2^64")
def wrap():
    for opcode in (WRITE, READ):
        for address in (2**64 - 1, 2**64 - 8, 2**64 - 16):
            with pair() as (x, y):
                target = Buffer(y.pd, 64)
                refused(x, y, opcode, (target.mr.rkey, address))
                target.check_guards()


@case("R23 a long write whose later packets leave the region")
def late_overrun():
    with pair(mtu=1024) as (x, y):
        target = Buffer(y.pd, 10000)
        refused(x, y, WRITE, (target.mr.rkey, target.address), length=10001)
        target.check_guards()


@case("access that the region does not grant")
def region_rights():
    local = e.IBV_ACCESS_LOCAL_WRITE
    for opcode, access in ((WRITE, local | e.IBV_ACCESS_REMOTE_READ), (READ, local | e.IBV_ACCESS_REMOTE_WRITE)):
        with pair() as (x, y):
            target = Buffer(y.pd, 64, access=access)
            refused(x, y, opcode, (target.mr.rkey, target.address))
            eq(target.get(), b"\xee" * 64, "target")


@case("access that the queue pair does not grant")
def qp_rights():
    local = e.IBV_ACCESS_LOCAL_WRITE
    for opcode, access in ((WRITE, local | e.IBV_ACCESS_REMOTE_READ), (READ, local | e.IBV_ACCESS_REMOTE_WRITE)):
        with pair(access=access) as (x, y):
            target = Buffer(y.pd, 64)
            refused(x, y, opcode, (target.mr.rkey, target.address), first=REFUSED)
            eq(target.get(), b"\xee" * 64, "target")


@case("a region of another protection domain")
def other_pd():
    with pair() as (x, y):
        target = Buffer(PD(y.ctx), 64)
        refused(x, y, WRITE, (target.mr.rkey, target.address))
        eq(target.get(), b"\xee" * 64, "target")


@case("the rkey of a region that was deregistered")
def stale_rkey():
    with pair() as (x, y):
        target = Buffer(y.pd, 64)
        key = target.mr.rkey
        target.mr.close()
        refused(x, y, WRITE, (key, target.address))
        eq(target.get(), b"\xee" * 64, "target")


@case("a bad lkey in a send is a local protection error")
def bad_lkey():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        y.post_recv(target.sge())
        sge = source.sge()
        sge.lkey = source.mr.lkey ^ 0x5A00
        x.post(SEND, sge, wr_id=1)
        x.post(SEND, source.sge(), wr_id=2)
        eq(statuses(x.completions(2)), ["IBV_WC_LOC_PROT_ERR", "IBV_WC_WR_FLUSH_ERR"], "statuses")
        eq(target.get(), b"\xee" * 64, "target")


@case("a bad lkey in a receive hurts both sides")
def bad_recv_lkey():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        sge = target.sge()
        sge.lkey = target.mr.lkey ^ 0x5A00
        y.post_recv(sge)
        x.post(SEND, source.sge())
        eq(statuses(y.completions(1)), ["IBV_WC_LOC_PROT_ERR"], "receiver")
        eq(statuses(x.completions(1)), ["IBV_WC_REM_OP_ERR"], "sender")


@case("a send longer than the receive buffer")
def recv_too_short():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 10000), Buffer(y.pd, 9999)
        y.post_recv(target.sge())
        x.post(SEND, source.sge())
        eq(statuses(x.completions(1)), ["IBV_WC_REM_INV_REQ_ERR"], "sender")
        eq(statuses(y.completions(1)), ["IBV_WC_LOC_LEN_ERR"], "receiver")
        target.check_guards()


@case("R5 a receive that is posted late is waited for")
def late_receive():
    with pair(rnr_timer=14) as (x, y):
        source, target = Buffer(x.pd, 20000), Buffer(y.pd, 20000)
        source.put(pattern(20000))
        x.post(SEND, source.sge())
        x.nothing(0.5)
        y.post_recv(target.sge())
        x.good()
        y.good()
        eq(target.get(), pattern(20000), "data")


@case("R7 rnr_retry = 7 does not give up")
def rnr_for_ever():
    with pair(rnr_timer=1) as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        x.post(SEND, source.sge())
        x.nothing(3)
        y.post_recv(target.sge())
        x.good()
        y.good()


@case("R7 rnr_retry = 0 gives up at once, 2 after two waits")
def rnr_exact():
    for retries, timer, least in ((0, 31, 0.0), (2, 28, 2 * 0.16384)):
        with pair(rnr_retries=retries, rnr_timer=timer) as (x, _y):
            source = Buffer(x.pd, 64)
            began = time.monotonic()
            x.post(SEND, source.sge(), wr_id=1)
            x.post(SEND, source.sge(), wr_id=2)
            wcs = x.completions(2)
            took = time.monotonic() - began
            eq(statuses(wcs), ["IBV_WC_RNR_RETRY_EXC_ERR", "IBV_WC_WR_FLUSH_ERR"], "statuses")
            if not least <= took < least + 5:
                raise AssertionError(f"rnr_retry {retries} took {took:.3f} s, not about {least}")


@case("R7 a peer that is gone: retry_cnt is exact")
def no_answer():
    # timeout 15 is 134 ms; a device may wait up to four times as long (IBTA 9.7.6.1.3)
    for retries in (0, 2):
        with pair(timeout=15, retries=retries) as (x, y):
            source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
            remote = (target.mr.rkey, target.address)
            y.qp.close()
            began = time.monotonic()
            x.post(WRITE, source.sge(), remote=remote, wr_id=1)
            x.post(WRITE, source.sge(), remote=remote, wr_id=2)
            wcs = x.completions(2)
            took = time.monotonic() - began
            eq(statuses(wcs), ["IBV_WC_RETRY_EXC_ERR", "IBV_WC_WR_FLUSH_ERR"], "statuses")
            least = 0.134 * (retries + 1)
            if not least * 0.9 <= took < 4 * least + 3:
                raise AssertionError(f"retry_cnt {retries} took {took:.3f} s, not {least} to {4 * least}")


@case("a queue pair put into the error state flushes its receives in order")
def flush_receives():
    with pair() as (x, y):
        target = Buffer(y.pd, 64)
        for i in range(30):
            y.post_recv(target.sge(), wr_id=i)
        y.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
        wcs = y.completions(30)
        eq([wc.wr_id for wc in wcs], list(range(30)), "order")
        eq(set(statuses(wcs)), {"IBV_WC_WR_FLUSH_ERR"}, "statuses")
        eq(x.qp.query(e.IBV_QP_STATE)[0].qp_state, e.IBV_QPS_RTS, "state of the peer")


@case("a queue pair is used again after error and reset")
def reset():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        refused(x, y, WRITE, (target.mr.rkey ^ 0x5A00, target.address))
        for side in (x, y):
            side.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
        join(x, y)
        source.put(pattern(64))
        x.post(WRITE, source.sge(), remote=(target.mr.rkey, target.address))
        x.good()
        eq(target.get(), pattern(64), "data")


@case("R15 a queue pair is destroyed while its timers run")
def destroy_busy():
    for _ in range(20):
        with pair(timeout=8, rnr_timer=1) as (x, y):
            source, target = Buffer(x.pd, 200000), Buffer(y.pd, 200000)
            x.post(SEND, source.sge(64))
            x.post(WRITE, source.sge(), remote=(target.mr.rkey, target.address))
            x.qp.close()
            y.qp.close()


@case("R22 a region is deregistered and memory freed under a write")
def dereg_busy():
    for _ in range(10):
        with pair() as (x, y):
            source, target = Buffer(x.pd, 1 << 20), Buffer(y.pd, 1 << 20)
            x.post(WRITE, source.sge(), remote=(target.mr.rkey, target.address))
            target.mr.close()
            (wc,) = x.completions(1)
            if status(wc) not in ("IBV_WC_SUCCESS", "IBV_WC_REM_ACCESS_ERR"):
                raise AssertionError(f"status is {status(wc)}")


@case("full queues refuse further work requests")
def full():
    with pair(depth=8) as (x, y):
        source = Buffer(x.pd, 64)

        def fill(post):
            for _ in range(1000):
                post()

        raises(PyverbsError, fill, lambda: x.post(SEND, source.sge()))
        raises(PyverbsError, fill, lambda: y.post_recv())


@case("attributes that make no sense are refused")
def bad_attributes():
    x = Endpoint("fa", "10.0.0.1")
    limits = x.ctx.query_device()
    raises(PyverbsError, CQ, x.ctx, limits.max_cqe + 1)
    raises(PyverbsError, CQ, x.ctx, 0)
    for more in (
        {"max_send_wr": limits.max_qp_wr + 1},
        {"max_recv_wr": limits.max_qp_wr + 1},
        {"max_send_sge": limits.max_sge + 1},
        {"max_recv_sge": limits.max_sge + 1},
    ):
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=x.cq, rcq=x.cq, cap=QPCap(**more))
        raises(PyverbsError, QP, x.pd, init)
    raises(PyverbsError, x.qp.modify, QPAttr(qp_state=e.IBV_QPS_RTS), e.IBV_QP_STATE)
    raises(PyverbsError, Buffer, x.pd, 64, access=e.IBV_ACCESS_REMOTE_WRITE)
    x.close()


@case("memory that is not there cannot be registered")
def bad_memory():
    x = Endpoint("fa", "10.0.0.1")
    raises(PyverbsError, MR, x.pd, 4096, ALL_ACCESS, address=0x10000)
    raises(PyverbsError, MR, x.pd, 4096, ALL_ACCESS, address=2**64 - 4096)
    x.close()


@case("R25 pinned memory is given back")
def unpinned():
    def pinned():
        with open("/proc/self/status", encoding="ascii") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmPin"))

    before = pinned()
    x = Endpoint("fa", "10.0.0.1")
    buffers = [Buffer(x.pd, 100000, offset=i) for i in range(10)]
    if pinned() < before + 10 * 96:
        raise AssertionError("registered memory is not accounted as pinned")
    for buffer in buffers:
        buffer.mr.close()
    eq(pinned(), before, "VmPin after deregistration")
    x.close()


@case("two threads post and poll at once")
def threads():
    with pair(depth=64) as (x, y):
        source, target = Buffer(x.pd, 8192), Buffer(y.pd, 8192)
        trouble = []

        def work(side, buffer, remote):
            try:
                for _ in range(300):
                    side.post(WRITE, buffer.sge(4096), remote=remote)
                    side.good()
            except Exception as why:  # reported by the main thread
                trouble.append(why)

        jobs = [
            threading.Thread(target=work, args=(x, source, (target.mr.rkey, target.address))),
            threading.Thread(target=work, args=(y, target, (source.mr.rkey, source.address + 4096))),
        ]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        eq(trouble, [], "failures")


if __name__ == "__main__":
    shell("pair_up")
    main()
