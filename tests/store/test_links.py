"""Connections of the driver's own: lost again while they are set up, as when the database is killed just then."""

import pytest
from sqlalchemy import event, literal, select

from moorage.core.errors import Unavailable
from moorage.db.engine import open_engine
from moorage.db.prepared_transactions import PreparedDatabase
from moorage.db.single_reads import SingleReads
from moorage.db.statement_pipelines import Statement, StatementPipeline
from tests.store.conftest import on_servers
from tests.store.test_questions import cut

ONE = Statement("SELECT 1", returns_rows=True)


def by_batches(engine):
    with StatementPipeline(engine).transaction() as transaction:
        return transaction.send((ONE, None))


def by_questions(engine):
    return SingleReads(engine).prepare(select(literal(1)))()


def by_prepared(engine):
    with PreparedDatabase(engine).read() as connection:
        return connection.execute(select(literal(1))).all()


@on_servers
@pytest.mark.parametrize("way", [by_batches, by_questions, by_prepared])
def test_a_connection_that_is_lost_while_it_is_set_up_is_unavailable(engine, way):
    killer = open_engine(engine.url.render_as_string(hide_password=False))

    def cut_it(connection, _record):
        cut(killer, connection)

    with engine.connect():  # so that there is none in the pool to be taken
        event.listen(engine, "connect", cut_it)
        with pytest.raises(Unavailable):
            way(engine)
        event.remove(engine, "connect", cut_it)
        assert way(engine)
    killer.dispose()
