#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""Completion events: one for each arming, solicited or not, and none lost."""

import os
import select
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import case, eq, main
from rc import Buffer, pair, shell

SOLICITED = e.IBV_SEND_SOLICITED | e.IBV_SEND_SIGNALED


def waiting(side, seconds=0.3):
    """True when an event of this side's channel is ready within that time."""
    return bool(select.select(side.event_fds, [], [], seconds)[0])


def take(side):
    """Takes and acknowledges the event, which must be there."""
    eq(waiting(side, 10), True, "event ready")
    side.channel.get_cq_event(side.cq)
    side.cq.ack_events(1)


def exchange(x, y, buffers, flags=e.IBV_SEND_SIGNALED):
    """One send from x to y, taken from the queue of x only."""
    y.post_recv(buffers[1].sge())
    x.post(e.IBV_WR_SEND, buffers[0].sge(), flags=flags)
    x.good()


@case("no event without arming")
def unarmed():
    with pair(events=True) as (x, y):
        exchange(x, y, (Buffer(x.pd, 64), Buffer(y.pd, 64)))
        eq(waiting(y), False, "event ready")
        y.good()


@case("one event for one arming, whatever comes after")
def once():
    with pair(events=True) as (x, y):
        buffers = Buffer(x.pd, 64), Buffer(y.pd, 64)
        y.cq.req_notify()
        for _ in range(5):
            exchange(x, y, buffers)
        take(y)
        eq(waiting(y), False, "a second event ready")
        y.good(5)
        y.cq.req_notify()
        eq(waiting(y), False, "event ready with an empty queue")
        exchange(x, y, buffers)
        take(y)
        y.good()


@case("armed for solicited completions only")
def solicited():
    with pair(events=True) as (x, y):
        buffers = Buffer(x.pd, 64), Buffer(y.pd, 64)
        y.cq.req_notify(True)
        exchange(x, y, buffers)
        eq(waiting(y), False, "event of an unsolicited send ready")
        exchange(x, y, buffers, SOLICITED)
        take(y)
        y.good(2)


@case("a failed completion is an event even when armed for solicited ones")
def failure():
    with pair(events=True) as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        x.cq.req_notify(True)
        x.post(e.IBV_WR_RDMA_WRITE, source.sge(), remote=(target.mr.rkey ^ 0x5A00, target.address))
        take(x)
        eq(x.completions(1)[0].status, e.IBV_WC_REM_ACCESS_ERR, "status")


@case("events at the sender, of every operation")
def sender():
    with pair(events=True) as (x, y):
        source, target = Buffer(x.pd, 9000), Buffer(y.pd, 9000)
        for opcode in (e.IBV_WR_SEND, e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ):
            x.cq.req_notify()
            if opcode == e.IBV_WR_SEND:
                y.post_recv(target.sge())
            x.post(opcode, source.sge(), remote=(target.mr.rkey, target.address))
            take(x)
            x.good()


@case("a thousand sleeps and wake-ups lose none")
def thousand():
    with pair(events=True) as (x, y):
        buffers = Buffer(x.pd, 64), Buffer(y.pd, 64)
        for _ in range(1000):
            y.cq.req_notify()
            exchange(x, y, buffers)
            take(y)
            y.good()


if __name__ == "__main__":
    shell("pair_up")
    main()
