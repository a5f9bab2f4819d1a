# SPDX-License-Identifier: GPL-2.0
"""What runs on this host: the programs for the guest are built, the engine is measured."""

import json
import subprocess
from pathlib import Path

CLONE = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
BUILD = CLONE / "build" / "bench"
ENGINE_SECONDS = 1800
FLAGS = {"limit": [], "objects": ["-libverbs"]}


def build_programs():
    """Compiles those whose source is newer."""
    BUILD.mkdir(parents=True, exist_ok=True)
    for name, flags in FLAGS.items():
        source, target = PROGRAMS / f"{name}.c", BUILD / name
        if target.exists() and target.stat().st_mtime > source.stat().st_mtime:
            continue
        subprocess.run(["gcc", "-O3", "-Wall", "-Wextra", "-Werror", "-o", f"{target}.new", source,
                        *flags], check=True)
        Path(f"{target}.new").replace(target)


def engine(progress):
    """Figures of `cargo bench`; an empty result and the reason when there are none."""
    extra = subprocess.run([CLONE / "qemu-test" / "setup" / "extra", "valgrind"], check=False)
    if extra.returncode:
        progress.say("  without valgrind no instructions are counted")
    command = ["env", f"CARGO_TARGET_DIR={CLONE}/build/cargo", "cargo", "bench", "--locked",
               "-p", "ferroce-engine", "--", "--json"]
    try:
        done = subprocess.run(command, cwd=CLONE / "userspace-tools", capture_output=True, text=True,
                              timeout=ENGINE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {}, f"not done after {ENGINE_SECONDS} s"
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            return json.loads(line), ""
    return {}, done.stderr.strip()[-800:] or "it printed nothing"
