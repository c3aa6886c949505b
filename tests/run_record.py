"""Records the duration of each test and the failures of a run, and prints a table of the slowest directories.

The file is ``build/test-run.json``, or the one that ``MOORAGE_TEST_RUN`` names::

    {
        "wall_s": 512.3,
        "workers": 3,
        "passed": 5900,
        "failed": {"tests/unit/test_x.py::test_y": "assert 1 == 2"},
        "skipped": 12,
        "tests": {"tests/unit/test_x.py::test_y": {"wall_s": 0.21, "cpu_s": 0.2}},
    }

Times include setup, call and teardown. CPU time includes the worker and the processes that it waited for, so a server
that outlives its test counts for the test in which it ends. `tests.rerun` reads the failures and `tests.minutes` the
durations.
"""

import json
import os
import resource
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SHOWN = 12
#: Maximum length of a recorded failure.
SHOWN_CHARACTERS = 300


def path_of_record() -> Path:
    return Path(os.environ.get("MOORAGE_TEST_RUN", ROOT / "build" / "test-run.json"))


class RunRecord:
    """A pytest plugin. Workers measure; the process to which they report writes."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._cpu_s_before = _cpu_s()
        #: {test: {"wall_s": seconds, "cpu_s": seconds}}
        self._tests: dict[str, dict[str, float]] = defaultdict(lambda: {"wall_s": 0.0, "cpu_s": 0.0})
        #: {test: "passed", "failed" or "skipped"}
        self._outcomes: dict[str, str] = {}
        #: {test: what was observed, one line}
        self._failed: dict[str, str] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report = yield
        now = _cpu_s()
        report.cpu_s = now - self._cpu_s_before
        self._cpu_s_before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self._tests[report.nodeid]
        test["wall_s"] += report.duration
        test["cpu_s"] += getattr(report, "cpu_s", 0.0)
        if report.failed:
            self._failed[report.nodeid] = _reason(report)
        if report.failed or self._outcomes.get(report.nodeid) in (None, "passed"):
            self._outcomes[report.nodeid] = report.outcome

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        if not self._tests or "PYTEST_XDIST_WORKER" in os.environ:
            return
        tests = {name: {key: round(value, 3) for key, value in test.items()} for name, test in self._tests.items()}
        outcomes = list(self._outcomes.values())
        record = {
            "wall_s": round(time.monotonic() - self._started, 1),
            "workers": config.getoption("numprocesses", None) or 1,
            "passed": outcomes.count("passed"),
            "failed": self._failed,
            "skipped": outcomes.count("skipped"),
            "tests": dict(sorted(tests.items())),
        }
        path = path_of_record()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=0))
        if len(tests) > SHOWN:
            terminalreporter.section("where the time went")
            for line in table(tests, SHOWN):
                terminalreporter.write_line(line)


def table(tests: Mapping[str, Mapping[str, float]], rows: int) -> list[str]:
    lines = ["wall s   CPU s  tests  directory"]
    for directory, (count, wall_s, cpu_s) in by_directory(tests)[:rows]:
        lines.append(f"{wall_s:6.0f}  {cpu_s:6.0f}  {count:5}  {directory}")
    return lines


def by_directory(tests: Mapping[str, Mapping[str, float]]) -> list[tuple[str, tuple[int, float, float]]]:
    """[(directory, (tests, wall s, CPU s))], the slowest first."""
    sums: dict[str, tuple[int, float, float]] = defaultdict(lambda: (0, 0.0, 0.0))
    for name, test in tests.items():
        directory = name.partition("::")[0].rpartition("/")[0]
        count, wall_s, cpu_s = sums[directory]
        sums[directory] = (count + 1, wall_s + test["wall_s"], cpu_s + test["cpu_s"])
    return sorted(sums.items(), key=lambda entry: -entry[1][1])


def read_record(path: Path) -> dict[str, Any]:
    """The record of a run; its keys are in this module's docstring."""
    return json.loads(path.read_text(encoding="utf-8"))


def _reason(report: pytest.TestReport) -> str:
    """The first line of an exception's message, or the last line of output instead."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else report.longreprtext).strip().splitlines() or ["no message"]
    return f"{report.when}: {(lines[0] if crash else lines[-1])[:SHOWN_CHARACTERS]}"


def _cpu_s() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
