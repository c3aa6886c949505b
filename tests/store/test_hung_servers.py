"""A server that hangs is given up after a few seconds, and a statement that takes long is not."""

import contextlib
import time

import pytest
import sqlalchemy as sa

from moorage.core.errors import Unavailable
from moorage.db import timeouts
from moorage.db.engine import open_engine
from moorage.db.server_check import ASK_AFTER_S, ServerCheck
from moorage.db.session import SingleReads, StatementPipeline, in_transaction, read
from moorage.db.statements import Statement
from moorage.db.timeouts import without_timeouts
from tests.conftest import DATABASES
from tests.servers import temporary_database
from tests.system.planes import until
from tests.transport.proxy import Line

#: Psycopg waits at least this long for a connection.
CONNECT_TIMEOUT_S = 2
#: The machine may be busy; far less than `timeouts.ANSWER_TIMEOUT_S`.
BOUND_S = ASK_AFTER_S + CONNECT_TIMEOUT_S + 5.0
#: With a check meanwhile, or two.
LONG_S = 2.5 * ASK_AFTER_S


pytestmark = pytest.mark.slow


@pytest.fixture(params=DATABASES[1:])
def line(request):
    with temporary_database(request.param) as url, contextlib.closing(Line(url)) as line:
        line.direct_url = url
        yield line


@pytest.fixture
def engine(line):
    engine = open_engine(line.url)
    yield engine
    line.cut()
    engine.dispose()


def by_read(engine, sql):
    with read(engine) as connection:
        return connection.execute(sa.text(sql)).all()


def by_write(engine, sql):
    return in_transaction(engine, lambda connection: connection.execute(sa.text(sql)).all())


def by_single_read(engine, sql):
    reads = READS.setdefault(engine, SingleReads(engine))
    return reads.prepare(sa.select(sa.literal_column(sql.removeprefix("SELECT "), sa.Text)))()


def by_pipeline(engine, sql):
    pipeline = PIPELINES.setdefault(engine, StatementPipeline(engine))
    with pipeline.transaction() as transaction:
        return transaction.commit((Statement(sql, returns_rows=True), None))


#: {engine: what keeps its connections}
READS: dict[sa.Engine, SingleReads] = {}
PIPELINES: dict[sa.Engine, StatementPipeline] = {}
WAYS = [by_read, by_write, by_single_read, by_pipeline]


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_hangs_is_given_up_early(line, engine, monkeypatch, way):
    """The kernel accepts connections, and nothing answers."""
    monkeypatch.setattr(timeouts, "CONNECT_TIMEOUT_S", CONNECT_TIMEOUT_S)
    assert way(engine, "SELECT 1")
    line.swallow()
    began = time.monotonic()
    with pytest.raises(Unavailable, match="does not answer"):
        way(engine, "SELECT 1")
    assert time.monotonic() - began < BOUND_S < timeouts.ANSWER_TIMEOUT_S
    with pytest.raises(Unavailable, match="does not answer"):
        way(engine, "SELECT 1")
    line.cut()
    line.mend()
    until(lambda: is_back(way, engine))


def is_back(way, engine):
    with contextlib.suppress(Unavailable):
        return bool(way(engine, "SELECT 1"))
    return False


@pytest.mark.parametrize("way", WAYS)
def test_a_statement_that_takes_long_is_not_given_up_while_its_server_lives(line, engine, monkeypatch, way):
    checks = []
    lives = ServerCheck.lives

    def counted(check, since):
        checks.append(lives(check, since))
        return checks[-1]

    monkeypatch.setattr(ServerCheck, "lives", counted)
    sleep = "pg_sleep" if engine.dialect.name == "postgresql" else "sleep"
    assert way(engine, f"SELECT {sleep}({LONG_S})")
    assert checks
    assert all(checks)


def test_a_connection_without_timeouts_asks_nothing(line, engine, monkeypatch):
    """A migration waits as long as it takes."""
    monkeypatch.setattr(ServerCheck, "lives", lambda _check, _since: False)
    sleep = "pg_sleep" if engine.dialect.name == "postgresql" else "sleep"
    with without_timeouts(engine) as connection:
        assert connection.execute(sa.text(f"SELECT {sleep}({1.5 * ASK_AFTER_S})")).all()


def test_a_host_that_hangs_is_left_for_another_one(line, monkeypatch):
    """The second host is the same server, reached directly."""
    monkeypatch.setattr(timeouts, "CONNECT_TIMEOUT_OF_SEVERAL_S", CONNECT_TIMEOUT_S)
    there = sa.make_url(line.direct_url)
    hosts = {"host": [f"127.0.0.1:{line.port}", f"{there.host}:{there.port}"]}
    url = sa.URL.create(there.drivername, there.username, there.password, database=there.database, query=hosts)
    engine = open_engine(url.render_as_string(hide_password=False))
    assert by_read(engine, "SELECT 1")
    line.swallow()
    began = time.monotonic()
    with pytest.raises(Unavailable, match="does not answer"):
        by_write(engine, "SELECT 1")
    until(lambda: is_back(by_write, engine))
    assert time.monotonic() - began < BOUND_S
    line.cut()
    engine.dispose()
