"""The pages of docs/reference equal those generated from the code."""

from xml.etree import ElementTree as ET

import pytest

from moorage.core.errors import MoorageError
from tools import pictures, reference_pages
from tools.reference import errors

#: Pages written by hand; other tests compare the names in them with the code.
BY_HAND = {
    "accelerator-drivers", "audit-findings", "audit-trail", "bitstream-manifest", "change-log", "failures",
    "consoles", "libvirt", "metrics", "oidc", "patroni", "reservations", "restoring-a-cluster", "second-site", "state-directory", "upgrade-notes",
}  # fmt: skip


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_the_page_equals_the_one_generated_from_the_code(name):
    page = (reference_pages.DIRECTORY / f"{name}.md").read_text()
    assert page == reference_pages.PAGES[name](), "stale; run: make reference"


def descendants(kind):
    yield kind
    for below in kind.__subclasses__():
        yield from descendants(below)


def test_every_page_is_generated_or_listed_as_written_by_hand():
    others = {"commands", "licences", "server-operations"}  # tools: commands_page.py, packages.py, operations_page.py
    pages = {path.stem for path in reference_pages.DIRECTORY.glob("*.md")}
    assert pages == set(reference_pages.PAGES) | others | BY_HAND


def test_the_page_of_errors_has_every_error_class_and_code():
    """The generator parses the source; this test compares its result with the existing classes and the codes in use."""
    collected = set(errors.collected())
    kinds = {kind.code for kind in descendants(MoorageError) if kind.__module__.startswith(("moorage.", "os_acc."))}
    assert kinds - collected == set()
    known = {"placement.concurrent_update", "identity.token_unknown", "images.exists", "jobs.fenced"}
    assert known - collected == set()
    source = "".join(path.read_text() for path in errors.SOURCE.rglob("*.py"))
    assert [code for code in errors.BESIDES if f'"{code}"' not in source] == []


def test_the_pictures_equal_the_generated_ones():
    for name, picture in pictures.PICTURES.items():
        drawn = (pictures.DIRECTORY / f"{name}.svg").read_text()
        assert drawn == pictures.draw(*picture), "stale; run: make reference"
        ET.fromstring(drawn)
    assert {path.stem for path in pictures.DIRECTORY.glob("*.svg")} >= set(pictures.PICTURES)
