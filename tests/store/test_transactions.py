"""Every error that can end a transaction is caused on each database and must become one of Moorage's errors.

Errors that cannot occur on SQLite are tested on the two servers. The limit of attempts does not depend on the database.
"""

import socket
import threading

import pytest
import sqlalchemy as sa

import moorage.db.timeouts
from moorage.core.errors import RetryableConflict, Unavailable
from moorage.db.engine import dialect_name, open_engine
from moorage.db.session import in_transaction, read, write
from moorage.db.types import TABLE_OPTIONS, new_metadata
from tests.databases import Schema
from tests.migrated import engine_with
from tests.store.conftest import on_every_database, on_servers

METADATA = new_metadata()
BOAT = sa.Table(
    "boat",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(20), nullable=False, unique=True),
    **TABLE_OPTIONS,
)

FIRST = BOAT.update().where(BOAT.c.id == 1)
SECOND = BOAT.update().where(BOAT.c.id == 2)


SCHEMA = Schema("boats-transactions", METADATA.create_all)


@pytest.fixture
def engine(kind, monkeypatch):
    """With a short lock timeout on SQLite, because no test here depends on waiting for another writer."""
    monkeypatch.setattr(
        moorage.db.timeouts, "LOCK_TIMEOUT_S", {"sqlite": 0.2}.get(kind, moorage.db.timeouts.LOCK_TIMEOUT_S)
    )
    with engine_with(SCHEMA, kind) as engine:
        yield engine


@pytest.fixture
def boats(engine):
    with write(engine) as connection:
        connection.execute(BOAT.insert(), [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}])
    return engine


def names(engine):
    with read(engine) as connection:
        return connection.execute(sa.select(BOAT.c.name).order_by(BOAT.c.id)).scalars().all()


def find_deadlocks_soon(connection):
    """Shortens PostgreSQL's wait before it checks for deadlocks, which is a second; MariaDB checks at once."""
    if dialect_name(connection) == "postgresql":
        connection.exec_driver_sql("SET LOCAL deadlock_timeout = '50ms'")


# ----------------------------------------------------------------------------------------------- transactions


@on_every_database
def test_a_committed_write_can_be_read(boats):
    with write(boats) as connection:
        connection.execute(FIRST.values(name="Eve"))
    assert names(boats) == ["Eve", "Bob"]


@on_every_database
def test_an_error_rolls_back_the_transaction(boats):
    with pytest.raises(KeyError), write(boats) as connection:
        connection.execute(FIRST.values(name="Eve"))
        raise KeyError
    assert names(boats) == ["Ada", "Bob"]


@on_every_database
def test_a_violated_constraint_raises_the_integrity_error_of_sqlalchemy(boats):
    with pytest.raises(sa.exc.IntegrityError), write(boats) as connection:
        connection.execute(FIRST.values(name="Bob"))


@on_every_database
def test_invalid_sql_raises_the_error_of_sqlalchemy(boats):
    with pytest.raises(sa.exc.DBAPIError), read(boats) as connection:
        connection.exec_driver_sql("SELECT nothing FROM nowhere")


@on_every_database
def test_texts_that_differ_only_in_case_are_different_on_every_database(boats):
    with write(boats) as connection:
        connection.execute(FIRST.values(name="bob"))
    assert names(boats) == ["bob", "Bob"]
    with read(boats) as connection:
        assert connection.execute(sa.select(BOAT.c.id).where(BOAT.c.name == "BOB")).all() == []


def test_a_read_transaction_on_sqlite_does_not_see_later_commits(boats):
    with read(boats) as connection:
        before = connection.execute(sa.select(BOAT.c.name)).all()
        with write(boats) as other:
            other.execute(FIRST.values(name="Eve"))
        assert connection.execute(sa.select(BOAT.c.name)).all() == before


# -------------------------------------------------------------------------------------------- retryable errors


@on_servers
def test_in_a_deadlock_one_transaction_is_retryable_and_the_other_succeeds(boats):
    both_have_a_lock = threading.Barrier(2)
    outcomes = []

    def lock_both(mine, theirs):
        try:
            with write(boats) as connection:
                find_deadlocks_soon(connection)
                connection.execute(mine.values(id=BOAT.c.id))
                both_have_a_lock.wait(20)
                connection.execute(theirs.values(id=BOAT.c.id))
            outcomes.append("done")
        except RetryableConflict:
            outcomes.append("retryable")

    threads = [threading.Thread(target=lock_both, args=pair) for pair in ((FIRST, SECOND), (SECOND, FIRST))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(outcomes) == ["done", "retryable"]


@on_servers
def test_in_transaction_repeats_a_deadlocked_transaction_until_both_succeed(boats):
    both_have_a_lock = threading.Barrier(2)
    attempts, done = [], []

    def lock_both(mine, theirs):
        def work(connection):
            attempts.append(mine)
            find_deadlocks_soon(connection)
            connection.execute(mine.values(id=BOAT.c.id))
            if attempts.count(mine) == 1:
                both_have_a_lock.wait(20)
            connection.execute(theirs.values(name=BOAT.c.name))

        in_transaction(boats, work)
        done.append(mine)

    threads = [threading.Thread(target=lock_both, args=pair) for pair in ((FIRST, SECOND), (SECOND, FIRST))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(done) == 2
    assert len(attempts) > 2


@on_every_database
def test_a_lock_timeout_is_retryable(boats):
    impatience = {
        "postgresql": "SET LOCAL lock_timeout = '200ms'",
        "mariadb": "SET SESSION innodb_lock_wait_timeout = 1",
        "sqlite": "SELECT 1",
    }
    with write(boats) as holder:
        holder.execute(FIRST.values(name="Eve"))
        with pytest.raises(RetryableConflict), write(boats) as connection:
            connection.exec_driver_sql(impatience[dialect_name(boats)])
            connection.execute(FIRST.values(name="Mia"))
    assert names(boats) == ["Eve", "Bob"]


@on_servers
def test_a_serialization_failure_is_retryable(boats):
    strict = boats.execution_options(isolation_level="REPEATABLE READ")
    failed = pytest.raises(RetryableConflict, match="repeat the request")
    with failed, write(strict) as connection:
        if dialect_name(boats) == "mariadb":
            connection.exec_driver_sql("SET SESSION innodb_snapshot_isolation = ON")
        connection.execute(sa.select(BOAT)).all()
        with write(boats) as other:
            other.execute(FIRST.values(name="Eve"))
        connection.execute(FIRST.values(name="Mia"))
    assert names(boats) == ["Eve", "Bob"]


def test_a_read_transaction_on_sqlite_that_writes_after_another_commit_is_retryable(boats):
    with pytest.raises(RetryableConflict, match="locked by another writer"), read(boats) as connection:
        connection.execute(sa.select(BOAT)).all()
        with write(boats) as other:
            other.execute(FIRST.values(name="Eve"))
        connection.execute(FIRST.values(name="Mia"))


# ------------------------------------------------------------------------------------------------ in_transaction


def conflict(connection):
    raise RetryableConflict("again")


@on_every_database
def test_in_transaction_repeats_the_work_and_rolls_back_failed_attempts(boats):
    attempts = []

    def work(connection):
        attempts.append(connection.execute(sa.select(BOAT.c.name).where(BOAT.c.id == 1)).scalar())
        connection.execute(FIRST.values(name=f"try {len(attempts)}"))
        if len(attempts) < 3:
            conflict(connection)
        return "done"

    assert in_transaction(boats, work) == "done"
    assert attempts == ["Ada"] * 3
    assert names(boats) == ["try 3", "Bob"]


def test_in_transaction_repeats_the_work_until_the_timeout_of_a_lock_has_passed(boats, monkeypatch):
    monkeypatch.setattr(moorage.db.timeouts, "LOCK_TIMEOUT_S", 0.05)
    attempts = []

    def work(connection):
        attempts.append(1)
        conflict(connection)

    with pytest.raises(RetryableConflict):
        in_transaction(boats, work)
    assert len(attempts) > 1


@on_every_database
def test_in_transaction_does_not_repeat_the_work_after_other_errors(boats):
    attempts = []

    def work(connection):
        attempts.append(1)
        connection.execute(FIRST.values(name="Bob"))

    with pytest.raises(sa.exc.IntegrityError):
        in_transaction(boats, work)
    assert len(attempts) == 1


# ------------------------------------------------------------------------------------------- unavailable databases


SESSION = {"postgresql": "SELECT pg_backend_pid()", "mariadb": "SELECT connection_id()"}
END = {"postgresql": "SELECT pg_terminate_backend({}, 5000)", "mariadb": "KILL {}"}


def session_of(connection, engine):
    return connection.exec_driver_sql(SESSION[dialect_name(engine)]).scalar()


def end_session(number, engine):
    """The server ends a session, as an operator or a fail-over does."""
    with write(engine) as connection:
        connection.exec_driver_sql(END[dialect_name(engine)].format(number))


@on_servers
def test_a_session_that_the_server_ends_is_unavailable_and_the_next_transaction_works(boats):
    with pytest.raises(Unavailable) as caught, write(boats) as connection:
        end_session(session_of(connection, boats), boats)
        connection.execute(FIRST.values(name="Eve"))
    assert not isinstance(caught.value, RetryableConflict)
    assert names(boats) == ["Ada", "Bob"]


@on_servers
def test_a_pooled_session_that_the_server_ended_is_replaced_without_an_error(boats):
    """A server restart must not cost one failed request per pooled connection."""
    other = open_engine(boats.url.render_as_string(hide_password=False))
    with read(boats) as connection:
        number = session_of(connection, boats)
    end_session(number, other)
    with read(boats) as connection:
        assert session_of(connection, boats) != number
    other.dispose()


@pytest.mark.parametrize("scheme", ["postgresql", "mariadb"])
def test_a_server_that_does_not_answer_is_unavailable(scheme):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    engine = open_engine(f"{scheme}://moorage@127.0.0.1:{port}/moorage")
    with pytest.raises(Unavailable, match="does not answer"), read(engine):
        pass


def test_an_sqlite_file_that_cannot_be_opened_is_unavailable(tmp_path):
    (tmp_path / "moorage.sqlite").mkdir()
    with pytest.raises(Unavailable, match="unable to open"), read(open_engine(f"sqlite:///{tmp_path}/moorage.sqlite")):
        pass


@on_every_database
def test_a_transaction_is_unavailable_while_all_connections_are_in_use(boats):
    small = open_engine(boats.url.render_as_string(hide_password=False), pool_size=1)
    small.pool._timeout = 0.2
    held = [small.connect() for _ in range(2)]
    with pytest.raises(Unavailable, match="connections to the database are in use"), read(small):
        pass
    for connection in held:
        connection.close()
    small.dispose()
