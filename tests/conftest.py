"""Fixtures for all tests: the three databases, a clock, ids."""

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime

import hypothesis
import pytest
from sqlalchemy import Engine

from moorage.core.clock import VirtualClock
from moorage.core.ids import SeededIds
from moorage.db.engine import open_engine
from tests.memory import collect_rarely, keep_imported, use_memory
from tests.run_record import RunRecord
from tests.servers import temporary_database

# pytest looks for these here.
from tests.suites import (  # noqa: F401 - pytest finds hooks by name
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_ignore_collect,
)

use_memory()
collect_rarely()

#: Not midnight, so that rounding to days shows.
START = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)

# The same examples in every run, so that a failure comes from the change under test. EXPLORE=1 tries new ones.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", print_blob=True, deadline=None)
hypothesis.settings.load_profile("explore" if os.environ.get("EXPLORE") else "repeatable")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(RunRecord())


def pytest_collection_finish() -> None:
    keep_imported()


# A shell's background job ignores Ctrl-C, and so would its children: tests that send it would hang.
signal.signal(signal.SIGINT, signal.default_int_handler)

DATABASES = [
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.postgresql),
    pytest.param("mariadb", marks=pytest.mark.mariadb),
]


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """Services set the umask of their process; a test that starts one in this process must not change later tests."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of an empty database of each kind."""
    with temporary_database(request.param) as url:
        yield url


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on `database_url`."""
    engine = open_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def sqlite_engine(tmp_path) -> Iterator[Engine]:
    """An engine on a fresh SQLite file, for tests that do not depend on the database."""
    engine = open_engine(f"sqlite:///{tmp_path}/moorage.sqlite")
    yield engine
    engine.dispose()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def ids() -> SeededIds:
    return SeededIds(1)
