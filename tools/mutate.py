"""Breaks the code of each requirement's modules, and reports the requirements whose tests do not notice.

usage: make mutate ARGS="--page provider-config --row R16 --row R19 --mutants 10 --seed 2"

For each row of docs/evidence/specs: the tests that claim the row run once, to learn which statements of its modules they
execute. Then one place in these statements is changed at a time, and those of the tests that execute the statement run
against it. A mutant that no test fails on has survived. Some survivors change nothing that anybody can observe, and some
are not about the row; look at each one before you write a test for it. A survivor is shown with another test that kills
it, if there is one among those of rows with the same module.

The module cell of a row may name the functions, classes or constants that the row is about (``:`` and names in
backticks after the module), or one argument of a constant (``PAUSE.accelerators``): then only these are changed. Without names, the statements are drawn from all that the
row's tests execute within functions of the module, those most often that the tests of few other rows execute.

cosmic-ray makes most changes (an operator, a comparison, a number, a condition, a loop). `removals` and `replacements`
are further ones: a statement that only has an effect is left out, and an argument of a constant gets the value that it
has elsewhere in the module.

Tests under the directories `SLOW` start processes, whose statements are not seen: they run only for rows without any
other test, against a copy of src/. Runs in .venv-mutate; the tests run in .venv (`tools.mutant_tests`).
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
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tools import spec_rows

ROOT = spec_rows.ROOT
BUILD = ROOT / "build" / "mutants"
PYTHON = ROOT / ".venv" / "bin" / "python"
SLOW = ("tests/system/", "tests/nova/", "tests/qemu/", "tests/browser/", "tests/crash/", "tests/simulation/")
#: Operators that change types in annotations, decorators or names only, whose mutants hardly ever compile, or that
#: exchange equality and identity; and further variants of one change: `!=` is enough for `==`.
LEFT_OUT = re.compile(
    r"/(NoOp|RemoveDecorator|Variable\w+|ReplaceBinaryOperator_(BitOr_\w+|\w+_(RShift|LShift|Pow|BitXor|Mod|FloorDiv))"
    r"|ReplaceComparisonOperator_(Is_(?!IsNot)|IsNot_(?!Is)|Eq_(?!NotEq)|NotEq_(?!Eq))\w+"
    r"|ReplaceComparisonOperator_\w+_(Is|IsNot))$"
)
#: In a module cell: the lines of the log in the named functions, which are not changed otherwise.
LOG = "log"
#: Mutants of one statement for one row.
AT_MOST = 3
SLOW_LIMIT_S = 900
#: The time for tests that do not claim the row, to find one that kills a survivor.
OTHERS_S = 3.0


class Statement(NamedTuple):
    first: int  #: line
    last: int
    argument: str = ""  #: change only this argument of a constant, or remove a line of the log (`LOG`)


@dataclass(frozen=True)
class Row:
    page: str
    id: str
    scopes: dict[str, tuple[str, ...]]  #: {module: names of functions, classes and constants; empty: all}
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.page} {self.id}"


@dataclass(frozen=True)
class Mutant:
    module: str
    statement: Statement
    operator: str
    source: str = field(repr=False)  #: of the whole module
    diff: str

    @property
    def is_replaceable(self) -> bool:
        return self.module.endswith(".py")


@dataclass(frozen=True)
class Result:
    row: Row
    killed: tuple[str, ...] = ()  #: a diff of each
    survivors: tuple[tuple[str, str | None], ...] = ()  #: the diff, and another test that kills it
    unmeasured: str = ""  #: why there was nothing to mutate


@dataclass(frozen=True)
class Measured:
    """What the tests execute without a mutant."""

    seconds: dict[str, float]
    failing: frozenset[str]
    lines: dict[str, dict[int, frozenset[str]]]  #: {module: {line: tests}}

    def tests_of(self, module: str, statement: Statement) -> frozenset[str]:
        lines = self.lines.get(module, {})
        return frozenset().union(*(lines.get(line, ()) for line in range(statement.first, statement.last + 1)))


class Tests:
    """The process that runs the tests (`tools.mutant_tests`)."""

    def __init__(self, tests: list[str]) -> None:
        self._process = subprocess.Popen(
            [PYTHON, "-m", "tools.mutant_tests", *tests],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the process that runs the tests has ended")
        return json.loads(line)

    def measure(self, modules: list[str]) -> Measured:
        answer = self.ask({"measure": modules})
        return Measured(
            {test: run["seconds"] for test, run in answer["tests"].items()},
            frozenset(test for test, run in answer["tests"].items() if run["fails"]),
            {
                module: {int(line): frozenset(tests) for line, tests in lines.items()}
                for module, lines in answer["lines"].items()
            },
        )

    def killer(self, mutant: Mutant, tests: list[str], limit_s: float) -> str | None:
        """The test that fails on the mutant."""
        order = {"module": mutant.module, "source": mutant.source, "tests": tests, "limit_s": limit_s}
        answer = self.ask(order | {"imported": True}) if mutant.is_replaceable else {"not_replaceable": True}
        if answer.get("not_replaceable"):
            answer = self.ask(order | {"imported": False, "limit_s": limit_s + 60})
        return answer["killed_by"]


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutation tests of the rows of docs/evidence/specs.")
    parser.add_argument("--page", action="append", help="only this page, for example provider-config")
    parser.add_argument("--row", action="append", help="only this row, for example R16")
    parser.add_argument("--mutants", type=int, default=8, help="for each row, drawn at random (default: 8)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default: 1)")
    parser.add_argument("--out", default="results", help="the results are in build/mutants/OUT.json")
    parser.add_argument("--slow", action="store_true", help="also rows that only tests of whole processes show")
    asked = parser.parse_args()
    known = list(rows())
    chosen = [
        row for row in known if (not asked.page or row.page in asked.page) and (not asked.row or row.id in asked.row)
    ]
    if not chosen:
        print("no row has that page and id", file=sys.stderr)
        return 2
    BUILD.mkdir(parents=True, exist_ok=True)
    modules = sorted({module for row in chosen for module in row.scopes})
    beside = [row for row in known if set(row.scopes) & set(modules)]
    tests = Tests(sorted({test for row in beside for test in row.tests if not test.startswith(SLOW)}))
    measured = tests.measure([module for module in modules if module.endswith(".py")])
    results = []
    for row in chosen:
        dice = random.Random(f"{asked.seed} {row.page} {row.id}")
        if row.tests[0].startswith(SLOW):
            result = slow_result(row, asked.mutants, dice) if asked.slow else Result(row, unmeasured="slow tests only")
        else:
            result = result_of(row, beside, measured, tests, asked.mutants, dice)
        results.append(result)
        print_result(result)
        (BUILD / f"{asked.out}.json").write_text(json.dumps([asdict(result) for result in results], indent=1))
    survived = sum(bool(result.survivors) for result in results)
    unmeasured = sum(bool(result.unmeasured) for result in results)
    print(f"{len(results)} rows: {survived} with survivors, {unmeasured} not measured; {BUILD / f'{asked.out}.json'}")
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
            scopes = spec_rows.scopes_in(cells[-2])
            if scopes:
                fast = [test for test in claimed if not test.startswith(SLOW)]
                yield Row(page.stem, cells[0].strip(), scopes, tuple(fast or claimed))


def result_of(
    row: Row, beside: list[Row], measured: Measured, tests: Tests, number: int, dice: random.Random
) -> Result:
    if failing := measured.failing & set(row.tests):
        return Result(row, unmeasured=f"fails without a mutant: {', '.join(sorted(failing))}")
    about = [
        (module, statement, in_function)
        for module, names in row.scopes.items()
        for statement, in_function in statements_in(module, names)
    ]
    executed = [
        (module, statement)
        for module, statement, in_function in about
        if not in_function or measured.tests_of(module, statement) & set(row.tests)
    ]
    if not executed and any(row.scopes.values()):
        # The tests start from a plane that an earlier test in the same process has prepared. In a fork they prepare it.
        executed = [(module, statement) for module, statement, _ in about]
    statements = {(module, statement): weight(module, statement, beside, measured) for module, statement in executed}
    killed, survivors = [], []
    for mutant in drawn(statements, number, dice):
        executing = measured.tests_of(mutant.module, mutant.statement)
        # A constant is evaluated by the import, so any test may depend on it.
        own = sorted((executing & set(row.tests)) or row.tests, key=lambda test: measured.seconds.get(test, 0))
        others = quickest((executing or tests_beside(mutant.module, beside)) - set(row.tests), measured)
        if tests.killer(mutant, own, limit_s(own, measured)):
            killed.append(mutant.diff)
        else:
            by = tests.killer(mutant, others, limit_s(others, measured)) if others else None
            survivors.append((mutant.diff, by))
    if not killed and not survivors:
        return Result(row, unmeasured="its tests execute no statement of its modules that can be mutated")
    return Result(row, tuple(killed), tuple(survivors))


def tests_beside(module: str, beside: list[Row]) -> frozenset[str]:
    return frozenset(test for row in beside if module in row.scopes for test in row.tests if not test.startswith(SLOW))


def quickest(tests: frozenset[str], measured: Measured) -> list[str]:
    """As many as take `OTHERS_S` seconds together."""
    chosen, total = [], 0.0
    for test in sorted(tests, key=lambda test: (measured.seconds.get(test, 0), test)):
        total += measured.seconds.get(test, 0)
        if total > OTHERS_S:
            break
        chosen.append(test)
    return chosen


def limit_s(tests: list[str], measured: Measured) -> float:
    return 30 + 4 * sum(measured.seconds.get(test, 0) for test in tests)


def weight(module: str, statement: Statement, beside: list[Row], measured: Measured) -> float:
    executing = measured.tests_of(module, statement)
    return 1 / max(1, sum(module in row.scopes and bool(executing & set(row.tests)) for row in beside))


def drawn(statements: dict[tuple[str, Statement], float], number: int, dice: random.Random) -> Iterator[Mutant]:
    """Up to `number` mutants, of different statements as far as there are."""
    left = {place: list(mutants_of(*place)) for place in statements}
    left = {place: dice.sample(mutants, min(len(mutants), AT_MOST)) for place, mutants in left.items()}
    while number and any(left.values()):
        places = [place for place, mutants in left.items() if mutants]
        weights = [statements[place] for place in places]
        while places and number:
            (place,) = dice.choices(places, weights)
            weights.pop(places.index(place))
            places.remove(place)
            yield left[place].pop()
            number -= 1


def statements_in(module: str, names: tuple[str, ...]) -> list[tuple[Statement, bool]]:
    """The lines of each statement, and whether it belongs to a function, whose statements tests execute.

    A compound statement counts as its header. With `names`, those of the functions, classes and constants with these
    names; otherwise those of all functions. Docstrings and imports are left out.
    """
    if module.endswith(".json"):
        return [(Statement(line, line), False) for line in sorted({line for line, _ in schema_changes(module, names)})]
    found: list[tuple[Statement, bool]] = []

    def visit(nodes: list[ast.stmt], *, inside: bool, wanted: bool, outer: str) -> None:
        for node in nodes:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                name = f"{outer}{node.name}"
                is_function = isinstance(node, ast.FunctionDef)
                visit(
                    node.body,
                    inside=inside or is_function,
                    wanted=wanted or name in names or node.name in names,
                    outer=f"{name}.",
                )
                continue
            if isinstance(node, ast.Import | ast.ImportFrom) or (
                isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            ):
                continue
            is_named = wanted or bool(names_assigned(node) & set(names))
            found.extend((statement, False) for statement in arguments_in(node, names))
            bodies = [
                part for part in ("body", "orelse", "finalbody", "handlers", "cases") if getattr(node, part, None)
            ]
            if LOG in names:
                if is_named and is_log(node):
                    found.append((Statement(node.lineno, node.end_lineno or node.lineno, LOG), inside))
            elif is_named or (inside and not names):
                end = node.end_lineno or node.lineno
                if bodies:
                    first = getattr(node, bodies[0])[0]
                    line = getattr(first, "lineno", None) or first.pattern.lineno
                    end = max(node.lineno, line - 1)
                found.append((Statement(node.lineno, end), inside))
            for part in bodies:
                for inner in getattr(node, part):
                    visit(
                        inner.body if hasattr(inner, "body") and not isinstance(inner, ast.stmt) else [inner],
                        inside=inside,
                        wanted=is_named,
                        outer=outer,
                    )

    visit(tree_of(module).body, inside=False, wanted=False, outer="")
    return list(dict.fromkeys(found))


def arguments_in(node: ast.stmt, names: tuple[str, ...]) -> Iterator[Statement]:
    """The arguments that `names` names (``PAUSE.accelerators``) if `node` defines their constant."""
    for name in names_assigned(node):
        for word in ast.walk(node):
            if isinstance(word, ast.keyword) and word.arg and f"{name}.{word.arg}" in names:
                yield Statement(word.value.lineno, word.value.lineno, word.arg)


def names_assigned(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {name.id for target in targets if target for name in ast.walk(target) if isinstance(name, ast.Name)}


@cache
def text_of(module: str) -> str:
    return (ROOT / module).read_text()


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(text_of(module))


def mutants_of(module: str, statement: Statement) -> Iterator[Mutant]:
    seen = {text_of(module)}
    for operator, line, change in changes_of(module):
        if operator.partition(" of ")[2] != statement.argument and (statement.argument or operator.endswith(LOG)):
            continue
        if statement.first <= line <= statement.last:
            source = change()
            if source in seen or not compiles(source):
                continue
            seen.add(source)
            lines = difflib.unified_diff(text_of(module).splitlines(), source.splitlines(), module, "", "", "", 0, "")
            yield Mutant(module, statement, operator, source, "\n".join(list(lines)[2:]))


def compiles(source: str) -> bool:
    """Without a warning, such as that of ``is`` with a literal."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            compile(source, "mutant", "exec", dont_inherit=True)
        except (SyntaxError, SyntaxWarning):
            return False
    return True


@cache
def changes_of(module: str) -> list[tuple[str, int, Any]]:
    """``(operator, line, function that returns the changed source)``"""
    text = text_of(module)
    if module.endswith(".json"):
        return [("schema", line, lambda new=new: new) for line, new in schema_changes(module, ())]
    found: list[tuple[str, int, Any]] = []
    tree = get_ast(text)
    for name in sorted(cosmic_ray.plugins.operator_names()):
        if LEFT_OUT.search(name):
            continue
        operator = cosmic_ray.plugins.get_operator(name)()
        positions = (position for node in ast_nodes(tree) for position in operator.mutation_positions(node))
        for occurrence, (start, _end) in enumerate(positions):
            found.append(
                (
                    name,
                    start[0],
                    lambda operator=operator, occurrence=occurrence: mutate_code(text, operator, occurrence),
                )
            )
    for name, node, new in (*removals(module), *replacements(module)):
        found.append((name, node.lineno, lambda node=node, new=new: edited(text, node, new)))
    return found


def schema_changes(module: str, names: tuple[str, ...]) -> list[tuple[int, str]]:
    """``(line, changed text)``: each constraint of an object with one of the names is renamed, or its number moved."""
    lines = text_of(module).splitlines(keepends=True)
    found, above = [], []
    for at, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        above = [(depth, name) for depth, name in above if depth < indent]
        if key := re.match(r'\s*"([^"]+)": [\[{]', line):
            above.append((indent, key[1]))
        owner = above[-1][1] if above else ""
        if "remedies" in (owner, *re.findall(r'"([^"]+)"', line)) or (names and owner not in names):
            continue
        for constraint in re.finditer(rf'"({"|".join(CONSTRAINTS)})": ', line):
            new = line[: constraint.start(1)] + "x-" + line[constraint.start(1) :]
            found.append((at + 1, "".join([*lines[:at], new, *lines[at + 1 :]])))
        for number in re.finditer(r": (\d+)(?=[,\n}])", line):
            new = line[: number.start(1)] + str(int(number[1]) + 1) + line[number.end(1) :]
            found.append((at + 1, "".join([*lines[:at], new, *lines[at + 1 :]])))
    return found


CONSTRAINTS = (
    "type", "required", "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "oneOf",
    "minProperties", "propertyNames", "additionalProperties", "items", "if", r"\$ref",
)  # fmt: skip


def removals(module: str) -> Iterator[tuple[str, ast.AST, str]]:
    """Statements that only have an effect: a call, an error, an entry or attribute that is set or deleted."""
    for node in ast.walk(tree_of(module)):
        is_effect = (
            (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
            or isinstance(node, ast.Raise | ast.AugAssign | ast.Delete)
            or (isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple))
        )
        if is_effect:
            yield f"removal of {LOG}" if is_log(node) else "removal", node, "pass"


def is_log(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and "log." in ast.unparse(node.value.func)


def replacements(module: str) -> Iterator[tuple[str, ast.AST, str]]:
    """Values of the arguments of constants, and constants of a class that stand for a choice."""
    text = text_of(module)
    values: dict[str, list[str]] = defaultdict(list)
    members: dict[str, list[str]] = defaultdict(list)
    at_import = [
        word
        for statement in tree_of(module).body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for word in ast.walk(statement)
        if isinstance(word, ast.keyword) and word.arg
    ]
    for word in at_import:
        values[word.arg].append(ast.get_source_segment(text, word.value))
    chosen = [
        node
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and re.fullmatch("[A-Z][A-Z_0-9]+", node.attr)
    ]
    for node in chosen:
        members[node.value.id].append(node.attr)
    for word in at_import:
        now = ast.get_source_segment(text, word.value)
        for new in sorted(set(values[word.arg]) - {now}):
            yield f"replacement of {word.arg}", word.value, new
    for node in chosen:
        if node.value.id[0].isupper() and (others := sorted(set(members[node.value.id]) - {node.attr})):
            yield "replacement", node, f"{node.value.id}.{others[node.lineno % len(others)]}"


def edited(text: str, node: Any, new: str) -> str:
    lines = text.splitlines(keepends=True)
    start = sum(len(line) for line in lines[: node.lineno - 1]) + len(
        lines[node.lineno - 1].encode()[: node.col_offset].decode()
    )
    end = sum(len(line) for line in lines[: node.end_lineno - 1]) + len(
        lines[node.end_lineno - 1].encode()[: node.end_col_offset].decode()
    )
    return text[:start] + new + text[end:]


def slow_result(row: Row, number: int, dice: random.Random) -> Result:
    """Runs tests that start processes, against a copy of src/."""
    copy = BUILD / "src"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    if not passes(row.tests, copy):
        return Result(row, unmeasured="its tests fail without a mutant")
    statements = {
        (module, statement): 1.0
        for module, names in row.scopes.items()
        for statement, _ in statements_in(module, names)
    }
    killed, survivors = [], []
    for mutant in drawn(statements, number, dice):
        path = copy / Path(mutant.module).relative_to("src")
        path.write_text(mutant.source)
        if passes(row.tests, copy):
            survivors.append((mutant.diff, None))
        else:
            killed.append(mutant.diff)
        path.write_text(text_of(mutant.module))
    return Result(row, tuple(killed), tuple(survivors))


def passes(tests: tuple[str, ...], source: Path) -> bool:
    environment = os.environ | {"PYTHONPATH": f"{source}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    options = (
        "-x",
        "-q",
        "--suite=all",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-o",
        f"pythonpath={source} {ROOT}",
    )
    try:
        done = subprocess.run(
            [PYTHON, "-m", "pytest", *options, *tests],
            cwd=ROOT,
            env=environment,
            timeout=SLOW_LIMIT_S,
            check=False,
            capture_output=True,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def print_result(result: Result) -> None:
    if result.unmeasured:
        print(f"{result.row.name}: not measured: {result.unmeasured}", flush=True)
        return
    total = len(result.killed) + len(result.survivors)
    print(f"{result.row.name}: {len(result.killed)} of {total} mutants killed", flush=True)
    for diff, by in result.survivors:
        print("    " + diff.replace("\n", "\n    "), flush=True)
        print(f"    {'killed by ' + by if by else 'no test kills it'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
