# SPDX-License-Identifier: GPL-2.0
"""What is measured: one Row for each line of the table.

A row gives one metric or two. A metric's name ends in its unit, which says whether less
is better: MBps (10^6 bytes a second), per_s, us, ms.
"""

from dataclasses import dataclass
from dataclasses import replace
from fnmatch import fnmatchcase

ALL_LANES = ("instr", "real", "real_default")
REAL = ("real", "real_default")
JUMBO, ETHERNET = 4200, 1500
SIZES = {"64": 64, "4k": 4096, "64k": 65536, "1m": 1048576}
QPS = (1, 8, 64)


@dataclass(frozen=True)
class Row:
    """`kind` names the function of tools.py that measures it, with `args`."""

    name: str
    kind: str
    args: dict
    groups: tuple
    lanes: tuple = ALL_LANES
    # of the interfaces
    mtu: int = JUMBO
    # It is the same whatever the RDMA driver, so it is measured once a round.
    no_driver: bool = False
    # Only ferroce has it.
    ours_only: bool = False


def less_is_better(metric):
    """Whether a smaller figure of that metric is the better one."""
    return metric.rsplit("_", 1)[-1] in ("us", "ms")


# A poller alone starves the only CPU of the instruction clock.
def lanes_of(verb, qps):
    """Where a row of perftest can be measured."""
    return REAL if (verb, qps) == ("write", 1) else ALL_LANES


def bandwidth(verb, size, qps=1, mtu=JUMBO, lanes=None):
    """A bandwidth row of perftest."""
    name = f"{verb}_{size}_{qps}qp" + (f"_mtu{mtu}" if mtu != JUMBO else "")
    args = {"verb": verb, "size": SIZES[size], "qps": qps}
    return Row(name, "bandwidth", args, ("bandwidth",), lanes or lanes_of(verb, qps), mtu)


def variant(group, verb, suffix, lanes=None, **args):
    """64 KiB on one QP, under another circumstance."""
    args = {"verb": verb, "size": SIZES["64k"], "qps": 1, **args}
    return Row(f"{verb}_64k_1qp_{suffix}", "bandwidth", args, (group,), lanes or lanes_of(verb, 1))


def all_rows():
    """Every row, in the order of the table."""
    rows = [
        bandwidth(verb, size, qps)
        for verb in ("write", "send", "read") for size in SIZES if size != "64" for qps in QPS
    ]
    rows += [
        bandwidth(verb, size, qps, ETHERNET, lanes=("instr",))
        for verb, qps in (("send", 1), ("read", 1), ("write", 8)) for size in ("64k", "1m")
    ]
    rows += [
        Row(f"{verb}_64_{qps}qp", "rate", {"verb": verb, "size": 64, "qps": qps}, ("rate",),
            lanes_of(verb, qps))
        for verb in ("write", "send", "read") for qps in QPS
    ]
    rows += [
        Row(f"{verb}_64_1qp_list16", "rate",
            {"verb": verb, "size": 64, "qps": 1, "post_list": 16}, ("rate",), lanes_of(verb, 1))
        for verb in ("write", "send")
    ]
    rows += [
        Row(f"latency_{verb}_8", "latency", {"verb": verb}, ("latency",),
            lanes=REAL if verb == "write" else ALL_LANES)
        for verb in ("write", "send", "read", "atomic")
    ]
    rows += [
        variant("path", verb, f"path{mtu}", path_mtu=mtu)
        for verb in ("write", "send", "read") for mtu in (1024, 4096)
    ]
    rows += [
        variant("loss", verb, f"loss1in{one_in}", lose_one_in=one_in)
        for verb in ("write", "send", "read") for one_in in (1000, 100)
    ]
    rows += [variant("idle", "send", f"idle{idle}", idle=idle) for idle in (1000, 10000)]
    rows += [
        Row("chardev_write_64k", "chardev", {"count": 2000}, ("chardev",), ours_only=True),
        Row("region_1g", "region", {"mib": 1024}, ("region",)),
        Row("connect", "connect", {}, ("connect",)),
        Row("tcp", "iperf", {}, ("tcp", "quick"), no_driver=True),
        Row("limit", "limit", {}, ("limit",), no_driver=True),
        *interop_rows(),
        Row("engine", "engine", {}, ("engine",), lanes=("host",), no_driver=True),
    ]
    return [mark_quick(row) for row in rows]


def interop_rows():
    """Against a peer with rdma_rxe. Both sides need the same count, so it is fixed."""
    lanes = ("interop",)
    for verb in ("write", "send", "read"):
        args = {"tool": f"ib_{verb}_bw", "size": SIZES["64k"], "count": 300}
        yield Row(f"{verb}_64k_to_rxe", "interop", args, ("interop",), lanes)
    args = {"tool": "ib_send_lat", "size": 8, "count": 500}
    yield Row("latency_send_8_to_rxe", "interop", args, ("interop",), lanes)


# The rows of the bars under the instruction clock.
BULK_BARS = ("send_64k_1qp", "send_1m_1qp", "read_64k_1qp", "read_1m_1qp", "write_64k_8qp",
             "write_1m_8qp")
QUICK = (*BULK_BARS, *(f"{row}_mtu1500" for row in BULK_BARS), "send_4k_1qp", "send_64_1qp",
         "latency_send_8")


def mark_quick(row):
    """Puts a row into the group quick if it belongs there."""
    return replace(row, groups=(*row.groups, "quick")) if row.name in QUICK else row


ROWS = {row.name: row for row in all_rows()}
GROUPS = sorted({group for row in ROWS.values() for group in row.groups})


def select(wanted):
    """The rows that a list of groups, names and patterns such as send_* means."""
    if not wanted or wanted == ["all"]:
        return list(ROWS.values())
    for word in wanted:
        if word not in GROUPS and not any(fnmatchcase(name, word) for name in ROWS):
            raise ValueError(f"no row and no group {word}; groups are {', '.join(GROUPS)}, all")
    return [
        row for row in ROWS.values()
        if any(word in row.groups or fnmatchcase(row.name, word) for word in wanted)
    ]
