"""Every way to run SQL in `moorage.db.session` announces its wait, so that the HTTP server takes up other requests."""

import pytest
import sqlalchemy as sa

from moorage.core import blocking_hook
from moorage.db.session import (
    GroupedWrites,
    SharedRead,
    SingleReads,
    StatementPipeline,
    in_transaction,
    read,
    read_one_state,
    write,
)
from moorage.db.statements import Statement
from moorage.db.types import TABLE_OPTIONS, new_metadata
from tests.databases import Schema
from tests.migrated import engine_with
from tests.store.conftest import on_every_database

METADATA = new_metadata()
BOAT = sa.Table("boat", METADATA, sa.Column("id", sa.Integer, primary_key=True), **TABLE_OPTIONS)
SCHEMA = Schema("boats-announced", METADATA.create_all)
COUNT = sa.select(sa.func.count()).select_from(BOAT)


@pytest.fixture
def engine(kind):
    with engine_with(SCHEMA, kind) as engine:
        yield engine


def _read(engine):
    with read(engine) as connection:
        connection.execute(COUNT)


def _read_one_state(engine):
    with read_one_state(engine) as connection:
        connection.execute(COUNT)


def _single_read(engine):
    SingleReads(engine).prepare(COUNT).scalar()


def _write(engine):
    with write(engine) as connection:
        connection.execute(BOAT.insert().values(id=1))


def _in_transaction(engine):
    in_transaction(engine, lambda connection: connection.execute(BOAT.insert().values(id=1)))


def _pipeline(engine):
    with StatementPipeline(engine).transaction() as transaction:
        transaction.commit((Statement("insert into boat (id) values (1)"), None))


READS = [_read, _read_one_state, _single_read]
WRITES = [_write, _in_transaction, _pipeline]


@pytest.fixture
def announced():
    """A list that gets an item for each announcement of this thread."""
    times = []
    blocking_hook.set_callback(lambda: times.append(1))
    yield times
    blocking_hook.set_callback(None)


@on_every_database
@pytest.mark.parametrize("run", WRITES)
def test_a_write_announces_its_wait(engine, announced, run):
    run(engine)
    assert announced


@on_every_database
@pytest.mark.parametrize("run", READS)
def test_a_read_announces_its_wait_unless_the_database_is_in_this_process(engine, kind, announced, run):
    run(engine)
    assert bool(announced) == (kind != "sqlite")


def test_a_shared_read_and_a_grouped_write_announce_that_they_may_wait_for_another_thread(announced):
    assert SharedRead(lambda: 7)() == 7
    assert len(announced) == 1
    assert GroupedWrites(lambda items: [item + 1 for item in items], lambda item: [item]).submit(1) == 2
    assert len(announced) == 2
