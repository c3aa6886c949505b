"""Breaks the code of each requirement's modules, and reports the requirements whose tests do not notice.

usage: make mutate ARGS="--page provider-config --row R16 --row R19 --mutants 10 --seed 2"

For each row of docs/evidence/specs: the tests that claim the row run once, to learn which lines of its modules they
execute. Then cosmic-ray changes one place in these lines at a time (an operator, a comparison, a number, a condition, a
loop), in a copy of src/, and the same tests run against the copy. A mutant that no test fails on has survived. Some
survivors change nothing that anybody can observe; look at each one before you write a test for it.

Tests under the directories `SLOW` start processes, whose lines are not seen: they run only for rows without any other
test. Runs in .venv-mutate; the tests run in .venv.
"""

import argparse
import ast
import difflib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tools import spec_rows

ROOT = spec_rows.ROOT
BUILD = ROOT / "build" / "mutants"
PYTHON = ROOT / ".venv" / "bin" / "python"
SLOW = ("tests/system/", "tests/nova/", "tests/qemu/", "tests/browser/", "tests/crash/", "tests/simulation/")
#: Operators that change types in annotations, decorators or names only, or whose mutants hardly ever compile.
LEFT_OUT = re.compile(r"/(NoOp|RemoveDecorator|Variable\w+|ReplaceBinaryOperator_BitOr_\w+)$")
FIRST_RUN_LIMIT_S = 900


@dataclass(frozen=True)
class Row:
    page: str
    id: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Mutant:
    module: str
    line: int
    operator: str
    occurrence: int


@dataclass(frozen=True)
class Result:
    row: Row
    seconds: float  #: of one run of the tests without a mutant
    killed: int
    survivors: tuple[str, ...]  #: a diff of each
    unmeasured: str = ""  #: why there was nothing to mutate


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutation tests of the rows of docs/evidence/specs.")
    parser.add_argument("--page", action="append", help="only this page, for example provider-config")
    parser.add_argument("--row", action="append", help="only this row, for example R16")
    parser.add_argument("--mutants", type=int, default=6, help="for each row, drawn at random (default: 6)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default: 1)")
    parser.add_argument("--jobs", type=int, default=2, help="runs of tests at a time (default: 2)")
    asked = parser.parse_args()
    chosen = [
        row for row in rows() if (not asked.page or row.page in asked.page) and (not asked.row or row.id in asked.row)
    ]
    if not chosen:
        print("no row has that page and id", file=sys.stderr)
        return 2
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    results = []
    for row in chosen:
        result = measured(row, asked.mutants, random.Random(f"{asked.seed} {row.page} {row.id}"), asked.jobs)
        results.append(result)
        print_result(result)
        (BUILD / "results.json").write_text(json.dumps([asdict(result) for result in results], indent=1))
    survived = sum(bool(result.survivors) for result in results)
    unmeasured = sum(bool(result.unmeasured) for result in results)
    print(f"{len(results)} rows: {survived} with survivors, {unmeasured} not measured; {BUILD / 'results.json'}")
    return 0


def rows() -> Iterator[Row]:
    """All rows with a Python module and a test, in the order of the pages."""
    tests = spec_rows.claimed()
    for page in sorted(spec_rows.PAGES.glob("*.md")):
        for line in page.read_text().splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            claimed = tests.get((page.stem, cells[0].strip()))
            if not claimed:
                continue
            fast = sorted((test for test in claimed if not test.startswith(SLOW)), key=_kind, reverse=True)
            modules = re.findall(r"`(src/[^`]+\.py)`", cells[-2])
            if modules:
                yield Row(page.stem, cells[0].strip(), tuple(modules), tuple(fast or claimed))


def _kind(test: str) -> int:
    """Higher for the tests that fail fastest, which run first: a mutant is killed by its first failure."""
    kind = test.split("/")[1]
    return spec_rows.KINDS.index(kind) if kind in spec_rows.KINDS else -1


def measured(row: Row, number: int, dice: random.Random, jobs: int) -> Result:
    started = time.monotonic()
    lines = executed_lines(row)
    seconds = time.monotonic() - started
    if isinstance(lines, str):
        return Result(row, seconds, 0, (), lines)
    mutants = [mutant for module in row.modules for mutant in mutants_of(module, lines.get(module, frozenset()))]
    if not mutants:
        return Result(row, seconds, 0, (), "its tests execute no line of its modules that can be mutated")
    drawn = dice.sample(mutants, min(number, len(mutants)))
    copies: SimpleQueue[Path] = SimpleQueue()
    for worker in range(jobs):
        copies.put(copy_of_source(worker))
    with ThreadPoolExecutor(jobs) as threads:
        diffs = list(threads.map(partial(survivor, row, copies, 30 + 3 * seconds), drawn))
    survivors = tuple(diff for diff in diffs if diff is not None)
    return Result(row, seconds, len(drawn) - len(survivors), survivors)


def executed_lines(row: Row) -> dict[str, frozenset[int]] | str:
    """{module: lines that the row's tests execute within functions}, or why this cannot be said."""
    data = BUILD / "coverage"
    report = BUILD / "executed.json"
    only = (
        f"--include={','.join(row.modules)}"  # anything else would be traced for nothing, which takes most of the run
    )
    run = ["-m", "coverage", "run", f"--data-file={data}", only, "-m", "pytest", *OPTIONS, *row.tests]
    done = pytest(run, ROOT / "src", FIRST_RUN_LIMIT_S)
    if done != 0:
        return f"its tests fail without a mutant (exit status {done})"
    subprocess.run([PYTHON, "-m", "coverage", "json", f"--data-file={data}", "-o", report, "-q"], cwd=ROOT, check=True)
    files = json.loads(report.read_text())["files"]
    return {
        module: frozenset(files[module]["executed_lines"]) & mutable_lines((ROOT / module).read_text())
        for module in row.modules
        if module in files
    }


OPTIONS = ("-x", "-q", "--suite=all", "-p", "no:cacheprovider", "-p", "no:xdist")


def pytest(arguments: list[str], source: Path, limit_s: float) -> int:
    """The exit status of a run of the modules below `source`; 124 if it took longer than `limit_s`."""
    environment = os.environ | {"PYTHONPATH": f"{source}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(
            [PYTHON, *arguments, "-o", f"pythonpath={source} {ROOT}"],
            cwd=ROOT,
            env=environment,
            timeout=limit_s,
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ).returncode
    except subprocess.TimeoutExpired:
        return 124


def mutable_lines(source: str) -> frozenset[int]:
    """Lines of statements within functions, without docstrings and annotations that have a line of their own."""
    lines = set()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                    lines |= set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return frozenset(lines)


def mutants_of(module: str, lines: frozenset[int]) -> Iterator[Mutant]:
    tree = get_ast((ROOT / module).read_text())
    for name in sorted(cosmic_ray.plugins.operator_names()):
        if LEFT_OUT.search(name):
            continue
        operator = cosmic_ray.plugins.get_operator(name)()
        positions = (position for node in ast_nodes(tree) for position in operator.mutation_positions(node))
        for occurrence, (start, _end) in enumerate(positions):
            if start[0] in lines:
                yield Mutant(module, start[0], name, occurrence)


def copy_of_source(worker: int) -> Path:
    copy = BUILD / str(worker)
    if not copy.exists():
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def survivor(row: Row, copies: SimpleQueue[Path], limit_s: float, mutant: Mutant) -> str | None:
    """Runs the row's tests against the mutant; its diff if they pass."""
    source = (ROOT / mutant.module).read_text()
    mutated = mutate_code(source, cosmic_ray.plugins.get_operator(mutant.operator)(), mutant.occurrence)
    copy = copies.get()
    path = copy / Path(mutant.module).relative_to("src")
    try:
        path.write_text(mutated)
        if pytest(["-m", "pytest", *OPTIONS, *row.tests], copy, limit_s) != 0:
            return None
    finally:
        path.write_text(source)
        copies.put(copy)
    changed = difflib.unified_diff(source.splitlines(), mutated.splitlines(), mutant.module, "", "", "", 0, "")
    return "\n".join(changed)


def print_result(result: Result) -> None:
    row = result.row
    if result.unmeasured:
        print(f"{row.page} {row.id}: not measured: {result.unmeasured}", flush=True)
        return
    total = result.killed + len(result.survivors)
    print(f"{row.page} {row.id}: {result.killed} of {total} mutants killed ({result.seconds:.0f} s a run)", flush=True)
    for diff in result.survivors:
        print("    " + diff.replace("\n", "\n    "), flush=True)


if __name__ == "__main__":
    sys.exit(main())
