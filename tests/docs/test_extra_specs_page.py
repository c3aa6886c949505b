"""The table of extra specs has every key that Nova knows, and the page has every key of the table."""

import re
from pathlib import Path

import pytest

from moorage.scheduler.spec_table import SPECS, HonouredBy, image_entry, spec_entry
from tests.docs.named import ROOT

_LINES = Path(__file__).with_name("nova_extra_specs.txt").read_text().splitlines()
NOVA = [tuple(line.split(" ", 1)) for line in _LINES if not line.startswith("#")]
PAGE = (ROOT / "docs" / "reference" / "extra-specs.md").read_text()
#: Values for the variable parts of the validators' names.
_PARTS = {"num": "1", "group": "_A", "resource": "X", "trait": "X", "key": "x", "filter": ":arch"}


def test_the_list_of_nova_is_complete():
    """The numbers of Nova 34.0.0: a shortened list would make the next test say less."""
    assert (sum(kind == "flavor" for kind, _ in NOVA), sum(kind == "image" for kind, _ in NOVA)) == (127, 109)


@pytest.mark.parametrize(("kind", "name"), NOVA, ids=[" ".join(line) for line in NOVA])
def test_every_key_of_nova_is_in_the_table(kind, name):
    if kind == "flavor":
        assert spec_entry(re.sub(r"\{(\w+)\}", lambda part: _PARTS[part[1]], name)) is not None
    elif name == "traits_required":  # the field; the property is trait:<TRAIT>=required
        assert image_entry("trait:HW_CPU_X86_AVX2") is not None
    elif name in ("hw_numa_cpus", "hw_numa_mem"):  # the fields; the properties have numbers
        assert image_entry(f"{name}.0") is not None
    else:
        assert image_entry(name) is not None


def test_every_key_of_the_table_is_on_the_page_once():
    rows = re.findall(r"^\| (`[^|]+?`|) \| (`[^|]+?`|) \|", PAGE, re.MULTILINE)
    listed = [name for cells in rows for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    known = [
        name
        for entry in SPECS
        for name in (entry.key, *entry.aliases, entry.image, *entry.image_aliases)
        if name
    ]  # fmt: skip
    assert sorted(listed) == sorted(known)
    flavors = [name for entry in SPECS for name in (entry.key, *entry.aliases) if name]
    images = [name for entry in SPECS for name in (entry.image, *entry.image_aliases) if name]
    assert len(flavors) == len(set(flavors))
    assert len(images) == len(set(images))


def test_every_entry_says_what_it_becomes():
    assert [entry.key or entry.image for entry in SPECS if not entry.becomes] == []
    assert {entry.by for entry in SPECS} == set(HonouredBy)
