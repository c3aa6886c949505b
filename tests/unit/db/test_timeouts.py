"""While a database hangs, one request at a time tries to connect, and the others are refused without waiting."""

import threading

import pytest

from moorage.core.errors import Unavailable
from moorage.db import timeouts
from moorage.db.timeouts import _ConnectGate


class Gone(Exception):
    pass


class Database:
    """A database whose connects hang until `answer` is set; then they succeed if `is_up`."""

    def __init__(self):
        self.is_up = False
        self.attempts = 0
        self.entered, self.answer = threading.Event(), threading.Event()

    def connect(self):
        self.attempts += 1
        self.entered.set()
        assert self.answer.wait(20)
        if not self.is_up:
            raise Gone
        return "a connection"


@pytest.fixture
def database(monkeypatch):
    monkeypatch.setattr(timeouts, "RETRY_AFTER_S", 0.0)
    monkeypatch.setattr(timeouts, "HUNG_S", 0.0)  # each failed attempt counts as a hanging one
    return Database()


def with_hung_connect(gate, database):
    """Returns `gate` after a connect that hung and failed."""
    database.answer.set()
    with pytest.raises(Gone):
        gate.pass_through(database.connect)
    database.answer.clear()
    database.entered.clear()
    return gate


def test_while_one_request_tries_a_hung_database_others_are_refused_at_once(database):
    gate = with_hung_connect(_ConnectGate(list), database)
    got = []
    trying = threading.Thread(target=lambda: got.append(gate.pass_through(database.connect)))
    trying.start()
    assert database.entered.wait(20)
    with pytest.raises(Unavailable, match="does not answer"):
        gate.pass_through(database.connect)
    database.is_up = True
    database.answer.set()
    trying.join(20)
    assert got == ["a connection"]
    assert database.attempts == 2
    assert gate.pass_through(database.connect) == "a connection", "after the success every request may connect"


def test_after_a_failed_attempt_no_request_tries_for_a_while(database, monkeypatch):
    monkeypatch.setattr(timeouts, "RETRY_AFTER_S", 1000.0)
    gate = with_hung_connect(_ConnectGate(list), database)
    with pytest.raises(Unavailable):
        gate.pass_through(database.connect)
    assert database.attempts == 1


def test_a_database_that_refuses_connections_at_once_is_tried_by_every_request(database, monkeypatch):
    """The database may be back at any time, and such an attempt takes no time."""
    monkeypatch.setattr(timeouts, "HUNG_S", 1000.0)
    monkeypatch.setattr(timeouts, "RETRY_AFTER_S", 1000.0)
    gate = with_hung_connect(_ConnectGate(list), database)
    database.is_up = True
    database.answer.set()
    assert gate.pass_through(database.connect) == "a connection"


def test_after_a_query_that_hung_idle_connections_are_dropped_and_no_request_tries(database, monkeypatch):
    monkeypatch.setattr(timeouts, "RETRY_AFTER_S", 1000.0)
    forgotten = []
    gate = _ConnectGate(lambda: forgotten.append("all"))
    gate.shut()
    with pytest.raises(Unavailable):
        gate.pass_through(database.connect)
    assert (forgotten, database.attempts) == (["all"], 0)


def test_the_late_failure_of_an_earlier_attempt_does_not_refuse_requests_after_a_success(database, monkeypatch):
    monkeypatch.setattr(timeouts, "RETRY_AFTER_S", 1000.0)
    gate = _ConnectGate(list)
    failed = []

    def fail():
        try:
            gate.pass_through(database.connect)
        except Gone as error:
            failed.append(error)

    late = threading.Thread(target=fail)
    late.start()
    assert database.entered.wait(20)
    assert gate.pass_through(lambda: "a connection") == "a connection"
    database.answer.set()
    late.join(20)
    assert len(failed) == 1
    assert gate.pass_through(lambda: "another one") == "another one"
