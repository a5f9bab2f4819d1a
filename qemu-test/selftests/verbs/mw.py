#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""Memory windows of type 1 and 2B: what they show, to whom, and until when."""

import errno
import os
import signal
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import case, eq, main, raises
from pyverbs.mr import MW, MWBind, MWBindInfo
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from pyverbs.wr import SendWR
from rc import ALL_ACCESS, PAGE, Buffer, Endpoint, join, pair, pattern, resources, shell, statuses
from uverbs import dereg

WRITE, READ = e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ
LOCAL, REMOTE_WRITE, REMOTE_READ = (
    e.IBV_ACCESS_LOCAL_WRITE,
    e.IBV_ACCESS_REMOTE_WRITE,
    e.IBV_ACCESS_REMOTE_READ,
)
BINDABLE = LOCAL | e.IBV_ACCESS_MW_BIND
ZERO_BASED = e.IBV_ACCESS_ZERO_BASED
FINE, REFUSED, NOT_BOUND = ["IBV_WC_SUCCESS"], ["IBV_WC_REM_ACCESS_ERR"], ["IBV_WC_MW_BIND_ERR"]


def bind2(y, mw, mr, address, length, flags=REMOTE_WRITE | REMOTE_READ):
    """Binds a window of type 2; returns how it went, and its new key."""
    wr = SendWR(opcode=e.IBV_WR_BIND_MW, send_flags=e.IBV_SEND_SIGNALED)
    wr.set_bind_wr(mw, MWBindInfo(mr, address, length, flags))
    y.qp.post_send(wr)
    return statuses(y.completions(1)), wr.rkey


def set_key(mw, key):
    """What C does with `mw->rkey = key`: pyverbs keeps the struct to itself, and has no name for that.

    The object holds a pointer to a struct ibv_mw, which is known by its key and handle.
    """
    memory = os.open("/proc/self/mem", os.O_RDWR)
    try:
        for (at,) in struct.iter_unpack("@P", os.pread(memory, 128, id(mw))):
            try:
                if os.pread(memory, 8, at + 16) == struct.pack("@II", mw.rkey, mw.handle):
                    os.pwrite(memory, struct.pack("@I", key), at + 16)
            except (OSError, OverflowError):
                continue
    finally:
        os.close(memory)
    eq(mw.rkey, key, "key of the struct")


def bind1(y, mw, mr, address, length, flags=REMOTE_WRITE | REMOTE_READ):
    """Binds a window of type 1; returns how it went, and its new key."""
    info = MWBindInfo(mr, address, length, flags)
    y.qp.bind_mw(mw, MWBind(info, e.IBV_SEND_SIGNALED))
    return statuses(y.completions(1)), mw.rkey


BINDS = {e.IBV_MW_TYPE_1: bind1, e.IBV_MW_TYPE_2: bind2}


def invalidate(y, key):
    """LOCAL_INV of a key; returns how it went."""
    wr = SendWR(opcode=e.IBV_WR_LOCAL_INV, send_flags=e.IBV_SEND_SIGNALED)
    wr.imm_data = key
    y.qp.post_send(wr)
    return statuses(y.completions(1))


def access(x, source, opcode, key, address, length=64):
    """One access of the peer's memory; returns how it went."""
    x.post(opcode, source.sge(length), remote=(key, address))
    return statuses(x.completions(1))


def shows(kind):
    """A window over the middle of a region shows the middle and nothing else."""
    for address, length, wanted in (
        (100, 500, FINE),
        (100, 1, FINE),
        (599, 1, FINE),
        (99, 2, REFUSED),
        (599, 2, REFUSED),
        (600, 1, REFUSED),
        (0, 1000, REFUSED),
    ):
        for opcode in (WRITE, READ):
            with pair() as (x, y):
                source, target = Buffer(x.pd, 1000), Buffer(y.pd, 1000, access=BINDABLE, offset=33)
                source.put(pattern(1000, 3))
                mw = MW(y.pd, kind)
                done, key = BINDS[kind](y, mw, target.mr, target.address + 100, 500)
                eq(done, FINE, "bind")
                eq(access(x, source, opcode, key, target.address + address, length), wanted)
                if wanted is FINE and opcode == WRITE:
                    eq(target.get(length, address), pattern(1000, 3)[:length], "data")
                    eq(target.get().count(0xEE), 1000 - length + pattern(length, 3).count(0xEE))
                target.check_guards()
                mw.close()


@case("type 1: shows its range, nothing beside it", limit=250)
def shows_1():
    shows(e.IBV_MW_TYPE_1)


@case("type 2: shows its range, nothing beside it", limit=250)
def shows_2():
    shows(e.IBV_MW_TYPE_2)


@case("a window grants what it says, whatever the region grants to peers")
def grants():
    for flags, opcode, wanted in (
        (REMOTE_READ, READ, FINE),
        (REMOTE_READ, WRITE, REFUSED),
        (REMOTE_WRITE, READ, REFUSED),
        (REMOTE_WRITE, WRITE, FINE),
    ):
        with pair() as (x, y):
            source, target = Buffer(x.pd, 64), Buffer(y.pd, 64, access=BINDABLE | REMOTE_READ)
            mw = MW(y.pd, e.IBV_MW_TYPE_2)
            done, key = bind2(y, mw, target.mr, target.address, 64, flags)
            eq(done, FINE, "bind")
            eq(access(x, source, opcode, key, target.address), wanted, f"{flags:#x}, {opcode}")
            mw.close()


@case("a window that is not bound shows nothing")
def unbound():
    for kind in BINDS:
        with pair() as (x, y):
            source, target = Buffer(x.pd, 64), Buffer(y.pd, 64, access=BINDABLE)
            mw = MW(y.pd, kind)
            eq(access(x, source, WRITE, mw.rkey, target.address), REFUSED, "write")
            mw.close()


@case("type 1: binding it again moves it, and its old key is dead")
def rebind():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 128, access=BINDABLE)
        mw = MW(y.pd, e.IBV_MW_TYPE_1)
        _, old = bind1(y, mw, target.mr, target.address, 64)
        done, key = bind1(y, mw, target.mr, target.address + 64, 64)
        eq(done, FINE, "bind")
        eq(key == old, False, "the same key")
        eq(access(x, source, WRITE, key, target.address + 64), FINE, "new key")
        eq(access(x, source, WRITE, old, target.address + 64), REFUSED, "old key")
        mw.close()


@case("type 1: bound to nothing it shows nothing, and its region may go")
def unbind():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64, access=BINDABLE)
        mw = MW(y.pd, e.IBV_MW_TYPE_1)
        bind1(y, mw, target.mr, target.address, 64)
        done, key = bind1(y, mw, target.mr, target.address, 0, 0)
        eq(done, FINE, "bind")
        eq(access(x, source, WRITE, key, target.address), REFUSED, "write")
        target.mr.close()
        mw.close()


@case("type 2: belongs to the queue pair that bound it, type 1 to the domain")
def of_one_qp():
    for kind, wanted in ((e.IBV_MW_TYPE_1, FINE), (e.IBV_MW_TYPE_2, REFUSED)):
        with pair() as (x, y):
            source, target = Buffer(x.pd, 64), Buffer(y.pd, 64, access=BINDABLE)
            mw = MW(y.pd, kind)
            done, key = BINDS[kind](y, mw, target.mr, target.address, 64)
            eq(done, FINE, "bind")
            eq(access(x, source, WRITE, key, target.address), FINE, "its own")
            # The same devices, with another queue pair in the same domains.
            first = x.qp, y.qp
            x.qp, y.qp = x.new_qp(), y.new_qp()
            join(x, y)
            eq(access(x, source, WRITE, key, target.address), wanted, "another queue pair")
            for qp in first:
                qp.close()
            mw.close()


@case("type 2: LOCAL_INV takes it away, and it may be bound again")
def local_inv():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64, access=BINDABLE)
        mw = MW(y.pd, e.IBV_MW_TYPE_2)
        seen = {mw.rkey}
        for _ in range(3):
            done, key = bind2(y, mw, target.mr, target.address, 64)
            eq(done, FINE, "bind")
            eq(key in seen, False, "key seen before")
            seen.add(key)
            set_key(mw, key)
            eq(access(x, source, WRITE, key, target.address), FINE, "write")
            eq(invalidate(y, key), FINE, "invalidate")
        eq(access(x, source, WRITE, key, target.address), REFUSED, "afterwards")
        mw.close()


def remote_inv(length):
    """A SEND of that length takes a window away."""
    with pair() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64, access=BINDABLE)
        message, into = Buffer(x.pd, length), Buffer(y.pd, length)
        mw = MW(y.pd, e.IBV_MW_TYPE_2)
        _, key = bind2(y, mw, target.mr, target.address, 64)
        eq(access(x, source, WRITE, key, target.address), FINE, "before")
        y.post_recv(into.sge())
        wr = SendWR(
            opcode=e.IBV_WR_SEND_WITH_INV,
            send_flags=e.IBV_SEND_SIGNALED,
            num_sge=1,
            sg=[message.sge()],
        )
        wr.imm_data = key
        x.qp.post_send(wr)
        x.good()
        (wc,) = y.good()
        eq(wc.byte_len, length, "byte_len")
        eq(bool(wc.wc_flags & e.IBV_WC_WITH_INV), True, "IBV_WC_WITH_INV")
        eq(wc.imm_data, key, "invalidated key")
        eq(access(x, source, WRITE, key, target.address), REFUSED, "afterwards")
        target.mr.close()
        mw.close()


for LENGTH in (64, 9000):
    case(f"type 2: SEND of {LENGTH} bytes with invalidate takes it away, and says so")(
        lambda n=LENGTH: remote_inv(n)
    )


@case("what a peer may not invalidate: an unbound window, type 1, a region")
def remote_inv_refused():
    def unbound_window(y, _target):
        mw = MW(y.pd, e.IBV_MW_TYPE_2)
        return mw.rkey, mw

    def type_1(y, target):
        mw = MW(y.pd, e.IBV_MW_TYPE_1)
        return bind1(y, mw, target.mr, target.address, 64)[1], mw

    def region(_y, target):
        return target.mr.rkey, None

    for make in (unbound_window, type_1, region):
        with pair() as (x, y):
            source, target = Buffer(x.pd, 64), Buffer(y.pd, 64, access=BINDABLE)
            into = Buffer(y.pd, 64)
            key, mw = make(y, target)
            y.post_recv(into.sge())
            wr = SendWR(
                opcode=e.IBV_WR_SEND_WITH_INV,
                send_flags=e.IBV_SEND_SIGNALED,
                num_sge=1,
                sg=[source.sge()],
            )
            wr.imm_data = key
            x.qp.post_send(wr)
            eq(statuses(x.completions(1)), REFUSED, make.__name__)
            if mw:
                mw.close()


def refused_bind(what, kind, **more):
    """A bind that fails with the status for it, after which the queue is in error."""
    with pair() as (_, y):
        target = Buffer(y.pd, PAGE, access=more.get("region", BINDABLE))
        mw = MW(more.get("pd", y.pd), kind)
        at, length = more.get("at", 0), more.get("length", PAGE)
        flags = more.get("flags", REMOTE_WRITE)
        mw_key = mw.rkey
        if "key" in more:
            set_key(mw, mw_key ^ more["key"])
        try:
            done, _key = BINDS[kind](y, mw, target.mr, target.address + at, length, flags)
            eq(done, NOT_BOUND, what)
            eq(y.qp.query(e.IBV_QP_STATE)[0].qp_state, e.IBV_QPS_ERR, "state")
        except (PyverbsRDMAError, PyverbsError) as why:
            # The provider sees some of this by itself.
            eq(why.error_code, errno.EINVAL, what)
        set_key(mw, mw_key)
        mw.close()
        target.mr.close()


@case("a bind that the rules forbid fails, and binds nothing")
def forbidden():
    for kind in BINDS:
        refused_bind("a region that allows no windows", kind, region=ALL_ACCESS)
        refused_bind("writing to a region that is read-only", kind, region=e.IBV_ACCESS_MW_BIND)
        refused_bind("a range that begins too early", kind, at=-1, length=2)
        refused_bind("a range that ends too late", kind, at=1, length=PAGE)
        refused_bind("R23 a range that wraps", kind, at=1, length=(1 << 64) - 1)
        refused_bind("a key with another variant", kind, key=1)
        refused_bind("a key with another index", kind, key=1 << 8)
        refused_bind("flags that there are not", kind, flags=1 << 18)
    refused_bind("type 1, zero-based", e.IBV_MW_TYPE_1, flags=REMOTE_WRITE | ZERO_BASED)
    refused_bind("type 2, no bytes", e.IBV_MW_TYPE_2, length=0)


@case("a window of another protection domain is refused")
def other_domain():
    with pair() as (_, y):
        other = Endpoint("fb", "10.0.0.2")
        target = Buffer(y.pd, 64, access=BINDABLE)
        mw = MW(other.pd, e.IBV_MW_TYPE_2)
        eq(bind2(y, mw, target.mr, target.address, 64)[0], NOT_BOUND, "the window's domain")
        mw.close()
        other.close()


@case("type 2: bound is bound, a second bind fails")
def twice():
    with pair() as (_, y):
        target = Buffer(y.pd, 64, access=BINDABLE)
        mw = MW(y.pd, e.IBV_MW_TYPE_2)
        _, key = bind2(y, mw, target.mr, target.address, 64)
        set_key(mw, key)
        eq(bind2(y, mw, target.mr, target.address, 64)[0], NOT_BOUND, "second bind")
        mw.close()


@case("type 2: a zero-based window is addressed from 0 on")
def zero_based():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 200, access=BINDABLE, offset=5)
        source.put(pattern(64))
        mw = MW(y.pd, e.IBV_MW_TYPE_2)
        flags = REMOTE_WRITE | ZERO_BASED
        done, key = bind2(y, mw, target.mr, target.address + 100, 64, flags)
        eq(done, FINE, "bind")
        eq(access(x, source, WRITE, key, 0), FINE, "write at 0")
        eq(target.get(64, 100), pattern(64), "data")
        eq(access(x, source, WRITE, key, 1), REFUSED, "a byte too far")
        target.check_guards()
        mw.close()


@case("a region with a window bound is busy until the window is gone")
def busy():
    for kind in BINDS:
        with pair() as (x, y):
            source, target = Buffer(x.pd, 64), Buffer(y.pd, 64, access=BINDABLE)
            mw = MW(y.pd, kind)
            _, key = BINDS[kind](y, mw, target.mr, target.address, 64)
            why = raises(OSError, dereg, y.ctx, target.mr)
            eq(why.errno, errno.EBUSY, "deregistration")
            eq(access(x, source, WRITE, key, target.address), FINE, "the window still shows")
            mw.close()
            target.mr.close()


@case("R17 a process that dies with windows bound leaves nothing behind", limit=60)
def killed():
    before = resources()
    child = os.fork()
    if child == 0:
        try:
            with pair() as (_, y):
                target = Buffer(y.pd, 64, access=BINDABLE)
                windows = [(kind, MW(y.pd, kind)) for kind in BINDS]
                for kind, mw in windows:
                    BINDS[kind](y, mw, target.mr, target.address, 64)
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    eq(os.waitpid(child, 0)[1], signal.SIGKILL, "end of the child")
    eq(resources(), before, "resources")


if __name__ == "__main__":
    shell("pair_up")
    main()
