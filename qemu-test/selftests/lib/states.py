# SPDX-License-Identifier: GPL-2.0
"""States, events and refusals, for tests over pyverbs."""

import errno
import select

import pyverbs.enums as e
from ktap import eq, raises
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QPAttr

NAMES = ("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
STATES = {name: getattr(e, f"IBV_QPS_{name}") for name in NAMES}


def refused(wanted, what, function, *args, **kwargs):
    """Fails unless the call fails with this errno."""
    error = raises(PyverbsRDMAError, function, *args, **kwargs)
    eq(errno.errorcode.get(error.error_code), errno.errorcode[wanted], what)


def event(end, wanted, limit=10):
    """The next asynchronous event of an endpoint, which must be this one."""
    got = next_event(end, limit)
    eq(got, wanted, "asynchronous event")


def next_event(end, limit=10):
    """The type of the next asynchronous event; `None` when there is none in time."""
    if not select.select([end.async_fd], [], [], limit)[0]:
        return None
    found = end.ctx.get_async_event()
    kind = found.event_type
    found.ack()
    return kind


def change(qp, state, mask=0, **values):
    """Brings a queue pair into a state, with more attributes."""
    attr = QPAttr()
    attr.qp_state = STATES[state]
    for name, value in values.items():
        setattr(attr, name, value)
    qp.modify(attr, e.IBV_QP_STATE | mask)


def to_error(qp):
    """Brings a queue pair into Error."""
    change(qp, "ERR")


def state(qp):
    """The name of its state."""
    return NAMES[qp.query(e.IBV_QP_STATE)[0].qp_state]
