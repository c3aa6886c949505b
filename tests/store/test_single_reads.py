"""`SingleReads`: the values of reads without a transaction, and lost connections.

On all three databases, because each has its own protocol.
"""

import sqlite3
import threading
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from sqlalchemy import bindparam

from moorage.core.errors import Unavailable
from moorage.db.engine import dialect_name, open_engine
from moorage.db.session import SingleReads, write
from moorage.db.statements import prepared_sql
from moorage.db.types import TABLE_OPTIONS, UtcDateTime, new_metadata
from tests.databases import Schema
from tests.migrated import engine_with
from tests.ports import free_port
from tests.store.conftest import on_every_database, on_servers

METADATA = new_metadata()
BOAT = sa.Table(
    "boat",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(20)),
    sa.Column("afloat", sa.Boolean, nullable=False),
    sa.Column("launched_at", UtcDateTime),
    **TABLE_OPTIONS,
)
ADA = {"id": 1, "name": "Ada's ä", "afloat": True, "launched_at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)}
BOB = {"id": 2, "name": None, "afloat": False, "launched_at": None}

ALL = sa.select(BOAT).order_by(BOAT.c.id)


SCHEMA = Schema("boats-questions", METADATA.create_all)


@pytest.fixture
def engine(kind):
    with engine_with(SCHEMA, kind) as engine:
        yield engine


@pytest.fixture
def boats(engine):
    with write(engine) as connection:
        connection.execute(BOAT.insert(), [ADA, BOB])
    return engine


@pytest.fixture
def single_reads(boats):
    return SingleReads(boats)


@on_every_database
def test_a_single_read_returns_the_same_values_as_a_transaction(single_reads):
    assert single_reads.prepare(ALL)() == [tuple(ADA.values()), tuple(BOB.values())]


@on_every_database
def test_a_single_read_accepts_texts_and_numbers_as_parameters(single_reads):
    named = single_reads.prepare(
        sa.select(BOAT.c.id).where(BOAT.c.name == bindparam("name"), BOAT.c.id >= bindparam("least"), BOAT.c.afloat)
    )
    assert named(name=ADA["name"], least=1) == [(1,)]
    assert named(name=ADA["name"], least=2) == []
    assert named(name="x' or 1=1 --", least=0) == []
    assert single_reads.prepare(sa.select(BOAT.c.id).where(BOAT.c.id == 2)).scalar() == 2


@on_every_database
def test_a_single_read_sees_every_transaction_that_was_committed_before_it(boats, single_reads):
    newest = single_reads.prepare(sa.select(sa.func.max(BOAT.c.id)))
    for number in range(3, 30):
        with write(boats) as connection:
            connection.execute(BOAT.insert().values(id=number, afloat=True))
        assert newest.scalar() == number


@on_every_database
def test_a_single_read_that_fails_raises_an_error_and_the_next_one_works(boats, single_reads):
    METADATA.drop_all(boats)
    question = single_reads.prepare(ALL)
    for _ in range(2):
        with pytest.raises(sa.exc.DBAPIError, match="boat"):
            question()
    METADATA.create_all(boats)
    assert question() == []


@on_servers
def test_a_single_read_on_a_connection_that_was_lost_while_idle_is_repeated(boats, single_reads):
    question = single_reads.prepare(ALL)
    links = [single_reads._connections.open(), single_reads._connections.open()]
    single_reads._idle += links
    for link in links:
        cut(boats, link.driver_connection)
    assert len(question()) == 2
    assert single_reads._idle not in ([], links)


def cut(engine, connection):
    """Ends the connection on the server, as a restart of the server does."""
    if dialect_name(engine) == "postgresql":
        end = f"SELECT pg_terminate_backend({connection.info.backend_pid}, 5000)"
    else:
        end = f"KILL {connection.thread_id()}"
    with engine.connect() as other:
        other.exec_driver_sql(end)


def test_a_single_read_from_a_server_that_does_not_answer_is_unavailable():
    for url in (f"postgresql://postgres@127.0.0.1:{free_port()}/none", f"mariadb://root@127.0.0.1:{free_port()}/none"):
        with pytest.raises(Unavailable):
            SingleReads(open_engine(url)).prepare(ALL)()


@on_every_database
def test_disposing_the_engine_closes_the_connections_of_single_reads(boats, single_reads):
    single_reads.prepare(ALL)()
    (link,) = single_reads._idle
    boats.dispose()
    assert single_reads._idle == []
    with pytest.raises((sqlite3.Error, boats.dialect.loaded_dbapi.Error)):
        link.select(prepared_sql("SELECT 1", returns_rows=True), [])


@on_every_database
def test_concurrent_single_reads_get_their_own_answers(single_reads):
    question = single_reads.prepare(sa.select(BOAT.c.id).where(BOAT.c.id == bindparam("wanted")))
    wrong = []

    def ask(number):
        for _ in range(100):
            if question(wanted=number) != [(number,)]:
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(1 + number % 2,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert 1 <= len(single_reads._idle) <= 6
