#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""What happened is counted, by kind: `rdma statistic` knows rdma_rxe's names and ours, and
whatever garbage comes from the wire is counted once and changes nothing."""

import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import Skip, case, eq, main
from packets import Packet, Sender, bth
from pyverbs.qp import QPAttr
from rc import Buffer, pair, pattern, shell, statuses

RXE_NAMES = """sent_pkts rcvd_pkts duplicate_request out_of_seq_request rcvd_rnr_err send_rnr_err
rcvd_seq_err ack_deferred retry_exceeded_err retry_rnr_exceeded_err completer_retry_err send_err
link_downed rdma_sends rdma_recvs sent_bytes rcvd_bytes""".split()
DROPS = """rcvd_bad_icrc rcvd_malformed rcvd_unknown_qp rcvd_wrong_address rcvd_wrong_state
rcvd_wrong_service rcvd_wrong_pkey rcvd_wrong_qkey rcvd_no_buffer rcvd_stale_response""".split()
SEND_ONLY, WRITE_ONLY, ACKNOWLEDGE, UC_SEND_ONLY, UD_SEND_ONLY = 0x04, 0x0A, 0x11, 0x24, 0x64
FERROCE = os.environ.get("FERROCE_DRIVER", "ferroce") == "ferroce"


def counters(device):
    """All counters of the port, by name."""
    # the core shows the same figures for 10 ms
    time.sleep(0.05)
    said = subprocess.run(
        ["rdma", "-j", "statistic", "show", "link", f"{device}/1"],
        capture_output=True, text=True, check=True,
    ).stdout
    (port,) = json.loads(said)
    return {name: value for name, value in port.items() if isinstance(value, int)}


class Change:
    """Which counters of a device changed while the body ran, and by how much."""

    def __init__(self, device):
        self.device = device

    def __enter__(self):
        self.before = counters(self.device)
        return self

    def __exit__(self, *_):
        self.after = counters(self.device)

    def of(self, name):
        """By how much one counter has grown."""
        return self.after[name] - self.before[name]

    def drops(self):
        """Those of the drops that have grown."""
        return {name: self.of(name) for name in DROPS if self.of(name)}


@case("every name of rdma_rxe is there")
def names():
    missing = set(RXE_NAMES) - set(counters("fb"))
    eq(missing, set(), "missing counters")


@case("the same counters are files in sysfs")
def files():
    place = "/sys/class/infiniband/fb/ports/1/hw_counters"
    there = set(os.listdir(place))
    eq(set(RXE_NAMES) - there, set(), "missing files")


@case("packets and bytes that one side sends arrive at the other")
def volume():
    with pair(mtu=1024) as (x, y), Change("fa") as a, Change("fb") as b:
        source, target = Buffer(x.pd, 100000), Buffer(y.pd, 100000)
        for _ in range(5):
            x.post(e.IBV_WR_RDMA_WRITE, source.sge(), remote=(target.mr.rkey, target.address))
            x.post(e.IBV_WR_RDMA_READ, source.sge(), remote=(target.mr.rkey, target.address))
            x.good(2)
        # the last acknowledgement is on its way
        time.sleep(0.3)
    eq(a.of("sent_pkts") >= 5 * 98, True, f"{a.of('sent_pkts')} packets are enough")
    for here, there in ((a, b), (b, a)):
        eq(here.of("sent_pkts"), there.of("rcvd_pkts"), "packets sent and received")
        if FERROCE:
            eq(here.of("sent_bytes"), there.of("rcvd_bytes"), "bytes sent and received")
        eq(here.of("sent_bytes") > 500000, True, f"{here.of('sent_bytes')} bytes are enough")


@case("sends and receives are counted one by one")
def messages():
    with pair() as (x, y), Change("fa") as a, Change("fb") as b:
        source, target = Buffer(x.pd, 100), Buffer(y.pd, 100)
        for _ in range(7):
            y.post_recv(target.sge())
            x.post(e.IBV_WR_SEND, source.sge())
            x.good()
            y.good()
    eq((a.of("rdma_sends"), b.of("rdma_recvs")), (7, 7), "sends and receives")


@case("a receiver that is not ready is counted on both sides")
def rnr():
    with pair(rnr_timer=14) as (x, y), Change("fa") as a, Change("fb") as b:
        source, target = Buffer(x.pd, 100), Buffer(y.pd, 100)
        x.post(e.IBV_WR_SEND, source.sge())
        time.sleep(0.1)
        y.post_recv(target.sge())
        x.good()
    eq(b.of("send_rnr_err") >= 1, True, "RNR was sent")
    eq(a.of("rcvd_rnr_err"), b.of("send_rnr_err"), "RNR received and sent")


@case("a peer that does not answer is counted")
def silence():
    with pair(retries=2, timeout=12) as (x, y):
        y.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
        source = Buffer(x.pd, 100)
        with Change("fa") as a, Change("fb") as b:
            x.post(e.IBV_WR_SEND, source.sge())
            eq(statuses(x.completions(1)), ["IBV_WC_RETRY_EXC_ERR"], "completion")
    eq(a.of("retry_exceeded_err"), 1, "retries exceeded")
    eq(a.of("completer_retry_err"), 2, "retries")
    if FERROCE:
        eq(b.drops(), {"rcvd_wrong_state": 3}, "drops of a QP in Reset")


def garbage(body, spoil=None, **headers):
    """The drops that one packet to a connected QP causes; body is made from its number."""
    if not FERROCE:
        raise Skip("rdma_rxe does not count what it drops")
    with pair() as (x, y), Sender() as sender:
        source, target = Buffer(x.pd, 64), Buffer(y.pd, 64)
        source.put(pattern(64))
        packet = Packet.make(body(y.qp.qp_num), **headers)
        if spoil:
            spoil(packet)
        with Change("fb") as b:
            sender.send(packet)
            time.sleep(0.1)
        # the connection did not notice
        y.post_recv(target.sge())
        x.post(e.IBV_WR_SEND, source.sge())
        x.good()
        y.good()
        eq(target.get(), pattern(64), "data of the send that follows")
    return b.drops()


# y expects this PSN first (rc.join)
EXPECTED = 0xFFFFFE


def send_only(qpn):
    return bth(SEND_ONLY, qpn, EXPECTED) + bytes(16)


@case("a wrong ICRC")
def bad_icrc():
    def spoil(packet):
        packet.body = packet.body[:-1] + bytes([packet.body[-1] ^ 1])

    eq(garbage(send_only, spoil), {"rcvd_bad_icrc": 1}, "drops")


@case("a datagram too short for a packet")
def short():
    eq(garbage(lambda _: bytes(7)), {"rcvd_malformed": 1}, "drops")


@case("a datagram without a byte")
def empty():
    def spoil(packet):
        packet.body = b""
        packet.udp = packet.udp[:4] + b"\0\x08" + packet.udp[6:]
        packet.ip = packet.ip[:2] + b"\0\x1c" + packet.ip[4:]
        packet.fix_ip()

    eq(garbage(send_only, spoil), {"rcvd_malformed": 1}, "drops")


@case("an opcode that there is not")
def opcode():
    eq(garbage(lambda qpn: bth(0x1F, qpn, EXPECTED) + bytes(16)), {"rcvd_malformed": 1}, "drops")


@case("a header version that there is not")
def version():
    body = lambda qpn: bth(SEND_ONLY, qpn, EXPECTED, flags=0x4F) + bytes(16)
    eq(garbage(body), {"rcvd_malformed": 1}, "drops")


@case("a write without its extended header")
def truncated():
    eq(garbage(lambda qpn: bth(WRITE_ONLY, qpn, EXPECTED) + bytes(8)), {"rcvd_malformed": 1}, "drops")


@case("a queue pair that there is not")
def unknown():
    eq(garbage(lambda _: bth(SEND_ONLY, 0xABCDE, EXPECTED)), {"rcvd_unknown_qp": 1}, "drops")


@case("a stranger's address")
def stranger():
    eq(garbage(send_only, src="10.0.0.99"), {"rcvd_wrong_address": 1}, "drops")


@case("an IPv6 address for a connection over IPv4")
def family():
    eq(garbage(send_only, src="fd00::1", dst="fd00::2"), {"rcvd_wrong_address": 1}, "drops")


@case("a P_Key of another partition")
def pkey():
    body = lambda qpn: bth(SEND_ONLY, qpn, EXPECTED, pkey=0x1234) + bytes(16)
    eq(garbage(body), {"rcvd_wrong_pkey": 1}, "drops")


@case("packets of other services")
def service():
    for other in (UC_SEND_ONLY, UD_SEND_ONLY):
        body = lambda qpn, op=other: bth(op, qpn, EXPECTED) + bytes(24)
        eq(garbage(body), {"rcvd_wrong_service": 1}, f"drops of opcode {other:#x}")


@case("an acknowledgement of nothing")
def stale():
    body = lambda qpn: bth(ACKNOWLEDGE, qpn, 0x123456) + bytes(4)
    eq(garbage(body), {"rcvd_stale_response": 1}, "drops")


@case("a request out of order is refused, one that was executed is acknowledged again")
def order():
    with pair() as (x, y), Sender() as sender:
        target = Buffer(y.pd, 64)
        y.post_recv(target.sge())
        with Change("fb") as b:
            sender.send(Packet.make(bth(SEND_ONLY, y.qp.qp_num, 3) + bytes(16)))
            sender.send(Packet.make(send_only(y.qp.qp_num)))
            y.good()
            sender.send(Packet.make(send_only(y.qp.qp_num)))
            time.sleep(0.1)
    eq(b.of("out_of_seq_request"), 1, "gaps")
    eq(b.of("duplicate_request"), 1, "duplicates")


@case("a link that goes down is counted")
def link():
    with Change("fa") as a:
        subprocess.run(["ip", "-n", "a", "link", "set", "va", "down"], check=True)
        subprocess.run(["ip", "-n", "a", "link", "set", "va", "up"], check=True)
        # it went with the link
        shell("a ip addr replace fd00::1/64 dev va nodad")
    eq(a.of("link_downed"), 1, "times down")


if __name__ == "__main__":
    shell("pair_up")
    main()
