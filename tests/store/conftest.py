"""Selects the databases for a test: SQLite, unless a marker names others.

Mark a test if its result depends on the database: on SQL that no other test runs there, on a driver, on locks and
isolation, on types and collations, or on DDL. The code above the statements is the same for each database, so its tests
use SQLite.
"""

from collections.abc import Iterator

import pytest

from tests.conftest import DATABASES
from tests.servers import temporary_database

SQLITE, POSTGRESQL, MARIADB = DATABASES

on_every_database = pytest.mark.parametrize("kind", DATABASES, indirect=True)
#: For cases that cannot occur on SQLite: two writers at a time, or a lost connection.
on_servers = pytest.mark.parametrize("kind", [POSTGRESQL, MARIADB], indirect=True)
on_postgresql = pytest.mark.parametrize("kind", [POSTGRESQL], indirect=True)
on_mariadb = pytest.mark.parametrize("kind", [MARIADB], indirect=True)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """``sqlite``, ``postgresql`` or ``mariadb``."""
    return getattr(request, "param", "sqlite")


@pytest.fixture
def database_url(kind: str) -> Iterator[str]:
    """URL of an empty database of this kind."""
    with temporary_database(kind) as url:
        yield url
