"""Generates docs/reference/extra-specs.md from `moorage.scheduler`."""

import re
import textwrap

from moorage.scheduler import extra_specs
from tools.reference.tables import code, heading, table

WORDS = """
The extra specs of a flavor. [Scheduling](../guides/scheduling.md) tells how they choose a host, [bitstreams](../guides/bitstreams.md) what
those of accelerators mean.
"""
ASKED = """
## Keys for Placement

These are read at every microversion. An impossible value is refused when the flavor is changed; the message names the key.
"""
KNOWN = """
## Keys for hypervisors and accelerators

From microversion 2.86 of the Compute API, a value of another form and an unknown key of these namespaces are refused. Below it,
only keys that affect scheduling are checked. `#` is a number. Keys of other namespaces are stored and passed on unchecked.
"""


def page() -> str:
    return heading("Extra specs", WORDS) + ASKED + asked() + KNOWN + known()


def asked() -> str:
    """The table from the docstring of the module that reads them."""
    documented = re.search(r"Keys; (.+?):\n\n(.+?)\n\n", extra_specs.__doc__ or "", re.DOTALL)
    assert documented, "the docstring of moorage.scheduler.extra_specs lists the keys"
    where = " ".join(documented[1].split()).replace("``", "`").replace("`S`", "S")
    keys = textwrap.dedent(documented[2]).replace("``", "")
    return f"\n{where}:\n\n```text\n{keys}\n```\n"


def known() -> str:
    return table(
        ["key", "value"], [[code(key), meaning] for key, meaning in sorted(extra_specs.known_spec_meanings().items())]
    )
