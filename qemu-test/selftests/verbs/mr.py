#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""Memory regions: access flags, addresses, keys, re-registration."""

import errno
import itertools
import mmap
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import case, eq, main, raises
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.wr import SGE
from rc import ALL_ACCESS, PAGE, Buffer, pair, pattern, shell, statuses
from uverbs import CHANGE_ACCESS, CHANGE_PD, CHANGE_TRANSLATION, RawMR, rereg

WRITE, READ, SEND = e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ, e.IBV_WR_SEND
LOCAL = e.IBV_ACCESS_LOCAL_WRITE
REMOTE_WRITE, REMOTE_READ = e.IBV_ACCESS_REMOTE_WRITE, e.IBV_ACCESS_REMOTE_READ
ATOMIC, ZERO_BASED = e.IBV_ACCESS_REMOTE_ATOMIC, e.IBV_ACCESS_ZERO_BASED
RELAXED, HUGETLB = e.IBV_ACCESS_RELAXED_ORDERING, e.IBV_ACCESS_HUGETLB
FINE, REFUSED = ["IBV_WC_SUCCESS"], ["IBV_WC_REM_ACCESS_ERR"]


def access(x, source, opcode, rkey, address, length=64):
    """One access of the peer's memory; returns how it went."""
    x.post(opcode, source.sge(length), remote=(rkey, address))
    return statuses(x.completions(1))


def try_access(opcode, flags, wanted):
    """The peer's access to a region with these flags."""
    with pair() as (x, y):
        source = Buffer(x.pd, 64)
        target = Buffer(y.pd, 64, access=flags)
        eq(access(x, source, opcode, target.mr.rkey, target.address), wanted, hex(flags))


@case("access flags: what is not granted is refused")
def not_granted():
    for flags in (0, LOCAL, REMOTE_READ, LOCAL | REMOTE_WRITE, LOCAL | REMOTE_WRITE | REMOTE_READ):
        try_access(WRITE, flags, FINE if flags & REMOTE_WRITE else REFUSED)
        try_access(READ, flags, FINE if flags & REMOTE_READ else REFUSED)


@case("access flags: a read or a receive needs local write")
def local_write():
    for flags, wanted in ((0, ["IBV_WC_LOC_PROT_ERR"]), (LOCAL, FINE)):
        with pair() as (x, y):
            mine, theirs = Buffer(x.pd, 64, access=flags), Buffer(y.pd, 64)
            eq(access(x, mine, READ, theirs.mr.rkey, theirs.address), wanted, "read")
        with pair() as (x, y):
            mine, theirs = Buffer(x.pd, 64), Buffer(y.pd, 64, access=flags)
            y.post_recv(theirs.sge())
            x.post(SEND, mine.sge())
            eq(statuses(y.completions(1)), wanted, "receive")
    with pair() as (x, y):
        mine, theirs = Buffer(x.pd, 64, access=0), Buffer(y.pd, 64)
        eq(access(x, mine, WRITE, theirs.mr.rkey, theirs.address), FINE, "write from read-only")


@case("access flags: every combination has the result that the manual page names")
def combinations():
    known = (LOCAL, REMOTE_WRITE, REMOTE_READ, ATOMIC, ZERO_BASED, HUGETLB, RELAXED)
    with pair() as (x, _):
        buffer = Buffer(x.pd, 4 * PAGE)
        for chosen in itertools.product((0, 1), repeat=len(known)):
            flags = sum(bit for bit, on in zip(known, chosen) if on)
            wrong = flags & (REMOTE_WRITE | ATOMIC) and not flags & LOCAL
            try:
                MR(x.pd, PAGE, flags, address=buffer.address).close()
            except PyverbsRDMAError as why:
                eq((why.error_code, bool(wrong)), (errno.EINVAL, True), hex(flags))
            else:
                eq(bool(wrong), False, hex(flags))


@case("access flags that nobody knows: mandatory ones are refused, optional ones ignored")
def unknown():
    with pair() as (x, _):
        buffer = Buffer(x.pd, PAGE)
        where = (x.ctx, x.pd, buffer.address, PAGE, buffer.address)
        why = raises(OSError, RawMR, *where, LOCAL | 1 << 19)
        eq(why.errno, errno.EINVAL, "bit 19")
        RawMR(*where, LOCAL | 1 << 29).close()


@case("a zero-based region is addressed from 0 on")
def zero_based():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 200), Buffer(y.pd, 200, ALL_ACCESS | ZERO_BASED, offset=77)
        source.put(pattern(200))
        eq(access(x, source, WRITE, target.mr.rkey, 0, 200), FINE, "write at 0")
        eq(target.get(), pattern(200), "data")
        eq(access(x, source, READ, target.mr.rkey, 137, 63), FINE, "read at 137")
        eq(source.get(63), pattern(200)[137:], "data read")
        local = SGE(100, 100, target.mr.lkey)
        y.post(WRITE, local, remote=(source.mr.rkey, source.address))
        y.good()
        eq(source.get(100), pattern(200)[100:], "data from a zero-based lkey")
        target.check_guards()
        eq(access(x, source, WRITE, target.mr.rkey, 137, 64), REFUSED, "a byte too far")
    with pair() as (x, y):
        source, target = Buffer(x.pd, 8), Buffer(y.pd, 8, ALL_ACCESS | ZERO_BASED)
        eq(access(x, source, WRITE, target.mr.rkey, target.address, 8), REFUSED, "its address")


@case("addresses of one's own choice, near the end of the address space")
def own_addresses():
    for iova in (0, PAGE, 1 << 63, (1 << 64) - 3 * PAGE):
        with pair() as (x, y):
            source, target = Buffer(x.pd, 2 * PAGE), Buffer(y.pd, 2 * PAGE)
            source.put(pattern(2 * PAGE))
            mr = RawMR(y.ctx, y.pd, target.address, 2 * PAGE, iova, ALL_ACCESS)
            eq(access(x, source, WRITE, mr.rkey, iova, 2 * PAGE), FINE, hex(iova))
            eq(target.get(), pattern(2 * PAGE), "data")
            eq(access(x, source, WRITE, mr.rkey, iova + PAGE, PAGE + 1), REFUSED, "past the end")
            mr.close()


@case("R23 a region that wraps is refused, and so is an access that wraps")
def wraps():
    top = (1 << 64) - PAGE
    with pair() as (x, y):
        source, target = Buffer(x.pd, 2 * PAGE), Buffer(y.pd, 2 * PAGE)
        for length in (2 * PAGE, 1 << 63, (1 << 64) - 1):
            why = raises(OSError, RawMR, y.ctx, y.pd, target.address, length, top, ALL_ACCESS)
            if why.errno not in (errno.EINVAL, errno.ENOMEM):
                raise AssertionError(f"errno is {why.errno}")
        for start, length in ((top, 2 * PAGE), (PAGE, (1 << 64) - PAGE)):
            why = raises(OSError, RawMR, y.ctx, y.pd, start, length, start, ALL_ACCESS)
            if why.errno not in (errno.EINVAL, errno.ENOMEM, errno.EFAULT):
                raise AssertionError(f"errno is {why.errno}")
    for opcode, address in itertools.product((WRITE, READ), ((1 << 64) - 1, (1 << 64) - 63)):
        with pair() as (x, y):
            source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
            eq(access(x, source, opcode, target.mr.rkey, address), REFUSED, hex(address))
            target.check_guards()


@case("R32 memory that is not there or may not be written is refused with EFAULT")
def not_there():
    with pair() as (x, _):
        buffer = Buffer(x.pd, PAGE)
        why = raises(OSError, RawMR, x.ctx, x.pd, PAGE, PAGE, PAGE, LOCAL)
        eq(why.errno, errno.EFAULT, "an unmapped page")
        del buffer
        with open("/proc/self/exe", "rb") as file:
            text = mmap.mmap(file.fileno(), PAGE, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
        address = shell_address(text)
        why = raises(OSError, RawMR, x.ctx, x.pd, address, PAGE, address, LOCAL)
        eq(why.errno, errno.EFAULT, "a read-only mapping")


def shell_address(mapping):
    """Where a read-only mapping lies, which ctypes does not tell."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        exe = os.path.realpath("/proc/self/exe")
        found = [line.split()[0] for line in maps if line.rstrip().endswith(exe) and " r--s " in line]
    eq(len(mapping), PAGE)
    return int(found[-1].split("-")[0], 16)


@case("keys: one that was just freed does not come again soon")
def rotation():
    with pair() as (x, y):
        seen = set()
        buffer = Buffer(y.pd, PAGE)
        for _ in range(600):
            mr = MR(y.pd, PAGE, ALL_ACCESS, address=buffer.address)
            if mr.rkey in seen:
                raise AssertionError(f"key {mr.rkey:#x} came again")
            seen.add(mr.rkey)
            mr.close()
        source = Buffer(x.pd, 64)
        eq(access(x, source, WRITE, max(seen), buffer.address), REFUSED, "a freed key")


@case("keys: index right, variant wrong is refused")
def variant():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        eq(access(x, source, WRITE, target.mr.rkey ^ 1, target.address), REFUSED, "variant")


@case("re-registration: access flags, key kept")
def rereg_access():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        eq(access(x, source, WRITE, target.mr.rkey, target.address), FINE, "before")
        keys = rereg(y.ctx, target.mr, CHANGE_ACCESS, access=LOCAL | REMOTE_READ)
        eq(keys, (target.mr.lkey, target.mr.rkey), "keys")
        eq(access(x, source, READ, target.mr.rkey, target.address), FINE, "read")
        eq(access(x, source, WRITE, target.mr.rkey, target.address), REFUSED, "write")
    with pair() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64, access=LOCAL)
        rereg(y.ctx, target.mr, CHANGE_ACCESS, access=ALL_ACCESS)
        eq(access(x, source, WRITE, target.mr.rkey, target.address), FINE, "granted later")


@case("re-registration: protection domain")
def rereg_pd():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        other = PD(y.ctx)
        rereg(y.ctx, target.mr, CHANGE_PD, pd=other)
        rereg(y.ctx, target.mr, CHANGE_PD, pd=y.pd)
        eq(access(x, source, WRITE, target.mr.rkey, target.address), FINE, "there and back")
        rereg(y.ctx, target.mr, CHANGE_PD, pd=other)
        eq(access(x, source, WRITE, target.mr.rkey, target.address), REFUSED, "in another domain")
        target.mr.close()
        other.close()


@case("re-registration: other memory under a new key, the old key is dead")
def rereg_translation():
    with pair() as (x, y):
        source, old, new = Buffer(x.pd, 300), Buffer(y.pd, 64), Buffer(y.pd, 300, offset=9)
        source.put(pattern(300))
        mr = RawMR(y.ctx, y.pd, old.address, 64, old.address, ALL_ACCESS)
        before = mr.rkey
        lkey, rkey = rereg(y.ctx, mr, CHANGE_TRANSLATION, start=new.address, length=300)
        eq(lkey, rkey, "keys")
        eq(access(x, source, WRITE, rkey, new.address, 300), FINE, "new key")
        eq(new.get(), pattern(300), "data")
        new.check_guards()
        eq(old.get(), b"\xee" * 64, "old memory")
        eq(access(x, source, WRITE, before, old.address), REFUSED, "old key")
        mr.close()


@case("re-registration: what fails changes nothing")
def rereg_fails():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        mr = target.mr
        for wanted, flags, more in (
            (errno.EFAULT, CHANGE_TRANSLATION, {"start": PAGE, "length": PAGE}),
            (errno.EINVAL, CHANGE_ACCESS, {"access": REMOTE_WRITE}),
            (errno.EINVAL, CHANGE_ACCESS, {"access": 1 << 19}),
            (errno.EINVAL, CHANGE_TRANSLATION, {"start": target.address, "length": 64, "iova": 1}),
            (errno.EOPNOTSUPP, 8, {}),
            (errno.EINVAL, 0, {}),
            (
                errno.EINVAL,
                CHANGE_TRANSLATION | CHANGE_ACCESS,
                {"start": target.address, "length": 64, "access": REMOTE_WRITE},
            ),
        ):
            why = raises(OSError, rereg, y.ctx, mr, flags, **more)
            eq(why.errno, wanted, f"flags {flags} {more}")
            eq(access(x, source, WRITE, mr.rkey, target.address), FINE, "afterwards")
        read_only = RawMR(y.ctx, y.pd, target.address, 64, target.address, REMOTE_READ)
        why = raises(OSError, rereg, y.ctx, read_only, CHANGE_ACCESS, access=ALL_ACCESS)
        eq(why.errno, errno.EACCES, "writing to what was pinned for reading")
        eq(access(x, source, READ, read_only.rkey, target.address), FINE, "afterwards")
        read_only.close()


@case("R40 after a fork, what the peer writes is the parent's", limit=60)
def forked():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 3 * PAGE), Buffer(y.pd, 3 * PAGE)
        source.put(pattern(3 * PAGE))
        ready, done = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.write(ready[1], b"x")
            os.read(done[0], 1)
            os._exit(0 if target.get().count(0xEE) == 3 * PAGE else 1)
        os.read(ready[0], 1)
        target.put(b"\x11", at=PAGE)
        eq(access(x, source, WRITE, target.mr.rkey, target.address, 3 * PAGE), FINE, "write")
        eq(target.get(), pattern(3 * PAGE), "the parent's memory")
        source.put(bytes(3 * PAGE))
        eq(access(x, source, READ, target.mr.rkey, target.address, 3 * PAGE), FINE, "read")
        eq(source.get(), pattern(3 * PAGE), "what the device reads")
        os.write(done[1], b"x")
        eq(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0, "the child's copy is its own")
        for fd in ready + done:
            os.close(fd)


if __name__ == "__main__":
    shell("pair_up")
    main()
