# SPDX-License-Identifier: GPL-2.0
"""The programs that measure, how they are called and how their reports are read."""

import json
import os
import time
from contextlib import ExitStack
from contextlib import contextmanager
from pathlib import Path

from pair import ADDRESS
from pair import Failed
from pair import Holder
from pair import Server
from pair import on_a
from pair import run

# Built by main.py from programs/*.c.
PROGRAMS = Path(os.environ["FERROCE_DIR"], "build", "bench")

PERFTEST_PORT, IPERF_PORT = 18515, 5201
MIB = 1048576
TOOL_SECONDS = 100
LOSSY_MESSAGES = 600
CONNECTIONS, CM_TRIES = 100, 5
# perftest refuses fewer than its default depth of the queue for some sizes.
FEWEST, MOST = 50, 200_000
# About what rdma_rxe does in a second without KVM; where the first guess comes from.
RXE_BYTES, RXE_MESSAGES = 100e6, 20_000


def report_row(text):
    """The numbers of the last row of a perftest report."""
    table, found = False, None
    for line in text.splitlines():
        if line.lstrip().startswith("#bytes"):
            table = True
        elif table:
            try:
                found = [float(word) for word in line.split()] or found
            except ValueError:
                continue
    if not found or len(found) < 5:
        raise Failed(f"perftest printed no row: {text.strip()[-300:]}")
    return found


def perftest(pair, tool, words):
    """Runs a tool of perftest between the hosts; the same on both drivers."""
    words = [tool, "-F", *words]
    server = Server([*words, "-d", "fb", "-x", pair.gid("b")], TOOL_SECONDS)
    with server:
        server.listens(PERFTEST_PORT)
        said = on_a(*words, "-d", "fa", "-x", pair.gid("a"), ADDRESS["b"], timeout=TOOL_SECONDS)
        server.wait()
    return report_row(said)


@contextmanager
def losing(one_in):
    """Each packet that arrives at either host is lost with that chance. They are cut up
    before the wire: what gets lost in a network is a packet, not a super-packet."""
    try:
        for side in "ab":
            dev = f"v{side}"
            run("ip", "netns", "exec", side, "ethtool", "-K", dev, "gso", "off",
                "tx-udp-segmentation", "off")
            run("tc", "-n", side, "qdisc", "add", "dev", dev, "clsact")
            run("tc", "-n", side, "filter", "add", "dev", dev, "ingress", "matchall",
                "action", "pass", "random", "netrand", "drop", one_in)
        yield
    finally:
        for side in "ab":
            dev = f"v{side}"
            run("tc", "-n", side, "qdisc", "del", "dev", dev, "clsact")
            run("ip", "netns", "exec", side, "ethtool", "-K", dev, "gso", "on",
                "tx-udp-segmentation", "on")


def pairs(text):
    """The words of lines of two."""
    return [line.split() for line in text.splitlines() if len(line.split()) == 2]


def connect_seconds(report):
    """From the table of cmtime: what all connections took from their ID to established."""
    for line in report.splitlines():
        if line.startswith("full connect"):
            return float(line.split()[3]) / 1e6
    raise Failed(f"cmtime said nothing of full connects: {report.strip()[-500:]}")


class Bench:
    """The measuring functions. Each gives {metric: value} for a row."""

    def __init__(self, pair, lane):
        self.pair = pair
        self.lane = lane
        # (row, driver) -> how many messages last about lane.seconds
        self.counts = {}

    def measure(self, row):
        """One row once."""
        return getattr(self, row.kind)(row, **row.args)

    def moved(self, row, verb, size, qps, path_mtu=None, post_list=None):
        """(bytes, messages) a second, over long enough that they mean something."""
        key = row.name, self.pair.driver
        depth = min(128, max(8, 4 * MIB // size // qps))
        if verb == "read":
            depth = min(depth, 16)
        words = ["-s", str(size), "-q", str(qps), "-t", str(depth)]
        words += ["-r", str(max(depth, 64))] if verb == "send" else []
        words += ["-m", str(path_mtu)] if path_mtu else []
        words += ["-l", str(post_list)] if post_list else []
        # perftest has no events for writes
        words += ["-e"] if self.lane.events and verb != "write" else []
        least = max(FEWEST, 2 * depth)
        guess = min(RXE_BYTES / size, RXE_MESSAGES) * self.lane.seconds / qps
        count = self.counts.get(key) or max(least, int(guess))
        # The first guess may be far off, the second is not.
        for _ in range(3):
            figures = perftest(self.pair, f"ib_{verb}_bw", [*words, "-n", str(count)])
            # perftest's million is 2^20 for bytes and 10^6 for messages
            moved, messages = figures[3] * MIB, figures[4] * 1e6
            if messages <= 0:
                raise Failed("perftest counted nothing")
            enough = max(least, min(MOST, int(messages * self.lane.seconds / qps)))
            if key in self.counts or count >= enough / 2:
                break
            count = enough
        # Later rounds do the same again.
        self.counts[key] = count
        return moved, messages

    def bandwidth(self, row, lose_one_in=None, idle=None, **args):
        """Payload moved, with packets lost or beside idle queue pairs if so wanted."""
        figures = {}
        with ExitStack() as stack:
            if lose_one_in:
                stack.enter_context(losing(lose_one_in))
                # long enough for several losses, whatever the driver
                self.counts[row.name, self.pair.driver] = LOSSY_MESSAGES
            if idle:
                took = stack.enter_context(self.idle_objects(idle))
                figures[f"{row.name}_make_us"] = took
            figures[f"{row.name}_MBps"] = self.moved(row, **args)[0] / 1e6
        return figures

    @contextmanager
    def idle_objects(self, count):
        """So many queue pairs, each with a CQ and an MR, on both devices; gives what one took."""
        with ExitStack() as stack:
            took = []
            for side, other in ("ab", "ba"):
                words = [PROGRAMS / "objects", "qp", f"f{side}", count, self.pair.gid(side),
                         f"::ffff:{ADDRESS[other]}"]
                holder = stack.enter_context(Holder(side, words))
                took.append(float(holder.line("qp").split()[1]))
                holder.line("ready")
            yield sum(took) / len(took)

    def chardev(self, row, count):
        """Writes of 64 KiB through /dev/ferroce, by the project's own program."""
        words = ["ferroce", "perf", "write"]
        server = Server([*words, "-d", "fb"], TOOL_SECONDS)
        with server:
            server.listens(PERFTEST_PORT)
            said = on_a(*words, "-d", "fa", "-n", count, "--json", ADDRESS["b"], timeout=TOOL_SECONDS)
            server.wait()
        return {f"{row.name}_MBps": json.loads(said[said.index("{"):])["bytes_per_second"] / 1e6}

    def region(self, row, mib):
        """Registering memory that is there, and giving it back."""
        said = on_a(PROGRAMS / "objects", "mr", "fa", mib, timeout=TOOL_SECONDS)
        return {f"{row.name}_{name}_ms": float(value) for name, value in pairs(said)}

    def connect(self, row):
        """Connections of RDMA-CM that cmtime makes in a second."""
        with Server(["cmtime", "-b", ADDRESS["b"]], TOOL_SECONDS):
            for _ in range(CM_TRIES):
                try:
                    said = on_a("cmtime", "-s", ADDRESS["b"], "-c", CONNECTIONS, timeout=TOOL_SECONDS)
                    break
                except Failed as error:
                    # the server has no sign of being ready
                    last = error
                    time.sleep(0.5)
            else:
                raise last
        return {f"{row.name}_per_s": CONNECTIONS / connect_seconds(said)}

    def limit(self, row):
        """What copies and CRCs this machine can do."""
        said = on_a(PROGRAMS / "limit", timeout=TOOL_SECONDS)
        return {f"{row.name}_{name}_MBps": float(value) for name, value in pairs(said)}

    def rate(self, row, **args):
        """Messages done."""
        return {f"{row.name}_per_s": self.moved(row, **args)[1]}

    def latency(self, row, verb):
        """8 bytes there (and for what answers, back), as perftest counts it."""
        words = ["-n", "1000", *(["-s", "8"] if verb != "atomic" else [])]
        words += ["-e"] if self.lane.events else []
        figures = perftest(self.pair, f"ib_{verb}_lat", words)
        return {f"{row.name}_p50_us": figures[4], f"{row.name}_p99_us": figures[7]}

    def iperf(self, row):
        """TCP on the same wire, received, once both programs are in memory and at speed."""
        server = Server(["iperf3", "-s", "-1", "-p", str(IPERF_PORT)], TOOL_SECONDS)
        with server:
            server.listens(IPERF_PORT)
            said = on_a("iperf3", "-c", ADDRESS["b"], "-p", str(IPERF_PORT), "-J", "-O", "1",
                        "-t", str(max(1, int(3 * self.lane.seconds))), timeout=TOOL_SECONDS)
            server.wait()
        return {f"{row.name}_MBps": json.loads(said)["end"]["sum_received"]["bits_per_second"] / 8e6}
