# SPDX-License-Identifier: GPL-2.0
"""Past runs: one line of JSON each, in the cache of this machine.

Not in the repository: figures of another machine compare with nothing, a run must not
leave the tree changed, and the cache is shared by all clones and outlives `make clean`.
"""

import json
import os
import time
from pathlib import Path

# What the instruction clock cannot tell from noise.
NOISE = 0.02


def path():
    """Where the runs are kept."""
    return Path(os.environ["FERROCE_CACHE"]) / "bench-history.jsonl"


def commit():
    """The commit, with a + when the tree was changed since."""
    return os.environ.get("FERROCE_COMMIT") or "unknown"


def load(file):
    """All runs, oldest first. A line that is cut off is no run."""
    runs = []
    if file.exists():
        for line in file.read_text().splitlines():
            try:
                runs.append(json.loads(line))
            except ValueError:
                continue
    return runs


def entry(rounds, figures):
    """This run."""
    kept = {name: value for name, value in figures.items() if not name.endswith("_spread")}
    return {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "commit": commit(),
            "rounds": rounds, "figures": kept}


def append(file, run):
    """Adds a run; a line is written in one go."""
    with open(file, "a", encoding="utf-8") as out:
        out.write(json.dumps(run, sort_keys=True) + "\n")


def before(runs, name):
    """(commit, value): the last run that has the figure; None when there is none."""
    for run in reversed(runs):
        if name in run.get("figures", {}):
            return run["commit"], run["figures"][name]
    return None


def changes(runs, figures):
    """(name, commit then, value then, value now) of repeatable figures that moved."""
    found = []
    for name, value in sorted(figures.items()):
        # losses are by chance
        repeats = name.startswith("instr_") and name.endswith("_ferroce") and "_loss" not in name
        if not (repeats or name.endswith("_instructions")):
            continue
        old = before(runs, name)
        if old and old[1] and abs(value / old[1] - 1) > NOISE:
            found.append((name, *old, value))
    return found
