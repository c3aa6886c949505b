"""Transactions in the driver's own words: the values of SQLAlchemy's, its errors, and nothing of a transaction that failed.

On all three databases: each driver has words of its own. Only how often work is repeated is the same for all.
"""

import time
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.exc import IntegrityError

from moorage.core.errors import RetryableConflict, Unavailable
from moorage.db import driver_statements
from moorage.db.prepared_transactions import PreparedDatabase
from moorage.db.transactions import read, write
from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, new_metadata
from tests.databases import Schema
from tests.migrated import engine_with
from tests.store.conftest import on_every_database, on_servers
from tests.store.test_questions import cut

METADATA = new_metadata()
BOAT = sa.Table(
    "boat",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(20)),
    sa.Column("afloat", sa.Boolean, nullable=False),
    sa.Column("crew", Json),
    sa.Column("launched_at", UtcDateTime),
    sa.Column("depth_m", sa.Float),
    **TABLE_OPTIONS,
)
ADA = {
    "id": 1, "name": "Ada's 100% ä", "afloat": True, "crew": [["Eve", {"age": 7}], None],
    "launched_at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), "depth_m": 1.5,
}  # fmt: skip
BOB = {"id": 2, "name": None, "afloat": False, "crew": None, "launched_at": None, "depth_m": None}

ALL = sa.select(BOAT).order_by(BOAT.c.id)
SOME = ALL.where(BOAT.c.id.in_(bindparam("ids", expanding=True)), BOAT.c.id < bindparam("below"))
INSERT = BOAT.insert()
RENAME = BOAT.update().where(BOAT.c.id == bindparam("of_id"))
SINK = BOAT.delete().where(BOAT.c.afloat.is_(False))


SCHEMA = Schema("boats-prepared", METADATA.create_all)


@pytest.fixture
def engine(kind):
    with engine_with(SCHEMA, kind) as engine:
        yield engine


@pytest.fixture
def database(engine):
    return PreparedDatabase(engine)


@pytest.fixture
def boats(database):
    database.in_transaction(lambda connection: connection.execute(INSERT, [ADA, BOB]))
    return database


def rows(database, statement=ALL, values=None):
    with database.read() as connection:
        return connection.execute(statement, values).mappings()


@on_every_database
def test_what_is_written_and_read_is_what_sqlalchemy_writes_and_reads(boats, engine):
    with read(engine) as connection:
        assert [dict(row) for row in connection.execute(ALL).mappings()] == [ADA, BOB]
    with write(engine) as connection:
        connection.execute(INSERT, ADA | {"id": 3})
    assert rows(boats) == [ADA, BOB, ADA | {"id": 3}]


@on_every_database
def test_a_statement_writes_the_columns_that_it_is_given(boats):
    def work(connection):
        renamed = connection.execute(RENAME, {"of_id": 2, "name": "Bea"})
        launched = connection.execute(RENAME, {"of_id": 2, "crew": ["Ann"], "launched_at": ADA["launched_at"]})
        nobody = connection.execute(RENAME, {"of_id": 99, "name": "Nix"})
        return [renamed.rowcount, launched.rowcount, nobody.rowcount, connection.execute(SINK).rowcount]

    assert boats.in_transaction(work) == [1, 1, 0, 1]
    assert rows(boats) == [ADA]


@on_every_database
@pytest.mark.parametrize(("ids", "found"), [([], []), ([2], [2]), ([1, 2], [1, 2]), ([2, 1, 77], [1, 2]), ([1], [1])])
def test_a_list_may_have_any_length(boats, ids, found):
    for _ in range(2):
        assert [row["id"] for row in rows(boats, SOME, {"ids": ids, "below": 50})] == found
    assert rows(boats, SOME, {"ids": ids, "below": 0}) == []


@on_every_database
def test_lists_of_all_lengths_are_a_few_forms(boats, monkeypatch):
    """Else each length is a statement of its own, kept by every connection and its database for as long as they live."""
    monkeypatch.setattr(driver_statements, "MAX_CACHED_LIST", 64)
    compiler = boats._sql
    for length in [*range(1, 64), 64, 65, 66, 200]:
        (row,) = rows(boats, SOME, {"ids": [*range(3, length + 2), 1], "below": 2})
        assert row["id"] == 1
    assert rows(boats, SOME, {"ids": [], "below": 2}) == []
    (compiled,) = compiler._kept[SOME].values()
    assert sorted(compiled.words) == [(0,), (1,), (2,), (4,), (8,), (16,), (32,), (64,)]
    (link,) = boats._idle
    assert len(getattr(link, "_prepared", ())) <= len(compiler._names) == 8 + 1  # and the INSERT of the fixture


@on_every_database
def test_statements_that_are_made_for_one_call_have_their_own_values(boats):
    for number in (1, 2):
        (row,) = rows(boats, ALL.where(BOAT.c.id.in_([number, 40]), BOAT.c.id < 30))
        assert row["id"] == number


@on_every_database
def test_a_failed_transaction_leaves_nothing_and_the_next_one_works(boats):
    def work(connection):
        connection.execute(RENAME, {"of_id": 1, "name": "Lost"})
        connection.execute(INSERT, BOB)

    with pytest.raises(IntegrityError):
        boats.in_transaction(work)
    assert rows(boats) == [ADA, BOB]
    with pytest.raises(ZeroDivisionError):
        boats.in_transaction(lambda connection: connection.execute(RENAME, {"of_id": 1, "name": "x"}) and 1 / 0)
    assert rows(boats) == [ADA, BOB]
    boats.in_transaction(lambda connection: connection.execute(RENAME, {"of_id": 2, "name": "Bob"}))
    assert rows(boats)[1]["name"] == "Bob"


def test_what_the_database_gave_up_is_run_again_so_often_and_no_oftener(boats):
    tried = []

    def work(connection):
        connection.execute(RENAME, {"of_id": 1, "name": f"try {len(tried)}"})
        tried.append(1)
        if len(tried) < 3:
            raise RetryableConflict("again")

    boats.in_transaction(work)
    assert rows(boats)[0]["name"] == "try 2"
    tried.clear()
    with pytest.raises(RetryableConflict):
        boats.in_transaction(work, attempts=2)
    assert len(tried) == 2


@on_every_database
def test_a_transaction_in_which_nothing_is_run_is_none(boats):
    assert boats.in_transaction(lambda _: "quiet") == "quiet"
    assert len(rows(boats)) == 2


@on_servers
def test_a_connection_that_was_lost_while_idle_is_noticed(boats, engine):
    for name in ("once", "and again"):
        rows(boats)
        (link,) = boats._idle
        cut(engine, link.driver_connection)
        deadline = time.monotonic() + 10
        while not link.has_ended() and time.monotonic() < deadline:
            time.sleep(0.005)
        boats.in_transaction(lambda connection, name=name: connection.execute(RENAME, {"of_id": 1, "name": name}))
        assert rows(boats)[0]["name"] == name
        assert link not in boats._idle


@on_servers
def test_a_connection_that_is_lost_in_a_transaction_is_unavailable_and_nothing_is_written(boats, engine):
    (link,) = boats._idle

    def work(connection):
        connection.execute(RENAME, {"of_id": 1, "name": "Lost"})
        cut(engine, link.driver_connection)
        connection.execute(RENAME, {"of_id": 2, "name": "Lost"})

    with pytest.raises(Unavailable):
        boats.in_transaction(work)
    assert rows(boats) == [ADA, BOB]


@on_every_database
def test_connections_are_kept(boats, engine):
    for _ in range(20):
        rows(boats)
        boats.in_transaction(lambda connection: connection.execute(RENAME, {"of_id": 1, "name": "again"}))
    assert len(boats._idle) == 1
    engine.dispose()
    assert boats._idle == []
