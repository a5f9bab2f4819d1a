# SPDX-License-Identifier: GPL-2.0
"""KVM when it really runs a guest, else TCG.

/dev/kvm may exist and still run no ordinary guest, so it is tried by booting
one, once for each boot of the host.
"""

import argparse
import os
import tempfile
from pathlib import Path

import options as opt
from machine import RunError

PROBE_SECONDS = 12


def choose(options, execute):
    """(accelerator, why)"""
    if options.icount:
        return "tcg", "the instruction clock needs it"
    if options.accel != "auto":
        return options.accel, "as asked"
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg", "no usable /dev/kvm"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    memo = opt.cache() / f"kvm-{boot}"
    if not memo.exists():
        works = probe(options, execute)
        memo.write_text("yes\n" if works else "no\n")
    if memo.read_text().strip() == "yes":
        return "kvm", "it booted a guest"
    return "tcg", "/dev/kvm is there but booted no guest"


def probe(options, execute):
    trial = argparse.Namespace(**{
        **vars(options), "topology": "single", "modules": [], "command": ["true"],
        "shell": False, "kernel": "stock", "kernel_dir": None, "timeout": PROBE_SECONDS, "cpu": None, "allow_dmesg": True,
    })
    with tempfile.TemporaryDirectory() as out:
        try:
            return execute(trial, "kvm", Path(out), quiet=True) == 0
        except RunError:
            return False
