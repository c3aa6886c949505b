"""The writer queue of a process for an SQLite file: waiting writers share a transaction; each has its own outcome."""

import contextvars
import threading

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from moorage.core.errors import Conflict, RetryableConflict, Unavailable
from moorage.db import group_commit
from moorage.db.engine import open_engine
from moorage.db.session import in_transaction, read
from moorage.db.types import new_metadata

BOAT = sa.Table("boat", new_metadata(), sa.Column("name", sa.String(20), primary_key=True))
WHO = contextvars.ContextVar("who", default="nobody")


@pytest.fixture
def engine(tmp_path):
    engine = open_engine(f"sqlite:///{tmp_path}/boats.sqlite")
    BOAT.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def commits(engine):
    """The threads that committed, in order."""
    found = []
    event.listen(engine, "commit", lambda _: found.append(threading.current_thread().name))
    return found


def names(engine):
    with read(engine) as connection:
        return set(connection.execute(sa.select(BOAT.c.name)).scalars())


def add(name):
    return lambda connection: connection.execute(BOAT.insert(), {"name": name}) and name


def raising(error):
    def work(connection):
        connection.execute(BOAT.insert(), {"name": "of the one that fails"})
        raise error

    return work


class ConcurrentWriters:
    """Submits works while a first transaction is open; `outcomes` has the result or the error of each."""

    def __init__(self, engine):
        self.engine = engine
        self.outcomes = {}

    def run(self, **works):
        begun, go_on = threading.Event(), threading.Event()

        def first(connection):
            begun.set()
            assert go_on.wait(10)
            return add("first")(connection)

        threads = [self._thread("first", first)]
        assert begun.wait(10)
        queue = group_commit._queues[self.engine]
        for number, (name, work) in enumerate(works.items(), 1):
            threads.append(self._thread(name, work))
            while len(queue._waiting) < number:
                threading.Event().wait(0.001)
        go_on.set()
        for thread in threads:
            thread.join(10)
        return self.outcomes

    def _thread(self, name, work):
        thread = threading.Thread(target=self._submit, args=(name, work), name=name)
        thread.start()
        return thread

    def _submit(self, name, work):
        WHO.set(name)
        try:
            self.outcomes[name] = in_transaction(self.engine, work)
        except Exception as error:  # noqa: BLE001 - the end of a thread: the test compares its error
            self.outcomes[name] = error


@pytest.fixture
def concurrent_writers(engine):
    return ConcurrentWriters(engine)


def test_waiting_writers_share_one_commit_and_each_gets_its_own_result(concurrent_writers, engine, commits):
    assert concurrent_writers.run(a=add("Ada"), b=add("Bob"), c=add("Cy")) == {
        "first": "first",
        "a": "Ada",
        "b": "Bob",
        "c": "Cy",
    }
    assert commits == ["first", "a"]
    assert names(engine) == {"first", "Ada", "Bob", "Cy"}


@pytest.mark.parametrize("error", [Conflict("no"), Unavailable("away"), ValueError("no")])
def test_a_writer_that_fails_is_rolled_back_without_the_others(concurrent_writers, engine, error):
    outcomes = concurrent_writers.run(a=add("Ada"), b=raising(error), c=add("Cy"))
    assert outcomes == {"first": "first", "a": "Ada", "b": error, "c": "Cy"}
    assert names(engine) == {"first", "Ada", "Cy"}


def test_a_writer_with_a_retryable_conflict_is_repeated_without_the_others(concurrent_writers, engine):
    tries = []

    def work(connection):
        tries.append(1)
        if len(tries) < 4:
            raise RetryableConflict("again")
        return add("Bob")(connection)

    assert concurrent_writers.run(a=add("Ada"), b=work, c=add("Cy"))["b"] == "Bob"
    assert names(engine) == {"first", "Ada", "Bob", "Cy"}


def test_work_runs_with_the_context_variables_of_its_caller(concurrent_writers):
    outcomes = concurrent_writers.run(a=lambda _: WHO.get(), b=lambda _: WHO.get())
    assert (outcomes["a"], outcomes["b"]) == ("a", "b")


def test_work_may_return_an_exception_as_its_result(concurrent_writers):
    error = Conflict("a value here")
    assert concurrent_writers.run(a=lambda _: error, b=add("Bob"))["a"] is error
