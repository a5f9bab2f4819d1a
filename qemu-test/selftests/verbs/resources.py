#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""`rdma resource show … -dd`: details of objects that only the driver knows."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import case, eq, main
from pyverbs.mr import MR
from pyverbs.srq import SrqAttr
from rc import ALL_ACCESS, Buffer, pair, shell
from ud import datagrams


def details(kind, **known):
    """The one object of that kind with these values."""
    command = ["rdma", "resource", "show", kind, "-dd", "-j"]
    out = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    found = [entry for entry in json.loads(out) if all(entry.get(k) == v for k, v in known.items())]
    eq(len(found), 1, f"number of objects with {known} in {out}")
    return found[0]


def check(entry, **wanted):
    """Fails unless the driver tells these values."""
    got = {key: entry.get("drv_" + key) for key in wanted}
    for key, value in got.items():
        if isinstance(value, str) and value.startswith("0x"):
            got[key] = int(value, 16)
    eq(got, wanted, f"details in {entry}")


@case("queue pairs: what waits in the queues, and how sending goes")
def queue_pairs():
    with pair(depth=15, mtu=1024, timeout=14, retries=5, reads=3, served_reads=4) as (x, y):
        target, source = Buffer(y.pd, 64), Buffer(x.pd, 64)
        for _ in range(5):
            y.post_recv(target.sge())
        x.post(e.IBV_WR_SEND, source.sge())
        x.good()
        y.good()
        check(
            details("qp", ifname="fb", lqpn=y.qp.qp_num),
            sq_in_use=0, sq_size=15, rq_waiting=4, rq_size=15, path_mtu=1024,
            timeout=14, retry_cnt=5, rnr_retry=7, max_rd_atomic=3, max_dest_rd_atomic=4,
        )
    with pair() as (x, _):
        source = Buffer(x.pd, 64)
        # there is no receive, and no limit to the tries
        for i in range(3):
            x.post(e.IBV_WR_SEND, source.sge(), wr_id=i)
        entry = details("qp", ifname="fa", lqpn=x.qp.qp_num)
        check(entry, sq_in_use=3, rq_waiting=0)
        eq(entry["drv_window"] >= 32768, True, "window is 32 KiB or more")
    with datagrams(depth=15) as (x, _):
        entry = details("qp", ifname="fa", lqpn=x.qp.qp_num)
        check(entry, sq_size=15, sq_in_use=0, window=None)


@case("completion queues: what waits, and whether an event is due")
def completion_queues():
    with pair(events=True) as (x, y):
        source, target = Buffer(x.pd, 8), Buffer(y.pd, 8)
        size = x.cq.cqe
        for i in range(3):
            x.post(e.IBV_WR_RDMA_WRITE, source.sge(), remote=(target.mr.rkey, target.address), wr_id=i)
        entry = {"ifname": "fa", "pid": os.getpid()}
        while details("cq", **entry)["drv_waiting"] < 3:
            pass
        check(details("cq", **entry), waiting=3, size=size, armed="no", overrun=0)
        x.good(3)
        x.cq.req_notify()
        check(details("cq", **entry), waiting=0, size=size, armed="any")


@case("shared receive queues: what waits, and the limit")
def shared():
    with pair(shared=15) as (_, y):
        target = Buffer(y.pd, 8)
        for _ in range(7):
            y.post_recv(target.sge())
        y.srq.modify(SrqAttr(srq_limit=2), e.IBV_SRQ_LIMIT)
        check(details("srq", ifname="fb", pid=os.getpid()), waiting=7, size=15, max_sge=4, limit=2)


@case("memory regions: what memory it is, and who may use it")
def memory():
    with pair() as (_, y):
        pinned = Buffer(y.pd, 100, offset=9)
        whole = MR(y.pd, 0, ALL_ACCESS | e.IBV_ACCESS_ON_DEMAND, implicit=True)
        known = {"ifname": "fb", "pid": os.getpid()}
        check(details("mr", mrlen=100, **known), memory="pinned", access=ALL_ACCESS, windows=0)
        check(
            details("mr", mrlen=(1 << 64) - 1, **known),
            memory="all-on-demand", access=ALL_ACCESS | e.IBV_ACCESS_ON_DEMAND,
        )
        whole.close()


if __name__ == "__main__":
    shell("pair_up")
    main()
