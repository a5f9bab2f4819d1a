#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""UD multicast: the interface joins the IP group, each member queue pair gets a copy, on this
host and on the other, and what is nobody's is counted and dropped."""

import contextlib
import errno
import ipaddress
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import uverbs
from ktap import Skip, case, eq, main, raises
from packets import Packet, Sender, Tap, bth
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.wr import RecvWR
from rc import Buffer, Endpoint, pattern, shell
from ud import GRH, QKEY, Datagrams, datagrams

FERROCE = os.environ.get("FERROCE_DRIVER", "ferroce") == "ferroce"
GROUP_QPN = 0xFFFFFF
UD_SEND_ONLY = 0x64
GROUPS = {"v4": "239.7.8.9", "v6": "ff0e::7:8:9"}
MACS = {"v4": "01005e070809", "v6": "333300080009"}


def gid(group):
    """The GID of an IP group: IPv4 mapped into IPv6."""
    ip = ipaddress.ip_address(group)
    return (ip if ip.version == 6 else ipaddress.ip_address(f"::ffff:{ip}")).packed


def handle(end, group):
    """An address handle to a group."""
    dgid = GID(gid(group).hex(":", 2))
    route = GlobalRoute(dgid=dgid, sgid_index=end.gid_index)
    return AH(end.pd, attr=AHAttr(gr=route, is_global=1, port_num=1))


attached = set()


@contextlib.contextmanager
def hosts(family="v4", **options):
    """Two datagram queue pairs, on fa and fb, that are in no group any more at the end."""
    with datagrams(family, **options) as (x, y):
        try:
            yield x, y
        finally:
            detach_all()


def detach_all():
    """Takes every member out, since the kernel does not destroy one that is in a group."""
    for qp, group in list(attached):
        qp.detach(group)


class Member:
    """A datagram queue pair that can be in groups: the first of a device, or one more."""

    def __init__(self, end, more=False, qkey=QKEY):
        before = uverbs.qp_handles(end.ctx) if more else set()
        self.ctx, self.qp = end.ctx, end.new_qp() if more else end.qp
        (self.handle,) = uverbs.qp_handles(end.ctx) - before
        if more:
            end.ready(self.qp, qkey)

    def attach(self, group):
        """Gets a copy of what is sent to the group."""
        uverbs.attach_mcast(self.ctx, self.handle, gid(group))
        attached.add((self, group))

    def detach(self, group):
        """Does not any more."""
        uverbs.detach_mcast(self.ctx, self.handle, gid(group))
        attached.discard((self, group))

    def post_recv(self, sge, wr_id):
        """Posts one receive."""
        self.qp.post_recv(RecvWR(wr_id=wr_id, num_sge=1, sg=[sge]))


def refused(function, group, number):
    """The call must fail with this error."""
    eq(raises(OSError, function, group).errno, number, "error")


def member(name, group):
    """Whether an interface is a member of an IP group."""
    shown = subprocess.run(
        ["ip", "-n", name, "maddr", "show", "dev", f"v{name}"],
        capture_output=True, text=True, check=True,
    ).stdout.split()
    return group in shown


def drops(device, name):
    """One counter of a device."""
    time.sleep(0.05)
    with open(f"/sys/class/infiniband/{device}/ports/1/hw_counters/{name}", encoding="ascii") as file:
        return int(file.read())


def exchange(family):
    """From one host to members on both."""
    group = GROUPS[family]
    with hosts(family) as (x, y), Tap() as tap:
        away, second, here = Member(y), Member(y, more=True), Member(x)
        source, target = Buffer(x.pd, 1000), Buffer(y.pd, 3 * (1000 + GRH))
        own = Buffer(x.pd, 1000 + GRH)
        source.put(pattern(1000))
        for qp in (away, second, here):
            qp.attach(group)
        eq((member("a", group), member("b", group)), (True, True), "R28 membership of va and vb")
        y.post_recv(target.sge(1000 + GRH), wr_id=1)
        second.post_recv(target.sge(1000 + GRH, at=1000 + GRH), 2)
        x.post_recv(own.sge(), wr_id=3)
        x.send(handle(x, group), GROUP_QPN, source.sge(), wr_id=4)
        got = {wc.wr_id: wc for wc in y.good(2)}
        mine = {wc.wr_id: wc for wc in x.good(2)}
        eq(sorted(got), [1, 2], "receives at the other host")
        eq(sorted(mine), [3, 4], "the send and the receive of this host")
        for wc in (got[1], got[2], mine[3]):
            eq((wc.byte_len, wc.src_qp), (1000 + GRH, x.qp.qp_num), "length and source")
        for at in (0, 1000 + GRH):
            eq(target.get(1000, at=at + GRH), pattern(1000), "data at the other host")
            area = target.get(GRH, at=at)
            eq(area[24:40] if family == "v6" else area[36:40],
               ipaddress.ip_address(group).packed, "destination in the GRH area")
        eq(own.get(1000, at=GRH), pattern(1000), "data at this host")
        # one packet on the wire, to the Ethernet address of the group
        (packet,) = [p for p in tap.packets() if p.opcode == UD_SEND_ONLY]
        eq(packet.ethernet[:6].hex(), MACS[family], "destination address")
        eq(packet.body[-4:], packet.icrc().to_bytes(4, "little"), "ICRC")
        for qp in (away, second, here):
            qp.detach(group)
        eq((member("a", group), member("b", group)), (False, False), "membership after detach")
        x.send(handle(x, group), GROUP_QPN, source.sge(), wr_id=5)
        x.good()
        y.nothing()


for FAMILY in GROUPS:
    case(f"R28 members on both hosts get a copy over {FAMILY}")(lambda f=FAMILY: exchange(f))


@case("R28 a switch that snoops IGMP forwards the group")
def snooping():
    """A bridge in between learns of the membership from reports only."""
    shell("""
        ip netns add sw
        ip -n sw link add br0 up type bridge mcast_snooping 1 mcast_querier 1""")
    try:
        shell("""
        ip link add wa netns sw type veth peer name eth1 netns a
        ip link add wb netns sw type veth peer name eth1 netns b
        for port in wa wb; do ip -n sw link set $port master br0 up; done
        for ns in a b; do ip -n $ns link set eth1 up; done
        a ip addr add 10.1.0.1/24 dev eth1; b ip addr add 10.1.0.2/24 dev eth1
        a rdma link add ga type "$FERROCE_DRIVER" netdev eth1
        b rdma link add gb type "$FERROCE_DRIVER" netdev eth1
        """)
        learned_and_forwarded()
    finally:
        shell("a ip link del eth1; b ip link del eth1; ip netns del sw; sleep 1")


def learned_and_forwarded():
    group = GROUPS["v4"]
    x, y = Datagrams("ga", "10.1.0.1"), Datagrams("gb", "10.1.0.2")
    try:
        away = Member(y)
        away.attach(group)
        until = time.monotonic() + 10
        while True:
            shown = subprocess.run(
                ["bridge", "-n", "sw", "mdb", "show"], capture_output=True, text=True, check=True
            ).stdout
            if f"port wb grp {group}" in shown:
                break
            eq(time.monotonic() < until, True, f"the bridge knows the member; it knows: {shown}")
            time.sleep(0.2)
        source, target = Buffer(x.pd, 100), Buffer(y.pd, 100 + GRH)
        source.put(pattern(100))
        y.post_recv(target.sge())
        x.send(handle(x, group), GROUP_QPN, source.sge())
        x.good()
        y.good()
        eq(target.get(100, at=GRH), pattern(100), "data")
        away.detach(group)
    finally:
        detach_all()
        x.close()
        y.close()


@case("attaching twice is once, detaching what is not attached is refused")
def twice():
    with hosts() as (x, y):
        group, away = GROUPS["v4"], Member(y)
        away.attach(group)
        away.attach(group)
        source, target = Buffer(x.pd, 10), Buffer(y.pd, 100)
        y.post_recv(target.sge(), wr_id=1)
        y.post_recv(target.sge(), wr_id=2)
        x.send(handle(x, GROUPS["v4"]), GROUP_QPN, source.sge())
        (wc,) = y.good()
        eq(wc.wr_id, 1, "receive")
        y.nothing()
        away.detach(group)
        refused(away.detach, group, errno.EINVAL)
        eq(member("b", GROUPS["v4"]), False, "membership")


@case("a GID that is no group, and a connected queue pair, are refused")
def not_a_group():
    with hosts() as (_, y):
        refused(Member(y).attach, "10.0.0.2", errno.EINVAL)
    end = Endpoint("fb", "10.0.0.2")
    refused(Member(end).attach, GROUPS["v4"], errno.EINVAL)
    end.close()


@case("another Q_Key, and a queue pair without a receive, get nothing; others do")
def keys():
    if not FERROCE:
        raise Skip("rdma_rxe does not count what it drops")
    with hosts() as (x, y):
        away, empty = Member(y), Member(y, more=True)
        other = Member(y, more=True, qkey=QKEY + 1)
        group = GROUPS["v4"]
        for qp in (other, empty, away):
            qp.attach(group)
        source, target = Buffer(x.pd, 10), Buffer(y.pd, 100)
        y.post_recv(target.sge(), wr_id=1)
        other.post_recv(target.sge(), 2)
        before = drops("fb", "rcvd_wrong_qkey"), drops("fb", "rcvd_no_buffer")
        x.send(handle(x, GROUPS["v4"]), GROUP_QPN, source.sge())
        (wc,) = y.good()
        eq(wc.wr_id, 1, "receive")
        y.nothing()
        after = drops("fb", "rcvd_wrong_qkey"), drops("fb", "rcvd_no_buffer")
        eq((after[0] - before[0], after[1] - before[1]), (1, 1), "counted")


@case("64 queue pairs of a group, and not one more")
def many():
    with hosts(depth=4) as (x, y):
        limit = y.ctx.query_device().max_mcast_qp_attach
        group, last = GROUPS["v4"], Member(y)
        members = [Member(y, more=True) for _ in range(limit)]
        for qp in members:
            qp.attach(group)
        refused(last.attach, group, errno.ENOMEM)
        source, target = Buffer(x.pd, 10), Buffer(y.pd, 100)
        for number, qp in enumerate(members[:12]):
            qp.post_recv(target.sge(), number)
        x.send(handle(x, GROUPS["v4"]), GROUP_QPN, source.sge())
        eq(sorted(wc.wr_id for wc in y.good(12)), list(range(12)), "receives")
    eq(member("b", GROUPS["v4"]), False, "membership")


@case("a group number to one host, and a host's number to a group, are dropped")
def garbage():
    if not FERROCE:
        raise Skip("rdma_rxe does not count what it drops")
    with hosts() as (_, y), Sender() as sender:
        Member(y).attach(GROUPS["v4"])
        target = Buffer(y.pd, 100)
        y.post_recv(target.sge())
        deth = QKEY.to_bytes(4, "big") + bytes(3) + b"\x11"
        before = drops("fb", "rcvd_wrong_address"), drops("fb", "rcvd_no_group")
        sender.send(Packet.make(bth(UD_SEND_ONLY, GROUP_QPN, 0) + deth))
        ether = bytes.fromhex(MACS["v4"])
        to_group = Packet.make(bth(UD_SEND_ONLY, y.qp.qp_num, 0) + deth, dst=GROUPS["v4"])
        sender.send(to_group, target=ether)
        y.nothing()
        after = drops("fb", "rcvd_wrong_address"), drops("fb", "rcvd_no_group")
        eq((after[0] - before[0], after[1] - before[1]), (2, 0), "dropped")
        # the host is a member of the all-hosts group, but no queue pair is
        all_hosts = Packet.make(bth(UD_SEND_ONLY, GROUP_QPN, 0) + deth, dst="224.0.0.1")
        sender.send(all_hosts, target=bytes.fromhex("01005e000001"))
        y.nothing()
        eq(drops("fb", "rcvd_no_group") - before[1], 1, "dropped without a group")


@case("R17 a process ends while its queue pairs are attached")
def process_gone():
    child = os.fork()
    if child == 0:
        Member(Datagrams("fb", "10.0.0.2")).attach(GROUPS["v4"])
        os._exit(0 if member("b", GROUPS["v4"]) else 1)
    eq(os.waitpid(child, 0)[1], 0, "the child's status: it was a member")
    eq(member("b", GROUPS["v4"]), False, "membership")


@case("R39 the interface goes while queue pairs are attached")
def interface_gone():
    with datagrams() as (_, y):
        away = Member(y)
        for group in GROUPS.values():
            away.attach(group)
        subprocess.run(["timeout", "20", "ip", "-n", "b", "link", "del", "vb"], check=True)
    attached.clear()
    shell("within 20 device_gone fb; within 20 device_gone fa; pair_up")


if __name__ == "__main__":
    shell("pair_up")
    main()
