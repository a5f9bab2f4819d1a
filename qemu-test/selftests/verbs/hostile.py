#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""R22: a process that writes anything into its rings, at any time, hurts nobody but itself."""

import itertools
import os
import random
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import case, eq, main
from rc import Buffer, Endpoint, pair, pattern, shell
from rings import QKEY, RC, UC, UD, Cq, Qp, Ring, dma_info
from ud import Datagrams

KINDS = {"RC": RC, "UC": UC, "UD": UD}
SEED = int(os.environ.get("FERROCE_SEED", "22"))
EDGES = (0, 1, 2, 3, 16, 64, 65, 255, 4096, 1 << 16, 1 << 31, (1 << 32) - 1, (1 << 32) - 8)
# Offsets of the numbers in struct rxe_send_wqe that mean something.
FIELDS = (8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 184, 188, 192, 196, 200, 208, 212, 216, 220)


class Attacker:
    """A raw queue pair on fa, connected to one on fb; a buffer that it may use, one that not."""

    def __init__(self, kind):
        self.x, self.y = Datagrams("fa", "10.0.0.1"), Endpoint("fb", "10.0.0.2")
        self.cq, self.peer_cq = Cq(self.x.ctx, 256), Cq(self.y.ctx, 256)
        self.qp = Qp(self.x.ctx, kind, self.x.pd, self.cq)
        self.peer = Qp(self.y.ctx, kind, self.y.pd, self.peer_cq)
        self.own, self.foreign = Buffer(self.x.pd, 8192), Buffer(self.y.pd, 8192)
        self.foreign.put(pattern(8192))
        self.handle = self.x.handle(self.y)
        self.gids = [bytes.fromhex(end.gid().gid.replace(":", "")) for end in (self.x, self.y)]
        self.connect()

    def connect(self):
        """Brings both sides from anywhere to RTS."""
        for qp, gid, end, peer in (
            (self.qp, self.gids[1], self.x, self.peer),
            (self.peer, self.gids[0], self.y, self.qp),
        ):
            qp.modify(e.IBV_QPS_RESET, 0)
            qp.connect(gid, end.gid_index, peer.number)

    def element(self, rng):
        """A request that makes sense, but for what chance has changed."""
        sges = [(self.own.address, rng.choice((0, 8, 100, 4096)), self.own.mr.lkey)] * rng.choice((0, 1, 2))
        head = struct.pack("=QIIII", 1, 0, rng.randrange(16), rng.randrange(32), 0)
        if self.qp.kind == UD:
            wr = struct.pack("=IIHHI", self.peer.number, QKEY, 0, 0, rng.randrange(4))
        else:
            wr = struct.pack("=QII", self.own.address, rng.choice((0, self.own.mr.rkey)), 0)
        raw = bytearray((head + wr).ljust(184, b"\0") + dma_info(sges)).ljust(256, b"\0")
        for _ in range(rng.choice((0, 1, 1, 2, 8))):
            struct.pack_into("=I", raw, rng.choice(FIELDS), rng.choice((*EDGES, rng.getrandbits(32))))
        return bytes(raw)

    def bell(self):
        """Rings the bell; what is refused is refused."""
        try:
            self.qp.ring_bell()
        except OSError:
            pass

    def drain(self):
        """Takes all completions out."""
        for ring in (self.cq.ring, self.peer_cq.ring):
            while ring.pop(48):
                pass

    def close(self):
        """Looks whether all is well, and gives everything back."""
        self.foreign.check_guards()
        self.own.check_guards()
        eq(self.foreign.get(), pattern(8192), "memory that no key was given for")
        self.qp.close()
        self.peer.close()
        self.x.close()
        self.y.close()


def garbage(kind):
    """Random elements, random indices, receives too."""
    rng = random.Random(SEED)
    attacker = Attacker(KINDS[kind])
    for turn in range(200):
        ring = attacker.qp.ring
        for slot in range(rng.choice((1, 1, 4, 32))):
            ring.scribble(slot, 0, attacker.element(rng))
        receive = bytearray(struct.pack("=QII", 2, 0, 0) + dma_info([(attacker.own.address, 64, attacker.own.mr.lkey)]))
        struct.pack_into("=I", receive, rng.choice((16, 28, 32, 40, 48, 52)), rng.choice(EDGES))
        attacker.peer.receives.scribble(rng.randrange(32), 0, bytes(receive))
        attacker.peer.receives.produce(rng.choice(EDGES))
        ring.produce(rng.choice((*EDGES, rng.randrange(32))))
        attacker.bell()
        attacker.drain()
        if turn % 4 == 3:
            attacker.connect()
    attacker.close()


def race(kind):
    """An element changes while the kernel reads it."""
    rng = random.Random(SEED + 1)
    attacker = Attacker(KINDS[kind])
    stop = threading.Event()

    def change():
        values = itertools.cycle((2, 0xFFFFFFFF, 64, 1 << 28, 0))
        while not stop.is_set():
            value = struct.pack("=I", next(values))
            for slot, at in itertools.product(range(8), (12, 16, 184, 196, 216)):
                attacker.qp.ring.scribble(slot, at, value)

    job = threading.Thread(target=change)
    job.start()
    for turn in range(100):
        for slot in range(8):
            attacker.qp.ring.scribble(slot, 0, attacker.element(rng))
        attacker.qp.ring.produce(turn + 8)
        attacker.bell()
        attacker.drain()
        if turn % 4 == 3:
            attacker.connect()
    stop.set()
    job.join()
    attacker.close()


for KIND in KINDS:
    case(f"R22 garbage in the rings, {KIND}")(lambda k=KIND: garbage(k))
    case(f"R22 requests that change while they are read, {KIND}")(lambda k=KIND: race(k))


@case("R22 a completion queue whose indices the process moves about")
def completions():
    attacker = Attacker(RC)
    ring = attacker.cq.ring
    for index in (*EDGES, *range(8)):
        struct.pack_into("=I", ring.map, 256, index & 0xFFFFFFFF)
        struct.pack_into("=I", ring.map, 128, index * 7 & 0xFFFFFFFF)
        # the sizes are for the process only
        struct.pack_into("=II", ring.map, 0, 31, 0xFFFFFFFF)
        for slot in range(16):
            attacker.qp.ring.scribble(slot, 0, attacker.element(random.Random(slot)))
        attacker.qp.ring.produce(index + 3)
        attacker.bell()
        attacker.connect()
    attacker.close()


@case("R25 rings that are still mapped when their queues are gone")
def mapped():
    attacker = Attacker(RC)
    rings = [attacker.qp.ring, attacker.peer.receives, attacker.cq.ring]
    attacker.close()
    assert all(isinstance(ring, Ring) for ring in rings)
    for ring, at in itertools.product(rings, (0, 128, 256, 384)):
        struct.pack_into("=I", ring.map, at, 0xFFFFFFFF)


@case("all others work as before")
def others():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 100000), Buffer(y.pd, 100000)
        source.put(pattern(100000))
        x.post(e.IBV_WR_RDMA_WRITE, source.sge(), remote=(target.mr.rkey, target.address))
        x.good()
        eq(target.get(), pattern(100000), "data")


if __name__ == "__main__":
    if os.environ.get("FERROCE_DRIVER") == "rxe":
        sys.exit(print("KTAP version 1\n1..0 # SKIP what rdma_rxe makes of garbage is not ours to test"))
    shell("pair_up")
    print(f"# seed {SEED} (FERROCE_SEED)")
    main()
