# SPDX-License-Identifier: GPL-2.0
"""KTAP for Python tests, the twin of ktap.sh.

A test file decorates its cases and ends with `main()`:

    @case("a write lands")
    def write(): ...

A case fails by raising, is skipped by `raise Skip("why")`, and must end within its
time limit. The last case is always `dmesg clean`. `FILE.py PATTERN` runs the cases
whose names match the regular expression.
"""

import os
import re
import signal
import subprocess
import sys
import traceback

KTAP_SH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ktap.sh")
# Multiplies every limit, for kernels with many checks.
SLOWER = int(os.environ.get("FERROCE_SLOWER", "1"))
_cases = []


class Skip(Exception):
    """Ends a case as skipped, with the reason."""


class TooLong(Exception):
    """A case ran into its time limit."""


def case(name, limit=150):
    """Registers the function as a case of that name."""

    def register(function):
        _cases.append((name, function, limit))
        return function

    return register


def eq(got, wanted, what="value"):
    """Fails unless both are equal, and says both."""
    if got != wanted:
        raise AssertionError(f"{what} is {got!r}, expected {wanted!r}")


def raises(kind, function, *args, **kwargs):
    """Fails unless the call raises `kind`; returns the exception."""
    try:
        function(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"{function.__name__} succeeded, it should have failed")


def _alarm(_signal, _frame):
    raise TooLong("not done in time")


def _run(number, name, function, limit):
    """Runs one case; true unless it failed."""
    signal.alarm(limit * SLOWER)
    try:
        function()
    except Skip as why:
        print(f"ok {number} {name} # SKIP {why}", flush=True)
        return True
    except Exception as error:  # a case may fail in any way
        signal.alarm(0)
        _explain(error)
        print(f"not ok {number} {name}", flush=True)
        return False
    finally:
        signal.alarm(0)
    print(f"ok {number} {name}", flush=True)
    return True


def _explain(error):
    """The error, and the lines of the test that led to it."""
    for frame in traceback.extract_tb(error.__traceback__)[1:]:
        print(f"# {os.path.basename(frame.filename)}:{frame.lineno}: {frame.line}")
    for line in f"{type(error).__name__}: {error}".splitlines():
        print(f"# {line}")


def mark():
    """Writes a line into the kernel log; `trouble` looks at what follows it."""
    text = f"ferroce-test {os.getpid()} {os.path.basename(sys.argv[0])}"
    with open("/dev/kmsg", "w", encoding="utf-8") as kmsg:
        kmsg.write(text + "\n")
    return text


def trouble(since):
    """What the kernel said since that mark when it has been hurt; usually nothing."""
    script = f'. "{KTAP_SH}"; KTAP_MARK="$1"; dmesg_trouble'
    return subprocess.run(
        ["bash", "-c", script, "ktap", since], capture_output=True, text=True, check=False
    ).stdout


def _dmesg_clean(since):
    if found := trouble(since):
        raise AssertionError("the kernel complains:\n" + found)


def main():
    """Runs the cases and exits with the verdict."""
    cases = _cases
    if len(sys.argv) > 1:
        cases = [c for c in cases if re.search(sys.argv[1], c[0])]
    signal.signal(signal.SIGALRM, _alarm)
    since = mark()
    cases = cases + [("dmesg clean", lambda: _dmesg_clean(since), 30)]
    print(f"KTAP version 1\n1..{len(cases)}", flush=True)
    good = [_run(i, *entry) for i, entry in enumerate(cases, 1)]
    sys.exit(0 if all(good) else 1)
