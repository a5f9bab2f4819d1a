# SPDX-License-Identifier: GPL-2.0
"""Queue pairs for tests, over pyverbs: reliable connections unless asked for others.

`Endpoint` is a device opened, with a protection domain, a completion queue and one
queue pair; `Buffer` is memory registered at any offset and length, with guard
bytes around it. `pair()` gives two connected endpoints in this one process: on the
devices fa and fb of the `pair` topology.
"""

import contextlib
import ctypes
import ipaddress
import json
import mmap
import os
import subprocess
import time

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

from ktap import SLOWER

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = mmap.PAGESIZE
GUARD = 0xEE
ALL_ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
)
ROCE_V2 = e.IBV_GID_TYPE_SYSFS_ROCE_V2
MTUS = {
    256: e.IBV_MTU_256,
    512: e.IBV_MTU_512,
    1024: e.IBV_MTU_1024,
    2048: e.IBV_MTU_2048,
    4096: e.IBV_MTU_4096,
}
ADDRESSES = {"v4": ("10.0.0.1", "10.0.0.2"), "v6": ("fd00::1", "fd00::2")}


def shell(command):
    """Runs a line of shell with the functions of driver.sh."""
    subprocess.run(
        ["bash", "-ec", f'. "{HERE}/ktap.sh"; . "{HERE}/driver.sh"; {command}'], check=True
    )


def resources():
    """How many objects of each kind the devices have."""
    out = subprocess.run(["rdma", "-j", "resource", "show"], capture_output=True, check=True).stdout
    return {
        device["ifname"]: {key: device[key] for key in ("pd", "cq", "qp", "mr", "srq") if key in device}
        for device in json.loads(out)
    }


def pattern(length, seed=0):
    """Bytes in which a shifted, repeated or swapped run shows."""
    block = bytes((i * 7 + (i >> 8) * 13 + seed * 31 + 1) & 0xFF for i in range(min(length, 65521)))
    return (block * (length // max(len(block), 1) + 1))[:length]


class Buffer:
    """`length` bytes of registered memory that start `offset` bytes into a page."""

    def __init__(self, pd, length, access=ALL_ACCESS, offset=0, flags=0):
        self.length = length
        self.start = PAGE + offset
        size = -(-(self.start + max(length, 1) + PAGE) // PAGE) * PAGE
        if flags:
            size = -(-size // (2 << 20)) * (2 << 20)
        self.map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)
        self.map[:] = bytes([GUARD]) * size
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map)) + self.start
        self.mr = MR(pd, length, access, address=self.address)

    def put(self, data, at=0):
        """Writes data into the buffer."""
        self.map[self.start + at : self.start + at + len(data)] = data

    def get(self, length=None, at=0):
        """Reads the buffer."""
        end = self.length if length is None else at + length
        return self.map[self.start + at : self.start + end]

    def check_guards(self):
        """Fails where a byte outside of the buffer changed."""
        before = self.map[: self.start]
        after = self.map[self.start + self.length :]
        if before.count(GUARD) != len(before) or after.count(GUARD) != len(after):
            raise AssertionError("bytes outside of the memory region were written")

    def sge(self, length=None, at=0):
        """A scatter/gather entry for a part of the buffer."""
        length = self.length - at if length is None else length
        return SGE(self.address + at, length, self.mr.lkey)


def _descriptors():
    """The descriptors of this process, that of the listing itself aside."""
    return {int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


def _is_events(fd):
    """Whether asynchronous events come from this descriptor."""
    return os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:[infinibandevent]"


class Endpoint:
    """One side of a connection, or one that sends datagrams."""

    def __init__(
        self, device, address, depth=64, sges=4, inline=0, events=False, kind=e.IBV_QPT_RC, shared=0
    ):
        before = _descriptors()
        self.ctx = Context(name=device)
        (self.async_fd,) = [fd for fd in _descriptors() - before if _is_events(fd)]
        self.pd = PD(self.ctx)
        before = _descriptors()
        self.channel = CompChannel(self.ctx) if events else None
        self.event_fds = _descriptors() - before
        self.cq = CQ(self.ctx, 4 * depth, None, self.channel)
        self.gid_index = self._gid_index(address)
        self.depth, self.sges, self.inline, self.kind = depth, sges, inline, kind
        self.srq = self.new_srq(shared) if shared else None
        self.qp = self.new_qp()

    def new_srq(self, max_wr, max_sge=4):
        """A shared receive queue."""
        return SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=max_wr, max_sge=max_sge)))

    def new_qp(self):
        """Another queue pair on the same queues; the caller connects it."""
        cap = QPCap(
            max_send_wr=self.depth,
            max_recv_wr=self.depth,
            max_send_sge=self.sges,
            max_recv_sge=self.sges,
            max_inline_data=self.inline,
        )
        init = QPInitAttr(
            qp_type=self.kind, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=0, srq=self.srq
        )
        return QP(self.pd, init)

    def _gid_index(self, address):
        ip = ipaddress.ip_address(address)
        if ip.version == 4:
            ip = ipaddress.ip_address(f"::ffff:{ip}")
        until = time.monotonic() + 10
        while time.monotonic() < until:
            for index in range(16):
                found = ipaddress.ip_address(self.ctx.query_gid(1, index).gid)
                if found == ip and self.ctx.query_gid_type(1, index) == ROCE_V2:
                    return index
            time.sleep(0.2)
        raise AssertionError(f"{self.ctx.name.decode()} has no RoCEv2 GID {address}")

    def gid(self):
        """The GID of this side."""
        return self.ctx.query_gid(1, self.gid_index)

    def where(self, psn=0x1000):
        """What the other side must know to connect."""
        return {"qpn": self.qp.qp_num, "gid": self.gid().gid, "psn": psn}

    def connect(self, peer, psn=0x1000, mtu=4096, access=ALL_ACCESS, **more):
        """Brings the queue pair to RTS towards `peer`, a dictionary as of where()."""
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = access
        attr.path_mtu = MTUS[mtu]
        attr.dest_qp_num = peer["qpn"]
        attr.rq_psn, attr.sq_psn = peer["psn"], psn
        attr.max_rd_atomic = more.get("reads", 16)
        attr.max_dest_rd_atomic = more.get("served_reads", 16)
        attr.min_rnr_timer = more.get("rnr_timer", 12)
        attr.timeout = more.get("timeout", 16)
        attr.retry_cnt = more.get("retries", 7)
        attr.rnr_retry = more.get("rnr_retries", 7)
        route = GlobalRoute(dgid=GID(peer["gid"]), sgid_index=self.gid_index)
        attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        self.qp.to_rts(attr)

    def post_recv(self, *sges, wr_id=0):
        """Posts one receive."""
        # pyverbs wants an entry even where nothing of it counts
        sges = list(sges) or [SGE(0, 0, 0)]
        (self.srq or self.qp).post_recv(RecvWR(wr_id=wr_id, num_sge=len(sges), sg=sges))

    def post(self, opcode, *sges, remote=None, wr_id=0, imm=None, flags=e.IBV_SEND_SIGNALED):
        """Posts one send work request; `remote` is (rkey, address)."""
        wr = SendWR(
            wr_id=wr_id, opcode=opcode, num_sge=len(sges), sg=list(sges) or None, send_flags=flags
        )
        if imm is not None:
            wr.imm_data = int.from_bytes(imm.to_bytes(4, "big"), "little")
        if remote:
            wr.set_wr_rdma(*remote)
        self.qp.post_send(wr)

    def completions(self, count, limit=20):
        """The next `count` completions, whatever their status."""
        found = []
        limit *= SLOWER
        until = time.monotonic() + limit
        while len(found) < count:
            _, more = self.cq.poll(count - len(found))
            found += more
            if not more and time.monotonic() > until:
                raise AssertionError(f"{len(found)} of {count} completions after {limit} s")
        return found

    def good(self, count=1, limit=20):
        """The next completions, which must be successful."""
        found = self.completions(count, limit)
        for wc in found:
            if wc.status != e.IBV_WC_SUCCESS:
                raise AssertionError(f"completion of {wc.wr_id:#x}: {status(wc)}")
        return found

    def nothing(self, seconds=0.2):
        """Fails when a completion comes."""
        time.sleep(seconds)
        count, found = self.cq.poll(1)
        if count:
            raise AssertionError(f"unexpected completion: {status(found[0])}")

    def close(self):
        """Gives everything back to the kernel, in order."""
        self.ctx.close()


def status(wc):
    """The name of a completion's status."""
    for name in dir(e):
        if name.startswith("IBV_WC_") and name.endswith(("_ERR", "SUCCESS")):
            if getattr(e, name) == wc.status:
                return name
    return f"status {wc.status}"


def statuses(wcs):
    """The names of their statuses."""
    return [status(wc) for wc in wcs]


@contextlib.contextmanager
def pair(family="v4", **options):
    """Two endpoints on fa and fb, connected to each other."""
    keys = ("depth", "sges", "inline", "events", "kind", "shared")
    made = {k: options.pop(k) for k in keys if k in options}
    here, there = ADDRESSES[family]
    x = Endpoint("fa", here, **made)
    y = Endpoint("fb", there, **made)
    try:
        join(x, y, **options)
        yield x, y
    finally:
        x.close()
        y.close()


def join(x, y, **options):
    """Connects two endpoints."""
    # close to the wrap of the 24-bit packet number, so that every run crosses it
    x.connect(y.where(psn=0x123456), psn=0xFFFFFE, **options)
    y.connect(x.where(psn=0xFFFFFE), psn=0x123456, **options)
