#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""What an address handle asks for is on the wire: traffic class, flow label, hop limit."""

import ipaddress
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import case, eq, main
from packets import Tap
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.qp import QPAttr
from rc import ADDRESSES, Buffer, pair, shell
from ud import datagrams

CLASS, LABEL = 0x48, 0x12345
HOPS = 64


def judge(packets, family):
    """The IP headers of the packets from fa."""
    source = ipaddress.ip_address(ADDRESSES[family][0]).packed
    at = 12 if family == "v4" else 8
    headers = [packet.ip for packet in packets if packet.ip[at : at + len(source)] == source]
    eq(len(headers) > 0, True, "packets were seen")
    for ip in headers:
        if family == "v4":
            eq((ip[1], ip[8]), (CLASS, HOPS), "TOS and TTL")
            eq(ip[6] & 0x40, 0x40, "don't fragment")
        else:
            first = int.from_bytes(ip[:4], "big")
            eq((first >> 20 & 0xFF, first & 0xFFFFF), (CLASS, LABEL), "class and flow label")
            eq(ip[7], HOPS, "hop limit")


def connected(family):
    """A reliable connection whose path was changed while it was running."""
    with Tap() as tap, pair(family) as (x, y):
        source, target = Buffer(x.pd, 30000), Buffer(y.pd, 30000)
        route = GlobalRoute(
            dgid=GID(y.gid().gid), sgid_index=x.gid_index, traffic_class=CLASS, flow_label=LABEL
        )
        attr = QPAttr(qp_state=e.IBV_QPS_SQD)
        x.qp.modify(attr, e.IBV_QP_STATE)
        attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        x.qp.modify(attr, e.IBV_QP_AV)
        x.qp.modify(QPAttr(qp_state=e.IBV_QPS_RTS), e.IBV_QP_STATE)
        x.post(e.IBV_WR_RDMA_WRITE, source.sge(), remote=(target.mr.rkey, target.address))
        x.good()
        judge(tap.packets(), family)


def datagram(family):
    """A datagram."""
    with Tap() as tap, datagrams(family) as (x, y):
        source, target = Buffer(x.pd, 100), Buffer(y.pd, 200)
        y.post_recv(target.sge())
        handle = x.handle(y, traffic_class=CLASS, flow_label=LABEL)
        x.send(handle, y.qp.qp_num, source.sge())
        x.good()
        y.good()
        judge(tap.packets(), family)


for FAMILY in ("v4", "v6"):
    case(f"class, label and hops of a connection over {FAMILY}")(lambda f=FAMILY: connected(f))
    case(f"class, label and hops of a datagram over {FAMILY}")(lambda f=FAMILY: datagram(f))


if __name__ == "__main__":
    shell("pair_up")
    main()
