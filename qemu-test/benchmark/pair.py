# SPDX-License-Identifier: GPL-2.0
"""Two hosts in the guest, namespaces a and b on one veth wire, and the RDMA driver in use."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

MODULES = {"ferroce": "ferroce", "rxe": "rdma_rxe"}
ADDRESS = {"a": "10.0.0.1", "b": "10.0.0.2"}
SYSFS = Path("/sys/class/infiniband")


class Failed(Exception):
    """A measurement could not be made; the text says why."""


def run(*words, timeout=60):
    """Runs a command to its end and gives what it printed."""
    words = [str(word) for word in words]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {timeout} s: {' '.join(words)}") from None
    if done.returncode:
        tail = done.stdout.strip()[-600:]
        raise Failed(f"exit status {done.returncode}: {' '.join(words)}: {tail}")
    return done.stdout


def within(seconds, what, condition):
    """Waits until the condition holds, and gives what it gave."""
    limit = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        if time.monotonic() > limit:
            raise Failed(f"not so after {seconds} s: {what}")
        time.sleep(0.02)


def enter(side, cpu):
    """Run by a child before its program: into the namespace, onto the CPU. The programs
    of `ip netns exec` and taskset would cost more than a short measurement."""
    with open(f"/run/netns/{side}", "rb") as netns:
        os.setns(netns.fileno(), os.CLONE_NEWNET)
    os.sched_setaffinity(0, {min(cpu, os.cpu_count() - 1)})


def on(side, cpu, words, **more):
    """Starts a program on host a or b."""
    return subprocess.Popen(
        [str(word) for word in words], preexec_fn=lambda: enter(side, cpu),
        **{"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, **more},
    )


class Pair:
    """Which driver is loaded, and with which MTU its devices fa and fb stand."""

    def __init__(self):
        self.driver = None
        self.mtu = None
        run("modprobe", "-a", "ib_uverbs", "rdma_ucm")

    def use(self, driver, mtu):
        """Makes fa and fb of that driver at that MTU (no driver: the wire alone)."""
        if (driver, mtu) == (self.driver, self.mtu):
            return
        if self.driver:
            for side in "ab":
                run("ip", "netns", "exec", side, "rdma", "link", "del", f"f{side}")
            if driver != self.driver:
                run("rmmod", MODULES[self.driver])
        if driver and driver != self.driver:
            load(driver)
        self.driver, self.mtu = None, None
        for side in "ab":
            run("ip", "-n", side, "link", "set", f"v{side}", "mtu", mtu)
        if driver:
            for side in "ab":
                run("ip", "netns", "exec", side, "rdma", "link", "add", f"f{side}", "type", driver,
                    "netdev", f"v{side}")
        self.driver, self.mtu = driver, mtu

    def gid(self, side):
        """The index of the RoCEv2 GID of the host's IPv4 address."""
        want = "0000:0000:0000:0000:0000:ffff:0a00:000" + ADDRESS[side][-1]
        port = SYSFS / f"f{side}" / "ports" / "1"
        return within(10, f"f{side} has a GID of {ADDRESS[side]}", lambda: find_gid(port, want))


def find_gid(port, want):
    """The index as text, or None."""
    for path in sorted((port / "gids").iterdir(), key=lambda path: int(path.name)):
        try:
            if path.read_text().strip() == want and "v2" in (port / "gid_attrs/types" / path.name).read_text():
                return path.name
        except OSError:
            continue
    return None


def load(driver):
    """Loads the module of a driver."""
    if driver == "rxe":
        run("modprobe", "rdma_rxe")
        return
    module = Path(os.environ["FERROCE_DIR"]) / "build" / "ferroce.ko"
    needs = run("modinfo", "-F", "depends", module).strip()
    if needs:
        run("modprobe", "-a", *needs.split(","))
    run("insmod", module)


class Server:
    """A program on host b, and what it says, while the block lasts."""

    def __init__(self, words, timeout):
        self.log = tempfile.NamedTemporaryFile("w+b")
        self.process = on("b", 1, words, stdout=self.log)
        self.timeout = timeout

    def __enter__(self):
        return self

    def listens(self, port):
        """Waits until it does."""
        tables = [Path(f"/proc/{self.process.pid}/net/{name}") for name in ("tcp", "tcp6")]

        def ready():
            if self.process.poll() is not None:
                raise Failed(f"the server ended: {self.said()}")
            lines = [line.split() for path in tables for line in path.read_text().splitlines()]
            return any(words[1].endswith(f":{port:04X}") and words[3] == "0A" for words in lines)

        within(20, f"the server listens on {port}", ready)

    def said(self):
        """The end of what it printed."""
        return Path(self.log.name).read_text(errors="replace").strip()[-600:]

    def wait(self):
        """Its end, which must be a good one."""
        try:
            status = self.process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"the server is not done after {self.timeout} s: {self.said()}") from None
        if status:
            raise Failed(f"the server ended with {status}: {self.said()}")

    def __exit__(self, *_):
        end(self.process)
        self.log.close()


class Holder:
    """A program that keeps something until its input ends."""

    def __init__(self, side, words):
        self.process = on(side, 0, words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def line(self, start):
        """Its next line, which must start so."""
        line = self.process.stdout.readline().strip()
        if not line.startswith(start):
            raise Failed(f"expected '{start} …', the program said: {line}")
        return line

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            end(self.process)
        self.process.stdout.close()


def on_a(*words, timeout):
    """Runs a program on host a, on the first CPU, and gives what it printed."""
    with on("a", 0, words, stdout=subprocess.PIPE, text=True) as process:
        try:
            said, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            end(process)
            raise Failed(f"not done after {timeout} s: {' '.join(map(str, words))}") from None
    if process.returncode:
        raise Failed(f"exit status {process.returncode}: {' '.join(map(str, words))}: {said.strip()[-600:]}")
    return said


def end(process):
    """Ends a program that may have ended."""
    if process.poll() is None:
        process.kill()
        process.wait(10)
