"""Runs the commands of each page in order, each page on its own plane."""

import tempfile
from pathlib import Path

import pytest

from tests.pages.blocks import ROOT, hosts_of, pages
from tests.pages.runner import run

pytestmark = [pytest.mark.slow, pytest.mark.clients]

PAGES = [page for page in pages() if hosts_of(page) is not None]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_the_page_print_what_it_shows(page):
    # Not in pytest's directory: the home contains sockets, and the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="page-") as directory:
        assert run(page, Path(directory)) > 0
