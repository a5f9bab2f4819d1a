# SPDX-License-Identifier: GPL-2.0
"""Memory on demand for tests, over pyverbs."""

import ctypes
import mmap

import pyverbs.enums as e
from ktap import eq
from pyverbs.mr import MR
from pyverbs.wr import SGE
from rc import ALL_ACCESS, PAGE, statuses

WRITE, READ, SEND = e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ, e.IBV_WR_SEND
ON_DEMAND = ALL_ACCESS | e.IBV_ACCESS_ON_DEMAND
FINE = ["IBV_WC_SUCCESS"]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t) + (ctypes.c_int,) * 3 + (ctypes.c_long,)
for function in (libc.munmap, libc.mprotect, libc.madvise):
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
MAP_FIXED, MAP_PRIVATE, MAP_SHARED, MAP_ANONYMOUS = 0x10, 2, 1, 0x20
DONTNEED = 4
MAP_NORESERVE = 0x4000


class Memory:
    """`length` bytes of an own mapping, registered on demand and never touched by that."""

    def __init__(self, pd, length, offset=0, fd=-1, access=ON_DEMAND):
        self.size = -(-(offset + length) // PAGE) * PAGE
        self.base = self.map(None, fd)
        self.address, self.length = self.base + offset, length
        self.mr = MR(pd, length, access, address=self.address)

    def map(self, where, fd=-1, at=0, size=None):
        """Maps the memory, or a part of it anew."""
        flags = MAP_SHARED if fd >= 0 else MAP_PRIVATE | MAP_ANONYMOUS
        flags |= MAP_FIXED if where else 0
        size = size or self.size
        base = libc.mmap((where or 0) + at or None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0)
        if base == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap")
        return base

    def put(self, data, at=0):
        """Writes as the process does."""
        ctypes.memmove(self.address + at, data, len(data))

    def get(self, length=None, at=0):
        """Reads as the process does."""
        return ctypes.string_at(self.address + at, self.length - at if length is None else length)

    def sge(self, length=None, at=0):
        """A scatter/gather entry for a part."""
        return SGE(self.address + at, self.length - at if length is None else length, self.mr.lkey)

    def drop(self):
        """Throws the pages away: zeroes come when they are wanted again."""
        eq(libc.madvise(self.base, self.size, DONTNEED), 0, "madvise")


def both(x, y, length, offset=0):
    """Memory on demand at both sides."""
    return Memory(x.pd, length, offset), Memory(y.pd, length, offset)


def write(x, source, target, length=None):
    """RDMA WRITE of all; returns how it went."""
    x.post(WRITE, source.sge(length), remote=(target.mr.rkey, target.address))
    return statuses(x.completions(1))
