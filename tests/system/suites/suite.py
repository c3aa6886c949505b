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
from tests.system.suites.out_of_scope import OUT_OF_SCOPE

ENVIRONMENT = ".venv-tempest"
#: A suite takes one or two minutes on two quiet cores.
TIMEOUT_S = 1500


@dataclass(frozen=True)
class Result:
    """`outcome`: ok, failed or skipped; `text`: the failure, or the reason of the skip."""

    outcome: str
    text: str
    seconds: float


def modules(package: str, *, below: str = "") -> list[str]:
    """All test modules of an installed package, or of its part `below`, by their full names."""
    (top,) = python_of(ENVIRONMENT).parents[1].glob("lib/python3*/site-packages")
    root = top.joinpath(*package.split("."), *filter(None, below.split(".")))
    return sorted(".".join(path.relative_to(top).with_suffix("").parts) for path in root.rglob("test_*.py"))


def run(
    names: Sequence[str],
    directory: Path,
    *,
    workers: int = 2,
    timeout_s: float = TIMEOUT_S,
    stand_in: str | None = None,
    variables: Mapping[str, str],
) -> dict[str, Result]:
    """Runs modules, classes or tests in `directory`; returns {test: result}.

    `stand_in`: a module of ours that the suite's process imports first.
    """
    directory.mkdir(parents=True, exist_ok=True)
    lines = directory / "outcomes.jsonl"
    command = [python_of(ENVIRONMENT), "-W", "ignore", "-m", "tests.system.suites.run_tests"]
    command += ["--workers", str(workers), "--json", lines, *(["--stand-in", stand_in] if stand_in else []), *names]
    path = f"{python_of(ENVIRONMENT).parent}:{os.environ['PATH']}"
    own = {**inherited(), "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(directory), **variables}
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=directory, env=own, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError):  # its workers, if it did not end by itself
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert status == 0, (directory / "output").read_text(errors="replace")[-3000:]
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    return {_plain(row["id"]): Result(row["outcome"], row["text"], row["seconds"]) for row in rows}


def _plain(test: str) -> str:
    """Tempest appends ids and tags: ``test_x[id-...,smoke]``."""
    return test.partition("[")[0]


def check(suite: str, results: Mapping[str, Result], *, at_least: int) -> None:
    """Fails unless exactly the tests in the suite's rows of the table do not pass, and `at_least` tests pass."""
    rows = [row.pattern for row in OUT_OF_SCOPE if row.suite == suite]
    listed = {test for test in results if any(fnmatchcase(test, f"*.{row}") for row in rows)}
    others = {test: result for test, result in results.items() if result.outcome != "ok" and test not in listed}
    told = "\n\n".join(f"{test}: {result.outcome}\n{result.text[-1500:]}" for test, result in others.items())
    assert not others, f"{len(others)} tests do not pass and are not in the table:\n{told[-20000:]}"
    passing = sorted(test for test in listed if results[test].outcome == "ok")
    assert not passing, f"take these out of out_of_scope.py, they pass: {passing}"
    unused = [row for row in rows if not any(fnmatchcase(test, f"*.{row}") for test in results)]
    assert not unused, f"rows of out_of_scope.py that match no test: {unused}"
    passed = sum(result.outcome == "ok" for result in results.values())
    assert passed >= at_least, f"only {passed} tests passed"
