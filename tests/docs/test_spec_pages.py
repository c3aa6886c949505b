"""The pages of docs/evidence/specs have every requirement once, and name only modules and tests that exist."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.docs.named import ROOT, missing_tests
from tools import spec_rows

PAGES = ROOT / "docs" / "evidence" / "specs"

#: How many requirements (R, F) and resolved ambiguities (A) each page has; they are numbered from 1.
NUMBERING = {
    "accelerator-attach": {"R": 54, "A": 17},
    "flavor-resources": {"F": 12},
    "instance-reservation": {"R": 38, "A": 16},
    "provider-config": {"R": 29},
}


@dataclass(frozen=True)
class Row:
    page: str
    id: str
    requirement: str
    module_cell: str
    test_cell: str

    @property
    def modules(self) -> list[str]:
        return re.findall(r"`((?:src|docs)/[^`]+)`", self.module_cell)

    @property
    def tests(self) -> list[str]:
        return re.findall(r"`(tests/[^`]+)`", self.test_cell)

    @property
    def is_planned(self) -> bool:
        return self.module_cell.startswith("to be ")

    @property
    def is_open(self) -> bool:
        return re.search(r"not yet \(issue \d+\)", self.test_cell) is not None


def rows_of(page: str) -> Iterator[Row]:
    for line in (PAGES / f"{page}.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if re.fullmatch(r"[A-Z]\d+", cells[0]):
            *requirement, module_cell, test_cell = cells[1:]
            yield Row(page, cells[0], " ".join(requirement), module_cell, test_cell)


ROWS = [row for page in NUMBERING for row in rows_of(page)]


def test_every_page_of_the_directory_is_checked():
    assert {path.stem for path in PAGES.glob("*.md")} == set(NUMBERING)


@pytest.mark.parametrize("page", NUMBERING)
def test_every_id_appears_once_and_in_order(page):
    for letter, last in NUMBERING[page].items():
        ids = [row.id for row in ROWS if row.page == page and row.id.startswith(letter)]
        assert ids == [f"{letter}{number}" for number in range(1, last + 1)]


def test_every_row_states_a_requirement_and_names_a_module_and_a_test_or_an_issue():
    assert [row for row in ROWS if not (row.requirement and row.modules and (row.tests or row.is_open))] == []


def test_the_functions_classes_and_constants_that_a_module_cell_names_exist():
    """`make mutate` changes only these."""
    missing = [
        (row.page, row.id, module, name)
        for row in ROWS
        for module, names in spec_rows.scopes_in(row.module_cell).items()
        for name in names
        if name not in names_in(module)
    ]
    assert missing == []


def names_in(module: str) -> set[str]:
    text = (ROOT / module).read_text()
    if module.endswith(".json"):
        return set(re.findall(r'"([^"]+)": [{[]', text))
    tree = ast.parse(text)
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    methods = {
        f"{node.name}.{part.name}"
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for part in node.body
        if isinstance(part, ast.FunctionDef)
    }
    assigned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    arguments = {
        f"{name.id}.{word.arg}"
        for node in tree.body
        if isinstance(node, ast.Assign)
        for name in node.targets
        if isinstance(name, ast.Name)
        for word in ast.walk(node)
        if isinstance(word, ast.keyword)
    }
    return defined | methods | assigned | arguments | {"log"}


def test_a_row_claims_a_module_only_with_a_test():
    """A built row names module and test; any other says `to be` and `not yet (issue N)`."""
    assert [row for row in ROWS if row.is_planned != (not row.tests)] == []


def test_the_test_column_is_as_the_generator_writes_it():
    """`make reference` fills the column from the docstrings of the tests."""
    tests = spec_rows.claimed()
    stale = [page.name for page, text in spec_rows.written(tests).items() if text != page.read_text()]
    assert stale == []


def test_a_row_lists_a_test_of_each_directory_that_shows_it():
    """Sorting by path once hid the tests over HTTP and of whole systems behind those of single functions."""
    unit, wire, system = (
        [f"tests/{kind}/test_a.py::test_{n}" for n in range(9)] for kind in ("unit", "wire", "system")
    )
    line = "| R1 | something | `src/a.py` | nothing |\n"
    filled = spec_rows.filled(line, "page", {("page", "R1"): [*system, *unit, *wire]})
    assert re.findall(r"tests/(\w+)/", filled) == ["system", "wire", "unit"] * 2
    assert filled.endswith("<br>and 21 more |\n")


def test_modules_of_built_rows_exist():
    built = (row for row in ROWS if not row.is_planned)
    assert [(row, module) for row in built for module in row.modules if not (ROOT / module).exists()] == []


def test_named_tests_exist():
    assert missing_tests(test for row in ROWS for test in row.tests) == []


def test_specs_named_by_modules_have_a_page():
    nameless = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        for named in re.findall(r"^Spec: *(.*)$", docstring, re.MULTILINE):
            pages = re.findall(r"docs/evidence/specs/([\w-]+)\.md", named)
            if not pages or not set(pages) <= set(NUMBERING):
                nameless.append(f"{path.relative_to(ROOT)}: {named}")
    assert nameless == []
