# SPDX-License-Identifier: GPL-2.0
"""How figures are told: the table, the bars, bench.json."""

import json

from bars import BARS
from stats import HOST
from stats import OURS
from stats import THEIRS

UNITS = {"MBps": "MB/s", "per": "/s", "us": "µs", "ms": "ms"}


def unit(metric):
    """The unit that the metric's name ends in."""
    last = metric.rsplit("_", 1)[-1]
    return "/s" if last == "s" else UNITS.get(last, "")


def number(value):
    """Three digits or so."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(value):
    """A spread."""
    return "" if value is None else f"±{50 * value:.0f}%"


def table(lane, figures, metrics):
    """Lines: one for each metric of a lane."""
    lines = [f"{lane.title}",
             f"  {'':<34}{'rdma_rxe':>10}{'':>6}{'ferroce':>10}{'':>6}{'ratio':>8}  unit"]
    for metric in metrics:
        name = f"{lane.name}_{metric}"
        host = figures.get(f"{name}_{HOST}")
        ours = host if host is not None else figures.get(f"{name}_{OURS}")
        theirs, ratio = figures.get(f"{name}_{THEIRS}"), figures.get(f"{name}_ratio")
        own = HOST if host is not None else OURS
        lines.append(
            f"  {metric:<34}{number(theirs):>10}{percent(figures.get(f'{name}_{THEIRS}_spread')):>6}"
            f"{number(ours):>10}{percent(figures.get(f'{name}_{own}_spread')):>6}"
            f"{number(ratio) if ratio is not None else '':>8}  {unit(metric)}"
        )
    return lines


def bar_lines(figures):
    """Lines: the bars whose figure was measured, and the account of all."""
    verdicts = [(bar, bar.met(figures)) for bar in BARS]
    measured = [(bar, met) for bar, met in verdicts if met is not None]
    if not measured:
        return []
    lines = ["bars"]
    for bar, met in measured:
        lines.append(f"  {'met    ' if met else 'NOT MET'} {bar.figure:<48}"
                     f"{figures[bar.figure]:>8.2f}  {bar.text()}")
    good = sum(met for _, met in measured)
    lines.append(f"  {good} met, {len(measured) - good} not met, "
                 f"{len(verdicts) - len(measured)} not measured in this run")
    return lines


def change_lines(changes):
    """Lines: repeatable figures that differ from the last run that had them."""
    if not changes:
        return []
    lines = ["changes since earlier runs, by more than the noise"]
    for name, commit, old, new in changes:
        lines.append(f"  {name:<48}{number(old):>8} -> {number(new):<8}{100 * (new / old - 1):+.1f}% since {commit}")
    return lines


def write_json(path, figures):
    """Flat: name → number."""
    path.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
