# SPDX-License-Identifier: GPL-2.0
"""What is measured: one Row for each line of the table.

A row gives one metric or two. A metric's name ends in its unit, which says whether less
is better: MBps (10^6 bytes a second), per_s, us, ms.
"""

from dataclasses import dataclass
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


def less_is_better(metric):
    """Whether a smaller figure of that metric is the better one."""
    return metric.rsplit("_", 1)[-1] in ("us", "ms")


def bandwidth(verb, size, qps=1, mtu=JUMBO, path_mtu=None, **more):
    """A bandwidth row of perftest."""
    name = f"{verb}_{size}_{qps}qp"
    groups = ["bandwidth"]
    if mtu != JUMBO:
        name += f"_mtu{mtu}"
    if path_mtu:
        name += f"_path{path_mtu}"
        groups = ["path"]
    bar = size in ("64k", "1m") and (verb != "write" or qps == 8) and qps in (1, 8)
    if not path_mtu and bar and (qps == 1 or verb == "write"):
        groups.append("quick")
    if verb == "write" and qps == 1:
        # a poller alone starves the only CPU of that clock
        more.setdefault("lanes", REAL)
    args = {"verb": verb, "size": SIZES[size], "qps": qps, "path_mtu": path_mtu}
    return Row(name, "bandwidth", args, tuple(groups), mtu=mtu, **more)


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
            lanes=REAL if (verb, qps) == ("write", 1) else ALL_LANES)
        for verb in ("write", "send", "read") for qps in QPS
    ]
    rows += [
        Row(f"latency_{verb}_8", "latency", {"verb": verb}, ("latency",),
            lanes=REAL if verb == "write" else ALL_LANES)
        for verb in ("write", "send", "read", "atomic")
    ]
    rows.append(Row("tcp", "iperf", {}, ("tcp", "quick"), no_driver=True))
    return [mark_quick(row) for row in rows]


ALSO_QUICK = ("send_4k_1qp", "send_64_1qp", "latency_send_8")


def mark_quick(row):
    """The rows of the bars under the instruction clock are in the group quick."""
    if row.name in ALSO_QUICK:
        return Row(**{**vars(row), "groups": (*row.groups, "quick")})
    return row


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
