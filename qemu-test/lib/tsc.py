# SPDX-License-Identifier: GPL-2.0
"""How fast this host's time-stamp counter counts.

Under TCG a guest reads the host's counter, and finds out its rate at boot against an
emulated timer. On a busy host it finds a third of it, and all its clocks then run three
times too fast, so it is told instead.
"""

import ctypes
import mmap
import platform
import time

# rdtsc; shl rdx, 32; or rax, rdx; ret
READ_COUNTER = bytes.fromhex("0f31 48c1e220 4809d0 c3")
TRIES = 20
SECONDS = 0.1
PLAUSIBLE_KHZ = range(500_000, 10_000_000)


def reader():
    """A function that reads the counter, and what must live as long."""
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(READ_COUNTER)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return ctypes.CFUNCTYPE(ctypes.c_uint64)(address), memory


def at_once(read):
    """(nanoseconds, counter) of one moment: the tightest of several tries."""
    best = None
    for _ in range(TRIES):
        before = time.monotonic_ns()
        counter = read()
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = after - before, (before + after) // 2, counter
    return best[1:]


def khz():
    """The rate, or None where it cannot be found out."""
    if platform.machine() != "x86_64":
        return None
    try:
        read, _memory = reader()
    except OSError:
        return None
    began, first = at_once(read)
    time.sleep(SECONDS)
    ended, last = at_once(read)
    rate = round((last - first) * 1_000_000 / (ended - began))
    return rate if rate in PLAUSIBLE_KHZ else None
