# SPDX-License-Identifier: GPL-2.0
"""The bars: what a ratio must reach, and whether it does."""

from dataclasses import dataclass

from lanes import LANES
from rows import BULK_BARS

LONGEST_FIRST = sorted(LANES, key=len, reverse=True)


@dataclass(frozen=True)
class Bar:
    """A figure of bench.json and its limit; `aim` is what would be better still."""

    figure: str
    limit: float
    at_most: bool = False
    aim: float | None = None

    def met(self, figures):
        """True, False, or None where the figure was not measured."""
        value = figures.get(self.figure)
        if value is None:
            return None
        return value <= self.limit if self.at_most else value >= self.limit

    def text(self):
        """The limit for people."""
        aim = f" (aim {self.aim:g})" if self.aim else ""
        return f"{'at most' if self.at_most else 'at least'} {self.limit:g}{aim}"


def instruction_bars():
    """One CPU, event mode."""
    yield from (Bar(f"instr_{row}_MBps_ratio", 5, aim=7) for row in BULK_BARS)
    yield from (Bar(f"instr_{row}_mtu1500_MBps_ratio", 6) for row in BULK_BARS)
    yield Bar("instr_send_4k_1qp_MBps_ratio", 4)
    yield Bar("instr_send_64_1qp_per_s_ratio", 4)
    yield Bar("instr_latency_send_8_p50_us_ratio", 0.6, at_most=True)


def real_bars(lane):
    """Two CPUs, for one CPU model."""
    bulk = [f"{verb}_{size}" for verb in ("write", "send", "read") for size in ("64k", "1m")]
    yield from (Bar(f"{lane}_{row}_1qp_MBps_ratio", 6, aim=12) for row in bulk)
    yield from (Bar(f"{lane}_{row}_1qp_MBps_of_tcp_ratio", 0.6) for row in bulk)
    yield from (Bar(f"{lane}_{row}_8qp_MBps_ratio", 6) for row in bulk)
    for verb in ("write", "send"):
        yield Bar(f"{lane}_latency_{verb}_8_p50_us_ratio", 0.35, at_most=True)
        yield Bar(f"{lane}_latency_{verb}_8_p99_us_ratio", 0.5, at_most=True)
    yield from (Bar(f"{lane}_{verb}_64_1qp_per_s_ratio", 5) for verb in ("write", "send"))
    yield Bar(f"{lane}_write_64k_1qp_path1024_MBps_ratio", 6)
    for one_in in (1000, 100):
        yield from (Bar(f"{lane}_{verb}_64k_1qp_loss1in{one_in}_MBps_ratio", 10)
                    for verb in ("write", "send", "read"))


def interop_bars():
    """Against a peer with rdma_rxe: no slower than rdma_rxe itself."""
    for verb in ("write", "send", "read"):
        yield Bar(f"interop_{verb}_64k_to_rxe_MBps_ratio", 1)
    yield Bar("interop_latency_send_8_to_rxe_p50_us_ratio", 1, at_most=True)


def engine_bars():
    """On the host, at 4 KiB, without CRC and copy."""
    yield from (Bar(f"engine_{verb}_4k_ns", 150, at_most=True) for verb in ("write", "send", "read"))


BARS = [*instruction_bars(), *real_bars("real"), *real_bars("real_default"),
        *interop_bars(), *engine_bars()]


def of_tcp(figures):
    """Adds …_of_tcp_ratio: ferroce's bandwidth as a part of TCP's on the same wire."""
    for name in [name for name in figures if name.endswith("_MBps_ferroce")]:
        stem = name.removesuffix("_ferroce")
        lane = next(lane for lane in LONGEST_FIRST if stem.startswith(f"{lane}_"))
        tcp = figures.get(f"{lane}_tcp_MBps_host")
        if tcp:
            figures[f"{stem}_of_tcp_ratio"] = figures[name] / tcp
