#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""Data over a reliable connection: every operation, every edge of a packet, byte by byte."""

import itertools
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import Skip, case, eq, main
from pyverbs.pyverbs_error import PyverbsError
from rc import PAGE, Buffer, Endpoint, join, pair, pattern, shell, statuses

IMM = 0x01020304


def send(x, y, source, target, length, imm=None):
    """SEND from source to target; returns the receive completion."""
    y.post_recv(target.sge(), wr_id=7)
    x.post(e.IBV_WR_SEND if imm is None else e.IBV_WR_SEND_WITH_IMM, source.sge(length), imm=imm)
    x.good()
    (wc,) = y.good()
    eq(wc.wr_id, 7, "wr_id")
    eq(wc.byte_len, length, "byte_len")
    eq(wc.opcode, e.IBV_WC_RECV, "opcode")
    check_imm(wc, imm)


def check_imm(wc, imm):
    """The completion carries this immediate value, or none."""
    eq(bool(wc.wc_flags & e.IBV_WC_WITH_IMM), imm is not None, "WITH_IMM")
    if imm is not None:
        eq(wc.imm_data, int.from_bytes(imm.to_bytes(4, "big"), "little"), "immediate")


def write(x, y, source, target, length, imm=None):
    """RDMA WRITE from source to target."""
    opcode = e.IBV_WR_RDMA_WRITE if imm is None else e.IBV_WR_RDMA_WRITE_WITH_IMM
    if imm is not None:
        y.post_recv(wr_id=9)
    x.post(opcode, source.sge(length), remote=(target.mr.rkey, target.address), imm=imm)
    x.good()
    if imm is None:
        return
    (wc,) = y.good()
    eq(wc.opcode, e.IBV_WC_RECV_RDMA_WITH_IMM, "opcode")
    eq(wc.byte_len, length, "byte_len")
    check_imm(wc, imm)


def read(x, _y, source, target, length):
    """RDMA READ, in the other direction: from source, at y, to target, at x."""
    x.post(e.IBV_WR_RDMA_READ, target.sge(length), remote=(source.mr.rkey, source.address))
    x.good()


OPERATIONS = {
    "send": (send, {}),
    "send with immediate": (send, {"imm": IMM}),
    "write": (write, {}),
    "write with immediate": (write, {"imm": IMM}),
    "read": (read, {}),
}


def around(mtu):
    """Lengths at the edges of packets and of runs of packets."""
    edges = {n * mtu + d for n in (1, 2, 3, 15, 16, 17) for d in (-1, 0, 1)}
    return sorted({0, 1, 2, 3, 4, 5} | edges | {65536, 65537, 300001, 1 << 20})


def move(operation, family, mtu, lengths):
    """Moves each length and compares all bytes, and those around them."""
    function, more = OPERATIONS[operation]
    top = max(lengths)
    with pair(family, mtu=mtu) as (x, y):
        at_source, at_target = (y, x) if function is read else (x, y)
        source = Buffer(at_source.pd, top, offset=3)
        target = Buffer(at_target.pd, top, offset=1)
        for seed, length in enumerate(lengths):
            data = pattern(length, seed)
            source.put(data)
            target.put(b"\xdd" * top)
            function(x, y, source, target, length, **more)
            if target.get(length) != data:
                raise AssertionError(f"wrong data in a {operation} of {length} bytes")
            rest = target.get(top - length, at=length)
            if rest.count(0xDD) != len(rest):
                raise AssertionError(f"a {operation} of {length} bytes wrote past its end")
            target.check_guards()


def add_matrix():
    """A case for each operation, address family and path MTU."""
    for operation, family, mtu in itertools.product(OPERATIONS, ("v4", "v6"), (1024, 4096)):
        case(f"R37 {operation}, {family}, MTU {mtu}")(
            lambda o=operation, f=family, m=mtu: move(o, f, m, around(m))
        )
    for mtu in (256, 512, 2048):
        case(f"R37 write, v4, MTU {mtu}")(lambda m=mtu: move("write", "v4", m, around(m)))


add_matrix()


@case("R32 memory regions at any offset and of any length")
def any_offset():
    offsets = (0, 1, 7, 8, 2048, PAGE - 1)
    lengths = (1, 2, 3, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 5)
    with pair(mtu=1024) as (x, y):
        for seed, (offset, length) in enumerate(itertools.product(offsets, lengths)):
            source = Buffer(x.pd, length, offset=(offset * 3) % PAGE)
            target = Buffer(y.pd, length, offset=offset)
            data = pattern(length, seed)
            source.put(data)
            write(x, y, source, target, length)
            if target.get() != data:
                raise AssertionError(f"wrong data at offset {offset}, length {length}")
            target.check_guards()
            source.put(bytes(length))
            read(x, y, target, source, length)
            if source.get() != data:
                raise AssertionError(f"wrong data read at offset {offset}, length {length}")
            source.check_guards()
            source.mr.close()
            target.mr.close()


@case("R32 a memory region that ends at a page edge")
def page_edge():
    with pair() as (x, y):
        source = Buffer(x.pd, 100)
        target = Buffer(y.pd, 100, offset=PAGE - 100)
        source.put(pattern(100))
        write(x, y, source, target, 100)
        eq(target.get(), pattern(100), "data")
        target.check_guards()


@case("R32 a memory region over huge pages")
def huge_pages():
    if not os.path.exists("/proc/sys/vm/nr_hugepages"):
        raise Skip("this kernel has no huge pages")
    with open("/proc/sys/vm/nr_hugepages", "w", encoding="ascii") as knob:
        knob.write("8")
    length = (3 << 20) + 11
    with pair() as (x, y):
        try:
            target = Buffer(y.pd, length, offset=5, flags=0x40000)
        except OSError as why:
            raise Skip(f"no huge pages in this guest: {why}") from why
        source = Buffer(x.pd, length)
        source.put(pattern(length))
        write(x, y, source, target, length)
        if target.get() != pattern(length):
            raise AssertionError("wrong data")
        target.check_guards()


@case("R32 a memory region of no bytes is refused, or grants none")
def no_bytes():
    with pair() as (x, y):
        try:
            target = Buffer(y.pd, 0)
        except PyverbsError:
            return
        source = Buffer(x.pd, 1)
        x.post(e.IBV_WR_RDMA_WRITE, source.sge(), remote=(target.mr.rkey, target.address))
        eq(statuses(x.completions(1)), ["IBV_WC_REM_ACCESS_ERR"], "a write of one byte")


@case("R32 a transfer inside a larger region moves only its part")
def part():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 20000), Buffer(y.pd, 20000)
        source.put(pattern(20000))
        target.put(bytes(20000))
        where = (target.mr.rkey, target.address + 4099)
        x.post(e.IBV_WR_RDMA_WRITE, source.sge(8191, at=5000), remote=where)
        x.good()
        wanted = bytes(4099) + pattern(20000)[5000:13191] + bytes(20000 - 4099 - 8191)
        if target.get() != wanted:
            raise AssertionError("wrong data")


@case("scatter and gather: uneven pieces at both ends")
def gather():
    pieces_out, pieces_in = (1, 4097, 13, 2000), (3000, 7, 3104)
    total = sum(pieces_out)
    eq(sum(pieces_in), total)
    with pair(mtu=1024) as (x, y):
        out = [Buffer(x.pd, n, offset=i) for i, n in enumerate(pieces_out)]
        into = [Buffer(y.pd, n, offset=9 * i) for i, n in enumerate(pieces_in)]
        data, at = pattern(total), 0
        for buffer in out:
            buffer.put(data[at : at + buffer.length])
            at += buffer.length
        y.post_recv(*(b.sge() for b in into))
        x.post(e.IBV_WR_SEND, *(b.sge() for b in out))
        x.good()
        eq(y.good()[0].byte_len, total, "byte_len")
        eq(b"".join(b.get() for b in into), data, "data")
        for buffer in into:
            buffer.check_guards()


@case("inline data may be overwritten once it is posted")
def inline():
    with pair(inline=64) as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        source.put(pattern(64))
        y.post_recv(target.sge())
        x.post(e.IBV_WR_SEND, source.sge(), flags=e.IBV_SEND_INLINE | e.IBV_SEND_SIGNALED)
        source.put(bytes(64))
        x.good()
        y.good()
        eq(target.get(), pattern(64), "data")


@case("completions come in order, unsignalled ones not at all")
def order():
    with pair(depth=128) as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        for i in range(100):
            y.post_recv(target.sge(), wr_id=i)
        for i in range(100):
            flags = e.IBV_SEND_SIGNALED if i % 5 == 4 else 0
            x.post(e.IBV_WR_SEND, source.sge(), wr_id=i, flags=flags)
        eq([wc.wr_id for wc in y.good(100)], list(range(100)), "receives")
        eq([wc.wr_id for wc in x.good(20)], list(range(4, 100, 5)), "sends")
        x.nothing()


@case("a send tells that the writes before it have landed")
def write_then_send():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 100000), Buffer(y.pd, 100000)
        note = Buffer(y.pd, 8)
        for seed in range(8):
            source.put(pattern(100000, seed))
            y.post_recv(note.sge())
            x.post(e.IBV_WR_RDMA_WRITE, source.sge(), remote=(target.mr.rkey, target.address), flags=0)
            x.post(e.IBV_WR_SEND, source.sge(8))
            y.good()
            if target.get() != pattern(100000, seed):
                raise AssertionError(f"round {seed}: the send overtook the write")
            x.good()


@case("many reads at once, fewer allowed on the wire")
def reads():
    with pair(reads=2, served_reads=2) as (x, y):
        source, target = Buffer(y.pd, 40 * 5000), Buffer(x.pd, 40 * 5000)
        source.put(pattern(40 * 5000))
        for i in range(40):
            remote = (source.mr.rkey, source.address + 5000 * i)
            x.post(e.IBV_WR_RDMA_READ, target.sge(5000, at=5000 * i), remote=remote, wr_id=i)
        eq([wc.wr_id for wc in x.good(40)], list(range(40)), "order")
        if target.get() != source.get():
            raise AssertionError("wrong data")


@case("both directions at once, all operations mixed")
def both_ways():
    with pair(depth=64) as (x, y):
        ends = [(x, y), (y, x)]
        data = {id(s): Buffer(s.pd, 16 * 9000) for s in (x, y)}
        sink = {id(s): Buffer(s.pd, 3 * 16 * 9000) for s in (x, y)}
        for seed, side in enumerate((x, y)):
            data[id(side)].put(pattern(16 * 9000, seed))
        for i in range(16):
            for me, peer in ends:
                peer.post_recv(sink[id(peer)].sge(9000, at=9000 * i))
                mine, theirs = data[id(me)], sink[id(peer)]
                written = theirs.address + 9000 * (16 + i)
                me.post(e.IBV_WR_SEND, mine.sge(9000, at=9000 * i))
                me.post(e.IBV_WR_RDMA_WRITE, mine.sge(9000, at=9000 * i), remote=(theirs.mr.rkey, written))
                remote = (data[id(peer)].mr.rkey, data[id(peer)].address + 9000 * i)
                me.post(e.IBV_WR_RDMA_READ, sink[id(me)].sge(9000, at=9000 * (32 + i)), remote=remote)
        for me, peer in ends:
            me.good(64)
        for me, peer in ends:
            if sink[id(me)].get() != data[id(peer)].get() * 3:
                raise AssertionError("wrong data")


@case("several connections between the same devices")
def several():
    with pair() as (x, y):
        others = [(Endpoint("fa", "10.0.0.1"), Endpoint("fb", "10.0.0.2")) for _ in range(4)]
        for ends in others:
            join(*ends)
        for seed, (p, q) in enumerate([(x, y)] + others):
            source, target = Buffer(p.pd, 9999), Buffer(q.pd, 9999)
            source.put(pattern(9999, seed))
            write(p, q, source, target, 9999)
            eq(target.get(), pattern(9999, seed), "data")
        for ends in others:
            for end in ends:
                end.close()


@case("huge anonymous memory: 24 MiB in one write", limit=120)
def big():
    length = 24 << 20
    with pair() as (x, y):
        source, target = Buffer(x.pd, length, offset=1), Buffer(y.pd, length, offset=2)
        source.put(pattern(length))
        x.post(e.IBV_WR_RDMA_WRITE, source.sge(), remote=(target.mr.rkey, target.address))
        x.good(limit=90)
        if target.get() != pattern(length):
            raise AssertionError("wrong data")
        target.check_guards()


if __name__ == "__main__":
    shell("pair_up")
    main()
