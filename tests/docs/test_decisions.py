"""The decisions name what exists: constants, classes, functions and attributes in backticks."""

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
