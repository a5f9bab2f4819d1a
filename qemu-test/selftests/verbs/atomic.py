#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""Atomics, ATOMIC WRITE and FLUSH: what memory holds afterwards, and who may."""

import ctypes
import os
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from atomic_wr import atomic
from ktap import Skip, case, eq, main
from rc import ALL_ACCESS, PAGE, Buffer, join, pair, shell, statuses

ADD, SWAP = e.IBV_WR_ATOMIC_FETCH_AND_ADD, e.IBV_WR_ATOMIC_CMP_AND_SWP
ATOMIC = ALL_ACCESS | e.IBV_ACCESS_REMOTE_ATOMIC
FINE, REFUSED = ["IBV_WC_SUCCESS"], ["IBV_WC_REM_ACCESS_ERR"]
INVALID = ["IBV_WC_REM_INV_REQ_ERR"]
TOP = (1 << 64) - 1


def value(buffer, at=0):
    """The word in a buffer."""
    return struct.unpack("=Q", buffer.get(8, at))[0]


@case("fetch and add: the old value comes back, the sum wraps")
def fetch_add():
    with pair(access=ATOMIC) as (x, y):
        old, word = Buffer(x.pd, 8), Buffer(y.pd, 24, access=ATOMIC)
        word.put(struct.pack("=QQQ", 11, TOP - 1, 22))
        for add, before, after in ((1, TOP - 1, TOP), (3, TOP, 2), (0, 2, 2), (TOP, 2, 1)):
            atomic(x, old.sge(), ADD, (word.mr.rkey, word.address + 8), add)
            x.good()
            eq((value(old), value(word, 8)), (before, after), f"add {add:#x}")
        eq((value(word), value(word, 16)), (11, 22), "its neighbours")
        word.check_guards()


@case("compare and swap: stores when equal, and only then")
def compare_swap():
    with pair(access=ATOMIC) as (x, y):
        old, word = Buffer(x.pd, 8), Buffer(y.pd, 8, access=ATOMIC)
        word.put(struct.pack("=Q", 5))
        for compare, swap, before, after in ((5, TOP, 5, TOP), (5, 7, TOP, TOP), (TOP, 0, TOP, 0)):
            atomic(x, old.sge(), SWAP, (word.mr.rkey, word.address), compare, swap)
            x.good()
            eq((value(old), value(word)), (before, after), f"compare {compare:#x}")


@case("the word may be the first or the last of a page and of a region")
def edges():
    with pair(access=ATOMIC) as (x, y):
        old = Buffer(x.pd, 8)
        for offset in (0, PAGE - 8, PAGE - 16):
            word = Buffer(y.pd, 8, access=ATOMIC, offset=offset)
            word.put(struct.pack("=Q", 40))
            atomic(x, old.sge(), ADD, (word.mr.rkey, word.address), 2)
            x.good()
            eq(value(word), 42, f"offset {offset}")
            word.check_guards()


@case("refused: no permission, wrong range, wrong alignment, and nothing changes")
def refused():
    for what, access, at, length, wanted in (
        ("no permission", ALL_ACCESS, 0, 8, REFUSED),
        ("partly outside", ATOMIC, 8, 15, REFUSED),
        ("outside", ATOMIC, 16, 16, REFUSED),
        ("before", ATOMIC, -8, 16, REFUSED),
    ):
        with pair(access=ATOMIC) as (x, y):
            old, word = Buffer(x.pd, 8), Buffer(y.pd, length, access=access)
            atomic(x, old.sge(), ADD, (word.mr.rkey, word.address + at), 1)
            eq(statuses(x.completions(1)), wanted, what)
            eq(word.get(), b"\xee" * length, what)
            eq(old.get(), b"\xee" * 8, what)
            word.check_guards()


@case("refused: a queue pair that serves no atomics")
def not_enabled():
    with pair() as (x, y):
        old, word = Buffer(x.pd, 8), Buffer(y.pd, 8, access=ATOMIC)
        atomic(x, old.sge(), ADD, (word.mr.rkey, word.address), 1)
        eq(statuses(x.completions(1)), INVALID, "atomic")
        eq(word.get(), b"\xee" * 8, "memory")


@case("a zero-based region that starts at an odd byte has no words for atomics")
def odd_zero_based():
    with pair(access=ATOMIC) as (x, y):
        old = Buffer(x.pd, 8)
        word = Buffer(y.pd, 64, access=ATOMIC | e.IBV_ACCESS_ZERO_BASED, offset=3)
        atomic(x, old.sge(), ADD, (word.mr.rkey, 8), 1)
        eq(statuses(x.completions(1)), REFUSED, "atomic")
        eq(word.get(), b"\xee" * 64, "memory")


@case("R41 two queue pairs and this CPU add to one word: no addition is lost", limit=120)
def all_at_once():
    try:
        add = getattr(ctypes.CDLL("libatomic.so.1"), "__atomic_fetch_add_8")
    except OSError as why:
        raise Skip(f"no atomics for Python: {why}") from why
    add.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int]
    rounds, depth = 60, 16
    with pair(access=ATOMIC) as (x, y):
        word = Buffer(y.pd, 8, access=ATOMIC)
        word.put(bytes(8))
        old = Buffer(x.pd, 8 * 2 * depth)
        stop, mine = threading.Event(), [0]

        def count():
            while not stop.is_set():
                for _ in range(100):
                    add(word.address, 1 << 32, 5)
                mine[0] += 100

        first, peer = x.qp, y.qp
        x.qp, y.qp = x.new_qp(), y.new_qp()
        join(x, y, access=ATOMIC)
        queues = (first, x.qp)
        thread = threading.Thread(target=count)
        thread.start()
        try:
            for _ in range(rounds):
                for i in range(2 * depth):
                    x.qp = queues[i % 2]
                    atomic(x, old.sge(8, 8 * i), ADD, (word.mr.rkey, word.address), 1)
                x.good(2 * depth)
        finally:
            stop.set()
            thread.join()
        total = value(word)
        eq(total & 0xFFFFFFFF, rounds * 2 * depth, "additions of the queue pairs")
        eq(total >> 32, mine[0] & 0xFFFFFFFF, "additions of the CPU")
        for qp in (first, peer):
            qp.close()


if __name__ == "__main__":
    shell("pair_up")
    main()
