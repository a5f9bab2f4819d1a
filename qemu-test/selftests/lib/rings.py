# SPDX-License-Identifier: GPL-2.0
"""Queues without a provider in between: XRC, and work requests that no provider writes.

Stock rdma-core's provider for the driver number that ferroce uses has no
`ibv_open_xrcd`, and hides its rings. So objects are made through the write interface
(include/uapi/rdma/ib_user_verbs.h) on the descriptor of an open pyverbs context, and
their rings (struct rxe_queue_buf of rdma_user_rxe.h) are mapped and used here. The
SRQ that a request names stands in the field `reserved` of struct rxe_send_wr.
"""

import mmap
import os
import struct
import time

import pyverbs.enums as e
from rc import ALL_ACCESS
from uverbs import command

CREATE_CQ, CREATE_QP, MODIFY_QP, DESTROY_QP = 18, 24, 26, 27
POST_SEND, DESTROY_SRQ, OPEN_XRCD, CLOSE_XRCD, CREATE_XSRQ = 28, 35, 37, 38, 39
RC, UC, UD, INI, TGT = 2, 3, 4, 9, 10
QKEY = 0x1234
MINFO = "QII"


class Ring:
    """A ring that the kernel shares: producer and consumer indices, and elements."""

    def __init__(self, ctx, offset, size):
        self.map = mmap.mmap(ctx.cmd_fd, size, offset=offset)
        shift, self.mask = struct.unpack_from("=II", self.map)
        self.size = 1 << shift

    def _index(self, at):
        return struct.unpack_from("=I", self.map, at)[0]

    def push(self, element):
        """Adds an element."""
        at = self._index(128)
        start = 384 + at * self.size
        self.map[start : start + len(element)] = element
        struct.pack_into("=I", self.map, 128, at + 1 & self.mask)

    def scribble(self, slot, at, data):
        """Overwrites bytes of an element, as far as it goes."""
        start = 384 + (slot & self.mask) * self.size + at
        self.map[start : start + len(data)] = data

    def produce(self, index):
        """Says that all before `index` is filled, whatever that is."""
        struct.pack_into("=I", self.map, 128, index & 0xFFFFFFFF)

    def pop(self, length):
        """Takes an element out, or `None`."""
        at = self._index(256)
        if at == self._index(128):
            return None
        start = 384 + at * self.size
        element = self.map[start : start + length]
        struct.pack_into("=I", self.map, 256, at + 1 & self.mask)
        return element


def sge_list(sges):
    """A scatter/gather list: (address, length, lkey) each."""
    return b"".join(struct.pack("=QII", *sge) for sge in sges)


def dma_info(sges):
    """struct rxe_dma_info."""
    total = sum(sge[1] for sge in sges)
    return struct.pack("=IIIIII", total, total, 0, len(sges), 0, 0) + sge_list(sges)


class Cq:
    """A completion queue."""

    def __init__(self, ctx, entries=64):
        body = (0, entries, 0, -1, 0)
        answer = command(ctx, CREATE_CQ, "QIIiI", body, "II" + MINFO)
        self.handle = answer[0]
        self.ring = Ring(ctx, *answer[2:4])

    def one(self, limit=10):
        """The next completion: wr_id, status, opcode, byte_len, imm, qp_num, src_qp, flags."""
        until = time.monotonic() + limit
        while time.monotonic() < until:
            entry = self.ring.pop(48)
            if entry:
                wc = struct.unpack_from("=QIIIIIIII", entry)
                return wc[0], wc[1], wc[2], wc[4], wc[5], wc[6], wc[7], wc[8]
        raise AssertionError("no completion in time")


class Closes:
    """Something that one command destroys, once."""

    handle, destroy = None, ()

    def close(self):
        """Gives it back."""
        if self.handle is not None:
            number, fields, *answer = self.destroy
            command(self.ctx, number, fields, (self.handle, 0)[: len(fields)], *answer)
            self.handle = None


class Xrcd(Closes):
    """An XRC domain."""

    destroy = (CLOSE_XRCD, "I")

    def __init__(self, ctx):
        self.ctx = ctx
        body = (0xFFFFFFFF, os.O_CREAT)
        (self.handle,) = command(ctx, OPEN_XRCD, "II", body, "I")


class Srq(Closes):
    """A shared receive queue of an XRC domain."""

    destroy = (DESTROY_SRQ, "II", "I")

    def __init__(self, ctx, pd, xrcd, cq, max_wr=16, max_sge=2):
        body = (0, 1, pd.handle, max_wr, max_sge, 0, 0, xrcd.handle, cq.handle)
        answer = command(ctx, CREATE_XSRQ, "QIIIIIIII", body, "IIII" + MINFO + "II")
        self.ctx, self.handle, self.number = ctx, answer[0], answer[3]
        self.ring = Ring(ctx, *answer[4:6])

    def post_recv(self, *sges, wr_id=0):
        """Posts one receive."""
        self.ring.push(struct.pack("=QII", wr_id, 0, 0) + dma_info(sges))


class Qp(Closes):
    """A queue pair of a PD, or an XRC target of a domain."""

    destroy = (DESTROY_QP, "II", "I")

    def __init__(self, ctx, kind, owner, cq=None):
        self.ctx = ctx
        send_cq = cq.handle if cq else 0
        sends = 0 if kind == TGT else 16
        receives = 0 if kind in (INI, TGT) else 16
        sizes = (sends, receives, sends and 2, receives and 2)
        body = (0, owner.handle, send_cq, send_cq, 0, *sizes, 0, 0, kind, 0, 0)
        answer = command(ctx, CREATE_QP, "QIIIIIIIIIBBBB", body, "8I" + 2 * MINFO)
        self.kind, self.handle, self.number = kind, answer[0], answer[1]
        self.ring = Ring(ctx, *answer[11:13]) if sends else None
        self.receives = Ring(ctx, *answer[8:10]) if receives else None

    def modify(self, state, mask, gid=None, sgid_index=0, peer=0):
        """One transition, with good values for everything."""
        dest = struct.pack(
            "=16sIHHBBBBBBBB", gid or b"", 0, 0, 0, sgid_index, 64, 0, 0, 0, 0, 1, 1
        )
        numbers = (self.handle, e.IBV_QP_STATE | mask, QKEY, 0x10, 0x10, peer, int(ALL_ACCESS) | 8, 0, 0)
        few = (state, 0, 3, 0, 0, 8, 8, 1, 1, 14, 7, 7, 0, 0, 0, 0)
        body = (dest, b"", *numbers, *few)
        command(self.ctx, MODIFY_QP, "32s32s7IHH16B", body)

    def connect(self, gid, sgid_index, peer):
        """Brings it to RTS."""
        rtr = e.IBV_QP_AV | e.IBV_QP_PATH_MTU | e.IBV_QP_DEST_QPN | e.IBV_QP_RQ_PSN
        rts = e.IBV_QP_SQ_PSN
        init = e.IBV_QP_PKEY_INDEX | e.IBV_QP_PORT | e.IBV_QP_ACCESS_FLAGS
        if self.kind in (RC, INI, TGT):
            rts |= e.IBV_QP_TIMEOUT
        if self.kind in (RC, TGT):
            rtr |= e.IBV_QP_MAX_DEST_RD_ATOMIC | e.IBV_QP_MIN_RNR_TIMER
        if self.kind in (RC, INI):
            rts |= e.IBV_QP_RETRY_CNT | e.IBV_QP_RNR_RETRY | e.IBV_QP_MAX_QP_RD_ATOMIC
        if self.kind == UD:
            init = init & ~e.IBV_QP_ACCESS_FLAGS | e.IBV_QP_QKEY
            rtr = 0
        self.modify(e.IBV_QPS_INIT, init)
        self.modify(e.IBV_QPS_RTR, rtr, gid, sgid_index, peer)
        self.modify(e.IBV_QPS_RTS, rts)

    def post(self, opcode, srq, *sges, remote=(0, 0), values=(), imm=0, wr_id=0):
        """Posts a request that names SRQ number `srq`; `remote` is (rkey, address)."""
        head = struct.pack("=QIIII", wr_id, srq, opcode, e.IBV_SEND_SIGNALED, imm)
        if values:
            wr = struct.pack("=QQQII", remote[1], *values, remote[0], 0)
        else:
            wr = struct.pack("=QII", remote[1], remote[0], 0)
        element = (head + wr).ljust(184, b"\0") + dma_info(sges)
        self.ring.push(element)
        self.ring_bell()

    def ring_bell(self):
        """Tells the kernel that there are requests."""
        command(self.ctx, POST_SEND, "IIII", (self.handle, 0, 0, 128), "I")

