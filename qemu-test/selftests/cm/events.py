#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# guest: --topology pair
"""What RDMA-CM tells both sides: private data, rejection, the end of a connection.

The client is in namespace a, the server, a child process, in b. The server does what
the first word of the request's private data asks for.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LIB = Path(__file__).resolve().parents[1] / "lib"
sys.path.insert(0, str(LIB))

import rdmacm  # noqa: E402 # in lib
from ktap import Skip  # noqa: E402
from ktap import case  # noqa: E402
from ktap import eq  # noqa: E402
from ktap import main  # noqa: E402

PORT = 7500
ADDRESS = {4: "10.0.0.2", 6: "fd00::2"}
PRIVATE_REQUEST = 56  # bytes that IP addressing leaves of the 92 of a REQ (IBA annex A11)


def prepare():
    """The pair of devices; false when there is no connection manager."""
    script = f'set -eu; . {LIB}/ktap.sh; . {LIB}/driver.sh; pair_up; note_features fa; cat $FEATURES'
    out = subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True).stdout
    return "cm" in out.split()


class Server:
    """Listens in b until the test ends."""

    def __init__(self, family):
        ready, tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            signal.alarm(140)
            try:
                serve(ADDRESS[family], tell)
            finally:
                os._exit(1)
        os.close(tell)
        if os.read(ready, 1) != b"+":
            raise AssertionError("the server did not begin to listen")
        os.close(ready)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def enter(name):
    """Moves this process into a network namespace."""
    with open(f"/run/netns/{name}", "rb") as namespace:
        os.setns(namespace.fileno(), os.CLONE_NEWNET)


def serve(address, tell):
    """The server's loop."""
    enter("b")
    channel = rdmacm.Channel()
    channel.listen(address, PORT)
    os.write(tell, b"+")
    last = []
    while True:
        name, ident, _, data = channel.event()
        if name == "connect_request":
            if data.startswith(b"reject"):
                rdmacm.reject(ident, b"go away")
                rdmacm.destroy(ident)
            else:
                rdmacm.accept(ident, b"welcome " + data[:PRIVATE_REQUEST])
                last.append(ident)
        elif name == "established" and last and ident == last[-1] and hang_up:
            rdmacm.disconnect(ident)
        elif name == "disconnected":
            rdmacm.disconnect(ident)
            rdmacm.destroy(ident)


hang_up = False


def request(channel, family=4, data=b"hello"):
    """Gets as far as the request; returns the identifier."""
    ident = channel.start(ADDRESS[family], PORT)
    channel.expect("addr_resolved")
    rdmacm.resolve_route(ident)
    channel.expect("route_resolved")
    rdmacm.make_qp(ident)
    rdmacm.connect(ident, data)
    return ident


def end(channel, ident):
    """Disconnects and waits for it."""
    rdmacm.disconnect(ident)
    channel.expect("disconnected")
    rdmacm.destroy(ident)


def needs_cm():
    if not HAS_CM:
        raise Skip("the device has no connection manager on its port")


def exchange(family):
    """Private data of the greatest length, both ways."""
    needs_cm()
    data = bytes(range(1, PRIVATE_REQUEST + 1))
    with Server(family):
        channel = rdmacm.Channel()
        ident = request(channel, family, data)
        _, _, _, answer = channel.expect("established")
        eq(answer[: 8 + PRIVATE_REQUEST], b"welcome " + data, "private data of the reply")
        end(channel, ident)


@case("private data go both ways, v4")
def private_v4():
    exchange(4)


@case("private data go both ways, v6")
def private_v6():
    exchange(6)


@case("a rejection is told with its private data")
def rejection():
    needs_cm()
    with Server(4):
        channel = rdmacm.Channel()
        ident = request(channel, data=b"reject me")
        _, _, status, answer = channel.expect("rejected")
        eq(status, 28, "status")  # consumer reject, IBA 12.6.7.2
        eq(answer[:7], b"go away", "private data of the rejection")
        rdmacm.destroy(ident)


@case("where nobody listens the request is rejected at once")
def nobody_listens():
    needs_cm()
    channel = rdmacm.Channel()
    began = time.monotonic()
    ident = request(channel)
    _, _, status, _ = channel.expect("rejected")
    eq(status, 8, "status")  # invalid service id
    assert time.monotonic() - began < 20, "it took longer than a busy machine explains"
    rdmacm.destroy(ident)


@case("the client hears that the server hangs up")
def server_hangs_up():
    global hang_up
    needs_cm()
    hang_up = True
    try:
        with Server(4):
            channel = rdmacm.Channel()
            ident = request(channel)
            channel.expect("established")
            channel.expect("disconnected")
            rdmacm.disconnect(ident)
            rdmacm.destroy(ident)
    finally:
        hang_up = False


@case("the client hears that the server died")
def server_dies():
    needs_cm()
    channel = rdmacm.Channel()
    with Server(4):
        ident = request(channel)
        channel.expect("established")
    channel.expect("disconnected")
    rdmacm.destroy(ident)


@case("r4_connect_disconnect_connect_at_once_with_the_same_peer")
def reconnect():
    needs_cm()
    with Server(4):
        channel = rdmacm.Channel()
        for _ in range(30):
            began = time.monotonic()
            ident = request(channel)
            channel.expect("established")
            end(channel, ident)
            assert time.monotonic() - began < 10, "a connection took seconds"


@case("a storm of 64 connections at the same time")
def storm():
    needs_cm()
    with Server(4):
        channel = rdmacm.Channel()
        for _ in range(64):
            channel.start(ADDRESS[4], PORT)
        established = []
        while len(established) < 64:
            name, ident, status, _ = channel.event()
            if name == "addr_resolved":
                rdmacm.resolve_route(ident)
            elif name == "route_resolved":
                rdmacm.make_qp(ident)
                rdmacm.connect(ident, b"storm")
            elif name == "established":
                established.append(ident)
            else:
                raise AssertionError(f"{name} with status {status}")
        for ident in established:
            rdmacm.disconnect(ident)
        gone = 0
        while gone < 64:
            name, _, status, _ = channel.event()
            assert name in ("disconnected", "timewait_exit"), f"{name} with status {status}"
            gone += name == "disconnected"
        for ident in established:
            rdmacm.destroy(ident)


HAS_CM = prepare()
enter("a")
main()
