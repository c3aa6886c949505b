"""Runs the code and tests of docs/wire/adding-a-microversion.md, block by block, and checks the paths in it."""

import importlib
import re
from pathlib import Path

from moorage.wire.microversion import Version, VersionRange

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "wire" / "adding-a-microversion.md"
TEXT = PAGE.read_text()
BLOCKS = re.findall(r"^```python (\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)

_names: dict = {}
#: {block: the range of versions, the route table and the body schema of the service after this block}
AFTER: dict = {}
for _name, _code in BLOCKS:
    exec(compile(_code, f"{PAGE.name}: {_name}", "exec"), _names)
    AFTER[_name] = {name: _names[name] for name in ("VERSIONS", "ROUTES", "CREATE")}

#: The tests that the page shows, and their fixture.
globals().update({name: thing for name, thing in _names.items() if name.startswith("test_") or name == "send"})


def test_all_tests_of_the_page_are_run():
    assert (
        len([name for name in globals() if name.startswith("test_") and name in TEXT]) == TEXT.count("\ndef test_") == 4
    )


def test_the_new_version_cannot_be_requested_before_the_last_step():
    assert {name: str(after["VERSIONS"].maximum) for name, after in AFTER.items()} == {
        **dict.fromkeys(("before", "number", "body", "answer", "routes", "words"), "1.0"), "range": "1.1", "test": "1.1",
    }  # fmt: skip
    assert AFTER["body"]["CREATE"].for_version(Version(1, 0)) is AFTER["before"]["CREATE"]


def test_the_files_and_names_of_the_page_exist():
    for path in re.findall(r"`((?:src|tests|requirements)/[\w./-]+)`", TEXT):
        assert (ROOT / path).exists(), path
    for name, path in re.findall(r"`(\w+)` in\s+`((?:src)/[\w./]+)`", TEXT):
        assert re.search(rf"^{name}\b", (ROOT / path).read_text(), re.MULTILINE), (name, path)


def test_the_page_names_no_number_of_a_migration_which_the_next_migration_would_take():
    assert "`NNNN_colour.py`" in TEXT
    assert re.findall(r"\b\d{4}_\w+\.py", TEXT) == []


def test_the_version_ranges_are_in_the_files_that_the_page_names():
    rows = re.findall(r"^\| (\w+) \| `src/([\w/]+)\.py` \| `src/([\w/]+)\.py` \|", TEXT, re.MULTILINE)
    assert [service for service, _, _ in rows] == ["placement", "compute", "accelerator", "reservation"]
    for service, at, routes in rows:
        versions = importlib.import_module(at.replace("/", ".")).VERSIONS
        assert isinstance(versions, VersionRange)
        assert importlib.import_module(routes.replace("/", ".")).API.versions is versions, service
