"""docs/reference/extra-specs.md from `moorage.scheduler`."""

import re
import textwrap

from moorage.scheduler import extra_specs
from tools.reference.tables import code, heading, table

WORDS = """
What a flavor's extra specs may say. How a server finds its place by them is told in
[how a server finds its place](../guides/scheduling.md), what the accelerators' own mean in
[bitstreams](../guides/bitstreams.md).
"""
ASKED = """
## What is asked of Placement

Read at every microversion. What cannot be meant is refused when the flavor is changed, naming the key.
"""
KNOWN = """
## What hypervisors and accelerators read

A value that is not of this form, or a key of these namespaces that is not here, is refused from microversion 2.86 of
the Compute API on; below it only what bears on scheduling is checked. `#` is a number. Namespaces that are not here are
nobody's business: they are kept and passed on.
"""


def page() -> str:
    return heading("Extra specs", WORDS) + ASKED + asked() + KNOWN + known()


def asked() -> str:
    """As the docstring of the module that reads them lays them out."""
    documented = re.search(r"Keys that are read here, (.+?):\n\n(.+?)\n\n", extra_specs.__doc__ or "", re.DOTALL)
    assert documented, "the docstring of moorage.scheduler.extra_specs lists the keys"
    where = " ".join(documented[1].split()).replace("``", "`").replace("`S`", "S")
    keys = textwrap.dedent(documented[2]).replace("``", "")
    return f"\n{where}:\n\n```text\n{keys}\n```\n"


def known() -> str:
    return table(
        ["key", "value"], [[code(key), meaning] for key, meaning in sorted(extra_specs.known_spec_meanings().items())]
    )
