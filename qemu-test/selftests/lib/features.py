#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Prints what an RDMA device says it can do, one word each: features.py DEVICE.

cm: the connection manager is on its port; uc, ud: it makes such queue pairs; srq,
atomic, mcast, mw, odp: its attributes.
"""

import sys
from pathlib import Path

import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP
from pyverbs.qp import QPCap
from pyverbs.qp import QPInitAttr


def makes_qp(pd, cq, kind):
    """Whether the device makes a queue pair of that type."""
    init = QPInitAttr(qp_type=kind, scq=cq, rcq=cq, cap=QPCap())
    try:
        QP(pd, init).close()
    except PyverbsRDMAError:
        return False
    return True


def main():
    name = sys.argv[1]
    with Context(name=name) as context, PD(context) as pd, CQ(context, 8) as cq:
        plain, extended = context.query_device(), context.query_device_ex()
        able = {
            "cm": Path(f"/sys/class/infiniband/{name}/ports/1/cm_tx_msgs").is_dir(),
            "uc": makes_qp(pd, cq, e.IBV_QPT_UC),
            "ud": makes_qp(pd, cq, e.IBV_QPT_UD),
            "srq": plain.max_srq > 0,
            "atomic": plain.atomic_caps != e.IBV_ATOMIC_NONE,
            "mcast": plain.max_mcast_grp > 0,
            "mw": plain.device_cap_flags & e.IBV_DEVICE_MEM_WINDOW_TYPE_2B,
            "odp": extended.odp_caps.general_caps & e.IBV_ODP_SUPPORT,
        }
        print(*[feature for feature, there in able.items() if there])


if __name__ == "__main__":
    main()
