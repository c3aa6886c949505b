"""One run of a suite of OpenStack's clients or peers against us, and its comparison with the table of what is out of
scope. The suites are those of the packages in .venv-tempest, unmodified.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tests.processes import ROOT, inherited, python_of
from tests.system.suites.out_of_scope import OUT_OF_SCOPE, SUITES

ENVIRONMENT = ".venv-tempest"
#: A suite takes one or two minutes on two quiet cores.
TIMEOUT_S = 1500


@dataclass(frozen=True)
class Result:
    """`outcome`: ok, failed, skipped or left out; `text`: the failure, or the reason of the skip."""

    outcome: str
    text: str
    seconds: float


def modules(package: str, *, below: str = "") -> list[str]:
    """All test modules of an installed package, or of its part `below`, by their full names."""
    (top,) = python_of(ENVIRONMENT).parents[1].glob("lib/python3*/site-packages")
    root = top.joinpath(*package.split("."), *filter(None, below.split(".")))
    return sorted(".".join(path.relative_to(top).with_suffix("").parts) for path in root.rglob("test_*.py"))


def run_and_check(
    suite: str,
    names: Sequence[str],
    directory: Path,
    *,
    workers: int = 2,
    stand_in: str | None = None,
    programs: Path | None = None,
    longest_sleep_s: float | None = None,
    variables: Mapping[str, str],
) -> None:
    """Runs modules, classes or tests in `directory`. Fails unless exactly the tests in the suite's rows of the table do
    not pass, and the suite has as many tests as its page says.

    `stand_in`: a module of ours that the suite's process imports first. `programs`: the directory in which the suite
    finds the commands that it runs, if not in the environment. `longest_sleep_s`: limits each sleep of the suite.
    """
    patterns = [f"*.{row.pattern}" for row in OUT_OF_SCOPE if row.suite == suite]
    options = ["--workers", workers, *(["--stand-in", stand_in] if stand_in else [])]
    options += ["--longest-sleep", longest_sleep_s] if longest_sleep_s is not None else []
    options += [word for pattern in patterns for word in ("--out-of-scope", pattern)]
    results = _run([str(word) for word in (*options, *names)], directory, programs, variables)
    _check(suite, patterns, results)


def _run(
    words: Sequence[str], directory: Path, programs: Path | None, variables: Mapping[str, str]
) -> dict[str, Result]:
    directory.mkdir(parents=True, exist_ok=True)
    lines = directory / "outcomes.jsonl"
    command = [python_of(ENVIRONMENT), "-W", "ignore", "-m", "tests.system.suites.run_tests"]
    command += ["--json", lines, *words]
    path = f"{programs or python_of(ENVIRONMENT).parent}:{os.environ['PATH']}"
    own = {**inherited(), "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(directory), **variables}
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=directory, env=own, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(TIMEOUT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):  # its workers, if it did not end by itself
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert status == 0, (directory / "output").read_text(errors="replace")[-3000:]
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    return {row["id"]: Result(row["outcome"], row["text"], row["seconds"]) for row in rows}


def _check(suite: str, patterns: Sequence[str], results: Mapping[str, Result]) -> None:
    listed = {test for test in results if any(fnmatchcase(test, pattern) for pattern in patterns)}
    others = {test: result for test, result in results.items() if result.outcome != "ok" and test not in listed}
    told = "\n\n".join(f"{test}: {result.outcome}\n{result.text[-1500:]}" for test, result in others.items())
    assert not others, f"{len(others)} tests do not pass and are not in the table:\n{told[-20000:]}"
    passing = sorted(test for test in listed if results[test].outcome == "ok")
    assert not passing, f"take these out of out_of_scope.py, they pass: {passing}"
    unused = [pattern for pattern in patterns if not any(fnmatchcase(test, pattern) for test in results)]
    assert not unused, f"rows of out_of_scope.py that match no test: {unused}"
    (row,) = (row for row in SUITES if row.name == suite)
    numbers = (len(results), len(results) - len(listed))
    assert (row.tests, row.passing) == numbers, f"SUITES of out_of_scope.py must say {numbers}"
