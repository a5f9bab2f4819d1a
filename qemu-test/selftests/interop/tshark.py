#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""tshark, which nobody here wrote, reads every kind of packet that the driver sends: it
must know each as InfiniBand and have no warning about any. It does not check the ICRC;
verbs/wire.py does."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SELFTESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SELFTESTS / "lib"))

import pyverbs.enums as e  # noqa: E402
from ktap import case  # noqa: E402
from ktap import eq  # noqa: E402
from ktap import main  # noqa: E402
from rc import Buffer  # noqa: E402
from rc import pair  # noqa: E402
from rc import shell  # noqa: E402

WARNING = 0x600000  # PI_WARN of wireshark/proto.h
# Without what tshark takes a payload for by its first bytes: RPC over RDMA is found in
# any short message, and then found to be broken. A checksum of 0 over IPv6 is what the
# specification of RoCEv2 asks for (IBA annex A17).
OPTIONS = ["-o", "udp.ignore_ipv6_zero_checksum:TRUE"]
for GUESS in ("rpcrdma", "smcr", "smb_direct", "iser", "sdp", "fc"):
    OPTIONS += ["--disable-heuristic", f"{GUESS}_infiniband"]
for GUESS in ("nvme_rdma", "lnet_ib", "eth_over_ib", "mellanox_eoib"):
    OPTIONS += ["--disable-heuristic", GUESS]
SIZES = (0, 10, 1500, 3000)  # only; first and last; first, middle and last
RC_SEND_WRITE_READ = set(range(0, 18))
ATOMICS = {18, 19, 20}
UC = set(range(32, 44))
XRC = {160, 161, 164, 166, 167, 168, *range(172, 176), *range(177, 181)}
FLUSH, ATOMIC_WRITE, UD_SEND, UD_SEND_IMM = 28, 29, 100, 101
SEND_INVALIDATE = {22, 23}  # last, only


class Capture:
    """tcpdump on an interface while the body runs."""

    def __init__(self, interface="va", namespace="a"):
        self.path = tempfile.mktemp(suffix=".pcap")
        self.command = [
            *(["ip", "netns", "exec", namespace] if namespace else []), "tcpdump", "-i", interface,
            "-U", "-Z", "root", "-w", self.path, "udp port 4791 or ether proto 0x8915",
        ]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "listening on" in line:
                return self
        raise AssertionError("tcpdump did not begin")

    def __exit__(self, *_):
        time.sleep(1)
        self.process.terminate()
        self.process.communicate(timeout=20)

    def opcodes(self):
        """The opcodes that were seen; fails on what tshark does not like."""
        fields = ("frame.number", "infiniband.bth.opcode", "_ws.expert.severity", "_ws.expert.message")
        command = ["tshark", *OPTIONS, "-r", self.path, "-T", "fields", "-E", "separator=|"]
        for field in fields:
            command += ["-e", field]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        os.unlink(self.path)
        seen, complaints = set(), []
        for line in out.splitlines():
            number, opcode, severities, message = line.split("|", 3)
            if any(int(s, 0) >= WARNING for s in severities.split(",") if s):
                complaints.append(f"frame {number}, opcode {opcode}: {message}")
            elif not opcode:
                complaints.append(f"frame {number} is not known as InfiniBand")
            else:
                seen |= {int(o, 0) for o in opcode.split(",")}
        if complaints:
            raise AssertionError("\n".join(complaints[:20]))
        print(f"# opcodes {sorted(seen)}")
        return seen


def has(seen, wanted):
    """All of those opcodes are among what was seen."""
    eq(sorted(wanted - seen), [], "opcodes that were not on the wire")


def move(kind, family):
    """Sends, writes and, where they exist, reads of all shapes."""
    with pair(family, kind=kind, mtu=1024) as (x, y):
        source, target = Buffer(x.pd, 3000), Buffer(y.pd, 3000)
        remote = (target.mr.rkey, target.address)
        for size in SIZES:
            for opcode in (e.IBV_WR_SEND, e.IBV_WR_SEND_WITH_IMM, e.IBV_WR_RDMA_WRITE_WITH_IMM):
                y.post_recv(target.sge())
                x.post(opcode, source.sge(size), remote=remote, imm=7)
                x.good()
                y.good()
            x.post(e.IBV_WR_RDMA_WRITE, source.sge(size), remote=remote)
            x.good()
            if kind == e.IBV_QPT_RC:
                x.post(e.IBV_WR_RDMA_READ, source.sge(size), remote=remote)
                x.good()


def other(script, *patterns):
    """Another selftest, as a source of packets; it must pass."""
    result = subprocess.run(
        [SELFTESTS / script, *patterns], check=False, capture_output=True, text=True, timeout=280
    )
    eq(result.returncode, 0, f"status of {script}: {result.stdout[-600:]}")


@case("RC: send, write, read, over IPv4")
def rc_v4():
    with Capture() as capture:
        move(e.IBV_QPT_RC, "v4")
    has(capture.opcodes(), RC_SEND_WRITE_READ)


@case("RC: send, write, read, over IPv6")
def rc_v6():
    with Capture() as capture:
        move(e.IBV_QPT_RC, "v6")
    has(capture.opcodes(), RC_SEND_WRITE_READ)


@case("RC: refusals and waits")
def naks():
    with Capture() as capture:
        with pair("v4", rnr_retries=1, rnr_timer=1) as (x, y):
            source, target = Buffer(x.pd, 10), Buffer(y.pd, 10)
            x.post(e.IBV_WR_RDMA_WRITE, source.sge(), remote=(target.mr.rkey ^ 1, target.address))
            x.completions(1)
        with pair("v4", rnr_retries=1, rnr_timer=1) as (x, y):
            source = Buffer(x.pd, 10)
            x.post(e.IBV_WR_SEND, source.sge())
            x.completions(1)
    has(capture.opcodes(), {17})


@case("atomics")
def atomics():
    with Capture() as capture:
        other("verbs/atomic.py", "fetch and add|compare and swap")
    has(capture.opcodes(), ATOMICS)


@case("SEND with invalidate")
def invalidate():
    with Capture() as capture:
        other("verbs/mw.py", "with invalidate")
    has(capture.opcodes(), SEND_INVALIDATE)


@case("UC: send and write")
def uc():
    with Capture() as capture:
        move(e.IBV_QPT_UC, "v4")
    has(capture.opcodes(), UC)


@case("UD, over IPv4 and IPv6")
def ud():
    with Capture() as capture:
        other("verbs/ud.py", "every length|scattered")
    has(capture.opcodes(), {UD_SEND, UD_SEND_IMM})


@case("XRC")
def xrc():
    with Capture() as capture:
        other("verbs/xrc.py", "sends go|writes, reads and atomics")
    has(capture.opcodes(), XRC)


@case("the connection manager")
def cm():
    with Capture() as capture:
        shell(
            "ip netns exec b timeout 60 rping -s -a 10.0.0.2 -C 3 >/dev/null 2>&1 & "
            "within 30 waits_for_peers $!; ip netns exec a timeout 60 rping -c -a 10.0.0.2 -C 3"
        )
    has(capture.opcodes(), {UD_SEND})


@case("FLUSH and ATOMIC WRITE", limit=300)
def flush():
    shell("pair_down; ip link del v0 2>/dev/null || true")
    # a device that talks to itself
    with Capture("any", None) as capture:
        other("pyverbs/suite.py", "qp_ex_rc_flush$|qp_ex_rc_atomic_write")
    has(capture.opcodes(), {FLUSH, ATOMIC_WRITE})


# packets one by one, not as they are handed to a device that cuts them
shell("pair_up; for n in a b; do ip netns exec $n ethtool -K v$n tx-udp-segmentation off; done")
main()
