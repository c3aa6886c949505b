"""The decisions name what exists: constants, classes, functions and attributes in backticks."""

import ast
import collections
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = sorted((ROOT / "docs" / "evidence" / "decisions").glob("0*.md"))

#: ``Committer._exact``, ``MAX_GROUP``, ``_begin``: our names have an underscore, or a capital after a small letter.
NAME = re.compile(r"`((?:\w+\.)*\w*(?:_\w+|[a-z][A-Z]\w*))(?:\([^`]*\))?`")

#: Names of PostgreSQL, libpq and the kernel.
OF_OTHERS = {"statement_timeout", "PQexecPrepared", "pipeline_flush", "epoll_ctl", "epoll_wait"}


@pytest.fixture(scope="module")
def source():
    places = ("src", "tests", "bench", "tools")
    files = [file for place in places for file in (ROOT / place).rglob("*.py") if file != Path(__file__)]
    return "\n".join(file.read_text() for file in files)


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_names_in_a_decision_exist_in_the_source(page, source):
    said = page.read_text().partition("## Considered")[0]
    words = {word for name in NAME.findall(said) for word in name.split(".")} - OF_OTHERS
    assert sorted(word for word in words if not re.search(rf"\b{word}\b", source)) == []


#: A row of the table in decision 26: (class, packages).
SHARED_NAME = re.compile(r"^\| `(\w+)` \| ([\w, ]+) \|", re.MULTILINE)


def test_a_public_class_name_has_one_meaning():
    """Only the names in the table of decision 26 are in two packages, and each of these is."""
    found = collections.defaultdict(set)
    for file in (ROOT / "src").rglob("*.py"):
        package = file.relative_to(ROOT / "src").parts[:-1][-1 if "os_acc" in file.parts else 1 :][:1] or ("moorage",)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].update(package)
    (page,) = (page for page in DECISIONS if page.stem.startswith("0026"))
    written = {name: set(packages.split(", ")) for name, packages in SHARED_NAME.findall(page.read_text())}
    assert {name: packages for name, packages in found.items() if len(packages) > 1} == written
