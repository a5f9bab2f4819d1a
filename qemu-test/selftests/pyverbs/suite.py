#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology single --modules none
"""rdma-core's own Python tests (`run_tests.py`, package rdma-core) on one device.

Each test runs in a process of its own within a time limit and becomes one KTAP
line. `rxe-baseline.txt` holds what each test does on rdma_rxe: what passes there may
neither fail nor be skipped here. The baseline is made anew by

    qemu-test/guest --topology single --modules none -- \\
        env FERROCE_DRIVER=rxe qemu-test/selftests/pyverbs/suite.py --list

Tests of other vendors' providers are counted, not run. `suite.py PATTERN` runs the
tests whose names match the regular expression.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "lib"))

import foreign  # noqa: E402 # beside this file
import ktap  # noqa: E402

DRIVER = os.environ.get("FERROCE_DRIVER", "ferroce")
VENDOR = re.compile(r"test_(mlx5|efa|cuda)")
VERDICT_OF = {"pass": "ok", "fail": "not ok", "skip": "ok"}


def device(script):
    """Runs shell code that may use lib/driver.sh; it must succeed."""
    prelude = f'set -eu; . "{HERE.parent}/lib/ktap.sh"; . "{HERE.parent}/lib/driver.sh"; '
    subprocess.run(["bash", "-c", prelude + script], check=True, stdout=sys.stderr)


def device_up():
    """A device f0 on one end of a veth pair, with an IPv4 and an IPv6 address."""
    device("""load_driver
        # some tests register huge pages
        echo 32 >/proc/sys/vm/nr_hugepages
        ip link add v0 mtu 4200 type veth peer name v1
        ip link set v0 up; ip link set v1 up
        ip addr add 10.0.0.1/24 dev v0; ip addr add fd00::1/64 dev v0 nodad
        rdma link add f0 type "$FERROCE_DRIVER" netdev v0
        within 20 gid_index f0 10.0.0.1 >/dev/null
        within 20 gid_index f0 fd00::1 >/dev/null""")


def read_baseline():
    """What each test does on rdma_rxe: its name to pass, fail or skip."""
    lines = (HERE / "rxe-baseline.txt").read_text().splitlines()
    words = [line.split(maxsplit=2) for line in lines if not line.startswith("#")]
    return {name: verdict for verdict, name, *_ in words}


def judge(on_rxe, verdict, why):
    """The verdict that is told and its reason, seen beside the one on rdma_rxe."""
    if verdict == "skip" and on_rxe == "pass":
        return "fail", f"passes on rdma_rxe, skipped here: {why}"
    if verdict == "fail" and on_rxe == "fail" and DRIVER == "rxe":
        return "skip", f"fails on rdma_rxe: {why}"
    return verdict, why


def say(number, name, verdict, why, output):
    """One KTAP line, with what the test said where it failed."""
    if verdict == "fail":
        for line in [*output.splitlines()[-30:], why]:
            print(f"# {line}")
    skip = f" # SKIP {why}" if verdict == "skip" else ""
    print(f"{VERDICT_OF[verdict]} {number} {name}{skip}", flush=True)


def run_all(names, suite, as_list):
    """Runs the tests in their order; true when none failed."""
    baseline = read_baseline()
    good = True
    for number, name in enumerate(names, 1):
        verdict, why, output = suite.run(name)
        if as_list:
            print(verdict, name, why, flush=True)
            continue
        verdict, why = judge(baseline.get(name), verdict, why)
        say(number, name, verdict, why, output)
        good &= verdict != "fail"
    return good


def main():
    arguments = sys.argv[1:]
    as_list = "--list" in arguments
    patterns = [a for a in arguments if a != "--list"]
    mark = ktap.mark()
    device_up()
    suite = foreign.Suite("f0")
    vendor = {}
    names = []
    for name in suite.names:
        if VENDOR.search(name):
            module = name.split(".")[1]
            vendor[module] = vendor.get(module, 0) + 1
        elif not patterns or re.search(patterns[0], name):
            names.append(name)
    if as_list:
        run_all(names, suite, True)
        return 0
    extra = {} if patterns else vendor
    print(f"KTAP version 1\n1..{len(names) + len(extra) + 1}", flush=True)
    good = run_all(names, suite, False)
    number = len(names)
    for number, (module, count) in enumerate(extra.items(), number + 1):
        say(number, f"tests.{module}", "skip", f"{count} tests of another vendor's provider", "")
    trouble = ktap.trouble(mark)
    say(number + 1, "dmesg clean", "fail" if trouble else "pass", "the kernel complains", trouble)
    return 0 if good and not trouble else 1


if __name__ == "__main__":
    sys.exit(main())
