"""Which thread accepts requests (`moorage.wire.server.leader_followers`)."""

import threading

import pytest

from moorage.core import blocking_hook
from moorage.wire.server.leader_followers import LeaderFollowers

PATIENCE_S = 30


class Deputy:
    """A thread that takes over from leaders and reports it."""

    def __init__(self, leaders):
        self.leadership = None
        self.has_it = threading.Event()
        self._leaders = leaders
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self):
        self.leadership = self._leaders.wait_to_lead()
        self.has_it.set()

    def join(self):
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture(autouse=True)
def _nobody_listens():
    yield
    blocking_hook.set_callback(None)


def test_who_waits_gives_the_wheel_to_the_deputy():
    leaders = LeaderFollowers(lambda: True)
    leadership = leaders.wait_to_lead()
    deputy = Deputy(leaders)
    leaders.begin_turn(leadership)
    assert not leadership.is_over
    blocking_hook.about_to_block()
    blocking_hook.about_to_block()  # a second time it has nothing to give
    assert leadership.is_over
    assert deputy.has_it.wait(PATIENCE_S)
    assert not deputy.leadership.is_over
    leaders.end_turn(leadership)
    assert not deputy.leadership.is_over


def test_who_serves_the_only_client_keeps_it_while_waiting():
    leaders = LeaderFollowers(lambda: False)
    leadership = leaders.wait_to_lead()
    leaders.begin_turn(leadership)
    blocking_hook.about_to_block()
    assert not leadership.is_over


def test_the_wheel_is_taken_from_who_stays_in_a_turn_without_a_word():
    leaders = LeaderFollowers(lambda: False)
    leadership = leaders.wait_to_lead()
    leaders.begin_turn(leadership)
    deputy = Deputy(leaders)
    assert deputy.has_it.wait(PATIENCE_S)
    assert leadership.is_over


def test_also_where_nothing_was_done_for_long_before(monkeypatch):
    monkeypatch.setattr("moorage.wire.server.leader_followers.IDLE_CHECKS", 0)  # sleeps at its first look
    leaders = LeaderFollowers(lambda: False)
    leadership = leaders.wait_to_lead()
    deputy = Deputy(leaders)
    while not leaders._sleeps:
        assert not deputy.has_it.is_set()
    monkeypatch.setattr("moorage.wire.server.leader_followers.IDLE_CHECKS", 20)
    leaders.begin_turn(leadership)
    assert deputy.has_it.wait(PATIENCE_S)


def test_who_waits_for_requests_keeps_it(monkeypatch):
    monkeypatch.setattr("moorage.wire.server.leader_followers.CHECK_PERIOD_S", 0.0001)
    leaders = LeaderFollowers(lambda: True)
    leadership = leaders.wait_to_lead()
    leaders.begin_turn(leadership)
    leaders.end_turn(leadership)
    deputy = Deputy(leaders)
    while not leaders._sleeps:
        assert not deputy.has_it.is_set()
    assert not leadership.is_over
    leaders.close()
    deputy.join()
    assert deputy.leadership is None


def test_at_the_end_all_are_told():
    leaders = LeaderFollowers(lambda: True)
    leaders.wait_to_lead()
    deputies = [Deputy(leaders) for _ in range(3)]
    leaders.close()
    for deputy in deputies:
        deputy.join()
        assert deputy.leadership is None
