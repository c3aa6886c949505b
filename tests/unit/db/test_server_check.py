"""Threads that wait for one server share a check, and a refusal is an answer."""

import threading
import time

import pytest

from moorage.db import server_check
from moorage.db.server_check import ServerCheck

PATIENCE_S = 20


class Refused(Exception):
    pass


class Connection:
    def close(self):
        pass


def test_a_server_that_connects_or_refuses_lives(monkeypatch):
    def refuse():
        raise Refused

    assert ServerCheck(Connection, Refused).lives(time.monotonic())
    assert ServerCheck(refuse, Refused).lives(time.monotonic())
    monkeypatch.setattr(server_check, "HUNG_S", 0.0)
    assert not ServerCheck(refuse, Refused).lives(time.monotonic())


def test_another_error_is_not_taken_for_a_server_that_does_not_live():
    def refuse():
        raise Refused

    with pytest.raises(Refused):
        ServerCheck(refuse, OSError).lives(time.monotonic())


def test_threads_that_wait_share_a_check_that_began_while_they_waited(monkeypatch):
    monkeypatch.setattr(server_check, "HUNG_S", 0.0)
    began, may_end = threading.Event(), threading.Event()
    checks = []

    def hang():
        checks.append(1)
        began.set()
        assert may_end.wait(PATIENCE_S)
        raise Refused

    check = ServerCheck(hang, Refused)
    since = time.monotonic()
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(check.lives(since))) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert began.wait(PATIENCE_S)
    later = time.monotonic()
    may_end.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert (answers, len(checks)) == ([False] * 4, 1)
    assert not check.lives(later)
    assert len(checks) == 2, "a wait that began after the check needs another one"
