"""Divides the tests into the core suite (`make test`) and the extended suite (`make test-all`).

    pytest --suite=core          the tests of `make test`
    pytest --suite=extended      all others, which `make test-all` runs
    pytest                       both; a test that is named on the command line always runs

A test belongs to the suite of the closest of its markers ``core`` and ``extended``. Without such a marker it is
extended if it needs a server or an environment that `make test` does not prepare (`EXTENDED_MARKERS`), and otherwise
belongs to the suite of its directory (`EXTENDED_PATHS`).

Files without a test of the selected suite are not imported: collecting all of them takes half a minute.
"""

from pathlib import Path

import pytest

CORE, EXTENDED, ALL = "core", "extended", "all"

ROOT = Path(__file__).parents[1]

#: Directories and files whose tests are extended.
EXTENDED_PATHS = (
    "tests/browser",
    "tests/conformance",
    "tests/crash",
    "tests/differential",
    "tests/fuzz",
    "tests/nova",
    "tests/pages",
    "tests/container",
    "tests/qemu",
    "tests/simulation",
    "tests/store/previous_release",
    "tests/system",
    "tests/transport",
    "tests/wire/network/test_openapi.py",
    "tests/wire/operations/test_hostile_flavors.py",
    "tests/wire/placement/test_openapi.py",
    "tests/wire/test_hostile_dashboard.py",
    "tests/wire/test_hostile_identity.py",
    "tests/wire/test_hostile_values.py",
)

#: Needs a database server, a broker, or a virtual environment that only `make test-all` installs.
EXTENDED_MARKERS = frozenset(
    {
        "postgresql",
        "mariadb",
        "rabbit",
        "documents",
        "keystone",
        "glance",
        "tempest",
        "ansible",
        "neutron",
        "ironic",
        "nova",
    }
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--suite",
        choices=(CORE, EXTENDED, ALL),
        default=ALL,
        help="core: what `make test` runs; extended: what only `make test-all` runs; all: both (the default)",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    wanted = config.getoption("suite")
    if wanted == ALL or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    by_path = suite_of_path(collection_path.relative_to(ROOT).as_posix())
    if by_path == wanted:
        return None
    # Extended tests in a core file: they have a marker of their own, or one on the parameter that names a database.
    hints = (
        ("mark.core",) if wanted == CORE else ("mark.extended", "database", *(f"mark.{m}" for m in EXTENDED_MARKERS))
    )
    text = collection_path.read_text(encoding="utf-8")
    return None if any(hint in text for hint in hints) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("suite")
    if wanted == ALL:
        return
    chosen = [item for item in items if suite_of(item) == wanted]
    config.hook.pytest_deselected(items=[item for item in items if suite_of(item) != wanted])
    items[:] = chosen


def suite_of(item: pytest.Item) -> str:
    names = [marker.name for marker in item.iter_markers()]  # the closest one first
    for name in names:
        if name in (CORE, EXTENDED):
            return name
    if EXTENDED_MARKERS.intersection(names):
        return EXTENDED
    return suite_of_path(item.path.relative_to(ROOT).as_posix())


def suite_of_path(path: str) -> str:
    """`path` is relative to the root of the repository."""
    return EXTENDED if any(path == prefix or path.startswith(f"{prefix}/") for prefix in EXTENDED_PATHS) else CORE
