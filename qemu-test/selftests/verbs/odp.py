#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""On-demand paging: pages come when they are wanted, and go when the process says so."""

import ctypes
import errno
import fcntl
import mmap
import os
import select
import signal
import struct
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from atomic_wr import atomic
from ktap import SLOWER, Skip, case, eq, main, raises
from ondemand import FINE, ON_DEMAND, READ, SEND, WRITE, Memory, both, libc, write
from pyverbs.mr import MR
from rc import ALL_ACCESS, PAGE, Buffer, pair, pattern, resources, shell, statuses
from uverbs import PREFETCH, PREFETCH_NO_FAULT, PREFETCH_WRITE, RawMR, advise

MEMFD_SECRET, USERFAULTFD = 447, 323
LENGTHS = (1, PAGE - 1, PAGE, 3 * PAGE + 7, 300001)


@case("untouched memory at both sides: zeroes arrive")
def untouched():
    for length in LENGTHS:
        with pair(mtu=1024) as (x, y):
            mine, theirs = both(x, y, length, offset=100)
            eq(write(x, mine, theirs), FINE, f"write of {length}")
            eq(theirs.get(), bytes(length), "data")


@case("every operation, with the pages dropped before each")
def dropped():
    for length in LENGTHS:
        with pair(mtu=1024) as (x, y):
            mine, theirs = both(x, y, length, offset=3)
            for seed in range(4):
                data = pattern(length, seed)
                mine.put(data)
                theirs.drop()
                eq(write(x, mine, theirs), FINE, "write")
                eq(theirs.get(), data, "data written")
                mine.drop()
                x.post(READ, mine.sge(), remote=(theirs.mr.rkey, theirs.address))
                x.good()
                eq(mine.get(), data, "data read")
                theirs.drop()
                y.post_recv(theirs.sge())
                x.post(SEND, mine.sge())
                x.good()
                y.good()
                eq(theirs.get(), data, "data sent")


@case("atomics on a page that is not there")
def atomics():
    access = ON_DEMAND | e.IBV_ACCESS_REMOTE_ATOMIC
    with pair(access=ALL_ACCESS | e.IBV_ACCESS_REMOTE_ATOMIC) as (x, y):
        old = Memory(x.pd, 8)
        word = Memory(y.pd, 64, access=access)
        for i in range(10):
            old.drop()
            atomic(x, old.sge(), e.IBV_WR_ATOMIC_FETCH_AND_ADD, (word.mr.rkey, word.address + 8), 5)
            x.good()
            eq(int.from_bytes(old.get(), "little"), 5 * i, "old value")
        word.drop()
        atomic(x, old.sge(), e.IBV_WR_ATOMIC_FETCH_AND_ADD, (word.mr.rkey, word.address + 8), 5)
        x.good()
        eq(int.from_bytes(old.get(), "little"), 0, "old value of a fresh page")


@case("other pages at the same address: the new ones are written, the old ones not")
def remapped():
    with pair() as (x, y):
        mine, theirs = both(x, y, 4 * PAGE)
        mine.put(pattern(4 * PAGE, 1))
        eq(write(x, mine, theirs), FINE, "before")
        # The old pages stay mapped, elsewhere.
        other = theirs.map(None)
        libc.mremap.restype = ctypes.c_void_p
        libc.mremap.argtypes = (ctypes.c_void_p,) + (ctypes.c_size_t,) * 2 + (ctypes.c_int, ctypes.c_void_p)
        eq(libc.mremap(theirs.base, theirs.size, theirs.size, 3, other), other, "mremap")
        theirs.map(theirs.base)
        mine.put(pattern(4 * PAGE, 2))
        eq(write(x, mine, theirs), FINE, "after")
        eq(theirs.get(), pattern(4 * PAGE, 2), "new pages")
        eq(ctypes.string_at(other, 4 * PAGE), pattern(4 * PAGE, 1), "old pages")


@case("a hole in the region fails the access that meets it, and no other")
def hole():
    for opcode, wanted in ((WRITE, "IBV_WC_REM_OP_ERR"), (READ, "IBV_WC_REM_OP_ERR")):
        with pair() as (x, y):
            mine, theirs = both(x, y, 4 * PAGE)
            mine.put(pattern(4 * PAGE))
            libc.munmap(theirs.base + 2 * PAGE, PAGE, 0)
            for at in (0, 3 * PAGE):
                x.post(opcode, mine.sge(PAGE), remote=(theirs.mr.rkey, theirs.address + at))
                x.good()
            x.post(opcode, mine.sge(), remote=(theirs.mr.rkey, theirs.address))
            eq(statuses(x.completions(1)), [wanted], "over the hole")
    with pair() as (x, y):
        mine, theirs = both(x, y, 4 * PAGE)
        libc.munmap(mine.base + 2 * PAGE, PAGE, 0)
        eq(write(x, mine, theirs), ["IBV_WC_LOC_PROT_ERR"], "from a hole")


@case("secret memory, which the kernel itself cannot reach, is no memory for peers")
def secret():
    fd = libc.syscall(MEMFD_SECRET, 0)
    if fd < 0:
        raise Skip(f"memfd_secret: {os.strerror(ctypes.get_errno())}")
    os.ftruncate(fd, PAGE)
    with pair() as (x, y):
        mine, theirs = Memory(x.pd, PAGE), Memory(y.pd, PAGE, fd=fd)
        theirs.put(b"secret")
        eq(write(x, mine, theirs), ["IBV_WC_REM_OP_ERR"], "to secret memory")
    with pair() as (x, y):
        mine, theirs = Memory(x.pd, PAGE, fd=fd), Memory(y.pd, PAGE)
        eq(write(x, mine, theirs), ["IBV_WC_LOC_PROT_ERR"], "from secret memory")
    os.close(fd)


@case("memory that comes back after a failure serves again")
def filled_hole():
    with pair() as (x, y):
        mine, theirs = both(x, y, 2 * PAGE)
        libc.munmap(theirs.base, theirs.size, 0)
        eq(write(x, mine, theirs), ["IBV_WC_REM_OP_ERR"], "no memory")
        theirs.map(theirs.base)
        with pair() as (p, q):
            source = Buffer(p.pd, 2 * PAGE)
            source.put(pattern(2 * PAGE))
            mr = MR(q.pd, 2 * PAGE, ON_DEMAND, address=theirs.address)
            p.post(WRITE, source.sge(), remote=(mr.rkey, theirs.address))
            p.good()
            eq(theirs.get(), pattern(2 * PAGE), "data")


@case("pages that the process may not write are not written")
def read_only():
    with pair() as (x, y):
        mine, theirs = both(x, y, PAGE)
        mine.put(pattern(PAGE, 1))
        eq(write(x, mine, theirs), FINE, "before")
        eq(libc.mprotect(theirs.base, PAGE, mmap.PROT_READ), 0, "mprotect")
        x.post(READ, mine.sge(), remote=(theirs.mr.rkey, theirs.address))
        x.good()
        mine.put(pattern(PAGE, 2))
        eq(write(x, mine, theirs), ["IBV_WC_REM_OP_ERR"], "write")
        eq(theirs.get(), pattern(PAGE, 1), "memory")


@case("what is written into a mapped file is in the file, also after its pages were written back")
def mapped_file():
    with pair() as (x, y), tempfile.TemporaryFile(dir="/var/tmp") as file:
        length = 64 * PAGE
        file.truncate(length)
        mine = Memory(x.pd, length)
        theirs = Memory(y.pd, length, fd=file.fileno())
        for seed in range(4):
            mine.put(pattern(length, seed))
            eq(write(x, mine, theirs), FINE, "write")
            os.fsync(file.fileno())
            eq(libc.madvise(theirs.base, theirs.size, 21), 0, "MADV_PAGEOUT")
            eq(os.pread(file.fileno(), length, 0), pattern(length, seed), "file")


@case("R40 fork: what the peer writes is the parent's, the child keeps what it had", limit=60)
def forked():
    with pair() as (x, y):
        mine, theirs = both(x, y, 3 * PAGE)
        theirs.put(pattern(3 * PAGE, 1))
        mine.put(pattern(3 * PAGE, 2))
        eq(write(x, mine, theirs, PAGE), FINE, "before")
        before = theirs.get()
        start, done = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.read(start[0], 1)
            os._exit(0 if theirs.get() == before else 1)
        mine.put(pattern(3 * PAGE, 3))
        eq(write(x, mine, theirs), FINE, "after")
        eq(theirs.get(), pattern(3 * PAGE, 3), "the parent's memory")
        os.write(start[1], b"x")
        eq(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0, "the child's memory")
        for fd in start + done:
            os.close(fd)


@case("pages that move while data arrives", limit=120)
def moving():
    length, stop = 256 * PAGE, threading.Event()
    with pair() as (x, y):
        mine, theirs = both(x, y, length)

        def move():
            while not stop.is_set():
                with open("/proc/sys/vm/compact_memory", "w", encoding="ascii") as knob:
                    knob.write("1")
                libc.madvise(mine.base, mine.size, 20)  # MADV_COLD
                libc.madvise(theirs.base, theirs.size, 21)  # MADV_PAGEOUT
                for more in (mmap.PROT_EXEC, 0):
                    libc.mprotect(theirs.base, theirs.size // 2, mmap.PROT_READ | mmap.PROT_WRITE | more)

        thread = threading.Thread(target=move)
        thread.start()
        try:
            for seed in range(25):
                data = pattern(length, seed)
                mine.put(data)
                eq(write(x, mine, theirs), FINE, f"write of round {seed}")
                eq(theirs.get() == data, True, f"data of round {seed} is right")
        finally:
            stop.set()
            thread.join()


@case("dropping pages and deregistration in the midst of transfers", limit=90)
def in_the_midst():
    length = 128 * PAGE
    for _ in range(6):
        with pair(depth=64) as (x, y):
            mine, theirs = both(x, y, length)
            for i in range(16):
                x.post(WRITE, mine.sge(), remote=(theirs.mr.rkey, theirs.address), wr_id=i)
            for _ in range(5):
                theirs.drop()
                mine.drop()
            theirs.mr.close()
            ends = set(statuses(x.completions(16)))
            left = ends - {"IBV_WC_SUCCESS", "IBV_WC_REM_ACCESS_ERR", "IBV_WC_WR_FLUSH_ERR"}
            eq(left, set(), "other ends")
            libc.munmap(theirs.base, theirs.size, 0)


@case("R17 a process that dies in the midst of a fetch leaves nothing behind", limit=60)
def killed():
    before = resources()
    child = os.fork()
    if child == 0:
        try:
            with pair(depth=64) as (x, y):
                mine, theirs = both(x, y, 512 * PAGE)
                for i in range(16):
                    x.post(WRITE, mine.sge(), remote=(theirs.mr.rkey, theirs.address), wr_id=i)
                os.kill(os.getpid(), 9)
        finally:
            os._exit(1)
    eq(os.waitpid(child, 0)[1], 9, "end of the child")
    eq(resources(), before, "objects that are left")


@case("ranges that wrap, and those for which there is no room, are refused")
def refused():
    with pair() as (_, y):
        for start, length, wanted in (
            ((1 << 64) - PAGE, 2 * PAGE, (errno.EINVAL, errno.EOVERFLOW)),
            (PAGE, (1 << 64) - PAGE, (errno.EINVAL, errno.EOVERFLOW)),
            (0, 1 << 62, (errno.ENOMEM,)),
        ):
            why = raises(OSError, RawMR, y.ctx, y.pd, start, length, start, ON_DEMAND)
            if why.errno not in wanted:
                raise AssertionError(f"errno is {why.errno}")


def userfaultfd():
    """The descriptor of that system call, which not all kernels have."""
    fd = libc.syscall(USERFAULTFD, os.O_CLOEXEC)
    if fd < 0:
        raise Skip(f"userfaultfd: {os.strerror(ctypes.get_errno())}")
    return fd


def never(memory):
    """Memory whose pages somebody is to deliver who never does; the descriptor says when one is wanted."""
    fd = userfaultfd()
    fcntl.ioctl(fd, 0xC018AA3F, struct.pack("3Q", 0xAA, 0, 0))
    fcntl.ioctl(fd, 0xC020AA00, struct.pack("4Q", memory.base, memory.size, 1, 0))
    return fd


def is_wanted(fd):
    """Waits until somebody waits for a page."""
    eq(bool(select.select([fd], [], [], 20 * SLOWER)[0]), True, "a page is wanted")


@case("a page that never comes keeps no deregistration waiting")
def page_that_never_comes():
    with pair(rnr_retries=2) as (x, y):
        mine, theirs = both(x, y, PAGE)
        theirs.drop()
        fd = never(theirs)
        x.post(WRITE, mine.sge(), remote=(theirs.mr.rkey, theirs.address))
        is_wanted(fd)
        theirs.mr.close()
        ends = set(statuses(x.completions(1)))
        eq(ends <= {"IBV_WC_REM_ACCESS_ERR", "IBV_WC_RNR_RETRY_EXC_ERR"}, True, f"{ends} is how it may end")
        os.close(fd)


@case("R17 a process whose page never comes dies when it is killed", limit=60)
def killed_waiting():
    os.close(userfaultfd())
    before = resources()
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with pair() as (x, y):
                mine, theirs = both(x, y, PAGE)
                theirs.drop()
                fd = never(theirs)
                x.post(WRITE, mine.sge(), remote=(theirs.mr.rkey, theirs.address))
                is_wanted(fd)
                os.write(tell, b"x")
                signal.pause()
        finally:
            os._exit(1)
    os.close(tell)
    eq(os.read(ready, 1), b"x", "the child is ready")
    os.kill(child, signal.SIGKILL)
    eq(os.waitpid(child, 0)[1], signal.SIGKILL, "end of the child")
    eq(resources(), before, "objects that are left")


@case("advice: pages are there before they are wanted, errors are those of the manual page")
def advised():
    with pair() as (x, y):
        mine, theirs = both(x, y, 8 * PAGE)
        pinned = Buffer(y.pd, PAGE)
        read_only = Memory(y.pd, PAGE, access=e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_ON_DEMAND)
        for advice in (PREFETCH, PREFETCH_WRITE, PREFETCH_NO_FAULT):
            for now in (True, False):
                theirs.drop()
                entries = [
                    (theirs.address, 3 * PAGE, theirs.mr.lkey),
                    (theirs.address + 5 * PAGE, 100, theirs.mr.lkey),
                ]
                advise(y.ctx, y.pd, advice, entries, now)
                eq(write(x, mine, theirs), FINE, "write")
        whole = (theirs.address, 8 * PAGE)
        for wanted, advice, entry in (
            (errno.EINVAL, PREFETCH, (*whole, theirs.mr.lkey ^ 1)),
            (errno.EINVAL, PREFETCH, (*whole, theirs.mr.lkey + (1 << 20))),
            (errno.EINVAL, PREFETCH, (pinned.address, 8, pinned.mr.lkey)),
            (errno.EFAULT, PREFETCH, (theirs.address, 8 * PAGE + 1, theirs.mr.lkey)),
            (errno.EFAULT, PREFETCH, (theirs.address - 1, 1, theirs.mr.lkey)),
            (errno.EPERM, PREFETCH_WRITE, (read_only.address, 8, read_only.mr.lkey)),
            (errno.EOPNOTSUPP, 77, (*whole, theirs.mr.lkey)),
        ):
            why = raises(OSError, advise, y.ctx, y.pd, advice, [entry])
            eq(why.errno, wanted, f"advice {advice} for {entry}")
        libc.munmap(theirs.base, PAGE, 0)
        why = raises(OSError, advise, y.ctx, y.pd, PREFETCH, [(*whole, theirs.mr.lkey)])
        eq(why.errno, errno.EFAULT, "a hole")


@case("advice about memory that is not there yet harms nobody who comes when it is")
def advised_hole():
    with pair() as (x, y):
        mine, theirs = both(x, y, 4 * PAGE)
        mine.put(pattern(4 * PAGE))
        libc.munmap(theirs.base, theirs.size, 0)
        entries = [(theirs.address, theirs.length, theirs.mr.lkey)]
        advise(y.ctx, y.pd, PREFETCH_WRITE, entries, False)
        raises(OSError, advise, y.ctx, y.pd, PREFETCH_WRITE, entries)
        # long enough for who follows the advice to find nothing
        time.sleep(0.3 * SLOWER)
        theirs.map(theirs.base)
        eq(write(x, mine, theirs), FINE, "write")
        eq(theirs.get(), pattern(4 * PAGE), "data")


if __name__ == "__main__":
    shell("pair_up")
    main()
