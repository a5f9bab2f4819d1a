# SPDX-License-Identifier: GPL-2.0
"""Verbs as the kernel has them, without a provider in between.

Stock rdma-core's provider for the driver number that ferroce uses knows neither
ibv_rereg_mr nor addresses of one's own, and pyverbs no multicast. These go through the write interface of
include/uapi/rdma/ib_user_verbs.h, on the descriptor of an open pyverbs context.
"""

import ctypes
import fcntl
import os
import struct

CHANGE_TRANSLATION, CHANGE_PD, CHANGE_ACCESS = 1, 2, 4
_REG_MR, _REREG_MR, _DEREG_MR = 9, 11, 13
_QUERY_QP, _ATTACH_MCAST, _DETACH_MCAST = 25, 30, 31


def command(ctx, number, fields, body, answer=""):
    """Runs one command, with room for an answer that is unpacked as `answer`."""
    out = ctypes.create_string_buffer(max(struct.calcsize("=" + answer), 4))
    if answer:
        fields, body = "Q" + fields, (ctypes.addressof(out), *body)
    request = struct.pack("=" + fields, *body)
    words = (8 + len(request)) // 4
    header = struct.pack("=IHH", number, words, struct.calcsize("=" + answer) // 4)
    os.write(ctx.cmd_fd, header + request)
    return struct.unpack_from("=" + answer, out)


class RawMR:
    """A memory region: `length` bytes at `start`, under addresses from `iova` on."""

    def __init__(self, ctx, pd, start, length, iova, access):
        self.ctx = ctx
        body = (start, length, iova, pd.handle, access)
        self.handle, self.lkey, self.rkey = command(ctx, _REG_MR, "QQQII", body, "III")

    def close(self):
        """Deregisters it."""
        dereg(self.ctx, self)


def dereg(ctx, mr):
    """Deregisters a region (pyverbs MR or RawMR)."""
    command(ctx, _DEREG_MR, "I", (mr.handle,))


def rereg(ctx, mr, flags, pd=None, start=0, length=0, access=0, iova=None):
    """Changes a region (pyverbs MR or RawMR); returns lkey and rkey, which may be new."""
    body = (
        mr.handle,
        flags,
        start,
        length,
        start if iova is None else iova,
        pd.handle if pd else 0,
        access,
    )
    return command(ctx, _REREG_MR, "IIQQQII", body, "II")


def qp_handles(ctx, most=400):
    """The handles of a context's queue pairs, which pyverbs keeps to itself."""
    found = set()
    for handle in range(most):
        try:
            command(ctx, _QUERY_QP, "II", (handle, 1), "160s")
            found.add(handle)
        except OSError:
            pass
    return found


def attach_mcast(ctx, handle, gid):
    """Attaches a queue pair to a multicast group (16 bytes)."""
    command(ctx, _ATTACH_MCAST, "16sIHH", (gid, handle, 0, 0))


def detach_mcast(ctx, handle, gid):
    """Undoes that."""
    command(ctx, _DETACH_MCAST, "16sIHH", (gid, handle, 0, 0))


# The ioctl interface: include/uapi/rdma/rdma_user_ioctl_cmds.h and ib_user_ioctl_cmds.h.
_IOCTL = 0xC0181B01
_DRIVER_RXE = 14
_OBJECT_MR = 7
_ADVISE_MR, _REG_DMABUF_MR = 2, 4
PREFETCH, PREFETCH_WRITE, PREFETCH_NO_FAULT = 0, 1, 2


def _attr(number, data, mandatory=True):
    """An attribute with its data, at most 8 bytes of which stand in the attribute itself."""
    buffer = ctypes.create_string_buffer(data, len(data))
    if len(data) <= 8:
        value = int.from_bytes(data.ljust(8, b"\0"), "little")
    else:
        value = ctypes.addressof(buffer)
    return struct.pack("=HHHHQ", number, len(data), int(mandatory), 0, value), buffer


def _object(number, handle):
    """An attribute that names an object."""
    return struct.pack("=HHHHQ", number, 0, 1, 0, handle), None


def _call(ctx, kind, method, *attrs):
    """Runs a method of a kind of object; returns header and attributes as they came back."""
    body = b"".join(attr for attr, _ in attrs)
    size = 24 + len(body)
    header = struct.pack("=HHHHQII", size, kind, method, len(attrs), 0, _DRIVER_RXE, 0)
    request = bytearray(header + body)
    fcntl.ioctl(ctx.cmd_fd, _IOCTL, request, True)
    return request


def advise(ctx, pd, advice, entries, now=True):
    """ibv_advise_mr: `entries` are (address, length, lkey)."""
    _call(
        ctx,
        _OBJECT_MR,
        _ADVISE_MR,
        _object(0, pd.handle),
        _attr(1, struct.pack("=Q", advice)),
        _attr(2, struct.pack("=I", int(now))),
        _attr(3, b"".join(struct.pack("=QII", *entry) for entry in entries)),
    )


class DmaBufMR:
    """A memory region over a part of a dma-buf, under addresses from `iova` on."""

    def __init__(self, ctx, pd, fd, offset, length, iova, access):
        self.ctx = ctx
        keys = [ctypes.create_string_buffer(4) for _ in range(2)]
        fields = (offset, length, iova)
        answer = _call(
            ctx,
            _OBJECT_MR,
            _REG_DMABUF_MR,
            _object(0, 0),
            _object(1, pd.handle),
            *(_attr(2 + i, struct.pack("=Q", field)) for i, field in enumerate(fields)),
            _attr(5, struct.pack("=I", fd)),
            _attr(6, struct.pack("=I", access)),
            *((struct.pack("=HHHHQ", 7 + i, 4, 1, 0, ctypes.addressof(key)), key) for i, key in enumerate(keys)),
        )
        # The handle of the new object stands where it was asked for: in the first attribute.
        (self.handle,) = struct.unpack_from("=Q", answer, 24 + 8)
        self.lkey, self.rkey = (int.from_bytes(key.raw, "little") for key in keys)

    def close(self):
        """Deregisters it."""
        dereg(self.ctx, self)
