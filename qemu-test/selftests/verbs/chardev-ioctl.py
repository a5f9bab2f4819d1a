#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""Every ioctl of /dev/ferroce with good and with bad arguments, as uapi/ferroce.h says."""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from ktap import case, eq, main

DRIVER_SH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib/driver.sh")
KTAP_SH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib/ktap.sh")

READ, WRITE = 2, 1
# number, direction, format
QUERY = 0x00, READ | WRITE, "IIQ"
LIST_DEVICES = 0x01, READ | WRITE, "QII"
GET_DEVICE = 0x02, READ | WRITE, "IIQIIIIII64s16s"
BIND = 0x03, WRITE, "II"
ALLOC_PD = 0x10, READ | WRITE, "II"
REG_MR = 0x11, READ | WRITE, "QQIIIIII"
CREATE_CQ = 0x12, READ | WRITE, "IIQII"
CREATE_QP = 0x13, READ | WRITE, "IIIIIIIIIIIIQIIQII"
MODIFY_QP = 0x14, WRITE, "IIIIIIII16sIBBBBBBBBB7s"
DESTROY = 0x15, WRITE, "II"
ENTER = 0x20, READ | WRITE, "QIIIIQ"
PD, MR, CQ, QP = 1, 2, 3, 4
STATE, ACCESS, PKEY_INDEX, PORT = 1 << 0, 1 << 3, 1 << 4, 1 << 5
PAGE = 4096


class Door:
    """An open /dev/ferroce."""

    def __init__(self):
        self.fd = os.open("/dev/ferroce", os.O_RDWR | os.O_CLOEXEC)

    def raw(self, number, direction, data):
        """An ioctl on bytes; the bytes that come back."""
        buffer = bytearray(data)
        fcntl.ioctl(self.fd, direction << 30 | len(data) << 16 | 0xBC << 8 | number, buffer, True)
        return bytes(buffer)

    def call(self, command, *fields):
        """An ioctl on fields; those that are not given are 0. The fields that come back."""
        number, direction, layout = command
        size = struct.calcsize("=" + layout)
        data = struct.pack("=" + layout, *fields, *rest(layout, len(fields)))
        eq(len(data), size, "size")
        return struct.unpack("=" + layout, self.raw(number, direction, data))

    def fails(self, wanted, command, *fields):
        """The ioctl must fail with that error."""
        try:
            self.call(command, *fields)
        except OSError as error:
            eq(errno.errorcode[error.errno], wanted, "error")
            return
        raise AssertionError(f"succeeded, expected {wanted}")

    def devices(self):
        """Name to index."""
        room = (ctypes.c_uint32 * 16)()
        count = self.call(LIST_DEVICES, ctypes.addressof(room), 16)[2]
        answers = (self.call(GET_DEVICE, index) for index in room[:count])
        return {a[9].rstrip(b"\0").decode(): a[0] for a in answers}

    def map(self, offset, size):
        """Maps a ring."""
        return mmap.mmap(self.fd, size, offset=offset)


def rest(layout, given):
    """Zeros for the fields that were not given."""
    kinds = struct.unpack("=" + layout, bytes(struct.calcsize("=" + layout)))
    return kinds[given:]


@contextlib.contextmanager
def door(device=None):
    """An open file, bound if a device is named."""
    it = Door()
    try:
        if device:
            it.call(BIND, it.devices()[device])
        yield it
    finally:
        os.close(it.fd)


@case("query tells ABI 0 and reliable connections")
def query():
    with door() as d:
        eq(d.call(QUERY)[0], 0, "ABI")
        eq(d.call(QUERY)[2] & 1, 1, "feature RC")
        d.fails("EINVAL", QUERY, 0, 1)


@case("a struct may be shorter, and longer if the rest is zero")
def sizes():
    with door() as d:
        eq(d.raw(0, 3, bytes(8)), bytes(8), "short answer")
        eq(d.raw(0, 3, bytes(64))[16:], bytes(48), "rest of a long answer")
        try:
            d.raw(0, 3, bytes(63) + b"\1")
        except OSError as error:
            eq(error.errno, errno.E2BIG, "error")
        else:
            raise AssertionError("a byte that is not known was accepted")


@case("unknown ioctls, wrong directions and bad addresses")
def unknown():
    with door() as d:
        for number, direction in (0x7F, 3), (0x00, 1), (0x03, 3), (0x21, 0):
            d.fails("ENOTTY", (number, direction, "II"))
        d.fails("EFAULT", LIST_DEVICES, 8, 4)
        d.fails("EFAULT", LIST_DEVICES, 1 << 63, 4)


@case("devices and their GIDs")
def devices():
    with door() as d:
        found = d.devices()
        eq(sorted(found), ["fa", "fb"], "devices")
        eq(d.call(LIST_DEVICES)[2], 2, "count without room")
        room = (ctypes.c_char * (24 * 64))()
        answer = d.call(GET_DEVICE, found["fa"], 64, ctypes.addressof(room))
        eq(answer[5:8], (4, 4200, 4096), "state and MTUs")
        gids = [room.raw[24 * i : 24 * i + 16] for i in range(answer[3])]
        eq(bytes(10) + b"\xff\xff\x0a\0\0\1" in gids, True, "IPv4 GID there")
        d.fails("ENODEV", GET_DEVICE, 12345)
        d.fails("EINVAL", GET_DEVICE, found["fa"], 257)


@case("nothing is made before BIND, which works once")
def bind():
    with door() as d:
        d.fails("ENXIO", ALLOC_PD)
        d.fails("ENXIO", DESTROY, PD, 1)
        d.fails("ENODEV", BIND, 12345)
        d.fails("EINVAL", BIND, d.devices()["fa"], 1)
        d.call(BIND, d.devices()["fa"])
        d.fails("EBUSY", BIND, d.devices()["fa"])
        d.fails("EBUSY", BIND, d.devices()["fb"])


@case("memory regions")
def regions():
    with door("fa") as d, mmap.mmap(-1, 4 * PAGE) as memory:
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        pd = d.call(ALLOC_PD)[0]
        answer = d.call(REG_MR, address + 5, 2 * PAGE, pd, 7)
        eq(answer[4] != 0 and answer[5] != 0, True, "handle and key")
        d.fails("EINVAL", REG_MR, address, 0, pd, 1)
        d.fails("EINVAL", REG_MR, address, PAGE, pd, 2)
        d.fails("EINVAL", REG_MR, address, PAGE, pd, 1 << 10)
        d.fails("ENOENT", REG_MR, address, PAGE, pd + 1, 1)
        d.fails("EINVAL", REG_MR, (1 << 64) - PAGE, 2 * PAGE, pd, 1)
        d.fails("EFAULT", REG_MR, PAGE, PAGE, pd, 1)
        d.fails("EBUSY", DESTROY, PD, pd)
        d.call(DESTROY, MR, answer[4])
        d.fails("ENOENT", DESTROY, MR, answer[4])
        d.call(DESTROY, PD, pd)


def make_qp(d, **changes):
    """A PD, a CQ and a QP; the fields that CREATE_QP answers."""
    pd = d.call(ALLOC_PD)[0]
    cq = d.call(CREATE_CQ, 16)[1]
    return d.call(CREATE_QP, *qp_fields(pd, cq, **changes))


def qp_fields(pd, cq, kind=2, flags=0, send=8, recv=8, sge=1, inline=0):
    """What CREATE_QP is given."""
    return kind, flags, pd, cq, cq, send, recv, sge, sge, inline


@case("queues, their rings and who uses whom")
def queues():
    with door("fa") as d:
        answer = make_qp(d)
        pd, cq, handle = answer[2], answer[3], answer[10]
        eq(answer[5] >= 8 and answer[6] >= 8 and answer[11] > 1, True, "sizes and number")
        for offset, size in answer[12:14], answer[15:17], d.call(CREATE_CQ, 1)[2:4]:
            with d.map(offset, size) as ring:
                shift, mask = struct.unpack("II", ring[:8])
                eq(384 + ((mask + 1) << shift) <= size, True, "ring fits its size")
        d.fails("EBUSY", DESTROY, PD, pd)
        d.fails("EBUSY", DESTROY, CQ, cq)
        d.call(DESTROY, QP, handle)
        d.fails("ENOENT", DESTROY, QP, handle)
        d.call(DESTROY, CQ, cq)
        d.call(DESTROY, PD, pd)
        d.fails("EINVAL", DESTROY, 9, 1)


@case("a ring lives on until it is unmapped")
def ring_lives():
    with door("fa") as d:
        _, cq, offset, size, _ = d.call(CREATE_CQ, 100)
        ring = d.map(offset, size)
        d.call(DESTROY, CQ, cq)
        ring[128:132] = b"\xff" * 4
        eq(ring[128:132], b"\xff" * 4, "index")
        try:
            d.map(offset, size)
        except OSError as error:
            eq(error.errno, errno.EINVAL, "error")
        else:
            raise AssertionError("a ring that is gone was mapped")


@case("bad queues")
def bad_queues():
    with door("fa") as d:
        pd, cq = d.call(ALLOC_PD)[0], d.call(CREATE_CQ, 16)[1]
        d.fails("EINVAL", CREATE_CQ, 0)
        d.fails("EINVAL", CREATE_CQ, 1 << 30)
        for changes in {"kind": 4}, {"flags": 2}, {"send": 1 << 30}, {"sge": 1000}, {"inline": 1 << 20}:
            d.fails("EINVAL", CREATE_QP, *qp_fields(pd, cq, **changes))
        d.fails("ENOENT", CREATE_QP, *qp_fields(pd + 9, cq))
        d.fails("ENOENT", CREATE_QP, *qp_fields(pd, cq + 9))
        d.call(DESTROY, CQ, cq)
        d.call(DESTROY, PD, pd)


@case("bad mappings")
def bad_mappings():
    with door("fa") as d:
        offset, size = d.call(CREATE_CQ, 16)[2:4]
        bad = [
            (offset, size + PAGE, mmap.MAP_SHARED),
            (offset + (1 << 30), size, mmap.MAP_SHARED),
            (offset, size, mmap.MAP_PRIVATE),
        ]
        for at, length, flags in bad:
            try:
                mmap.mmap(d.fd, length, flags=flags, offset=at)
            except OSError as error:
                eq(error.errno, errno.EINVAL, "error")
            else:
                raise AssertionError(f"{length} bytes at {at:#x} were mapped")


@case("modify checks state, mask and values")
def modify():
    with door("fa") as d:
        qp = make_qp(d)[10]
        init = STATE | ACCESS | PKEY_INDEX | PORT
        d.fails("ENOENT", MODIFY_QP, qp + 9, init, 1)
        d.fails("EINVAL", MODIFY_QP, qp, STATE, 1)
        d.fails("EINVAL", MODIFY_QP, qp, init, 3)
        d.fails("EINVAL", MODIFY_QP, qp, init, 99)
        d.fails("EINVAL", MODIFY_QP, qp, init | 1 << 19, 1)
        d.fails("EINVAL", MODIFY_QP, qp, init, 1, 1 << 20)
        d.call(MODIFY_QP, qp, init, 1, 2)
        d.fails("EINVAL", MODIFY_QP, qp, STATE, 3)
        d.call(MODIFY_QP, qp, STATE, 6)
        d.call(MODIFY_QP, qp, STATE, 0)


@case("enter waits no longer than it was told")
def enter():
    with door("fa") as d:
        qp = make_qp(d)
        handle, cq = qp[10], qp[3]
        eq(d.call(ENTER)[4], 0, "completions")
        eq(d.call(ENTER, 0, 0, cq, 1, 0, 50_000_000)[4], 0, "completions")
        handles = (ctypes.c_uint32 * 1)(handle)
        d.fails("EINVAL", ENTER, ctypes.addressof(handles), 1)  # not ready to send
        handles[0] = handle + 9
        d.fails("ENOENT", ENTER, ctypes.addressof(handles), 1)
        d.fails("EFAULT", ENTER, 8, 1)
        d.fails("EINVAL", ENTER, ctypes.addressof(handles), 65)
        d.fails("EINVAL", ENTER, 0, 0, 0, 1)
        d.fails("EINVAL", ENTER, 0, 0, cq, 1 << 30)
        d.fails("ENOENT", ENTER, 0, 0, cq + 9)


@case("a signal ends a wait")
def signalled():
    with door("fa") as d:
        cq = d.call(CREATE_CQ, 16)[1]
        child = os.fork()
        if child == 0:
            import signal

            signal.signal(signal.SIGALRM, lambda *_: None)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                buffer = struct.pack("=QIIIIQ", 0, 0, cq, 1, 0, (1 << 64) - 1)
                libc.ioctl(d.fd, ctypes.c_ulong(3 << 30 | 32 << 16 | 0xBC20), buffer)
                os._exit(ctypes.get_errno())
            finally:
                os._exit(255)
        eq(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), errno.EINTR, "error")


@case("a process that dies leaves nothing behind")
def death():
    for _ in range(3):
        child = os.fork()
        if child == 0:
            try:
                d = Door()
                d.call(BIND, d.devices()["fa"])
                make_qp(d)
                os.kill(os.getpid(), 9)
            finally:
                os._exit(1)
        eq(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), -9, "end of the child")
    subprocess.run(["rdma", "link", "del", "fa"], check=True, timeout=30)
    prepare()


def prepare():
    """Loads the driver and makes fa and fb."""
    script = f'set -e; . "{KTAP_SH}"; . "{DRIVER_SH}"; pair_up'
    subprocess.run(["bash", "-c", script, "prepare"], check=True, timeout=60)


prepare()
main()
