#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""Completion queues that change their size, or are too small."""

import errno
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import case, eq, main
from pyverbs.cq import CQ, CompChannel
from rc import Buffer, Endpoint, join, pair, shell, statuses
from states import next_event, refused, state


def fill(x, y, first, count):
    """Puts `count` completions into the queue of x."""
    source, target = Buffer(x.pd, 8), Buffer(y.pd, 8)
    for i in range(first, first + count):
        x.post(e.IBV_WR_RDMA_WRITE, source.sge(), remote=(target.mr.rkey, target.address), wr_id=i)


def taken(x, count):
    """The names of the next completions."""
    return [wc.wr_id for wc in x.good(count)]


@case("a resize keeps what is in the queue, in order")
def keeps():
    with pair(depth=64) as (x, y):
        fill(x, y, 0, 40)
        eq(taken(x, 30), list(range(30)), "before")
        for size in (11, 200, 15, 1000):
            x.cq.resize(size)
            eq(x.cq.cqe >= size, True, f"entries after a resize to {size}")
            eq(taken(x, 5), list(range(30, 35)), "after")
            fill(x, y, 40, 5)
            eq(taken(x, 10), list(range(35, 45)), "and those that came after it")
            fill(x, y, 30, 10)


@case("a size without room for what is there is refused, and nothing is lost")
def too_small():
    with pair(depth=64) as (x, y):
        size = x.cq.cqe
        fill(x, y, 0, 40)
        x.good(0)
        for wanted in (1, 20, 30):
            refused(errno.EINVAL, f"{wanted} entries for 40", x.cq.resize, wanted)
            eq(x.cq.cqe, size, "entries")
        eq(taken(x, 40), list(range(40)), "completions")


@case("an armed queue stays armed when its size changes")
def armed():
    with pair(events=True) as (x, y):
        x.cq.req_notify()
        x.cq.resize(500)
        fill(x, y, 0, 1)
        x.channel.get_cq_event(x.cq)
        x.cq.ack_events(1)
        eq(taken(x, 1), [0], "completion")


@case("sizes that cannot be are refused")
def sizes():
    x = Endpoint("fa", "10.0.0.1")
    most = x.ctx.query_device().max_cqe
    size = x.cq.cqe
    for wanted in (0, most + 1, 0x7FFFFFFF):
        refused(errno.EINVAL, f"a new queue of {wanted}", CQ, x.ctx, wanted)
        refused(errno.EINVAL, f"a resize to {wanted}", x.cq.resize, wanted)
        eq(x.cq.cqe, size, "entries")
    CQ(x.ctx, most).close()
    channel = CompChannel(x.ctx)
    vectors = x.ctx.num_comp_vectors
    refused(errno.EINVAL, "a vector that is not there", CQ, x.ctx, 8, None, channel, vectors)
    x.cq.resize(most)
    x.close()


@case("a queue that overflows tells so once, and its queue pair is of no use any more")
def overflow():
    with pair(depth=64) as (x, y):
        small = CQ(x.ctx, 7)
        whole, x.cq = x.cq, small
        x.qp = x.new_qp()
        y.qp = y.new_qp()
        join(x, y)
        fill(x, y, 0, 10)
        seen = {next_event(x), next_event(x)}
        eq(seen, {e.IBV_EVENT_CQ_ERR, e.IBV_EVENT_QP_FATAL}, "events")
        eq(next_event(x, 0.3), None, "a third event")
        eq(state(x.qp), "ERR", "state")
        found = x.completions(7)
        eq([wc.wr_id for wc in found], list(range(7)), f"those that fitted ({statuses(found)})")
        x.cq = whole


if __name__ == "__main__":
    shell("pair_up")
    main()
