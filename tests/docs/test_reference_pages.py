"""The pages of docs/reference equal those generated from the code."""

from xml.etree import ElementTree as ET

import pytest

from moorage.core.errors import MoorageError
from tools import pictures, reference_pages
from tools.reference import errors

#: Written by hand; other tests compare what they name with the code.
BY_HAND = {
    "accelerator-drivers", "audit-findings", "audit-trail", "bitstream-manifest", "change-log", "failures",
    "libvirt", "metrics", "reservations", "state-directory",
}  # fmt: skip


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_the_page_is_what_the_code_says(name):
    page = (reference_pages.DIRECTORY / f"{name}.md").read_text()
    assert page == reference_pages.PAGES[name](), "stale; run: make reference"


def descendants(kind):
    yield kind
    for below in kind.__subclasses__():
        yield from descendants(below)


def test_there_is_no_page_that_nothing_writes():
    others = {"commands", "licences", "server-operations"}  # tools: commands_page.py, packages.py, operations_page.py
    pages = {path.stem for path in reference_pages.DIRECTORY.glob("*.md")}
    assert pages == set(reference_pages.PAGES) | others | BY_HAND


def test_every_error_class_and_every_word_that_looks_like_a_code_is_collected():
    """The generator parses the source; this compares it with the existing classes and passed codes."""
    collected = set(errors.collected())
    kinds = {kind.code for kind in descendants(MoorageError) if kind.__module__.startswith(("moorage.", "os_acc."))}
    assert kinds - collected == set()
    known = {"placement.concurrent_update", "identity.token_unknown", "images.exists", "jobs.fenced"}
    assert known - collected == set()
    source = "".join(path.read_text() for path in errors.SOURCE.rglob("*.py"))
    assert [code for code in errors.BESIDES if f'"{code}"' not in source] == []


def test_pictures_are_as_they_are_said():
    for name, picture in pictures.PICTURES.items():
        drawn = (pictures.DIRECTORY / f"{name}.svg").read_text()
        assert drawn == pictures.draw(*picture), "stale; run: make reference"
        ET.fromstring(drawn)
    assert {path.stem for path in pictures.DIRECTORY.glob("*.svg")} >= set(pictures.PICTURES)
