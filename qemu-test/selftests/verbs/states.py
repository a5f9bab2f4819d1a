#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""The life of queue pairs: every transition, its events, and what becomes of posted work."""

import errno
import itertools
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import case, eq, main, raises
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QPAttr
from rc import ALL_ACCESS, Buffer, Endpoint, pair, pattern, shell, statuses
from states import NAMES, STATES, change, event, next_event, state, to_error

KINDS = {"RC": e.IBV_QPT_RC, "UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}
# Figure "QP/EE context state diagram" (IBTA 10.3.1), as the RDMA core has it: to Reset from
# everywhere, to Error from everywhere but Reset.
ALLOWED = {
    "RESET": {"RESET", "INIT"},
    "INIT": {"RESET", "INIT", "RTR", "ERR"},
    "RTR": {"RESET", "RTS", "ERR"},
    "RTS": {"RESET", "RTS", "SQD", "ERR"},
    "SQD": {"RESET", "RTS", "SQD", "ERR"},
    "SQE": {"RESET", "RTS", "ERR"},
    "ERR": {"RESET", "ERR"},
}
# What a transition needs (IBTA table "QP state transition properties").
INIT = e.IBV_QP_PKEY_INDEX | e.IBV_QP_PORT
RTR = e.IBV_QP_AV | e.IBV_QP_PATH_MTU | e.IBV_QP_DEST_QPN | e.IBV_QP_RQ_PSN
RETRIES = e.IBV_QP_TIMEOUT | e.IBV_QP_RETRY_CNT | e.IBV_QP_RNR_RETRY | e.IBV_QP_MAX_QP_RD_ATOMIC
NEEDED = {
    ("RC", "RESET", "INIT"): INIT | e.IBV_QP_ACCESS_FLAGS,
    ("UC", "RESET", "INIT"): INIT | e.IBV_QP_ACCESS_FLAGS,
    ("UD", "RESET", "INIT"): INIT | e.IBV_QP_QKEY,
    ("RC", "INIT", "RTR"): RTR | e.IBV_QP_MAX_DEST_RD_ATOMIC | e.IBV_QP_MIN_RNR_TIMER,
    ("UC", "INIT", "RTR"): RTR,
    ("RC", "RTR", "RTS"): e.IBV_QP_SQ_PSN | RETRIES,
    ("UC", "RTR", "RTS"): e.IBV_QP_SQ_PSN,
    ("UD", "RTR", "RTS"): e.IBV_QP_SQ_PSN,
}


def attributes(end, target="RTS"):
    """Good values for everything; the peer is the endpoint itself."""
    attr = QPAttr(port_num=1)
    attr.qp_state = STATES[target]
    attr.qp_access_flags, attr.qkey = ALL_ACCESS, 0x1234
    attr.path_mtu, attr.dest_qp_num = e.IBV_MTU_1024, end.qp.qp_num
    attr.rq_psn, attr.sq_psn = 5, 7
    attr.max_rd_atomic, attr.max_dest_rd_atomic = 3, 4
    attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 6, 5
    route = GlobalRoute(dgid=end.gid(), sgid_index=end.gid_index, traffic_class=8)
    attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
    return attr


def step(end, kind, now, target, drop=0):
    """One transition with exactly what it needs, but for the attributes `drop`."""
    mask = NEEDED.get((kind, now, target), 0)
    end.qp.modify(attributes(end, target), e.IBV_QP_STATE | mask & ~drop)


def bring(end, kind, wanted):
    """Brings a fresh queue pair into a state."""
    way = {"RESET": (), "ERR": ("INIT", "ERR"), "SQD": ("INIT", "RTR", "RTS", "SQD")}
    way = way.get(wanted, ("INIT", "RTR", "RTS")[: max(0, NAMES.index(wanted))])
    now = "RESET"
    for target in way:
        step(end, kind, now, target)
        now = target
    if wanted == "SQE":
        buffer = Buffer(end.pd, 8)
        end.post(e.IBV_WR_RDMA_READ, buffer.sge(), remote=(buffer.mr.rkey, buffer.address))
        end.completions(1)
    eq(state(end.qp), wanted, "state to begin with")


def transitions(kind):
    """Every transition: those of the diagram succeed, all others change nothing."""
    end = Endpoint("fa", "10.0.0.1", kind=KINDS[kind])
    for now, target in itertools.product(NAMES, NAMES):
        if kind == "RC" and now == "SQE":
            continue
        end.qp = end.new_qp()
        bring(end, kind, now)
        if target in ALLOWED[now]:
            step(end, kind, now, target)
            eq(state(end.qp), target, f"state after {now} to {target}")
        else:
            error = raises(PyverbsRDMAError, step, end, kind, now, target)
            eq(error.error_code, errno.EINVAL, f"errno of {now} to {target}")
            eq(state(end.qp), now, f"state after {now} to {target}")
        end.qp.close()
    end.close()


def incomplete(kind):
    """A transition without one of the attributes that it needs changes nothing."""
    end = Endpoint("fa", "10.0.0.1", kind=KINDS[kind])
    for (of, now, target), mask in NEEDED.items():
        for bit in (1 << n for n in range(25)):
            if of != kind or not mask & bit:
                continue
            end.qp = end.new_qp()
            bring(end, kind, now)
            error = raises(PyverbsRDMAError, step, end, kind, now, target, bit)
            eq(error.error_code, errno.EINVAL, f"errno of {now} to {target} without {bit:#x}")
            eq(state(end.qp), now, "state")
            step(end, kind, now, target)
            end.qp.close()
    end.close()


for KIND in KINDS:
    case(f"every transition of the diagram and none other, {KIND}")(lambda k=KIND: transitions(k))
    case(f"no transition without all that it needs, {KIND}")(lambda k=KIND: incomplete(k))

# What cannot be, one after the other in a change that is else good.
BAD = {
    "timeout": ("RTR", "RTS", 32),
    "retry_cnt": ("RTR", "RTS", 8),
    "rnr_retry": ("RTR", "RTS", 8),
    "max_rd_atomic": ("RTR", "RTS", 129),
    "min_rnr_timer": ("INIT", "RTR", 32),
    "max_dest_rd_atomic": ("INIT", "RTR", 129),
    "dest_qp_num": ("INIT", "RTR", 1 << 24),
    "path_mtu": ("INIT", "RTR", 6),
    "pkey_index": ("RESET", "INIT", 1),
    "port_num": ("RESET", "INIT", 2),
    "qp_access_flags": ("RESET", "INIT", 1 << 15),
}


@case("a value out of its range is refused and changes nothing")
def ranges():
    end = Endpoint("fa", "10.0.0.1")
    for name, (now, target, value) in BAD.items():
        end.qp = end.new_qp()
        bring(end, "RC", now)
        attr = attributes(end, target)
        setattr(attr, name, value)
        mask = e.IBV_QP_STATE | NEEDED["RC", now, target]
        error = raises(PyverbsRDMAError, end.qp.modify, attr, mask)
        eq(error.error_code, errno.EINVAL, f"errno for {name} = {value}")
        eq(state(end.qp), now, f"state after {name} = {value}")
        step(end, "RC", now, target)
        end.qp.close()
    end.close()


@case("every attribute can be asked for")
def query():
    end = Endpoint("fa", "10.0.0.1")
    bring(end, "RC", "RTS")
    attr, init = end.qp.query(0x1FFFFFF)
    wanted = attributes(end)
    for name in (
        "qp_state", "qp_access_flags", "path_mtu", "dest_qp_num", "rq_psn", "sq_psn", "port_num",
        "max_rd_atomic", "max_dest_rd_atomic", "min_rnr_timer", "timeout", "retry_cnt", "rnr_retry",
        "pkey_index", "sq_draining",
    ):  # fmt: skip
        eq(getattr(attr, name), getattr(wanted, name), name)
    eq(attr.cur_qp_state, e.IBV_QPS_RTS, "cur_qp_state")
    eq((attr.ah_attr.is_global, attr.ah_attr.port_num), (1, 1), "address")
    eq(attr.ah_attr.sgid_index, end.gid_index, "sgid_index")
    eq(attr.ah_attr.dgid, end.gid().gid, "dgid")
    eq(attr.ah_attr.traffic_class, 8, "traffic_class")
    eq((init.qp_type, init.sq_sig_all), (e.IBV_QPT_RC, 0), "type and signalling")
    eq(init.cap.max_send_wr >= end.depth, True, "max_send_wr")
    eq(init.cap.max_recv_sge >= end.sges, True, "max_recv_sge")
    end.close()


@case("attributes may change in SQD, and the way with them")
def sqd_changes():
    with pair() as (x, y):
        change(x.qp, "SQD")
        change(x.qp, "SQD", e.IBV_QP_TIMEOUT | e.IBV_QP_RETRY_CNT, timeout=9, retry_cnt=2)
        attr = x.qp.query(0x1FFFFFF)[0]
        eq((attr.timeout, attr.retry_cnt), (9, 2), "attributes")
        change(x.qp, "RTS")
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        y.post_recv(target.sge())
        x.post(e.IBV_WR_SEND, source.sge())
        x.good()
        y.good()


@case("SQD drains what was begun, tells so, and what is posted then waits for RTS")
def drains():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        # begun, and not done: the receiver is not ready
        x.post(e.IBV_WR_SEND, source.sge(), wr_id=1)
        x.nothing()
        change(x.qp, "SQD", e.IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify=1)
        eq(x.qp.query(0x1FFFFFF)[0].sq_draining, 1, "sq_draining")
        x.post(e.IBV_WR_SEND, source.sge(), wr_id=2)
        eq(next_event(x, 0.3), None, "event before it has drained")
        y.post_recv(target.sge())
        y.post_recv(target.sge())
        eq(x.good()[0].wr_id, 1, "the send that was begun")
        event(x, e.IBV_EVENT_SQ_DRAINED)
        eq(x.qp.query(0x1FFFFFF)[0].sq_draining, 0, "sq_draining")
        x.nothing()
        change(x.qp, "RTS")
        eq(x.good()[0].wr_id, 2, "the send posted in SQD")
        y.good(2)


@case("receives that are posted in Error are flushed")
def flushed():
    with pair() as (x, y):
        buffer = Buffer(y.pd, 64)
        to_error(y.qp)
        y.post_recv(buffer.sge(), wr_id=1)
        found = y.completions(1, limit=5)
        eq((found[0].wr_id, statuses(found)), (1, ["IBV_WC_WR_FLUSH_ERR"]), "soon")
        # later it is looked for them more seldom
        time.sleep(3)
        y.post_recv(buffer.sge(), wr_id=2)
        y.post_recv(buffer.sge(), wr_id=3)
        found = y.completions(2, limit=10)
        eq([wc.wr_id for wc in found], [2, 3], "later")
        y.post(e.IBV_WR_SEND, buffer.sge(), wr_id=4)
        eq(statuses(y.completions(1)), ["IBV_WC_WR_FLUSH_ERR"], "a send")
        x.nothing(0)


@case("a send that is posted too early is refused and forgotten")
def early():
    x, y = Endpoint("fa", "10.0.0.1"), Endpoint("fb", "10.0.0.2")
    source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
    for now in ("RESET", "INIT", "RTR"):
        x.qp = x.new_qp()
        bring(x, "RC", now)
        error = raises(PyverbsRDMAError, x.post, e.IBV_WR_SEND, source.sge(), wr_id=1)
        eq(error.error_code, errno.EINVAL, f"errno in {now}")
    x.qp = x.new_qp()
    bring(x, "RC", "INIT")
    raises(PyverbsRDMAError, x.post, e.IBV_WR_SEND, source.sge(), wr_id=1)
    x.connect(y.where())
    y.connect(x.where())
    y.post_recv(target.sge())
    source.put(pattern(64))
    x.post(e.IBV_WR_SEND, source.sge(), wr_id=2)
    eq(x.good()[0].wr_id, 2, "the only send")
    y.good()
    y.nothing()
    x.close()
    y.close()


@case("each side hears of its errors")
def hears():
    with pair() as (x, y):
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        remote = (target.mr.rkey ^ 1, target.address)
        x.post(e.IBV_WR_RDMA_WRITE, source.sge(), remote=remote)
        eq(statuses(x.completions(1)), ["IBV_WC_REM_ACCESS_ERR"], "status")
        seen = [next_event(y), next_event(y, 0.3)]
        eq(e.IBV_EVENT_QP_ACCESS_ERR in seen, True, f"access error among {seen}")
        eq((state(x.qp), state(y.qp)), ("ERR", "ERR"), "states")


if __name__ == "__main__":
    shell("pair_up")
    main()
