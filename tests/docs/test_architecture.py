"""ARCHITECTURE.md names what is there: files, tests, classes and their methods."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()

#: ``ServerService.create``: a class of ours and one of its methods; not ``docs/README.md``.
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


def test_every_package_has_its_row_among_the_rooms():
    section = TEXT.partition("## The rooms")[2].partition("\n## ")[0]
    rooms = {name for row in re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE) for name in re.findall(r"\w+", row)}
    packages = {path.parent.name for path in (ROOT / "src").glob("moorage/*/__init__.py")} | {"os_acc"}
    assert packages - {"core", "cli"} - rooms == set(), "core and cli are in the picture of the layers"
