#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""Loads under which other drivers were reported to hang or to be misused: what they did
to the kernel shows in the last case, `dmesg clean`."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import pyverbs.enums as e
from ktap import Skip, case, eq, main
from rc import Buffer, pair, pattern, shell

TOOL = "timeout -k 5 $((90 * FERROCE_SLOWER)) ib_write_bw -s 65536 -n 300 -u 16"


@case("R1 two long runs from one host to one server while packets are lost", limit=200)
def lossy_runs():
    shell(f"""pair_up
        a tc qdisc replace dev va root netem loss 1%
        b tc qdisc replace dev vb root netem loss 1%
        ga=$(gid_of a 10.0.0.1) gb=$(gid_of b 10.0.0.2) pids=()
        for port in 18601 18602; do
            b {TOOL} -d fb -x $gb -p $port >/dev/null & pids+=($!)
            within 30 listening b $port
        done
        for port in 18601 18602; do a {TOOL} -d fa -x $ga -p $port 10.0.0.2 >/dev/null & pids+=($!); done
        for pid in ${{pids[@]}}; do wait $pid; done
        a tc qdisc del dev va root; b tc qdisc del dev vb root""")


@case("R2 a hundred connections back to back, each with a ping-pong")
def back_to_back():
    for turn in range(100):
        with pair("v4", depth=8) as (x, y):
            here, there = Buffer(x.pd, 5000), Buffer(y.pd, 5000)
            here.put(pattern(5000, turn))
            for _ in range(4):
                y.post_recv(there.sge())
                x.post_recv(here.sge())
                x.post(e.IBV_WR_SEND, here.sge())
                y.good()
                y.post(e.IBV_WR_SEND, there.sge())
                y.good()
                x.good(2)
            eq(there.get(), pattern(5000, turn), "data")


@case("R21 who is root only in a user namespace of his own gets no device")
def user_namespace():
    script = """ip link add d0 type dummy && ip link set d0 up || exit 9
        for i in 1 2 3 4 5; do
            rdma link add x0 type "$FERROCE_DRIVER" netdev d0 && exit 8
            rdma link del fa && exit 7
        done
        ip link del d0"""
    environment = {"FERROCE_DRIVER": "ferroce", **os.environ}
    result = subprocess.run(
        ["unshare", "-Urn", "bash", "-c", script], capture_output=True, text=True, check=False,
        env=environment,
    )
    if "unshare failed" in result.stderr:
        raise Skip("this kernel has no user namespaces")
    eq(result.returncode, 0, f"status ({result.stderr})")
    eq(result.stderr.count("not permitted"), 10, f"refusals with EPERM in {result.stderr!r}")
    shell("device_in a fa")


shell("pair_up")
main()
