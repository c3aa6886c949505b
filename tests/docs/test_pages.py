"""The pages for people: `docs/README.md` links each of them, and no link is broken."""

from pathlib import Path

import pytest

from tests.docs import named

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    *(page for top in ("bench", "docs", "src", "tests", "tools") for page in sorted((ROOT / top).rglob("*.md"))),
]


def links(page: Path) -> list[Path]:
    """The links of a page to files of the repository."""
    return [(page.parent / target).resolve() for target in named.links(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_an_existing_file_and_heading(page):
    assert named.missing_links(page) == []


def test_every_page_or_its_directory_is_linked_from_the_index():
    linked = {
        DOCS / "README.md",
        DOCS / "evidence" / "decisions",
        *links(DOCS / "README.md"),
        *links(DOCS / "evidence" / "README.md"),
        *links(DOCS / "runbooks" / "README.md"),
    }
    assert [page for page in PAGES if page.is_relative_to(DOCS) and not linked & {page, page.parent}] == []


def test_installing_and_upgrading_lead_to_the_flavors_of_bare_metal_nodes():
    """F11 (flavor-resources): also in the notes of the release, which are a part of the guide to upgrades."""
    guides = ROOT / "docs" / "guides"
    assert "](bare-metal-flavors.md)" in (guides / "installing.md").read_text()
    notes = (guides / "operations.md").read_text().split("### What changes with this release")[1].split("\n## ")[0]
    assert "](bare-metal-flavors.md#migrate-existing-servers)" in notes


def test_every_guide_is_linked_from_the_index():
    assert sorted(set((DOCS / "guides").glob("*.md")) - set(links(DOCS / "README.md"))) == []


def test_a_decision_has_the_number_of_its_file_in_its_title():
    for page in sorted((DOCS / "evidence" / "decisions").glob("0*.md")):
        assert page.read_text().startswith(f"# {int(page.name[:4])}. "), page.name
