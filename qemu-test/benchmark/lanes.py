# SPDX-License-Identifier: GPL-2.0
"""The clocks and CPU models that rows are measured under: one boot of a guest each."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Lane:
    """One boot. `events` makes programs sleep for completions instead of spinning."""

    name: str
    title: str
    guest: tuple
    events: bool
    # What a bandwidth row moves for, on the guest's clock. Instructions repeat, so a
    # short look is as good as a long one.
    seconds: float
    # The program in the guest, and how many guests there are.
    program: str = "guest.py"
    guests: int = 1


LANES = {
    lane.name: lane
    for lane in (
        Lane("instr", "instruction clock, one CPU, event mode", ("--icount",), True, 0.1),
        Lane("real", "real clock, two CPUs, CPU model max,-erms,-fsrm",
             ("--cpus", "2", "--cpu", "max,-erms,-fsrm"), False, 0.7),
        Lane("real_default", "real clock, two CPUs, QEMU's default CPU model",
             ("--cpus", "2", "--cpu", "qemu64"), False, 0.7),
        Lane("interop", "two guests, real clock, against a peer with rdma_rxe",
             ("--cpus", "2"), False, 0, "interop.py", 2),
        Lane("host", "this host, no guest", (), False, 0),
    )
}


def choose(clock, cpu):
    """The lanes that the options CLOCK and CPU name."""
    names = []
    if clock in ("instruction", "both"):
        names.append("instr")
    if clock in ("real", "both"):
        names += {"max": ["real"], "default": ["real_default"]}.get(cpu, ["real", "real_default"])
        names.append("interop")
    return [LANES[name] for name in (*names, "host")]
