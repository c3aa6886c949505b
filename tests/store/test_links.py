"""Connections that are lost while they are set up, as when the database server is killed at that moment."""

import pytest
from sqlalchemy import event, literal, select

from moorage.core.errors import Unavailable
from moorage.db.engine import open_engine
from moorage.db.session import SingleReads, StatementPipeline, read
from moorage.db.statements import Statement
from tests.store.conftest import on_servers
from tests.store.test_single_reads import cut

ONE = Statement("SELECT 1", returns_rows=True)


def by_pipeline(engine):
    with StatementPipeline(engine).transaction() as transaction:
        return transaction.send((ONE, None))


def by_single_read(engine):
    return SingleReads(engine).prepare(select(literal(1)))()


def by_transaction(engine):
    with read(engine) as connection:
        return connection.execute(select(literal(1))).all()


@on_servers
@pytest.mark.parametrize("way", [by_pipeline, by_single_read, by_transaction])
def test_a_connection_that_is_lost_while_it_is_set_up_is_unavailable(engine, way):
    killer = open_engine(engine.url.render_as_string(hide_password=False))

    def cut_it(connection, _record):
        cut(killer, connection)

    with engine.connect():  # takes the pool's connection, so that another one must be opened
        event.listen(engine, "connect", cut_it)
        with pytest.raises(Unavailable):
            way(engine)
        event.remove(engine, "connect", cut_it)
        assert way(engine)
    killer.dispose()
