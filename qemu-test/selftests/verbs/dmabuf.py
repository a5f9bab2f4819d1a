#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""Memory regions over dma-bufs, which udmabuf makes of a memfd."""

import contextlib
import errno
import fcntl
import mmap
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from atomic_wr import atomic
from ktap import Skip, case, eq, main, raises
from rc import ALL_ACCESS, PAGE, Buffer, pair, pattern, shell, statuses
from uverbs import CHANGE_ACCESS, DmaBufMR, rereg

WRITE, READ = e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ
ADD_SEALS, SEAL_SHRINK = 1033, 2
UDMABUF_CREATE = 0x40187542
ATOMIC = ALL_ACCESS | e.IBV_ACCESS_REMOTE_ATOMIC
REFUSED = ["IBV_WC_REM_ACCESS_ERR"]
SIZE = 16 * PAGE


@contextlib.contextmanager
def shared(size=SIZE):
    """A dma-buf, and its memory as this process sees it."""
    if not os.path.exists("/dev/udmabuf"):
        raise Skip("this kernel has no udmabuf")
    memfd = os.memfd_create("dmabuf", os.MFD_ALLOW_SEALING)
    os.ftruncate(memfd, size)
    fcntl.fcntl(memfd, ADD_SEALS, SEAL_SHRINK)
    maker = os.open("/dev/udmabuf", os.O_RDWR)
    fd = fcntl.ioctl(maker, UDMABUF_CREATE, bytearray(struct.pack("=IIQQ", memfd, 1, 0, size)), True)
    memory = mmap.mmap(memfd, size)
    try:
        yield fd, memory
    finally:
        for each in (fd, maker, memfd):
            os.close(each)
        memory.close()


def transfer(x, source, opcode, key, address, length):
    """One access of the peer's memory; returns how it went."""
    x.post(opcode, source.sge(length), remote=(key, address))
    return statuses(x.completions(1))


@case("data goes into a dma-buf and out of it, also of a part of one")
def data():
    for offset, length, iova in ((0, SIZE, 0), (3 * PAGE + 5, 5 * PAGE, PAGE + 5), (PAGE, 1, PAGE)):
        with pair(mtu=1024) as (x, y), shared() as (fd, memory):
            memory[:] = b"\xee" * SIZE
            mr = DmaBufMR(y.ctx, y.pd, fd, offset, length, iova, ALL_ACCESS)
            source = Buffer(x.pd, SIZE)
            source.put(pattern(length))
            eq(transfer(x, source, WRITE, mr.rkey, iova, length), ["IBV_WC_SUCCESS"], "write")
            wanted = b"\xee" * offset + pattern(length) + b"\xee" * (SIZE - offset - length)
            eq(memory[:] == wanted, True, "memory is right")
            source.put(bytes(length))
            eq(transfer(x, source, READ, mr.rkey, iova, length), ["IBV_WC_SUCCESS"], "read")
            eq(source.get(length), pattern(length), "data read")
            eq(transfer(x, source, WRITE, mr.rkey, iova + 1, length), REFUSED, "a byte too far")
            mr.close()


@case("the region outlives the descriptor")
def descriptor_closed():
    with pair() as (x, y), shared() as (fd, memory):
        mr = DmaBufMR(y.ctx, y.pd, os.dup(fd), 0, SIZE, 0, ALL_ACCESS)
        source = Buffer(x.pd, 64)
        source.put(pattern(64))
        eq(transfer(x, source, WRITE, mr.rkey, 100, 64), ["IBV_WC_SUCCESS"], "write")
        eq(memory[100:164], pattern(64), "memory")
        mr.close()
        eq(transfer(x, source, WRITE, mr.rkey, 100, 64), REFUSED, "after deregistration")


@case("atomics on a dma-buf")
def atomics():
    with pair(access=ATOMIC) as (x, y), shared() as (fd, memory):
        mr = DmaBufMR(y.ctx, y.pd, fd, 0, SIZE, 0, ATOMIC)
        old = Buffer(x.pd, 8)
        memory[PAGE - 8 : PAGE] = struct.pack("=Q", 40)
        atomic(x, old.sge(), e.IBV_WR_ATOMIC_FETCH_AND_ADD, (mr.rkey, PAGE - 8), 2)
        x.good()
        eq((struct.unpack("=Q", memory[PAGE - 8 : PAGE]), old.get()), ((42,), struct.pack("=Q", 40)))
        mr.close()


@case("bad arguments have the errno of the manual page, and leave nothing behind")
def bad_arguments():
    with pair() as (_, y), shared() as (fd, _memory), open("/dev/null", "rb") as null:
        for wanted, arguments in (
            (errno.EBADF, (9999, 0, PAGE, 0, ALL_ACCESS)),
            (errno.EINVAL, (null.fileno(), 0, PAGE, 0, ALL_ACCESS)),
            (errno.EINVAL, (fd, 0, SIZE + 1, 0, ALL_ACCESS)),
            (errno.EINVAL, (fd, SIZE, 1, 0, ALL_ACCESS)),
            (errno.EINVAL, (fd, 0, 0, 0, ALL_ACCESS)),
            (errno.EINVAL, (fd, PAGE, (1 << 64) - PAGE, 0, ALL_ACCESS)),
            (errno.EINVAL, (fd, 0, 2 * PAGE, (1 << 64) - PAGE, ALL_ACCESS)),
            (errno.EINVAL, (fd, 1, PAGE, 0, ALL_ACCESS)),
            (errno.EINVAL, (fd, 0, PAGE, 0, e.IBV_ACCESS_REMOTE_WRITE)),
            (errno.EINVAL, (fd, 0, PAGE, 0, e.IBV_ACCESS_ZERO_BASED)),
        ):
            why = raises(OSError, DmaBufMR, y.ctx, y.pd, *arguments)
            eq(why.errno, wanted, f"arguments {arguments}")


@case("re-registration with other access flags")
def rereg_access():
    with pair() as (x, y), shared() as (fd, _memory):
        mr = DmaBufMR(y.ctx, y.pd, fd, 0, SIZE, 0, e.IBV_ACCESS_REMOTE_READ)
        source = Buffer(x.pd, 64)
        eq(transfer(x, source, READ, mr.rkey, 0, 64), ["IBV_WC_SUCCESS"], "read")
        rereg(y.ctx, mr, CHANGE_ACCESS, access=ALL_ACCESS)
        eq(transfer(x, source, WRITE, mr.rkey, 0, 64), ["IBV_WC_SUCCESS"], "write")
        mr.close()


if __name__ == "__main__":
    shell("pair_up")
    main()
