"""Runs each failed test of a run once more, alone, and tells whether it fails again.

usage: python -m tests.rerun RECORD [PAGE]        RECORD: the file that `tests.run_record` wrote

If a test fails again, the exit status is 1. A test that passes alone is unsteady: it is printed, recorded in PAGE
(``tests/unsteady.md``) with its first error, and moved to "unsteady" in the record; it does not make the run red. If
`MOST` tests or more failed, none is repeated.
"""

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.run_record import read_record

ROOT = Path(__file__).parents[1]
MOST = 30
TIMEOUT_S = 900


def main() -> int:
    path = Path(sys.argv[1])
    page = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "tests" / "unsteady.md"
    run = read_record(path)
    failed = run["failed"]
    if not failed:
        print("the run failed, but no test of it did: see its output")
        return 1
    if len(failed) >= MOST:
        print(f"{len(failed)} tests failed; none is run again")
        return 1
    unsteady = {test: observed for test, observed in failed.items() if passes_alone(test)}
    add_to_page(page, unsteady)
    run |= {"failed": {test: failed[test] for test in failed if test not in unsteady}, "unsteady": unsteady}
    path.write_text(json.dumps(run, indent=0), encoding="utf-8")
    for test in failed:
        how = "unsteady, fix it before anything else" if test in unsteady else "failed twice"
        print(f"{how}: {test} ({failed[test]})")
    return 1 if run["failed"] else 0


def passes_alone(test: str) -> bool:
    print(f"again, alone: {test}", flush=True)
    with tempfile.NamedTemporaryFile(suffix=".json") as elsewhere:
        command = [sys.executable, "-m", "tests.servers", str(Path(sys.executable).with_name("pytest")), "-q", test]
        environment = {**os.environ, "MOORAGE_TEST_RUN": elsewhere.name}
        try:
            return subprocess.run(command, cwd=ROOT, env=environment, check=False, timeout=TIMEOUT_S).returncode == 0
        except subprocess.TimeoutExpired:
            print(f"it did not end within {TIMEOUT_S} s")
            return False


def add_to_page(page: Path, unsteady: dict[str, str]) -> None:
    """Adds one row per test to the page of unsteady tests. `unsteady`: {test: its first error}."""
    today = datetime.now(UTC).date().isoformat()
    rows = [f"| {today} | `{test}` | {observed.replace('|', '/')} |\n" for test, observed in unsteady.items()]
    with page.open("a", encoding="utf-8") as file:
        file.writelines(rows)


if __name__ == "__main__":
    sys.exit(main())
