"""Fills the test column of docs/evidence/specs/*.md from the docstrings of the tests.

usage: .venv/bin/python tools/spec_rows.py

A test names the requirements that it shows in its docstring, at the start of a sentence: ``R7, R16 (provider-config):
...``, or without the page if its directory implies the page (`OF_DIRECTORY`). A row lists up to `LIMIT` tests, in turn
one of each kind (`KINDS`), and then the number of the others. In a row with a test, "to be" is deleted, so check its
module cell, too. If a row is partly built, write the missing part by hand after its tests, ``<br>partly: ...``; it is
kept. Restore rows by hand if their tests were deleted.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "evidence" / "specs"
LIMIT = 6

#: The directories of tests/ in the order of listing: the tests that show most of the plane at once come first.
KINDS = ("nova", "system", "qemu", "browser", "wire", "transport", "store", "crash", "property", "unit")

OF_DIRECTORY = {
    "accelerator": "accelerator-attach",
    "os_acc": "accelerator-attach",
    "reservation": "instance-reservation",
    "scheduler": "flavor-resources",
}

#: Matches `R1, R8 (provider-config):`, `A2:`, and a docstring that consists of IDs only.
CLAIM = re.compile(
    r"(?:^|(?<=\. ))(?P<ids>[RFA]\d{1,2}(?:(?:, | and )[RFA]\d{1,2})*)(?: \((?P<page>[a-z-]+)\))?(?=[:,.]|\s*$)",
    re.MULTILINE,
)
#: Matches the hand-written remark about a partly built row.
PARTLY = re.compile(r"(<br>partly: .*) \|$")


def main() -> None:
    tests = claimed()
    for page, text in written(tests).items():
        page.write_text(text)
    for page_name, identifier in sorted(tests):
        print(f"{page_name} {identifier}: {len(tests[page_name, identifier])} tests", file=sys.stderr)


def claimed() -> dict[tuple[str, str], list[str]]:
    """The ids of the tests that say that they show a requirement, by page and requirement."""
    tests: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for page, identifier, test in claims(path):
            if test not in tests[page, identifier]:
                tests[page, identifier].append(test)
    return tests


def written(tests: dict[tuple[str, str], list[str]]) -> dict[Path, str]:
    """The text of each page with its test column filled."""
    return {
        page: "".join(filled(line, page.stem, tests) for line in page.read_text().splitlines(keepends=True))
        for page in sorted(PAGES.glob("*.md"))
    }


def claims(path: Path) -> Iterator[tuple[str, str, str]]:
    """``(page, requirement, test id)`` for every requirement that a test of the file says it shows."""
    directories = path.relative_to(ROOT / "tests").parts[:-1]
    by_directory = next((OF_DIRECTORY[name] for name in directories if name in OF_DIRECTORY), None)
    for names, docstring in tests_in(ast.parse(path.read_text())):
        for claim in CLAIM.finditer(docstring):
            if page := claim["page"] or by_directory:
                for identifier in re.findall(r"[RFA]\d+", claim["ids"]):
                    yield page, identifier, "::".join([str(path.relative_to(ROOT)), *names])


def tests_in(module: ast.Module) -> Iterator[tuple[list[str], str]]:
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            yield [node.name], ast.get_docstring(node) or ""
        elif isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and part.name.startswith("test"):
                    yield [node.name, part.name], ast.get_docstring(part) or ""


def filled(line: str, page: str, tests: dict[tuple[str, str], list[str]]) -> str:
    row = re.match(r"\| ([RFA]\d+) \| (.*) \| (?:to be )?(.*) \| .* \|$", line)
    if not row or (page, row[1]) not in tests:
        return line
    chosen = in_turn(tests[page, row[1]])
    named = "<br>".join(f"`{test}`" for test in chosen[:LIMIT])
    if len(chosen) > LIMIT:
        named += f"<br>and {len(chosen) - LIMIT} more"
    partly = PARTLY.search(line)
    return f"| {row[1]} | {row[2]} | {row[3]} | {named}{partly[1] if partly else ''} |\n"


def scopes_in(cell: str) -> dict[str, tuple[str, ...]]:
    """What a module cell is about; Python modules and JSON schemas only.

    ``"`src/a.py`: `f`, `g`; `src/b.py`"`` -> ``{"src/a.py": ("f", "g"), "src/b.py": ()}``
    """
    scopes: dict[str, tuple[str, ...]] = {}
    module = None
    for name in re.findall(r"`([^`]+)`", cell):
        if "/" in name:
            module = name if name.startswith("src/") and name.endswith((".py", ".json")) else None
            if module:
                scopes[module] = ()
        elif module:
            scopes[module] = (*scopes[module], name)
    return scopes


def in_turn(tests: list[str]) -> list[str]:
    """All tests: first the first of each kind, then the second of each kind, and so on."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        by_kind[test.split("/")[1]].append(test)
    kinds = sorted(by_kind, key=lambda kind: KINDS.index(kind) if kind in KINDS else len(KINDS))
    rounds = zip_longest(*(by_kind[kind] for kind in kinds))
    return [test for one_of_each in rounds for test in one_of_each if test is not None]


if __name__ == "__main__":
    main()
