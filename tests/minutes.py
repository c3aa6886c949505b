"""Prints the durations of test runs.

usage: python -m tests.minutes RECORD...            a table by directory per record, as in docs/evidence/bench/tests.md
       python -m tests.minutes --total RECORD...    the number of passed tests in all of them, in one line

`tests.run_record` writes the records.
"""

import argparse
import sys
from pathlib import Path

from tests.run_record import by_directory, read_record

#: Directories that take less are one row.
LEAST_S = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description="Where the minutes of test runs go.")
    parser.add_argument("--total", action="store_true", help="only how many tests passed, failed and were skipped")
    parser.add_argument("records", nargs="+", metavar="RECORD", type=Path)
    given = parser.parse_args()
    if given.total:
        return total(given.records)
    for path in given.records:
        print("\n".join(page(path)), end="\n\n")
    return 0


def total(records: list[Path]) -> int:
    """0 if each run left a record and none of their tests failed."""
    missing = [str(path) for path in records if not path.exists()]
    for path in missing:
        print(f"no record of a run: {path}")
    runs = [read_record(path) for path in records if path.exists()]
    for run in runs:
        for test, observed in run.get("unsteady", {}).items():
            print(f"unsteady: {test} ({observed})")
    failed = sum(len(run["failed"]) for run in runs)
    # An unsteady test has passed in the end.
    passed = sum(run["passed"] + len(run.get("unsteady", {})) for run in runs)
    print(f"{passed} passed, {failed} failed, {sum(run['skipped'] for run in runs)} skipped")
    return 1 if failed or missing else 0


def page(path: Path) -> list[str]:
    run = read_record(path)
    cpu_s = sum(test["cpu_s"] for test in run["tests"].values())
    took = f"{run['wall_s'] / 60:.1f} minutes with {run['workers']} workers; {cpu_s / 60:.1f} minutes of CPU."
    lines = [
        f"{len(run['tests'])} tests in {took}",
        "",
        "| directory | tests | wall s | CPU s |",
        "|---|---|---|---|",
    ]
    rest = [0, 0.0, 0.0]
    for directory, (count, wall_s, its_cpu_s) in by_directory(run["tests"]):
        if wall_s < LEAST_S:
            rest = [rest[0] + count, rest[1] + wall_s, rest[2] + its_cpu_s]
        else:
            lines.append(f"| {directory} | {count} | {wall_s:.0f} | {its_cpu_s:.0f} |")
    lines.append(f"| all others | {rest[0]} | {rest[1]:.0f} | {rest[2]:.0f} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
