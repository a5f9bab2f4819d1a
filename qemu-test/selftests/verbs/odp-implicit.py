#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""Implicit on-demand paging: one region over all memory of a process."""

import ctypes
import mmap
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from atomic_wr import atomic
from ktap import case, eq, main
from ondemand import FINE, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, ON_DEMAND
from ondemand import READ, SEND, WRITE, libc
from pyverbs.mr import MR
from pyverbs.wr import SGE
from rc import ALL_ACCESS, PAGE, Buffer, pair, pattern, shell, statuses

# of which the driver makes it
PART = 64 << 20


class Everything:
    """All memory of this process, registered on demand, and some of it around the edge of a part."""

    def __init__(self, pd, access=ON_DEMAND):
        size = 4 * PART
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        self.base = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        self.edge = -(-self.base // PART) * PART + PART
        self.mr = MR(pd, 0, access, implicit=True)

    def sge(self, length, at):
        """A scatter/gather entry."""
        return SGE(self.edge + at, length, self.mr.lkey)

    def there(self, at):
        """Where a peer finds it."""
        return self.mr.rkey, self.edge + at

    def put(self, data, at):
        """Writes as the process does."""
        ctypes.memmove(self.edge + at, data, len(data))

    def get(self, length, at):
        """Reads as the process does."""
        return ctypes.string_at(self.edge + at, length)


@case("all of memory on demand: every operation, also over the edge of two parts")
def implicit():
    with pair(access=ALL_ACCESS | e.IBV_ACCESS_REMOTE_ATOMIC) as (x, y):
        able = x.ctx.query_device_ex().odp_caps.general_caps
        eq(bool(able & e.IBV_ODP_SUPPORT_IMPLICIT), True, "the capability")
        mine, theirs = Everything(x.pd), Everything(y.pd, ON_DEMAND | e.IBV_ACCESS_REMOTE_ATOMIC)
        for seed, at in enumerate((-PART, -PAGE - 5, -100, 0, PART - 7)):
            length = 3 * PAGE + 11
            mine.put(pattern(length, seed), at)
            x.post(WRITE, mine.sge(length, at), remote=theirs.there(at + 1))
            x.good()
            eq(theirs.get(length, at + 1), pattern(length, seed), "data written")
            x.post(READ, mine.sge(length, at + 4 * PAGE), remote=theirs.there(at + 1))
            x.good()
            eq(mine.get(length, at + 4 * PAGE), pattern(length, seed), "data read")
            y.post_recv(theirs.sge(length, at + 8 * PAGE))
            x.post(SEND, mine.sge(length, at))
            x.good()
            y.good()
            eq(theirs.get(length, at + 8 * PAGE), pattern(length, seed), "data sent")
        theirs.put((41).to_bytes(8, "little"), -8)
        atomic(x, mine.sge(8, 64), e.IBV_WR_ATOMIC_FETCH_AND_ADD, theirs.there(-8), 1)
        x.good()
        eq(theirs.get(8, -8), (42).to_bytes(8, "little"), "the word")


@case("all of memory on demand: what is not mapped fails, and serves once it is")
def implicit_hole():
    for local, wanted in ((False, "IBV_WC_REM_OP_ERR"), (True, "IBV_WC_LOC_PROT_ERR")):
        with pair() as (x, y):
            mine, theirs = Everything(x.pd), Everything(y.pd)
            side = mine if local else theirs
            # the end of this part, and all of the next
            libc.munmap(side.edge - PAGE, PAGE + PART, 0)
            for at, ends in ((-2 * PAGE, FINE), (PAGE, [wanted])):
                x.post(WRITE, mine.sge(PAGE, at), remote=theirs.there(at))
                eq(statuses(x.completions(1)), ends, f"at {at}")
    with pair() as (x, y):
        mine, theirs = Everything(x.pd), Everything(y.pd)
        libc.munmap(theirs.edge, PART, 0)
        x.post(WRITE, mine.sge(8, 0), remote=theirs.there(0))
        eq(statuses(x.completions(1)), ["IBV_WC_REM_OP_ERR"], "no memory")
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED
        libc.mmap(theirs.edge, PAGE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        with pair() as (p, q):
            source, all_ = Buffer(p.pd, PAGE), MR(q.pd, 0, ON_DEMAND, implicit=True)
            source.put(pattern(PAGE))
            p.post(WRITE, source.sge(), remote=(all_.rkey, theirs.edge))
            p.good()
            eq(theirs.get(PAGE, 0), pattern(PAGE), "data")


if __name__ == "__main__":
    shell("pair_up")
    main()
