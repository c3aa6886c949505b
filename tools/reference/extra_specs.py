"""Generates docs/reference/extra-specs.md from `moorage.scheduler`."""

import re
import textwrap
from collections.abc import Iterable, Sequence

from moorage.scheduler import extra_specs
from moorage.scheduler.spec_table import SPECS, HonouredBy, SpecEntry
from tools.reference.tables import code, heading, table

WORDS = """
This page lists the extra specs of a flavor and the properties of an image, with the parameter or setting that each one
becomes, and the component that honours it.
[Scheduling](../guides/scheduling.md) describes how they select a host, [bitstreams](../guides/bitstreams.md) the keys of
accelerators.

A flavor may have any key. Moorage refuses a server whose flavor or image has a key that no component honours, and names
the key and its value: at create, resize, rebuild, rescue, migrate, evacuate and unshelve. This includes unknown keys
that begin with `hw:`, `hw_rng:`, `hw_video:`, `os:`, `quota:`, `accel:` or `pci_passthrough:`, and unknown image
properties that begin with `hw_`. `[compute] ignored_extra_specs` lists those of the [refused keys](#keys-that-are-refused)
that Moorage is to ignore; a server's copy of its flavor shows them as `ignored:<key>`. Other keys that are not on this
page are stored and passed to filters of other packages.

An image that is made of a server gets the properties of the server's own image, except those of the last table and of
accelerators.

From microversion 2.86 of the Compute API, a change of a flavor is refused if a value does not have the listed form, or if
one of these keys is unknown. In keys, `#` is a number, `<S>` nothing or the suffix of a request group.
"""
ASKED = """
## Keys for Placement

These keys are read at every microversion. An impossible value is refused when the flavor is changed; the message names
the key. An incomplete set of keys is stored, and refused when a server uses it.
"""
HONOURED = """
## Keys with an effect
"""
REFUSED = """
## Keys that are refused

The third column says why no component honours the key. The last one lists values that are accepted, because every guest
has them anyway. Beside a real Nova, reservations of flavors with these keys reserve processors and memory only, except
that `hw:cpu_policy` reserves `PCPU`, and `hw:pmem` a class for each name.
"""
FACTS = """
## Image properties that only describe the image

They describe the image, or drivers used them that Nova 34 no longer has.
"""


def page() -> str:
    honoured = [entry for entry in SPECS if entry.by not in (HonouredBy.NOTHING, HonouredBy.FACT)]
    refused = [entry for entry in SPECS if entry.by is HonouredBy.NOTHING]
    facts = [entry for entry in SPECS if entry.by is HonouredBy.FACT]
    return "".join(
        [
            heading("Extra specs", WORDS), ASKED, asked(),
            HONOURED, rows(honoured, "becomes", "honoured by", [entry.by.value for entry in honoured]),
            REFUSED, rows(refused, "why", "accepted", [_words(entry.harmless_words) for entry in refused]),
            FACTS, rows(facts, "meaning", "honoured by", [entry.by.value for entry in facts]),
        ]
    )  # fmt: skip


def asked() -> str:
    """The table from the docstring of the module that reads them."""
    documented = re.search(r"Keys; (.+?):\n\n(.+?)\n\n", extra_specs.__doc__ or "", re.DOTALL)
    assert documented, "the docstring of moorage.scheduler.extra_specs lists the keys"
    where = " ".join(documented[1].split()).replace("``", "`").replace("`S`", "S")
    keys = textwrap.dedent(documented[2]).replace("``", "")
    return f"\n{where}:\n\n```text\n{keys}\n```\n"


def rows(entries: Iterable[SpecEntry], third: str, last: str, cells: Sequence[str]) -> str:
    return table(
        ["extra spec", "image property", third, "value", last],
        [
            [_names(entry.key, entry.aliases), _names(entry.image, entry.image_aliases), entry.becomes,
             _words(entry.meaning), cell]
            for entry, cell in zip(entries, cells, strict=True)
        ],
    )  # fmt: skip


def _names(name: str, more: Sequence[str]) -> str:
    return ", ".join(code(one) for one in (name, *more) if one)


def _words(text: str) -> str:
    """Angle brackets would be HTML elements."""
    return re.sub(r"(<[^>]+>)", r"`\1`", text) if "`" not in text else text
