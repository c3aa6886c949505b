"""The page on adding a filter: its weigher works as shown, and its tables of fields are complete.

`tests/pages` installs and runs the page's filter, its test and its package.
"""

import dataclasses
import re
from pathlib import Path

from moorage.scheduler.filters import HostState, ServerRequirements
from moorage.scheduler.weighers import WEIGHERS, HostFacts, WeigherInput
from moorage.wiring.scheduler import FILTERS_GROUP, WEIGHERS_GROUP

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "adding-a-filter.md"
TEXT = PAGE.read_text()
SCHEDULING = (PAGE.parent / "scheduling.md").read_text()


def named(kind):
    """The fields in the table of `kind`."""
    rows = TEXT.partition(f"`{kind.__module__}.{kind.__name__}` |")[2].partition("\n\n")[0].splitlines()
    return {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1] if "|" in row else "")}


def test_the_tables_list_every_field():
    for kind in (HostState, ServerRequirements, HostFacts, WeigherInput):
        assert named(kind) == {field.name for field in dataclasses.fields(kind)}


def test_the_page_names_the_groups_of_entry_points():
    for group in (FILTERS_GROUP, WEIGHERS_GROUP):
        assert f'[project.entry-points."{group}"]' in TEXT


def test_the_scheduling_page_lists_every_weigher_with_its_multiplier():
    table = SCHEDULING.partition("| weigher | prefers | multiplier |")[2].partition("\n\n")[0]
    listed = {}
    for names, _, multiplier in (row.strip("| ").split(" | ") for row in table.splitlines()[2:]):
        listed |= {name: float(multiplier.replace(",", "")) for name in re.findall(r"`(\w+)`", names)}
    assert listed == {name: multiplier for name, (_, multiplier) in WEIGHERS.items()}


def test_the_weighers_of_the_page_work():
    (code,) = re.findall(r"^```python weigher\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(compile(code, f"{PAGE.name}: weigher", "exec"), names)
    tests = [name for name in names if name.startswith("test_")]
    assert tests == ["test_the_host_with_fewest_is_first", "test_the_host_with_most_licences_is_first"]
    for name in tests:
        names[name]()
