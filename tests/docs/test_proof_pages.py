"""docs/evidence/proof and security.md: every clause appears once, with a proof that exists."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from bench.plan import stages
from tests.docs.named import ROOT, missing_links, missing_tests

PAGES = [*sorted((ROOT / "docs" / "evidence" / "proof").glob("*.md")), ROOT / "docs" / "evidence" / "security.md"]


class Row(NamedTuple):
    id: str
    clause: str
    shown_by: str
    result: str


def rows_of(page) -> Iterator[Row]:
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if re.fullmatch(r"[A-Z]\d+", cells[0]):
            yield Row(*cells)


@pytest.fixture(params=PAGES, ids=lambda page: page.stem)
def page(request):
    return request.param


def test_every_clause_appears_once_and_in_order(page):
    ids = [row.id for row in rows_of(page)]
    letters = dict.fromkeys(one[0] for one in ids)
    assert ids == [f"{one}{number + 1}" for one in letters for number in range(sum(known[0] == one for known in ids))]
    assert ids


def test_every_clause_has_a_proof_and_a_result(page):
    shown = re.compile(r"`tests/|\]\(")
    assert [row.id for row in rows_of(page) if not (row.clause and shown.search(row.shown_by) and row.result)] == []


def test_named_tests_exist(page):
    assert missing_tests(re.findall(r"`(tests/[^`]+::[^`]+)`", page.read_text())) == []


def test_named_files_and_sections_exist(page):
    assert missing_links(page) == []


def test_named_rows_of_the_bench_exist():
    """Quoted names in the table of placement's speed are tests or rows of the bench."""
    table = (
        (ROOT / "docs" / "evidence" / "proof" / "placement.md")
        .read_text()
        .partition("\n## Fast")[2]
        .partition("\n## ")[0]
    )
    named = {
        name
        for line in table.splitlines()
        if re.match(r"\| F\d+ ", line)
        for name in re.findall(r"`([^`]+)`", line.split(" | ")[2])
        if not name.startswith(("tests/", "make "))
    }
    assert named - {row.name for stage in stages([1000, 10_000], full=True) for row in stage.measures} == set()
    assert named
