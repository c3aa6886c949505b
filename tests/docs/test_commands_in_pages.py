"""A test runs every command in a page, or the source of the page says why not (see tests/pages/blocks.py)."""

import pytest

from tests.docs.named import missing_tests
from tests.pages.blocks import ROOT, blocks, hosts_of, pages
from tests.pages.runner import agrees

PAGES = [page for page in pages() if blocks(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_commands_is_run_or_has_a_reason_why_not(page):
    for block in blocks(page):
        assert hosts_of(page) is not None or {"not run", "run by"} & set(block.marks), (
            f"{block.where}: nothing runs this. Write '<!-- page: run on a plane -->' below the title of the page, or above the"
            " block '<!-- run by: tests/a.py::test_b -->' or '<!-- not run: WHY -->'; tests/pages/blocks.py has them all"
        )
        if "run by" in block.marks:
            assert missing_tests(block.marks["run by"].split()) == [], block.where
        if "not run" in block.marks:
            assert len(block.marks["not run"].split()) >= 4, f"{block.where}: say why"


def test_few_blocks_are_not_run():
    found = [block for page in PAGES for block in blocks(page)]
    without = [f"{block.where}: {block.marks['not run']}" for block in found if "not run" in block.marks]
    print(f"{len(found)} blocks of commands, {len(without)} of them not run:", *without, sep="\n")
    assert len(without) <= len(found) // 4, without


@pytest.mark.parametrize(
    ("shown", "printed", "alike"),
    [
        ("", "anything", True),
        ("a  b\n", "a b", True),
        ("a", "b", False),
        ("a\nb", "a", False),
        ("a", "a\nb", False),
        ("a\n...", "a\nb\nc", True),
        ("...\nc", "a\nb\nc", True),
        ("a\n...\nd", "a\nb\nc", False),
        ("id 5e2a0d6b…", "id 5e2a0d6b-6d0f-4b3a-9d0e-2f0f6d1c9a11", False),
        ("id 5e2a0d6b-6d0f-4b3a-9d0e-2f0f6d1c9a11", "id 00000000-0000-4000-8000-00000000000a", True),
        ("id …", "id 00000000-0000-4000-8000-00000000000a", True),
        ("at 2026-12-01 08:00", "at 2027-01-03T09:10:11Z", True),
        ("| a |\n+---+", "| a     |\n+-------+", True),
        ("total 3", "total 4", False),
    ],
)
def test_the_comparison_ignores_values_that_differ_from_run_to_run(shown, printed, alike):
    assert agrees(shown, printed) is alike
