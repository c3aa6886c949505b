"""One request at a time tries a database that hangs; the others do not wait for it."""

import threading

import pytest

from moorage.core.errors import Unavailable
from moorage.db import timeouts
from moorage.db.timeouts import _ConnectGate


class Gone(Exception):
    pass


class Database:
    """Connects as ordered; hangs until `answer` is set."""

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
    monkeypatch.setattr(timeouts, "HUNG_S", 0.0)  # each attempt counts as a long one
    return Database()


def hung(gate, database):
    """`gate`, after a connect that took long and failed."""
    database.answer.set()
    with pytest.raises(Gone):
        gate.pass_through(database.connect)
    database.answer.clear()
    database.entered.clear()
    return gate


def test_while_one_tries_the_others_are_refused_at_once(database):
    gate = hung(_ConnectGate(list), database)
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
    assert gate.pass_through(database.connect) == "a connection", "open again for everybody"


def test_for_a_while_after_an_attempt_nobody_tries(database, monkeypatch):
    monkeypatch.setattr(timeouts, "RETRY_AFTER_S", 1000.0)
    gate = hung(_ConnectGate(list), database)
    with pytest.raises(Unavailable):
        gate.pass_through(database.connect)
    assert database.attempts == 1


def test_a_database_that_refuses_at_once_is_tried_by_everybody(database, monkeypatch):
    """It may be back a moment later, and a try costs nothing."""
    monkeypatch.setattr(timeouts, "HUNG_S", 1000.0)
    monkeypatch.setattr(timeouts, "RETRY_AFTER_S", 1000.0)
    gate = hung(_ConnectGate(list), database)
    database.is_up = True
    database.answer.set()
    assert gate.pass_through(database.connect) == "a connection"


def test_when_an_answer_does_not_come_idle_connections_are_forgotten_and_nobody_tries(database, monkeypatch):
    monkeypatch.setattr(timeouts, "RETRY_AFTER_S", 1000.0)
    forgotten = []
    gate = _ConnectGate(lambda: forgotten.append("all"))
    gate.shut()
    with pytest.raises(Unavailable):
        gate.pass_through(database.connect)
    assert (forgotten, database.attempts) == (["all"], 0)


def test_an_attempt_of_before_the_database_was_back_refuses_nobody_after_it(database, monkeypatch):
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
