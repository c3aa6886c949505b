"""Finds the names in a page of docs/ and checks that they exist. Imports none of the named modules."""

import ast
import functools
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: ``[words](path#heading)``: a link to a file of the repository.
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")


def missing_tests(named: Iterable[str]) -> list[str]:
    """The pytest ids in `named` for which no test exists."""
    missing = []
    for test in named:
        path, *names = test.partition("[")[0].split("::")
        if tuple(names) not in _tests_of(ROOT / path):
            missing.append(test)
    return missing


def missing_links(page: Path) -> list[str]:
    """The links of which the file, or the heading in it, does not exist."""
    missing = []
    for path, heading in _LINK.findall(page.read_text()):
        file = page.parent / path if path else page
        if not file.exists() or (heading and heading not in _anchors_of(file)):
            missing.append(f"{path}#{heading}" if heading else path)
    return missing


def links(page: Path) -> list[str]:
    """The linked paths, as written."""
    return [path for path, _ in _LINK.findall(page.read_text()) if path]


@functools.cache
def _tests_of(path: Path) -> set[tuple[str, ...]]:
    """Names of the tests in a file: ``{("test_a",), ("TestB", "test_c")}``."""
    if not path.is_file():
        return set()
    found: set[tuple[str, ...]] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add((node.name,))
        elif isinstance(node, ast.ClassDef):
            # A hypothesis state machine is a test by assignment: TestX = Machine.TestCase
            found |= {(node.name, part.name) for part in node.body if isinstance(part, ast.FunctionDef)}
        elif isinstance(node, ast.Assign):
            found |= {(target.id,) for target in node.targets if isinstance(target, ast.Name)}
    return {names for names in found if names[-1].lower().startswith("test")}


@functools.cache
def _anchors_of(page: Path) -> set[str]:
    """Anchors of the headings as code hosts create them: lower case, words joined by dashes, no other punctuation."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
