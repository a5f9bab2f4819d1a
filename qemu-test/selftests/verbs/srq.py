#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""Shared receive queues: order, limit, resize, errors, and several connections at once."""

import errno
import os
import pickle
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import SLOWER, case, eq, main
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from rc import Buffer, Endpoint, join, pair, pattern, shell, statuses
from states import event, refused, to_error
from ud import GRH, datagrams


class Several:
    """`count` connections to one endpoint that takes all receives from one queue."""

    def __init__(self, count, depth=64, **options):
        self.y = Endpoint("fb", "10.0.0.2", depth=depth, shared=depth, **options)
        self.senders, self.qps = [], []
        for _ in range(count):
            x = Endpoint("fa", "10.0.0.1", depth=depth)
            join(x, self.y)
            self.senders.append(x)
            self.qps.append(self.y.qp)
            self.y.qp = self.y.new_qp()

    def close(self):
        """Gives everything back."""
        for x in self.senders:
            x.close()
        self.y.close()


@case("two connections take receives from one queue, in its order")
def order():
    all_ = Several(2)
    y = all_.y
    source = [Buffer(x.pd, 100) for x in all_.senders]
    target = Buffer(y.pd, 20 * 100)
    for i in range(20):
        y.post_recv(target.sge(100, at=100 * i), wr_id=i)
    for i in range(20):
        which = i * 7 % 5 % 2
        source[which].put(pattern(100, i))
        all_.senders[which].post(e.IBV_WR_SEND, source[which].sge())
        all_.senders[which].good()
        (wc,) = y.good()
        eq((wc.wr_id, wc.qp_num), (i, all_.qps[which].qp_num), "receive")
        eq(target.get(100, at=100 * i), pattern(100, i), "data")
    all_.close()


@case("an empty queue makes the sender wait, and it goes on")
def empty():
    with pair(shared=16, rnr_timer=1) as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        x.post(e.IBV_WR_SEND, source.sge())
        x.nothing()
        y.post_recv(target.sge(), wr_id=4)
        x.good()
        eq(y.good()[0].wr_id, 4, "receive")


@case("the limit event comes once, when fewer receives are left, or at once")
def limit():
    with pair(shared=16) as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        for i in range(10):
            y.post_recv(target.sge(), wr_id=i)
        y.srq.modify(SrqAttr(srq_limit=7), e.IBV_SRQ_LIMIT)
        eq(y.srq.query().srq_limit, 7, "limit")
        for _ in range(3):
            x.post(e.IBV_WR_SEND, source.sge())
            x.good()
            y.good()
        eq(y.srq.query().srq_limit, 7, "limit with seven left")
        x.post(e.IBV_WR_SEND, source.sge())
        x.good()
        y.good()
        event(y, e.IBV_EVENT_SRQ_LIMIT_REACHED)
        eq(y.srq.query().srq_limit, 0, "limit, disarmed")
        y.srq.modify(SrqAttr(srq_limit=8), e.IBV_SRQ_LIMIT)
        event(y, e.IBV_EVENT_SRQ_LIMIT_REACHED)
        # armed and not reached: no event, so that the next one is of the queue pair
        y.srq.modify(SrqAttr(srq_limit=2), e.IBV_SRQ_LIMIT)
        to_error(y.qp)
        event(y, e.IBV_EVENT_QP_LAST_WQE_REACHED)


@case("a resize keeps what is in the queue")
def resize():
    with pair(shared=15) as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)

        def take(count, first):
            for i in range(count):
                source.put(pattern(64, i))
                x.post(e.IBV_WR_SEND, source.sge())
                x.good()
                eq(y.good()[0].wr_id, first + i, "receive")
                eq(target.get(), pattern(64, i), "data")

        for i in range(15):
            y.post_recv(target.sge(), wr_id=i)
        take(10, 0)
        # the ring has wrapped
        for i in range(15, 25):
            y.post_recv(target.sge(), wr_id=i)
        y.srq.modify(SrqAttr(max_wr=100), e.IBV_SRQ_MAX_WR)
        eq(y.srq.query().max_wr >= 100, True, "max_wr after growth")
        for i in range(25, 110):
            y.post_recv(target.sge(), wr_id=i)
        take(60, 10)
        refused(errno.EINVAL, "too small for 40", y.srq.modify, SrqAttr(max_wr=30), e.IBV_SRQ_MAX_WR)
        eq(y.srq.query().max_wr >= 100, True, "max_wr after a refused resize")
        take(30, 70)
        both = SrqAttr(max_wr=30, srq_limit=2)
        y.srq.modify(both, e.IBV_SRQ_MAX_WR | e.IBV_SRQ_LIMIT)
        eq((y.srq.query().max_wr, y.srq.query().srq_limit), (31, 2), "max_wr and limit")
        take(10, 100)


def sender(count, there, here):
    """A process that connects to what comes from `there`, says who it is, and sends `count` messages."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            x = Endpoint("fa", "10.0.0.1", depth=64)
            os.write(here, pickle.dumps(x.where()))
            x.connect(pickle.loads(os.read(there, 4096)))
            source = Buffer(x.pd, 4)
            for _ in range(count):
                x.post(e.IBV_WR_SEND, source.sge())
                x.good(limit=60)
            code = 0
        finally:
            os._exit(code)
    return child


@case("resizes of both queues while messages arrive: each receive is taken once, in order")
def resize_under_traffic():
    count, posted = 1500, 6000
    (from_x, to_y), (from_y, to_x) = os.pipe(), os.pipe()
    child = sender(count, from_y, to_y)
    y = Endpoint("fb", "10.0.0.2", depth=64)
    y.srq = y.new_srq(posted, max_sge=64)
    y.qp = y.new_qp()
    target = Buffer(y.pd, 4)
    for i in range(posted):
        y.post_recv(target.sge(), wr_id=i)
    y.connect(pickle.loads(os.read(from_x, 4096)))
    os.write(to_x, pickle.dumps(y.where()))
    got, sizes = [], 0
    until = time.monotonic() + 100 * SLOWER
    while len(got) < count and time.monotonic() < until:
        sizes += 1
        y.srq.modify(SrqAttr(max_wr=(6000, 20000)[sizes % 2]), e.IBV_SRQ_MAX_WR)
        y.cq.resize((2000, 30000)[sizes % 2])
        if sizes % 4 == 0:
            got += [wc.wr_id for wc in y.cq.poll(100)[1]]
    eq(got, list(range(count)), f"receives taken during {sizes} resizes")
    eq(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0, "the sender's end")
    for fd in (from_x, to_y, from_y, to_x):
        os.close(fd)
    y.close()


@case("bad attributes are refused and change nothing")
def bad():
    x = Endpoint("fa", "10.0.0.1", shared=20)
    most = x.ctx.query_device()
    for what, attr in {
        "no work requests": SrqAttr(max_wr=0, max_sge=1),
        "too many work requests": SrqAttr(max_wr=most.max_srq_wr + 1, max_sge=1),
        "2^32 - 1 work requests": SrqAttr(max_wr=0xFFFFFFFF, max_sge=1),
        "too long lists": SrqAttr(max_wr=1, max_sge=most.max_srq_sge + 1),
    }.items():
        refused(errno.EINVAL, what, SRQ, x.pd, SrqInitAttr(attr))
    SRQ(x.pd, SrqInitAttr(SrqAttr(max_wr=most.max_srq_wr, max_sge=1))).close()
    SRQ(x.pd, SrqInitAttr(SrqAttr(max_wr=1, max_sge=most.max_srq_sge))).close()
    size = x.srq.query().max_wr
    for what, attr, mask in (
        ("a limit above the size", SrqAttr(srq_limit=size + 1), e.IBV_SRQ_LIMIT),
        ("no work requests", SrqAttr(max_wr=0), e.IBV_SRQ_MAX_WR),
        ("too many work requests", SrqAttr(max_wr=most.max_srq_wr + 1), e.IBV_SRQ_MAX_WR),
        ("both, with a bad limit", SrqAttr(max_wr=8, srq_limit=90), e.IBV_SRQ_MAX_WR | e.IBV_SRQ_LIMIT),
    ):
        refused(errno.EINVAL, what, x.srq.modify, attr, mask)
        now = x.srq.query()
        eq((now.max_wr, now.max_sge, now.srq_limit), (size, 4, 0), "attributes")
    other = PD(x.ctx)
    init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=x.cq, rcq=x.cq, cap=QPCap(), srq=x.srq)
    refused(errno.EINVAL, "an SRQ of another PD", QP, other, init)
    x.close()


@case("a queue pair in Error leaves the shared receives to others")
def leaves():
    all_ = Several(2)
    y = all_.y
    source, target = Buffer(all_.senders[1].pd, 64), Buffer(y.pd, 64)
    for i in range(4):
        y.post_recv(target.sge(), wr_id=i)
    to_error(all_.qps[0])
    event(y, e.IBV_EVENT_QP_LAST_WQE_REACHED)
    y.nothing()
    all_.senders[1].post(e.IBV_WR_SEND, source.sge())
    all_.senders[1].good()
    eq(y.good()[0].wr_id, 0, "receive")
    all_.close()


@case("a message longer than the shared receive fails its connection only")
def too_long():
    all_ = Several(2)
    y = all_.y
    source, target = Buffer(all_.senders[0].pd, 64), Buffer(y.pd, 32)
    y.post_recv(target.sge(), wr_id=1)
    all_.senders[0].post(e.IBV_WR_SEND, source.sge())
    eq(statuses(all_.senders[0].completions(1)), ["IBV_WC_REM_INV_REQ_ERR"], "sender")
    eq(statuses(y.completions(1)), ["IBV_WC_LOC_LEN_ERR"], "receiver")
    other = Buffer(all_.senders[1].pd, 32)
    y.post_recv(target.sge(), wr_id=2)
    all_.senders[1].post(e.IBV_WR_SEND, other.sge())
    all_.senders[1].good()
    eq(y.good()[0].wr_id, 2, "receive")
    all_.close()


@case("datagrams into a shared queue")
def ud():
    with datagrams(shared=8) as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64 + GRH)
        handle = x.handle(y)
        for i in range(20):
            y.post_recv(target.sge(), wr_id=i)
            source.put(pattern(64, i))
            x.send(handle, y.qp.qp_num, source.sge())
            x.good()
            eq(y.good()[0].wr_id, i, "receive")
            eq(target.get(64, at=GRH), pattern(64, i), "data")


@case("four connections at once: each receive is taken once, by one of them")
def crowd():
    all_ = Several(4, depth=128)
    y, rounds, size = all_.y, 100, 3000
    target = Buffer(y.pd, 128 * size)
    trouble = []

    def pour(x, seed):
        try:
            source = Buffer(x.pd, size)
            source.put(bytes([seed]) * size)
            for _ in range(rounds):
                x.post(e.IBV_WR_SEND, source.sge())
                x.good()
        except Exception as why:  # reported by the main thread
            trouble.append(why)

    for i in range(128):
        y.post_recv(target.sge(size, at=i * size), wr_id=i)
    jobs = [threading.Thread(target=pour, args=(x, i + 1)) for i, x in enumerate(all_.senders)]
    for job in jobs:
        job.start()
    by_number = {qp.qp_num: i + 1 for i, qp in enumerate(all_.qps)}
    for _ in range(4 * rounds):
        (wc,) = y.good(limit=60)
        got = target.get(size, at=wc.wr_id * size)
        eq(got.count(by_number[wc.qp_num]), size, "bytes of that sender")
        target.put(bytes(size), at=wc.wr_id * size)
        y.post_recv(target.sge(size, at=wc.wr_id * size), wr_id=wc.wr_id)
    for job in jobs:
        job.join()
    eq(trouble, [], "failures")
    target.check_guards()
    all_.close()


if __name__ == "__main__":
    shell("pair_up")
    main()
