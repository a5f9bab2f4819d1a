# SPDX-License-Identifier: GPL-2.0
"""The arithmetic: medians, spread and ratios, from the records of the guests."""

from collections import defaultdict
from statistics import median

# What a figure's name in bench.json is made of, in this order.
OURS, THEIRS, HOST = "ferroce", "rxe", "host"


def spread(values):
    """How far apart the values of the rounds are, relative to their median."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def gather(records):
    """{(lane, metric, driver): the values of all rounds}, in the order they came."""
    values = defaultdict(list)
    for record in records:
        if "metric" in record:
            values[record["lane"], record["metric"], record["driver"]].append(record["value"])
    return dict(values)


def summarise(records):
    """Flat figures: LANE_METRIC_DRIVER is a median, …_spread its spread, and
    LANE_METRIC_ratio ferroce's median divided by rdma_rxe's."""
    values = gather(records)
    figures = {}
    for (lane, metric, driver), rounds in values.items():
        figures[f"{lane}_{metric}_{driver}"] = median(rounds)
        figures[f"{lane}_{metric}_{driver}_spread"] = spread(rounds)
    for lane, metric, driver in values:
        name = f"{lane}_{metric}"
        theirs = figures.get(f"{name}_{THEIRS}")
        if driver == OURS and theirs:
            figures[f"{name}_ratio"] = figures[f"{name}_{OURS}"] / theirs
    return figures
