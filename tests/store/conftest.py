"""Which databases a test here runs on: SQLite, unless it is marked with one of these.

A test is marked when what it shows depends on the database: on statements that only it shows to be understood and to give
the same rows, on what a driver does, on locks and isolation, on types and collations, on DDL. What a service or a decider
does with the rows is the same everywhere, and is shown on SQLite.
"""

from collections.abc import Iterator

import pytest

from tests.conftest import DATABASES
from tests.servers import temporary_database

SQLITE, POSTGRESQL, MARIADB = DATABASES

on_every_database = pytest.mark.parametrize("kind", DATABASES, indirect=True)
#: For what SQLite cannot have: two writers, or a connection that is lost.
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
