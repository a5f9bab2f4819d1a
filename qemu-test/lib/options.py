# SPDX-License-Identifier: GPL-2.0
"""The command line of qemu-test/guest."""

import argparse
import os
import subprocess
from pathlib import Path

CLONE = Path(__file__).resolve().parents[2]

DESCRIPTION = """\
Boots the stock Debian kernel in QEMU, or one for debugging, and runs COMMAND in it as root, or a shell.

In the guest the root is the Debian root, read-only, with empty writable /tmp,
/var/tmp, /run and /root. The clone is at the same path as outside, read-only.
$FERROCE_DIR is the clone, $FERROCE_OUT a directory that comes back as --out,
$FERROCE_DRIVER the RDMA driver that was loaded (ferroce or rxe), and
$FERROCE_TOPOLOGY, $FERROCE_NETNS and $FERROCE_MTU what was asked for.
build/bin is in PATH. No RDMA device exists at first: make one with
`rdma link add NAME type $FERROCE_DRIVER netdev DEV`.

topologies:
  single       one guest, loopback only
  pair         one guest with two network namespaces, joined by veth:
                 a: va 10.0.0.1/24 fd00::1/64    b: vb 10.0.0.2/24 fd00::2/64
  two-guests   two guests on one wire; COMMAND runs in both, with FERROCE_NODE
               0 or 1; `barrier NAME` waits until both have come to it
                 0: eth0 10.0.0.1/24 fd00::1/64  1: eth0 10.0.0.2/24 fd00::2/64
"""

EPILOG = """\
--out receives, beside what COMMAND puts there: output.log, console.log (the
serial console) and dmesg.log; with two-guests in node0/ and node1/.

exit status: COMMAND's (with two-guests the first that is not 0); 124 when the
time is up; 125 when the guest could not be run; 126 when the kernel complained
(panic, Oops, BUG, WARNING, hung task, leaked reference).

examples:
  qemu-test/guest -- uname -a
  qemu-test/guest --topology pair -- ip netns exec a ping -c1 10.0.0.2
  qemu-test/guest --topology two-guests --peer-driver rxe -- SCRIPT
  qemu-test/guest --topology pair --shell
"""


def parse(argv):
    parser = argparse.ArgumentParser(
        prog="qemu-test/guest",
        description=DESCRIPTION,
        epilog=EPILOG,
        usage="%(prog)s [OPTIONS] (--shell | -- COMMAND…)",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--topology", choices=["single", "pair", "two-guests"], default="single")
    add("--netns", choices=["shared", "exclusive"], default="shared",
        help="whether RDMA devices are seen in all network namespaces (default shared)")
    add("--modules", default="ferroce", metavar="LIST",
        help="modules to load, separated by commas: those of build/*.ko, or the "
             "kernel's own such as rdma_rxe, or none (default ferroce)")
    add("--peer-driver", choices=["ferroce", "rxe"], default="ferroce",
        help="driver in guest 1 of two-guests (default ferroce)")
    add("--kernel", choices=["stock", "lockdep", "uml", "uml-kasan"], default="stock",
        help="the stock kernel, or one that setup/debug-kernel builds: lockdep with KASAN, "
             "lockdep and other checks; uml, User-mode Linux, the quickest to boot; "
             "uml-kasan, the same with KASAN (default stock)")
    add("--mtu", type=int, default=4200, metavar="N", help="of the interfaces (default 4200)")
    add("--cpus", type=int, default=2, metavar="N", help="in each guest (default 2)")
    add("--cpu", metavar="MODEL",
        help="CPU model (default: host with KVM, else max,-erms,-fsrm)")
    add("--memory", default="2G", metavar="SIZE", help="of each guest (default 2G)")
    add("--icount", action="store_true",
        help="the guest's clock counts instructions, one a nanosecond, on one CPU")
    add("--accel", choices=["auto", "kvm", "tcg"], default="auto",
        help="auto takes KVM when it really boots a guest (default auto)")
    add("--timeout", type=int, default=300, metavar="SEC",
        help="for the whole run; a shell has none (default 300)")
    add("--allow-dmesg", action="store_true",
        help="do not fail the run over what the kernel logs, nor panic on an Oops")
    add("--append", default="", metavar="ARGS", help="more for the kernel command line")
    add("--out", type=Path, metavar="DIR", help="for results (default build/results/guest-…)")
    add("--shell", action="store_true", help="an interactive shell instead of a command")
    options, command = parser.parse_known_args(argv)
    return check(parser, options, command)


def check(parser, options, command):
    if command and command[0] == "--":
        command = command[1:]
    elif command:
        parser.error(f"unknown option {command[0]}; put -- before the command")
    if bool(command) == options.shell:
        parser.error("give either --shell or -- and a command")
    if options.shell and options.topology == "two-guests":
        parser.error("--shell needs --topology single or pair")
    if options.icount:
        if options.topology == "two-guests":
            parser.error("--icount: the clocks of two guests would drift apart; use pair")
        if options.accel == "kvm":
            parser.error("--icount works with TCG only")
        options.accel, options.cpus = "tcg", 1
    options.command = command or ["/bin/bash", "-i"]
    options.modules = [] if options.modules == "none" else options.modules.split(",")
    for name in options.modules:
        if name == "ferroce" and not (CLONE / "build" / "ferroce.ko").exists():
            parser.error("build/ferroce.ko is not there; run make modules, or give --modules none")
    return options


def split(argv):
    """Everything after a first -- belongs to the command, options included."""
    if "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at:]


def cpu_model(options, accel):
    return options.cpu or ("host" if accel == "kvm" else "max,-erms,-fsrm")


def debug_kernel(kind):
    """The directory of a kernel for debugging, with ferroce.ko built for it."""
    command = [CLONE / "qemu-test" / "setup" / "debug-kernel", kind, "modules"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def release():
    return Path("/etc/ferroce-root").read_text().strip()


def cache():
    return Path(os.environ["FERROCE_CACHE"])
