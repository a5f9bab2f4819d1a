# SPDX-License-Identifier: GPL-2.0
"""Atomic work requests over pyverbs."""

import pyverbs.enums as e
from pyverbs.wr import SendWR


def atomic(x, result, opcode, remote, *operands, wr_id=0):
    """Posts an atomic; `remote` is (rkey, address), the old value goes to `result`."""
    wr = SendWR(
        wr_id=wr_id,
        opcode=opcode,
        num_sge=1,
        sg=[result],
        send_flags=e.IBV_SEND_SIGNALED,
    )
    wr.set_wr_atomic(remote[0], remote[1], *(operands + (0,))[:2])
    x.qp.post_send(wr)
