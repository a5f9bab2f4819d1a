#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Moves data between two processes, on one machine or two, and compares every byte.

usage: transfer.py server DEVICE ADDRESS MTU
       transfer.py client DEVICE ADDRESS MTU SERVER_ADDRESS

Over a TCP connection the client says what it is about to do and asks for what
arrived. First the client is the requester, then the server.
"""

import hashlib
import json
import os
import socket
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pyverbs.enums as e
from rc import Buffer, Endpoint, pattern

PORT = 18700
TOP = 300001
IMM = 0x0A0B0C0D
OPERATIONS = ("send", "send_imm", "write", "write_imm", "read")


def digest(data):
    """A short name for the data."""
    return hashlib.sha256(data).hexdigest()[:16]


class Side:
    """One end: the endpoint, two buffers and the TCP connection."""

    def __init__(self, device, address, mtu, link):
        self.lines = link.makefile("rw", encoding="ascii")
        self.end = Endpoint(device, address)
        self.source = Buffer(self.end.pd, TOP, offset=3)
        self.target = Buffer(self.end.pd, TOP, offset=1)
        mine = self.end.where(psn=0xFFFFF0)
        mine["target"] = (self.target.mr.rkey, self.target.address)
        mine["source"] = (self.source.mr.rkey, self.source.address)
        self.tell(mine)
        self.peer = self.hear()
        self.end.connect(self.peer, psn=0xFFFFF0, mtu=mtu, timeout=18)
        self.tell("connected")
        self.hear()

    def tell(self, what):
        """Sends one value."""
        self.lines.write(json.dumps(what) + "\n")
        self.lines.flush()

    def hear(self):
        """Receives one value."""
        line = self.lines.readline()
        if not line:
            raise SystemExit("transfer: the other side has gone")
        return json.loads(line)

    def request(self, mtu):
        """Does every operation at every length, as the requester."""
        edges = {n * mtu + d for n in (1, 2, 16) for d in (-1, 0, 1)}
        seed = 0
        for name in OPERATIONS:
            for length in sorted({0, 1, 3, 65536, TOP} | edges):
                seed += 1
                self.tell([name, length, seed])
                self.hear()
                self.one(name, length, seed)
        self.tell(["end", 0, 0])
        return seed

    def one(self, name, length, seed):
        """One operation, from the requester's side."""
        data = pattern(length, seed)
        self.source.put(data)
        if name == "read":
            self.target.put(bytes(length))
            self.end.post(e.IBV_WR_RDMA_READ, self.target.sge(length), remote=tuple(self.peer["source"]))
        else:
            opcode = {
                "send": e.IBV_WR_SEND,
                "send_imm": e.IBV_WR_SEND_WITH_IMM,
                "write": e.IBV_WR_RDMA_WRITE,
                "write_imm": e.IBV_WR_RDMA_WRITE_WITH_IMM,
            }[name]
            imm = IMM if name.endswith("imm") else None
            self.end.post(opcode, self.source.sge(length), remote=tuple(self.peer["target"]), imm=imm)
        self.end.good()
        self.tell("done")
        arrived = self.hear()
        if name == "read":
            arrived = digest(self.target.get(length))
        if arrived != digest(data):
            raise SystemExit(f"transfer: wrong data in a {name} of {length} bytes")
        self.target.check_guards()

    def serve(self):
        """Answers the requester until it says that it is done."""
        while True:
            name, length, seed = self.hear()
            if name == "end":
                return
            self.target.put(b"\xdd" * TOP)
            if name == "read":
                self.source.put(pattern(length, seed))
            if name in ("send", "send_imm", "write_imm"):
                self.end.post_recv(self.target.sge(), wr_id=seed)
            self.tell("ready")
            self.hear()
            if name in ("send", "send_imm", "write_imm"):
                self.check_receive(name, length, seed)
            self.target.check_guards()
            beyond = self.target.get(TOP - length, at=length)
            if name != "read" and beyond.count(0xDD) != len(beyond):
                raise SystemExit(f"transfer: a {name} of {length} bytes wrote past its end")
            self.tell(digest(self.target.get(length)))

    def check_receive(self, name, length, seed):
        """The receive completion says what was sent."""
        (wc,) = self.end.good()
        if (wc.wr_id, wc.byte_len) != (seed, length):
            raise SystemExit(f"transfer: {name} of {length} bytes: wr_id {wc.wr_id}, byte_len {wc.byte_len}")
        wanted = int.from_bytes(IMM.to_bytes(4, "big"), "little") if name.endswith("imm") else None
        if wanted is not None and wc.imm_data != wanted:
            raise SystemExit(f"transfer: immediate is {wc.imm_data:#x}, expected {wanted:#x}")


def meet(role, arguments):
    """The TCP connection between both sides."""
    family = socket.AF_INET6 if ":" in arguments[0] else socket.AF_INET
    if role == "client":
        return socket.create_connection((arguments[1], PORT), timeout=60)
    with socket.create_server((arguments[0], PORT), family=family) as listener:
        listener.settimeout(60)
        link, _ = listener.accept()
        link.settimeout(60)
        return link


def main():
    role, device, address, mtu = sys.argv[1:5]
    with meet(role, [address] + sys.argv[5:]) as link:
        side = Side(device, address, int(mtu), link)
        if role == "client":
            count = side.request(int(mtu))
            side.serve()
        else:
            side.serve()
            count = side.request(int(mtu))
        side.end.close()
    print(f"transfer: {count} transfers as requester, all bytes as sent")


if __name__ == "__main__":
    main()
