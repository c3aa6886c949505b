"""Databases of tests: a reused database is equal to a new one."""

import pytest
from sqlalchemy import Engine

from moorage.db.engine import open_engine
from tests.conftest import DATABASES
from tests.databases import Schema
from tests.servers import temporary_database


def make(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE counters (id integer PRIMARY KEY, value integer)")
        connection.exec_driver_sql("INSERT INTO counters VALUES (1, 0)")


def rows(url: str, *before: str) -> list[tuple]:
    engine = open_engine(url)
    with engine.begin() as connection:
        for statement in before:
            connection.exec_driver_sql(statement)
        found = [tuple(row) for row in connection.exec_driver_sql("SELECT id, value FROM counters")]
    engine.dispose()
    return found


@pytest.mark.parametrize("kind", DATABASES)
@pytest.mark.parametrize(
    "change",
    ["UPDATE counters SET value = 7", "INSERT INTO counters VALUES (2, 1)", "DELETE FROM counters"],
)
def test_a_reused_database_has_the_rows_of_its_schema_whatever_the_previous_test_changed(kind, change):
    schema = Schema("counters", make)
    with temporary_database(kind, schema) as url:
        assert rows(url, change) != [(1, 0)]
    with temporary_database(kind, schema) as url:
        assert rows(url) == [(1, 0)]
