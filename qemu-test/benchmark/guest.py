# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: measures the rows of a plan, round by round, and prints one line of
JSON for each figure. What else is printed is progress."""

import json
import os
import sys
import time
from pathlib import Path

import lanes
import rows
from pair import Failed
from pair import Pair
from tools import Bench


def tell(**record):
    """One record for the host."""
    print("@", json.dumps(record), flush=True)


def measure(bench, row, driver, number):
    """One row once; a failure is a record as well."""
    began = time.monotonic()
    try:
        bench.pair.use(driver, row.mtu)
        figures = bench.measure(row)
    except Failed as error:
        tell(row=row.name, driver=driver, round=number, error=str(error))
        return
    for metric, value in figures.items():
        tell(row=row.name, driver=driver or "host", round=number, metric=metric, value=value,
             took=round(time.monotonic() - began, 2), clock=time.monotonic())


def main():
    plan = json.loads(Path(os.environ["FERROCE_OUT"], "plan.json").read_text())
    bench = Bench(Pair(), lanes.LANES[plan["lane"]])
    wanted = [rows.ROWS[name] for name in plan["rows"]]
    wanted.sort(key=lambda row: row.mtu)
    for number in range(1, plan["rounds"] + 1):
        # Drivers take turns in each round.
        for driver in plan["drivers"]:
            for row in wanted:
                if not row.no_driver and not (row.ours_only and driver != "ferroce"):
                    measure(bench, row, driver, number)
        for row in wanted:
            if row.no_driver:
                measure(bench, row, None, number)
    bench.pair.use(None, rows.JUMBO)


if __name__ == "__main__":
    sys.exit(main())
