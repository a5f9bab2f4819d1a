# SPDX-License-Identifier: GPL-2.0
"""What the guest's kernel log says about the run."""

import re

# Written to the kernel log by guest-init when the guest is set up: what comes
# before is the stock kernel's boot and not ours to judge.
READY = "ferroce-guest: ready"

# guest-init tells itself what it thinks of the leaks that kmemleak suspects.
TROUBLE = re.compile(
    r"Kernel panic|BUG:|WARNING:|Oops|general protection fault|Call Trace:|UBSAN:|KASAN:"
    r"|KCSAN:|unable to handle|kernel NULL pointer|hung_task|blocked for more than"
    r"|lockdep|possible (circular|recursive|irq lock)|bad unlock balance|suspicious RCU"
    r"|detected stalls|self-detected stall|soft lockup|scheduling while atomic"
    r"|list_(add|del) corruption|refcount_t:|unregister_netdevice: waiting|leaked"
    r"|rust_kernel: panicked|kmemleak: (?!\d+ new)|Bad page state|double free|slab .*corrupt"
)


def trouble(log):
    """The lines of a kernel log that a clean run does not have."""
    _, _, after = log.rpartition(READY)
    return [line for line in after.splitlines() if TROUBLE.search(line)]


def panicked(log):
    return "Kernel panic" in log


def tail(log, lines=50):
    return "\n".join(log.splitlines()[-lines:])
