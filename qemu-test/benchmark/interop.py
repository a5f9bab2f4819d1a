# SPDX-License-Identifier: GPL-2.0
"""Runs in both of two guests at once: guest 0 measures, with each driver in turn, against
guest 1, which keeps rdma_rxe. A barrier before and after each tool keeps them in step, so
both walk through the same plan, whatever fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import rows
from pair import Failed
from pair import MODULES
from pair import SYSFS
from pair import end
from pair import find_gid
from pair import load
from pair import run
from pair import within
from tools import MIB
from tools import PERFTEST_PORT
from tools import TOOL_SECONDS
from tools import report_row

NODE = int(os.environ["FERROCE_NODE"])
BARRIER_SECONDS = 2 * TOOL_SECONDS


class Side:
    """This guest: its driver, and its device f0."""

    def __init__(self):
        self.driver = None
        run("modprobe", "-a", "ib_uverbs", "rdma_ucm")

    def use(self, driver):
        """Makes f0 of that driver."""
        if driver == self.driver:
            return
        if self.driver:
            run("rdma", "link", "del", "f0")
            run("rmmod", MODULES[self.driver])
        load(driver)
        run("rdma", "link", "add", "f0", "type", driver, "netdev", "eth0")
        self.driver = driver

    def gid(self):
        """The index of the GID of the IPv4 address."""
        want = f"0000:0000:0000:0000:0000:ffff:0a00:000{NODE + 1}"
        return within(20, "f0 has its GID", lambda: find_gid(SYSFS / "f0" / "ports" / "1", want))


def listening():
    """Whether someone waits for perftest's client."""
    lines = [line.split() for name in ("tcp", "tcp6")
             for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return any(words[1].endswith(f":{PERFTEST_PORT:04X}") and words[3] == "0A" for words in lines)


def meet(name):
    """Waits for the other guest. Without it there is nothing to go on with."""
    subprocess.run(["barrier", name, str(BARRIER_SECONDS)], check=True)


def serve(words, name):
    """Guest 1: one server."""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.STDOUT)
    try:
        within(20, "the server listens", lambda: listening() or process.poll() is not None)
        meet(f"{name}-ready")
        meet(f"{name}-done")
    finally:
        end(process)


def ask(words, name):
    """Guest 0: one client; gives the report, or the reason why there is none."""
    meet(f"{name}-ready")
    try:
        return run(*words, "10.0.0.2", timeout=TOOL_SECONDS), ""
    except Failed as error:
        return "", str(error)
    finally:
        meet(f"{name}-done")


def figures(row, said):
    """{metric: value}"""
    found = report_row(said)
    if row.args["tool"].endswith("_bw"):
        return {f"{row.name}_MBps": found[3] * MIB / 1e6}
    return {f"{row.name}_p50_us": found[4], f"{row.name}_p99_us": found[7]}


def measure(side, row, driver, number):
    """One row once."""
    size, count = str(row.args["size"]), str(row.args["count"])
    name = f"{row.name}-{driver}-{number}"
    words = [row.args["tool"], "-F", "-d", "f0", "-x", side.gid(), "-s", size, "-n", count]
    if NODE == 1:
        serve(words, name)
        return
    said, why = ask(words, name)
    record = {"row": row.name, "driver": driver, "round": number}
    if why:
        print("@", json.dumps({**record, "error": why}), flush=True)
        return
    for metric, value in figures(row, said).items():
        print("@", json.dumps({**record, "metric": metric, "value": value}), flush=True)


def main():
    plan = json.loads(Path(os.environ["FERROCE_OUT"], "plan.json").read_text())
    side = Side()
    for number in range(1, plan["rounds"] + 1):
        for driver in plan["drivers"]:
            side.use(driver if NODE == 0 else "rxe")
            for name in plan["rows"]:
                measure(side, rows.ROWS[name], driver, number)
    run("rdma", "link", "del", "f0")


if __name__ == "__main__":
    sys.exit(main())
