# SPDX-License-Identifier: GPL-2.0
"""qemu-test/bench: measures ferroce beside rdma_rxe. Runs inside the root."""

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import bars
import lanes
import report
import rows
import stats

CLONE = Path(__file__).resolve().parents[2]
RESULTS = CLONE / "build" / "results"
# A bound for a guest: booting, and each figure at its slowest.
BOOT_SECONDS, ROW_SECONDS = 300, 100

DESCRIPTION = """\
Measures ferroce and rdma_rxe in turn over one pair of interfaces in one guest, and
prints medians, spread and the ratio ferroce / rdma_rxe, then the bars.

ROW is a row, a pattern such as 'send_*', or a group:
"""

EPILOG = """\
Figures are in build/results/bench.json, one number a name:
  LANE_METRIC_ferroce, …_rxe, …_host   median; …_spread is (max - min) / median
  LANE_METRIC_ratio                    ferroce / rdma_rxe
where LANE is instr, real or real_default, and a METRIC ends in its unit: MBps (10^6
bytes a second), per_s, us, ms. See Documentation/performance.md.

exit status: 0 when every row gave figures, whether or not the bars are met; 1 otherwise.
"""


def parse():
    parser = argparse.ArgumentParser(
        prog="qemu-test/bench", description=DESCRIPTION + "  " + ", ".join([*rows.GROUPS, "all"]),
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("rows", nargs="*", metavar="ROW", help="what to measure (default all)")
    add("--clock", choices=["instruction", "real", "both"],
        help="the clock of the guest (default both; instruction for quick)")
    add("--rounds", type=int, metavar="N",
        help="how often, the drivers in turn (default 5; 2 for quick)")
    add("--cpu", choices=["max", "default", "both"], default="both",
        help="CPU model under the real clock: max,-erms,-fsrm or QEMU's own (default both)")
    add("--drivers", choices=["ferroce", "rxe", "both"], default="both",
        help="measure one driver only, in half the time and without ratios (default both)")
    options = parser.parse_args()
    quick = options.rows == ["quick"]
    options.clock = options.clock or ("instruction" if quick else "both")
    options.rounds = options.rounds or (2 if quick else 5)
    try:
        options.selected = rows.select(options.rows)
    except ValueError as error:
        parser.error(str(error))
    if options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    return options


class Progress:
    """One line for each row and round, with the time since the start."""

    def __init__(self):
        self.began = time.monotonic()

    def say(self, text):
        took = int(time.monotonic() - self.began)
        print(f"[{took // 60:3}:{took % 60:02}] {text}", flush=True)


def on_record(record, lane, rounds, progress):
    """Tells a record; gives it with its lane."""
    head = f"  {record['round']}/{rounds} {record['driver'] or 'host':<8}"
    if "error" in record:
        progress.say(f"{head}{record['row']} FAILED: {record['error']}")
    else:
        progress.say(f"{head}{record['metric']} {report.number(record['value'])}")
    return {**record, "lane": lane.name}


def run_lane(lane, wanted, options, progress):
    """Boots a guest and gives (records, its exit status)."""
    out = RESULTS / f"bench-{lane.name}"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    rounds, drivers = options.rounds, options.drivers
    drivers = ["ferroce", "rxe"] if drivers == "both" else [drivers]
    plan = {"lane": lane.name, "rows": [row.name for row in wanted], "rounds": rounds,
            "drivers": drivers}
    (out / "plan.json").write_text(json.dumps(plan))
    limit = BOOT_SECONDS + 2 * rounds * len(wanted) * ROW_SECONDS
    progress.say(f"{lane.title}: {len(wanted)} rows, {rounds} rounds")
    command = [
        CLONE / "qemu-test" / "guest", "--topology", "pair", "--modules", "none", "--memory", "3G",
        *lane.guest, "--timeout", str(limit), "--out", out, "--",
        "python3", "-B", "qemu-test/benchmark/guest.py",
    ]
    records = []
    with subprocess.Popen(
        command, cwd=CLONE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    ) as process:
        try:
            for line in process.stdout:
                if line.startswith("@ "):
                    records.append(on_record(json.loads(line[2:]), lane, rounds, progress))
                else:
                    progress.say(f"  {line.rstrip()}")
        except KeyboardInterrupt:
            # What was measured so far is told all the same.
            process.terminate()
    return records, process.returncode


def main():
    options = parse()
    progress = Progress()
    records, status, tables = [], 0, []
    RESULTS.mkdir(parents=True, exist_ok=True)
    for lane in lanes.choose(options.clock, options.cpu):
        wanted = [row for row in options.selected if lane.name in row.lanes]
        if not wanted:
            continue
        got, ended = run_lane(lane, wanted, options, progress)
        records += got
        if ended or any("error" in record for record in got):
            progress.say(f"{lane.title}: not everything was measured, exit status of the guest {ended}")
            status = 1
        order = [row.name for row in wanted]
        seen = dict.fromkeys((order.index(r["row"]), r["metric"]) for r in got if "metric" in r)
        tables.append((lane, [metric for _, metric in sorted(seen, key=lambda pair: pair[0])]))
    figures = stats.summarise(records)
    bars.of_tcp(figures)
    report.write_json(RESULTS / "bench.json", figures)
    for lane, metrics in tables:
        print("\n" + "\n".join(report.table(lane, figures, metrics)))
    print("\n" + "\n".join(report.bar_lines(figures)))
    print(f"\nfigures: {RESULTS / 'bench.json'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
