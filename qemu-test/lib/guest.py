# SPDX-License-Identifier: GPL-2.0
"""qemu-test/guest: runs a command in one guest or two. Runs inside the root."""

import os
import secrets
import shutil
import signal
import sys
import time
from pathlib import Path

import accel
import options as opt
from machine import Machine
from machine import RunError
from session import Run
from uml import UmlMachine
from uml import refuse

KEPT_RESULTS = 10
# Of the timeout, for booting and for the kernel's report on what hangs.
LAST_SECONDS = 10


def say(text):
    print(f"guest: {text}", file=sys.stderr, flush=True)


def default_out():
    """A fresh directory; all but the newest few of its kind are removed."""
    results = opt.CLONE / "build" / "results"
    results.mkdir(parents=True, exist_ok=True)
    old = sorted(results.glob("guest-*"), key=lambda path: path.stat().st_mtime)
    for path in old[:-KEPT_RESULTS]:
        shutil.rmtree(path, ignore_errors=True)
    out = results / f"guest-{time.strftime('%H%M%S')}-{secrets.token_hex(3)}"
    out.mkdir()
    return out


def config(options, node):
    peer = options.topology == "two-guests" and node == 1
    modules = options.modules
    if peer and options.peer_driver == "rxe":
        modules = ["rdma_rxe"]
    driver = "rxe" if "rdma_rxe" in modules else "ferroce"
    return {
        "FERROCE_DIR": opt.CLONE,
        "FERROCE_NODE": node,
        "FERROCE_TOPOLOGY": options.topology,
        "FERROCE_NETNS": options.netns,
        "FERROCE_MTU": options.mtu,
        "FERROCE_DRIVER": driver,
        "guest_cwd": Path.cwd(),
        "guest_kernel": options.kernel_dir or "",
        "guest_ko": f"{opt.CLONE}/build/{options.kernel}/ferroce.ko",
        "guest_modules": " ".join(modules),
        "guest_shell": int(options.shell),
        "guest_size": terminal_size(options.shell),
        "guest_path": f"{opt.CLONE}/build/bin:{opt.CLONE}/qemu-test/lib/guest-bin",
        "guest_timeout": 0 if options.shell else options.timeout - LAST_SECONDS,
        "TERM": os.environ.get("TERM", "dumb"),
    }


def terminal_size(shell):
    if not (shell and sys.stdin.isatty()):
        return ""
    size = os.get_terminal_size()
    return f"rows {size.lines} cols {size.columns}"


def machines(options, accelerator, out):
    if options.kernel.startswith("uml"):
        return [UmlMachine(options, accelerator, 0, out)]
    if options.topology != "two-guests":
        return [Machine(options, accelerator, 0, out)]
    nodes = []
    for node in (0, 1):
        directory = out / f"node{node}"
        directory.mkdir(parents=True, exist_ok=True)
        nodes.append(Machine(options, accelerator, node, directory))
    return nodes


def execute(options, accelerator, out, quiet=False):
    """Boots, runs, and gives the exit status of the whole run."""
    token = secrets.token_hex(8)
    guests = machines(options, accelerator, out)
    run = Run(options, guests, token, quiet)
    try:
        for guest in guests:
            guest.start({**config(options, guest.node), "guest_token": token})
        run.connect()
        return run.loop()
    finally:
        for guest in guests:
            guest.kill()
        run.close()


def kernel_dir(kind):
    """None for the stock kernel."""
    if kind == "stock":
        return None
    directory = opt.debug_kernel(kind)
    if directory is None:
        raise RunError(f"there is no kernel {kind}, or no module for it")
    return directory


def kernel_name(options):
    return opt.release() if options.kernel == "stock" else options.kernel


def main():
    own, command = opt.split(sys.argv[1:])
    options = opt.parse(own + command)
    out = (options.out or default_out()).resolve()
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        options.kernel_dir = kernel_dir(options.kernel)
        if options.kernel.startswith("uml"):
            refuse(options)
            accelerator, reason = "uml", "a process of this host"
        else:
            accelerator, reason = accel.choose(options, execute)
        say(f"{options.topology} on {accelerator.upper()} ({reason}), "
            f"kernel {kernel_name(options)}, results in {out}")
        return execute(options, accelerator, out)
    except RunError as error:
        say(f"error: {error}")
        return 125
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
