"""ARCHITECTURE.md names what exists: files, tests, packages with their sub-packages, and each function of the three flows."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()

#: ``ServerService.create``: one of our classes and its method; not ``docs/README.md``.
METHOD = re.compile(r"(?<![\w/])(_?[A-Z]\w+)\.(_?[a-z]\w+)\b")


@functools.cache
def definitions(directory: str) -> dict[str, set[str]]:
    """{class: its methods}; functions outside of classes are under the empty name."""
    found: dict[str, set[str]] = {"": set()}
    for path in (ROOT / directory).rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                names = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
                found.setdefault(node.name, set()).update(names)
            elif isinstance(node, ast.FunctionDef):
                found[""].add(node.name)
    return found


def test_named_files_exist():
    named = re.findall(r"`((?:src|tests|docs|tools)/[^`*]+)`", TEXT)
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert named


def test_named_tests_exist():
    named = re.findall(r"`(test_\w+)`", TEXT)
    assert sorted(set(named) - definitions("tests")[""]) == []
    assert named


def test_named_methods_exist():
    named = METHOD.findall(TEXT)
    assert [f"{kind}.{name}" for kind, name in named if name not in definitions("src").get(kind, ())] == []
    assert named


def test_every_function_of_the_flows_exists_in_the_file_named_with_it():
    """Such a pair is ``| 1 | `compute/servers/create_service.py` `CreateService.create` | ...``, or the same in
    text.
    """
    section = TEXT.partition("## Three flows")[2].partition("\n## ")[0]
    named = re.findall(r"`([\w/]+\.py)`\s+`(\w+)(?:\.(\w+))?`", section)
    steps = re.findall(r"^\| \d+ \| `[\w/]+\.py` `[\w.]+` \|", section, re.MULTILINE)
    assert len(steps) == len(re.findall(r"^\| \d+ \|", section, re.MULTILINE)) > 20
    missing = []
    for path, name, method in named:
        file = ROOT / "src" / "moorage" / path
        parts = ast.parse(file.read_text()).body if file.exists() else []
        found = next((part for part in parts if getattr(part, "name", None) == name), None)
        methods = {getattr(part, "name", None) for part in getattr(found, "body", ())}
        if found is None or (method and method not in methods):
            missing.append(f"{path} {name}.{method}".rstrip("."))
    assert missing == []


def test_every_step_that_starts_a_lease_says_what_exists_after_a_kill():
    section = TEXT.partition("### Start a lease")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| \d+ \|.*\| ([^|]*) \|$", section, re.MULTILINE)
    assert len(rows) == len(set(rows)) == 6, "each step has a text of its own"
    assert [row for row in rows if not row.strip() or "below" in row] == []


def test_the_chain_of_a_devices_field_names_what_exists():
    """``    `name`   `file.py` `` in the docstring of `moorage.accelerator`; ARCHITECTURE.md sends readers there."""
    package = ROOT / "src" / "moorage" / "accelerator"
    chain = re.findall(r"^    `(\w+)`(?:, `\w+`)? +`([\w/]+\.py)`", (package / "__init__.py").read_text(), re.MULTILINE)
    assert len(chain) == 10
    assert ("_check_device", "model/reports.py") in chain
    assert [(name, file) for name, file in chain if not re.search(rf"\b{name}\b", (package / file).read_text())] == []


def test_the_table_of_subpackages_lists_exactly_those_that_exist():
    section = TEXT.partition("## The packages")[2].partition("\n## ")[0]
    rows = re.findall(
        r"^\| `(placement|compute|reservation|accelerator|agent)/` \| .* \| (.*) \|$", section, re.MULTILINE
    )
    assert len(rows) == 5
    for package, parts in rows:
        folder = ROOT / "src" / "moorage" / package
        there = {path.parent.name for path in folder.glob("*/__init__.py")} | {
            path.stem for path in folder.glob("*.py")
        }
        there -= {"__init__", "migrations"}
        named = set(re.findall(r"`(\w+)`", parts))
        assert named - there == set(), package
        assert {path.parent.name for path in folder.glob("*/__init__.py")} - {"migrations"} - named == set(), package


def test_every_package_has_a_row_in_the_table_of_subpackages():
    section = TEXT.partition("## The packages")[2].partition("\n## ")[0]
    listed = {name for row in re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE) for name in re.findall(r"\w+", row)}
    packages = {path.parent.name for path in (ROOT / "src").glob("moorage/*/__init__.py")} | {"os_acc"}
    assert packages - listed == set()
