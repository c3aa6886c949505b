"""Runs the tests of an installed package in worker processes; in .venv-tempest, with the standard library only.

usage: python -m tests.system.suites.run_tests --workers N --json FILE [--stand-in MODULE] [--longest-sleep SECONDS]
       [--out-of-scope PATTERN] ... NAME...

Each NAME is a module, class or test. All modules are imported once and then forked; the classes are dealt to the workers
as they become free, the largest first. FILE gets one line for each test: {"id", "outcome", "text", "seconds"}. Outcomes
are ok, failed, skipped and left out. If a class or module cannot be set up, all its tests have that outcome. If all
tests of a class match a PATTERN (of `fnmatch`), only the first one runs, and the others are left out.
"""

import argparse
import fcntl
import importlib
import json
import os
import sys
import tempfile
import time
import unittest
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

LONGEST_TEXT = 6000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument(
        "--stand-in", help="a module of this repository to import first; replaces parts of the suite's rig"
    )
    parser.add_argument("--longest-sleep", type=float, help="limits each sleep of the tests to this time")
    parser.add_argument("--out-of-scope", metavar="PATTERN", action="append", default=[])
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    if options.stand_in:
        importlib.import_module(options.stand_in)
    if options.longest_sleep is not None:
        _sleep_at_most(options.longest_sleep)
    groups = _groups(unittest.defaultTestLoader.loadTestsFromNames(options.names))
    with options.json.open("a") as out, tempfile.TemporaryFile() as turn:
        for number, group in enumerate(groups):
            groups[number] = _without_repetition(group, options.out_of_scope, out.fileno())
        workers = [_fork(groups, number, out.fileno(), turn.fileno()) for number in range(options.workers)]
        failed = [pid for pid in workers if os.waitpid(pid, 0)[1]]
    sys.exit(f"workers died: {failed}" if failed else 0)


def _sleep_at_most(longest_s: float) -> None:
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(min(seconds, longest_s))


def _groups(suite: unittest.TestSuite) -> list[unittest.TestSuite]:
    """The tests by their classes, the largest class first."""
    classes: dict[str, unittest.TestSuite] = {}
    for part in _parts(suite):
        name = str(id(part)) if isinstance(part, unittest.TestSuite) else part.id().rpartition(".")[0]
        classes.setdefault(name, unittest.TestSuite()).addTest(part)
    return sorted(classes.values(), key=unittest.TestSuite.countTestCases, reverse=True)


def _parts(suite: unittest.TestSuite) -> Iterator[unittest.TestCase | unittest.TestSuite]:
    """Tests, and suites of a kind of their own (gabbi's), whose tests depend on each other."""
    for part in suite:
        if type(part) is unittest.TestSuite:
            yield from _parts(part)
        else:
            yield part


def _tests(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from _tests(part)
        else:
            yield part


def plain(test_id: str) -> str:
    """Tempest appends ids and tags: ``test_x[id-...,smoke]``."""
    return test_id.partition("[")[0]


def _without_repetition(suite: unittest.TestSuite, patterns: Sequence[str], out: int) -> unittest.TestSuite:
    """The first test alone if all tests match `patterns`; the others are written down."""
    tests = list(_tests(suite))
    if not all(any(fnmatchcase(plain(test.id()), pattern) for pattern in patterns) for test in tests):
        return suite
    for test in tests[1:]:
        _write(out, test, "left out", "all tests of its class are out of scope", 0.0)
    return unittest.TestSuite(tests[:1])


def _fork(groups: list[unittest.TestSuite], number: int, out: int, turn: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.environ["SUITE_WORKER"] = str(number)
        while (mine := _next(turn)) < len(groups):
            _run(groups[mine], out)
        status = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _next(turn: int) -> int:
    """The number of the next class that nobody runs; the workers share the file `turn`."""
    fcntl.lockf(turn, fcntl.LOCK_EX)
    try:
        taken = int(os.pread(turn, 20, 0) or b"0")
        os.pwrite(turn, b"%d" % (taken + 1), 0)
        return taken
    finally:
        fcntl.lockf(turn, fcntl.LOCK_UN)


def _run(suite: unittest.TestSuite, out: int) -> None:
    tests = list(_tests(suite))  # running a suite empties it
    seen = _Outcomes()
    suite.run(seen)
    for test in tests:
        outcome, text, seconds = seen.of.get(test.id()) or seen.of_class or ("failed", "it did not run", 0.0)
        _write(out, test, outcome, text, seconds)


def _write(out: int, test: unittest.TestCase, outcome: str, text: str, seconds: float) -> None:
    line = {"id": plain(test.id()), "outcome": outcome, "text": text[-LONGEST_TEXT:], "seconds": round(seconds, 2)}
    os.write(out, json.dumps(line).encode() + b"\n")


class _Outcomes(unittest.TestResult):
    """`of`: {test: (outcome, text, seconds)}; `of_class`: the same for tests whose class could not be set up."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, tuple[str, str, float]] = {}
        self.of_class: tuple[str, str, float] | None = None
        self._started = time.monotonic()

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._started = time.monotonic()

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._keep(test, "ok", "")

    def addFailure(self, test: unittest.TestCase, err: object) -> None:
        self._keep(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._keep(test, "skipped", reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: object) -> None:
        self._keep(test, "ok", "")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._keep(test, "failed", "the suite expects it to fail")

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: object) -> None:
        if err is not None:
            self._keep(test, "failed", self._exc_info_to_string(err, test))

    def _keep(self, test: unittest.TestCase, outcome: str, text: str) -> None:
        seen = (outcome, text, time.monotonic() - self._started)
        if not isinstance(test, unittest.TestCase):  # unittest's stand-in for a fixture of a class or module
            if not test.id().startswith("tearDown"):
                self.of_class = seen
        elif self.of.get(test.id(), ("ok",))[0] == "ok":  # keep the first failure
            self.of[test.id()] = seen


if __name__ == "__main__":
    main()
