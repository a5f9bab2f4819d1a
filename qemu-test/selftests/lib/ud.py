# SPDX-License-Identifier: GPL-2.0
"""Datagram queue pairs for tests, over pyverbs."""

import contextlib

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.qp import QPAttr
from pyverbs.wr import SendWR
from rc import ADDRESSES, Endpoint

QKEY = 0x11223344
GRH = 40


class Datagrams(Endpoint):
    """A device with one datagram queue pair, ready to send."""

    def __init__(self, device, address, qkey=QKEY, psn=0xFFFFFE, **options):
        super().__init__(device, address, kind=e.IBV_QPT_UD, **options)
        self.ready(self.qp, qkey, psn)

    def ready(self, qp, qkey=QKEY, psn=0):
        """Brings a queue pair to RTS."""
        attr = QPAttr(port_num=1)
        attr.qkey, attr.sq_psn = qkey, psn
        qp.to_rts(attr)

    def handle(self, peer, pd=None, **route):
        """An address handle that leads to `peer`."""
        route = GlobalRoute(dgid=peer.gid(), sgid_index=self.gid_index, **route)
        return AH(pd or self.pd, attr=AHAttr(gr=route, is_global=1, port_num=1))

    def send(self, handle, qpn, *sges, qkey=QKEY, imm=None, wr_id=0, flags=e.IBV_SEND_SIGNALED):
        """Posts one datagram."""
        opcode = e.IBV_WR_SEND if imm is None else e.IBV_WR_SEND_WITH_IMM
        wr = SendWR(
            wr_id=wr_id, opcode=opcode, num_sge=len(sges), sg=list(sges) or None, send_flags=flags
        )
        if imm is not None:
            wr.imm_data = int.from_bytes(imm.to_bytes(4, "big"), "little")
        wr.set_wr_ud(handle, qpn, qkey)
        self.qp.post_send(wr)


@contextlib.contextmanager
def datagrams(family="v4", **options):
    """Two datagram queue pairs, on fa and fb."""
    here, there = ADDRESSES[family]
    x = Datagrams("fa", here, **options)
    y = Datagrams("fb", there, **options)
    try:
        yield x, y
    finally:
        x.close()
        y.close()
