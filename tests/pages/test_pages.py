"""Runs the commands of each page in order, each page on its own plane."""

import tempfile
from pathlib import Path

import pytest

from tests.pages.blocks import ROOT, hosts_of, pages
from tests.pages.runner import run

pytestmark = [pytest.mark.slow, pytest.mark.clients]

PAGES = [page for page in pages() if hosts_of(page) is not None]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_the_page_shows_is_what_happens(page):
    # Not pytest's directory: sockets lie in the home, and the name of one has 107 bytes at the most.
    with tempfile.TemporaryDirectory(prefix="page-") as directory:
        assert run(page, Path(directory)) > 0
