# SPDX-License-Identifier: GPL-2.0
"""Loads the tests that the package rdma-core ships and runs them one by one.

The package keeps them, partly compressed, with its documentation; they are unpacked
to /tmp. A test runs in a child process with a session of its own, so that neither a
crash nor what it leaves behind touches the next one.
"""

import gzip
import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
import unittest
from importlib.machinery import SourceFileLoader
from pathlib import Path

PACKAGED = Path("/usr/share/doc/rdma-core/tests")
UNPACKED = Path("/tmp/pyverbs-tests")
TEST_SECONDS = 60


def unpack():
    """Copies the tests to where they can be imported."""
    shutil.rmtree(UNPACKED, ignore_errors=True)
    UNPACKED.mkdir()
    for path in PACKAGED.iterdir():
        if path.suffix == ".gz":
            (UNPACKED / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        elif path.suffix == ".py":
            shutil.copy(path, UNPACKED)


def flatten(suite):
    """The test cases of a suite, depth first."""
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item


class Verdict(unittest.TestResult):
    """Keeps the worst thing that happened to the one test it hears of."""

    def __init__(self):
        super().__init__()
        self.verdict, self.why = "pass", ""

    def _worse(self, test, error):
        # what the test says in one line, and the trace for the reader
        self.verdict = "fail"
        self.why = traceback.format_exception_only(error[0], error[1])[-1].strip().replace("\n", " ")
        print("".join(traceback.format_exception(*error)), flush=True)

    def addError(self, test, err):
        self._worse(test, err)

    def addFailure(self, test, err):
        self._worse(test, err)

    def addSubTest(self, test, subtest, err):
        if err:
            self._worse(test, err)

    def addSkip(self, test, reason):
        if self.verdict == "pass":
            self.verdict, self.why = "skip", " ".join(reason.split())

    def addExpectedFailure(self, test, err):
        self.verdict, self.why = "skip", "marked as an expected failure"

    def addUnexpectedSuccess(self, test):
        self.verdict, self.why = "fail", "unexpected success"


class Suite:
    """All packaged tests, on the device of that name."""

    def __init__(self, device):
        unpack()
        sys.path.insert(0, str(UNPACKED))
        sys.argv = ["run_tests.py", "--dev", device]
        # as run_tests.py does it
        import args_parser

        tests = SourceFileLoader("tests", str(UNPACKED / "__init__.py")).load_module()
        args_parser.parser.parse_args()
        loaded = unittest.defaultTestLoader.loadTestsFromModule(tests)
        self._tests = {test.id(): test for test in flatten(loaded)}
        self.names = list(self._tests)

    def run(self, name):
        """Runs one test; returns its verdict (pass, fail, skip), why, and its output."""
        reader, writer = os.pipe()
        log = os.memfd_create("output")
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._child(name, writer, log)
        os.close(writer)
        ready, _, _ = select.select([reader], [], [], TEST_SECONDS)
        said = os.read(reader, 65536) if ready else b""
        os.close(reader)
        status = self._end(child)
        output = os.pread(log, 1 << 20, 0).decode(errors="replace")
        os.close(log)
        if said:
            verdict, why = json.loads(said)
        elif ready:
            verdict, why = "fail", f"the test's process ended with {status}"
        else:
            verdict, why = "fail", f"not done after {TEST_SECONDS} s"
        return verdict, why, output

    def _child(self, name, writer, log):
        """In the child: the test, and one message about it."""
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        result = Verdict()
        try:
            unittest.TestSuite([self._tests[name]]).run(result)
            os.write(writer, json.dumps([result.verdict, result.why[:500]]).encode())
        finally:
            os._exit(0)

    @staticmethod
    def _end(child):
        """Ends the child and what it started; returns its wait status."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
            time.sleep(0.01)
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return status if pid else os.waitpid(child, 0)[1]
