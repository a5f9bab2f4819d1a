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
import history
import host
import lanes
import plot
import report
import rows
import stats

CLONE = Path(__file__).resolve().parents[2]
RESULTS = CLONE / "build" / "results"
# A bound for a guest: booting, and each figure at its slowest.
BOOT_SECONDS, ROW_SECONDS = 300, 100
# As many runs are in the picture of the past.
KEPT_RUNS = 20

DESCRIPTION = """\
Measures ferroce and rdma_rxe in turn over one pair of interfaces in one guest, and
prints medians, spread and the ratio ferroce / rdma_rxe, then the bars.

ROW is a row, a pattern such as 'send_*', or a group:
"""

EPILOG = """\
Figures are in build/results/bench.json, one number a name:
  LANE_METRIC_ferroce, …_rxe, …_host   median; …_spread is (max - min) / median
  LANE_METRIC_ratio                    ferroce / rdma_rxe
where LANE is instr, real, real_default or interop, and a METRIC ends in its unit: MBps (10^6
bytes a second), per_s, us, ms. build/results/bench-LANE.svg shows the ratios, and
bench-history.svg those of the bars over past runs, which are one line of JSON each in
bench-history.jsonl in the cache. See Documentation/performance.md.

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
    return {**record, "lane": lane.name, "at": time.monotonic()}


def run_lane(lane, wanted, options, progress):
    """Boots a guest and gives (records, its exit status)."""
    out = RESULTS / f"bench-{lane.name}"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    rounds, drivers = options.rounds, options.drivers
    drivers = ["ferroce", "rxe"] if drivers == "both" else [drivers]
    plan = {"lane": lane.name, "rows": [row.name for row in wanted], "rounds": rounds,
            "drivers": drivers}
    for directory in [out] if lane.guests == 1 else [out / "node0", out / "node1"]:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "plan.json").write_text(json.dumps(plan))
    limit = BOOT_SECONDS + 2 * rounds * len(wanted) * ROW_SECONDS
    progress.say(f"{lane.title}: {len(wanted)} rows, {rounds} rounds")
    command = [
        CLONE / "qemu-test" / "guest", "--topology", "pair" if lane.guests == 1 else "two-guests",
        "--modules", "none", "--memory", "3G" if lane.guests == 1 else "1G",
        *lane.guest, "--timeout", str(limit), "--out", out, "--",
        "python3", "-B", f"qemu-test/benchmark/{lane.program}",
    ]
    records = []
    with subprocess.Popen(
        command, cwd=CLONE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    ) as process:
        try:
            for line in process.stdout:
                line = line.removeprefix("[0] ")
                if line.startswith("@ "):
                    records.append(on_record(json.loads(line[2:]), lane, rounds, progress))
                else:
                    progress.say(f"  {line.rstrip()}")
        except KeyboardInterrupt:
            # What was measured so far is told all the same.
            process.terminate()
    return records, process.returncode


def clock_trouble(lane, records):
    """How many times as fast as the host's the guest's clock ran, if that is not once."""
    timed = [(r["clock"], r["at"]) for r in records if "clock" in r]
    if lane.name == "instr" or len(timed) < 2:
        return None
    guest, here = (last - first for first, last in zip(timed[0], timed[-1]))
    if here < 10 or abs(guest / here - 1) < 0.05:
        return None
    return guest / here


def measure_all(options, progress):
    """(records, figures of the host, [(lane, its metrics in order)], whether all went well)."""
    records, own, tables, good = [], {}, [], True
    for lane in lanes.choose(options.clock, options.cpu):
        wanted = [row for row in options.selected if lane.name in row.lanes]
        if not wanted:
            continue
        if lane.name == "host":
            progress.say("engine: cargo bench")
            own, why = host.engine(progress)
            if why:
                progress.say(f"  FAILED: {why}")
            good = good and bool(own)
            continue
        got, ended = run_lane(lane, wanted, options, progress)
        records += got
        if ended or any("error" in record for record in got):
            progress.say(f"{lane.title}: not everything was measured, exit status of the guest {ended}")
            good = False
        if factor := clock_trouble(lane, got):
            progress.say(f"{lane.title}: the guest's clock ran {factor:.2f} times as fast as the "
                         "host's; only its ratios mean something")
            good = False
        tables.append((lane, in_order(wanted, got)))
    return records, own, tables, good


def in_order(wanted, records):
    """The metrics that were measured, in the order of the rows."""
    order = [row.name for row in wanted]
    seen = dict.fromkeys((order.index(r["row"]), r["metric"]) for r in records if "metric" in r)
    return [metric for _, metric in sorted(seen, key=lambda pair: pair[0])]


def draw(figures, tables, runs):
    """The pictures."""
    limits = {bar.figure: bar.limit for bar in bars.BARS}
    for lane, metrics in tables:
        names = [(metric, f"{lane.name}_{metric}_ratio") for metric in metrics]
        lines = [(metric, figures[name], rows.less_is_better(metric), limits.get(name))
                 for metric, name in names if name in figures]
        if lines:
            title = f"ferroce / rdma_rxe: {lane.title} (black: the bar)"
            (RESULTS / f"bench-{lane.name}.svg").write_text(plot.ratios(title, lines))
    instr = [bar.figure for bar in bars.instruction_bars()]
    runs = [run for run in runs if any(name in run["figures"] for name in instr)][-KEPT_RUNS:]
    series = {name: [run["figures"].get(name) for run in runs] for name in instr}
    if runs:
        picture = plot.history("ferroce / rdma_rxe, instruction clock, run by run",
                               [run["commit"] for run in runs], series)
        (RESULTS / "bench-history.svg").write_text(picture)


def tell(figures, own, tables, runs):
    """What is printed at the end."""
    for lane, metrics in tables:
        print("\n" + "\n".join(report.table(lane, figures, metrics)))
    if own:
        print("\nengine, both sides, 4 KiB packets without CRC and copy (64: 64-byte messages)")
        for name, value in own.items():
            print(f"  {name:<40}{value:>10.1f}")
    for lines in (report.bar_lines(figures), report.change_lines(history.changes(runs, figures))):
        if lines:
            print("\n" + "\n".join(lines))
    print(f"\nfigures: {RESULTS / 'bench.json'}, pictures beside it")


def main():
    options = parse()
    progress = Progress()
    RESULTS.mkdir(parents=True, exist_ok=True)
    host.build_programs()
    records, own, tables, good = measure_all(options, progress)
    figures = {**stats.summarise(records), **own}
    bars.of_tcp(figures)
    report.write_json(RESULTS / "bench.json", figures)
    runs = history.load(history.path())
    if figures:
        run = history.entry(options.rounds, figures)
        history.append(history.path(), run)
        draw(figures, tables, [*runs, run])
    tell(figures, own, tables, runs)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
