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


def release_notes():
    """{who is concerned: what to do}"""
    page = (DOCS / "reference" / "upgrade-notes.md").read_text()
    rows = [line.strip("|").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return {concerned.strip(): advice.strip() for concerned, advice in rows[1:]}


@pytest.mark.parametrize("guide", ["installing.md", "upgrading-from-openstack-placement.md"])
def test_installing_and_upgrading_describe_the_flavors_of_custom_classes(guide):
    """F10, F11 (flavor-resources): a class that is asked for, and the three that are not."""
    text = (DOCS / "guides" / guide).read_text()
    assert "resources:CUSTOM_" in text
    assert "resources:VCPU=0" in text
    assert all(name in text for name in ("MEMORY_MB", "DISK_GB"))
    assert "](bare-metal-flavors.md" in text


def test_the_notes_of_the_release_tell_when_to_change_flavors():
    """F11 (flavor-resources)."""
    advice = release_notes()["have servers on bare-metal nodes from before the nodes had a resource class"]
    assert "](../guides/bare-metal-flavors.md#migrate-existing-servers) before you create flavors" in advice


def test_the_notes_of_the_release_tell_what_changes_for_reservations():
    """R37, R38 (instance-reservation): affinity, the objects that a lease no longer has, and the end of the upgrade."""
    notes = release_notes()
    assert "leave `affinity` out" in notes["reserve instances"]
    assert "aggregate or server group" in notes["reserve instances"]
    assert "moorage reservation finish-upgrade" in notes["have leases that Blazar made"]


def test_the_notes_of_the_release_name_the_provider_configuration_files():
    """R29 (provider-config)."""
    advice = [text for text in release_notes().items() if "](../guides/provider-configuration.md)" in "".join(text)]
    assert len(advice) == 1
    assert "moorage provider-config validate" in advice[0][1]


def test_every_guide_is_linked_from_the_index():
    assert sorted(set((DOCS / "guides").glob("*.md")) - set(links(DOCS / "README.md"))) == []


def test_a_decision_has_the_number_of_its_file_in_its_title():
    for page in sorted((DOCS / "evidence" / "decisions").glob("0*.md")):
        assert page.read_text().startswith(f"# {int(page.name[:4])}. "), page.name
