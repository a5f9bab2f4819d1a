# SPDX-License-Identifier: GPL-2.0
"""qemu-test/check: runs the test suites and adds up. Runs inside the root."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from dataclasses import asdict
from pathlib import Path

from ktap_reader import FAILED
from ktap_reader import NODE
from ktap_reader import PASSED
from ktap_reader import SKIPPED
from ktap_reader import Reader
from ktap_reader import Result

CLONE = Path(__file__).resolve().parents[2]
SELFTESTS = CLONE / "qemu-test" / "selftests"
RESULTS = CLONE / "build" / "results"
GUEST_SUITES = ["kselftest", "verbs", "net", "pyverbs", "cm", "perftest", "ulp", "interop"]
SUITES = ["lint", "unit", "sim", "mutants", *GUEST_SUITES, "debug"]
# What runs in a kernel for debugging unless suites are named.
DEBUG_SUITES = {
    "lockdep": ["kselftest", "verbs", "net", "pyverbs", "cm", "perftest"],
    "uml-kasan": ["verbs"],
    "uml": ["verbs"],
}
# What of them runs in the kernel `lockdep` as suite `debug`: much of the driver in little
# time. The kernel and the scripts have a time of their own.
DEBUG_SCRIPTS = ["verbs/states.py", "verbs/srq.py", "verbs/rc-data.py"]
DEBUG_BUILD_SECONDS = 1500
DEBUG_SECONDS = 1200
GUEST_LINE = re.compile(r"^# guest: (.+)$", re.MULTILINE)
CARGO_LINE = re.compile(r"^test (.+) \.\.\. (ok|FAILED|ignored)(?:, (.*))?$")
SECONDS_A_SCRIPT = 1100
HOST_SECONDS = 1500
# What takes a second takes so many with every check that a kernel has.
SLOWER = {"stock": 1, "lockdep": 8, "uml": 1, "uml-kasan": 6}

EPILOG = """\
suites:
  lint       formatters and linters
  unit       the engine and the user tools, on this host
  sim        the engine in thousands of simulated runs, on this host
  mutants    whether unit and sim notice bugs planted in the engine
  kselftest  the module as such, and the kernel's own RDMA selftests
  verbs      stock rdma-core on the device: data, errors, events, teardown; /dev/ferroce
  net        counters, multicast, paths, RoCEv1, kinds of interfaces
  pyverbs    rdma-core's own Python tests
  cm         the connection manager: events, private data, rdmacm-utils
  perftest   the tools of perftest and the ping-pongs
  ulp        users in the kernel: RDMA-CM, NVMe over fabrics, SRP; PMA
  interop    ferroce and rdma_rxe in two guests; tshark reads our packets
  debug      a choice of the above in a kernel with KASAN, lockdep and kmemleak

Results are also in build/results: results.json, junit.xml, and the logs of each
guest, with another kernel than the stock one in a directory named after it.
FERROCE_DRIVER=rxe runs the suites of one guest on rdma_rxe instead.
"""


class Check:
    """The run: results so far, and how they are told."""

    def __init__(self, driver, kernel):
        self.driver = driver
        self.results = []
        self.began = time.monotonic()
        self.boot(kernel)

    def boot(self, kernel):
        """From now on guests have that kernel."""
        self.kernel = kernel
        self.out = RESULTS if kernel == "stock" else RESULTS / kernel
        self.out.mkdir(parents=True, exist_ok=True)

    def say(self, text):
        """One line of progress, with the time since the start."""
        took = int(time.monotonic() - self.began)
        print(f"[{took // 60:3}:{took % 60:02}] {text}", flush=True)

    def add(self, result):
        """Counts one result; tells it at once when it is not plainly passed."""
        self.results.append(result)
        if result.verdict == FAILED:
            self.say(f"  FAILED {result.script}: {result.name}")
            for line in result.why.splitlines():
                print(f"           {line}")
        elif result.verdict == SKIPPED:
            self.say(f"  skipped {result.script}: {result.name}: {result.why}")

    def script_done(self, script, side):
        """Tells that a script has ended."""
        good = script.seen - script.failed - script.skipped
        verdict = "FAILED" if script.failed else "ok    "
        self.say(f"  {verdict} {script.name}{side}: {max(good, 0)} of {script.planned} passed, {script.seconds} s")

    def count(self, verdict, suite=None):
        """How many results of that verdict there are."""
        return sum(r.verdict == verdict and suite in (None, r.suite) for r in self.results)

    # ---- suites ----------------------------------------------------------

    def run(self, suite):
        """Runs one suite."""
        began = time.monotonic()
        self.say(f"{suite} …")
        if suite in GUEST_SUITES:
            self.guests(suite)
        else:
            getattr(self, suite)()
        figures = ", ".join(f"{self.count(v, suite)} {v}" for v in (PASSED, FAILED, SKIPPED))
        self.say(f"{suite}: {figures} in {time.monotonic() - began:.0f} s")

    def host(self, command, cwd, on_line, seconds=HOST_SECONDS):
        """Runs a command here, line by line; returns its exit status."""
        with subprocess.Popen(
            ["timeout", "-k", "10", str(seconds), *command],
            cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        ) as process:
            for line in process.stdout:
                on_line(line.rstrip("\n"))
        return process.returncode

    def lint(self):
        """Formatters and linters; the script prints nested KTAP like the selftests."""
        reader = Reader("lint", self.add, self.script_done)
        self.host([CLONE / "qemu-test" / "lint"], CLONE, reader.line)
        reader.cut_off("lint ended early")
        if not reader.ended:
            self.add(Result("lint", "qemu-test/lint", "run", FAILED, "it did not begin"))

    def ktap(self, suite, command):
        """A program on this host that prints nested KTAP itself."""
        reader = Reader(suite, self.add, self.script_done)
        said = []

        def on_line(line):
            said.append(line)
            reader.line(line)

        self.host(command, CLONE, on_line)
        reader.cut_off("it ended early")
        (self.out / f"{suite}.log").write_text("\n".join(said) + "\n")
        if not reader.ended:
            self.add(Result(suite, suite, "run", FAILED, "\n".join(said[-30:])))

    def sim(self):
        """The simulator's runs; it says itself whether they have met enough."""
        program = CLONE / "build" / "bin" / "ferroce-sim"
        self.ktap("sim", [program, "suite", "--cover", self.out / "sim-coverage.txt"])

    def mutants(self):
        """Bugs planted in the engine, each of which a test must notice."""
        self.ktap("mutants", [CLONE / "userspace-tools" / "engine" / "mutants" / "run"])

    def unit(self):
        """The host tests of the engine and of the user tools."""
        tail = []

        def on_line(line):
            tail.append(line)
            if match := CARGO_LINE.match(line):
                verdict = {"ok": PASSED, "FAILED": FAILED, "ignored": SKIPPED}[match[2]]
                why = match[3] or "ignored by default" if verdict == SKIPPED else ""
                self.add(Result("unit", "cargo test", match[1], verdict, why))

        status = self.host(
            ["cargo", "test", "--locked", "--workspace", "--no-fail-fast"],
            CLONE / "userspace-tools", on_line,
        )
        (self.out / "unit.log").write_text("\n".join(tail) + "\n")
        if status:
            self.add(Result("unit", "cargo test", f"exit status {status}", FAILED, "\n".join(tail[-40:])))

    def debug(self):
        """Some scripts in a kernel with every check, which is built first where it is missing."""
        said = []

        def on_line(line):
            if len(said) % 6 == 0:
                self.say(f"  {line}")
            said.append(line)

        status = self.host(
            [CLONE / "qemu-test" / "setup" / "debug-kernel", "lockdep", "modules"],
            CLONE, on_line, DEBUG_BUILD_SECONDS,
        )
        if status:
            why = f"not within {DEBUG_BUILD_SECONDS} s" if status == 124 else "failed"
            text = f"{why}; qemu-test/setup/debug-kernel lockdep does it without a limit\n"
            self.add(Result("debug", "setup/debug-kernel", "build", FAILED, text + "\n".join(said[-30:])))
            return
        usual = self.kernel
        self.boot("lockdep")
        try:
            until = time.monotonic() + DEBUG_SECONDS
            self.groups("debug", DEBUG_SCRIPTS, lambda _: max(60, int(until - time.monotonic())))
        finally:
            self.boot(usual)

    def guests(self, suite):
        """The scripts of a suite."""
        if suite == "kselftest":
            copy_kernel_selftests()
        paths = sorted((SELFTESTS / suite).iterdir())
        scripts = [f"{suite}/{path.name}" for path in paths if path.is_file() and os.access(path, os.X_OK)]
        slower = SLOWER[self.kernel]
        self.groups(suite, scripts, lambda group: min(len(group) * SECONDS_A_SCRIPT, HOST_SECONDS) * slower)

    def groups(self, suite, scripts, limit):
        """Scripts that want the same guest share a boot, for as many seconds as `limit` gives them."""
        groups = {}
        for script in scripts:
            match = GUEST_LINE.search((SELFTESTS / script).read_text())
            groups.setdefault(match[1] if match else "--topology pair", []).append(script)
        for number, (options, group) in enumerate(groups.items(), 1):
            self.guest(suite, number, options, group, limit(group))

    def guest(self, suite, number, options, scripts, seconds):
        """One boot, and the scripts in it."""
        out = self.out / f"{suite}-{number}"
        shutil.rmtree(out, ignore_errors=True)
        two = "two-guests" in options
        self.say(f"  guest {options}: {' '.join(scripts)}")
        sides = {"0": "", "1": " (as seen by the peer)"} if two else {"0": ""}
        readers = {
            node: Reader(suite, self.add, self.script_done, side) for node, side in sides.items()
        }
        said = []

        def on_line(line):
            said.append(line)
            node, text = "0", line
            if two and (match := NODE.match(line)):
                node, text = match[1], match[2]
            readers[node].line(text)

        command = self.guest_command(options, out, scripts, two, seconds)
        status = self.host(command, CLONE, on_line, seconds + 60)
        for node, reader in readers.items():
            reader.cut_off(f"the guest ended, exit status {status}")
            for script in scripts:
                if script not in reader.ended:
                    self.add(Result(suite, script + sides[node], "run", FAILED, "\n".join(said[-30:])))
        if status not in (0, 1):
            why = {124: "time is up", 125: "it could not be run", 126: "the kernel complained"}
            text = f"{why.get(status, 'failed')}\n" + "\n".join(said[-30:])
            self.add(Result(suite, f"guest {options}", f"exit status {status}", FAILED, text))

    def guest_command(self, options, out, scripts, two, seconds):
        """The command line that boots the guest."""
        words = options.split()
        if self.driver == "rxe" and "--modules" not in words:
            words += ["--modules", "rdma_rxe"]
        environment = ["env", f"FERROCE_SLOWER={SLOWER[self.kernel]}"]
        if not two:
            environment.append(f"FERROCE_DRIVER={self.driver}")
        return [
            CLONE / "qemu-test" / "guest", *words, "--kernel", self.kernel, "--timeout", str(seconds),
            "--out", out, "--", *environment, "qemu-test/selftests/run", *scripts,
        ]

    # ---- the end -----------------------------------------------------------

    def write(self):
        """Leaves the results for machines."""
        (self.out / "results.json").write_text(json.dumps([asdict(r) for r in self.results], indent=1))
        root = xml.Element("testsuites")
        for suite in dict.fromkeys(r.suite for r in self.results):
            node = xml.SubElement(root, "testsuite", name=suite)
            for result in (r for r in self.results if r.suite == suite):
                case = xml.SubElement(node, "testcase", classname=result.script, name=result.name)
                if result.verdict != PASSED:
                    kind = "failure" if result.verdict == FAILED else "skipped"
                    xml.SubElement(case, kind).text = re.sub(r"[^\t\n\x20-\ufffd]", "?", result.why)
        xml.ElementTree(root).write(self.out / "junit.xml", encoding="utf-8", xml_declaration=True)

    def conclude(self):
        """The last words; returns the exit status."""
        passed, failed, skipped = map(self.count, (PASSED, FAILED, SKIPPED))
        for verdict in (SKIPPED, FAILED):
            for result in (r for r in self.results if r.verdict == verdict):
                why = f" ({result.why})" if verdict == SKIPPED else ""
                print(f"{verdict}: {result.script}: {result.name}{why}")
                if verdict == FAILED:
                    for line in result.why.splitlines()[-15:]:
                        print(f"    {line}")
        print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
        return 0 if passed and not failed else 1


def copy_kernel_selftests():
    """Puts the kernel's RDMA selftests to where the guest sees them."""
    kdir = subprocess.run(
        [CLONE / "qemu-test" / "setup" / "kernel"], capture_output=True, text=True, check=False
    ).stdout.strip()
    source = Path(os.environ.get("KDIR") or kdir) / "../src/tools/testing/selftests"
    for name in ("rdma", "kselftest"):
        target = CLONE / "build" / "kernel-selftests" / name
        if (source / name).is_dir():
            shutil.copytree(source / name, target, dirs_exist_ok=True)


def main():
    parser = argparse.ArgumentParser(
        prog="qemu-test/check", description="Runs all test suites, or those named.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument(
        "--kernel", choices=SLOWER, default="stock",
        help="of the guests; see qemu-test/guest --help",
    )
    options = parser.parse_args()
    suites = options.suites or (SUITES if options.kernel == "stock" else DEBUG_SUITES[options.kernel])
    for suite in suites:
        if suite not in SUITES:
            parser.error(f"there is no suite {suite}; there are {', '.join(SUITES)}")
    check = Check(os.environ["FERROCE_DRIVER"], options.kernel)
    try:
        for suite in suites:
            check.run(suite)
    except KeyboardInterrupt:
        check.add(Result("check", "check", "interrupted", FAILED))
    check.write()
    return check.conclude()


if __name__ == "__main__":
    sys.exit(main())
