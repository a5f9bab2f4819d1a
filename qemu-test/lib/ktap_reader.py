# SPDX-License-Identifier: GPL-2.0
"""Reads the nested KTAP that selftests/run prints, line by line, into results."""

import re
from dataclasses import dataclass
from dataclasses import field

PLAN = re.compile(r"^  1\.\.(\d+)$")
SUBTEST = re.compile(r"^  # Subtest: (.+)$")
LEAF = re.compile(r"^  (not ok|ok) (\d+) (.*?)(?: # SKIP ?(.*))?$")
END = re.compile(r"^(not ok|ok) \d+ (\S+)$")
SECONDS = re.compile(r"^# (\S+): exit status (\d+) after (\d+) s$")
NODE = re.compile(r"^\[(\d)\] ?(.*)$")
KEPT_LINES = 60

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass
class Result:
    """One test case."""

    suite: str
    script: str
    name: str
    verdict: str
    why: str = ""


@dataclass
class Script:
    """One script as far as it has been heard."""

    name: str
    planned: int | None = None
    seen: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: int = 0
    lines: list = field(default_factory=list)


class Reader:
    """Takes the lines of one guest; calls back for each result and each script."""

    def __init__(self, suite, on_result, on_script, side=""):
        self.suite = suite
        self.side = side
        self.on_result = on_result
        self.on_script = on_script
        self.script = None
        self.ended = []

    def line(self, text):
        """Takes one line of output, without its newline."""
        if match := SUBTEST.match(text):
            self.script = Script(match[1])
        elif self.script is None:
            return
        elif match := PLAN.match(text):
            self.script.planned = int(match[1])
        elif match := LEAF.match(text):
            self._leaf(match)
        elif match := SECONDS.match(text):
            self.script.seconds = int(match[3])
        elif match := END.match(text):
            self._end(match[1] == "ok")
        else:
            self.script.lines.append(text.strip().removeprefix("# "))
            del self.script.lines[:-KEPT_LINES]

    def cut_off(self, why):
        """The output ended in the middle of a script."""
        if self.script:
            self._end(False, why)

    def _leaf(self, match):
        verdict = FAILED if match[1] == "not ok" else PASSED if match[4] is None else SKIPPED
        why = match[4] or ("\n".join(self.script.lines) if verdict == FAILED else "")
        self.script.seen += 1
        self._result(match[3], verdict, why)

    def _result(self, name, verdict, why):
        self.script.failed += verdict == FAILED
        self.script.skipped += verdict == SKIPPED
        self.script.lines = []
        self.on_result(Result(self.suite, self.script.name + self.side, name, verdict, why))

    def _end(self, good, why="the script ended early"):
        script = self.script
        if script.planned is None or script.seen < script.planned:
            said = "\n".join([why, *script.lines])
            planned = "?" if script.planned is None else script.planned
            self._result(f"{script.seen} of {planned} cases ran", FAILED, said)
        elif not good and not script.failed:
            self._result("exit status", FAILED, "the script failed although its cases passed")
        self.ended.append(script.name)
        self.on_script(script, self.side)
        self.script = None
