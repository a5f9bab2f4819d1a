#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""UD multicast: the interface joins the IP group, each member queue pair gets a copy, on this
host and on the other, and what is nobody's is counted and dropped."""

import errno
import ipaddress
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import Skip, case, eq, main, raises
from packets import Packet, Sender, Tap, bth
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.pyverbs_error import PyverbsError
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
    return GID(str(ip if ip.version == 6 else ipaddress.ip_address(f"::ffff:{ip}")))


def handle(end, group, **route):
    """An address handle to a group."""
    route = GlobalRoute(dgid=gid(group), sgid_index=end.gid_index, **route)
    return AH(end.pd, attr=AHAttr(gr=route, is_global=1, port_num=1))


def receive(sge, wr_id):
    """A receive work request."""
    return RecvWR(wr_id=wr_id, num_sge=1, sg=[sge])


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
    with datagrams(family) as (x, y), Tap() as tap:
        second = y.new_qp()
        y.ready(second)
        away, here = y.qp, x.qp
        source, target = Buffer(x.pd, 1000), Buffer(y.pd, 3 * (1000 + GRH))
        own = Buffer(x.pd, 1000 + GRH)
        source.put(pattern(1000))
        for qp in (away, second, here):
            qp.attach_mcast(gid(group), 0)
        eq((member("a", group), member("b", group)), (True, True), "R28 membership of va and vb")
        y.post_recv(target.sge(1000 + GRH), wr_id=1)
        second.post_recv(receive(target.sge(1000 + GRH, at=1000 + GRH), 2))
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
            qp.detach_mcast(gid(group), 0)
        eq((member("a", group), member("b", group)), (False, False), "membership after detach")
        x.send(handle(x, group), GROUP_QPN, source.sge(), wr_id=5)
        x.good()
        y.nothing()
        second.close()


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
        y.qp.attach_mcast(gid(group), 0)
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
        y.qp.detach_mcast(gid(group), 0)
    finally:
        x.close()
        y.close()


@case("attaching twice is once, detaching what is not attached is refused")
def twice():
    with datagrams() as (x, y):
        group = gid(GROUPS["v4"])
        y.qp.attach_mcast(group, 0)
        y.qp.attach_mcast(group, 0)
        source, target = Buffer(x.pd, 10), Buffer(y.pd, 100)
        y.post_recv(target.sge(), wr_id=1)
        y.post_recv(target.sge(), wr_id=2)
        x.send(handle(x, GROUPS["v4"]), GROUP_QPN, source.sge())
        (wc,) = y.good()
        eq(wc.wr_id, 1, "receive")
        y.nothing()
        y.qp.detach_mcast(group, 0)
        error = raises(PyverbsError, y.qp.detach_mcast, group, 0)
        eq(f"Errno: {errno.EINVAL}" in str(error), True, f"EINVAL in '{error}'")
        eq(member("b", GROUPS["v4"]), False, "membership")


@case("a GID that is no group, and a connected queue pair, are refused")
def refused():
    with datagrams() as (_, y):
        error = raises(PyverbsError, y.qp.attach_mcast, gid("10.0.0.2"), 0)
        eq(f"Errno: {errno.EINVAL}" in str(error), True, f"EINVAL in '{error}'")
    end = Endpoint("fb", "10.0.0.2")
    error = raises(PyverbsError, end.qp.attach_mcast, gid(GROUPS["v4"]), 0)
    eq(f"Errno: {errno.EINVAL}" in str(error), True, f"EINVAL in '{error}'")
    end.close()


@case("another Q_Key, and a queue pair without a receive, get nothing; others do")
def keys():
    if not FERROCE:
        raise Skip("rdma_rxe does not count what it drops")
    with datagrams() as (x, y):
        other, empty = y.new_qp(), y.new_qp()
        y.ready(other, QKEY + 1)
        y.ready(empty)
        group = gid(GROUPS["v4"])
        for qp in (other, empty, y.qp):
            qp.attach_mcast(group, 0)
        source, target = Buffer(x.pd, 10), Buffer(y.pd, 100)
        y.post_recv(target.sge(), wr_id=1)
        other.post_recv(receive(target.sge(), 2))
        before = drops("fb", "rcvd_wrong_qkey"), drops("fb", "rcvd_no_buffer")
        x.send(handle(x, GROUPS["v4"]), GROUP_QPN, source.sge())
        (wc,) = y.good()
        eq(wc.wr_id, 1, "receive")
        y.nothing()
        after = drops("fb", "rcvd_wrong_qkey"), drops("fb", "rcvd_no_buffer")
        eq((after[0] - before[0], after[1] - before[1]), (1, 1), "counted")
        for qp in (other, empty, y.qp):
            qp.detach_mcast(group, 0)
        other.close()
        empty.close()


@case("64 queue pairs of a group, and not one more")
def many():
    with datagrams(depth=4) as (x, y):
        limit = y.ctx.query_device().max_mcast_qp_attach
        group = gid(GROUPS["v4"])
        members = [y.new_qp() for _ in range(limit)]
        for qp in members:
            y.ready(qp)
            qp.attach_mcast(group, 0)
        error = raises(PyverbsError, y.qp.attach_mcast, group, 0)
        eq(f"Errno: {errno.ENOMEM}" in str(error), True, f"ENOMEM in '{error}'")
        source, target = Buffer(x.pd, 10), Buffer(y.pd, 100)
        for number, qp in enumerate(members[:12]):
            qp.post_recv(receive(target.sge(), number))
        x.send(handle(x, GROUPS["v4"]), GROUP_QPN, source.sge())
        eq(sorted(wc.wr_id for wc in y.good(12)), list(range(12)), "receives")
        for qp in members:
            qp.close()
        # that detached them
        eq(member("b", GROUPS["v4"]), False, "membership")


@case("a group number to one host, and a host's number to a group, are dropped")
def garbage():
    if not FERROCE:
        raise Skip("rdma_rxe does not count what it drops")
    with datagrams() as (_, y), Sender() as sender:
        group = gid(GROUPS["v4"])
        y.qp.attach_mcast(group, 0)
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
        y.qp.detach_mcast(group, 0)


@case("R28 R39 the interface goes while queue pairs are attached")
def interface_gone():
    with datagrams() as (x, y):
        y.qp.attach_mcast(gid(GROUPS["v4"]), 0)
        y.qp.attach_mcast(gid(GROUPS["v6"]), 0)
        subprocess.run(["timeout", "20", "ip", "-n", "b", "link", "del", "vb"], check=True)
    shell("within 20 device_gone fb; within 20 device_gone fa; pair_up")


if __name__ == "__main__":
    shell("pair_up")
    main()
