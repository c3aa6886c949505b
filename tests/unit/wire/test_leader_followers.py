"""Which thread is the leader that accepts requests (`moorage.wire.server.threads`)."""

import threading

import pytest

from moorage.core import blocking_hook
from moorage.wire.server.threads import LeaderFollowers

TIMEOUT_S = 30


class Follower:
    """A thread that waits to become the leader."""

    def __init__(self, leaders):
        self.leadership = None
        self.is_leader = threading.Event()
        self._leaders = leaders
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self):
        self.leadership = self._leaders.wait_to_lead()
        self.is_leader.set()

    def join(self):
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()


@pytest.fixture(autouse=True)
def _without_callback():
    yield
    blocking_hook.set_callback(None)


def test_a_leader_that_is_about_to_block_hands_the_lead_to_a_follower():
    leaders = LeaderFollowers(lambda: True)
    leadership = leaders.wait_to_lead()
    follower = Follower(leaders)
    leaders.begin_turn(leadership)
    assert not leadership.is_over
    blocking_hook.about_to_block()
    blocking_hook.about_to_block()  # the second call has no effect
    assert leadership.is_over
    assert follower.is_leader.wait(TIMEOUT_S)
    assert not follower.leadership.is_over
    leaders.end_turn(leadership)
    assert not follower.leadership.is_over


def test_a_leader_that_serves_the_only_client_keeps_the_lead_while_it_blocks():
    leaders = LeaderFollowers(lambda: False)
    leadership = leaders.wait_to_lead()
    leaders.begin_turn(leadership)
    blocking_hook.about_to_block()
    assert not leadership.is_over


def test_the_lead_is_taken_from_a_leader_whose_turn_takes_too_long():
    leaders = LeaderFollowers(lambda: False)
    leadership = leaders.wait_to_lead()
    leaders.begin_turn(leadership)
    follower = Follower(leaders)
    assert follower.is_leader.wait(TIMEOUT_S)
    assert leadership.is_over


def test_the_lead_is_taken_from_a_slow_leader_even_after_a_long_idle_time(monkeypatch):
    monkeypatch.setattr("moorage.wire.server.threads.IDLE_CHECKS", 0)  # the follower sleeps after its first check
    leaders = LeaderFollowers(lambda: False)
    leadership = leaders.wait_to_lead()
    follower = Follower(leaders)
    while not leaders._sleeps:
        assert not follower.is_leader.is_set()
    monkeypatch.setattr("moorage.wire.server.threads.IDLE_CHECKS", 20)
    leaders.begin_turn(leadership)
    assert follower.is_leader.wait(TIMEOUT_S)


def test_a_leader_that_waits_for_requests_keeps_the_lead(monkeypatch):
    monkeypatch.setattr("moorage.wire.server.threads.CHECK_PERIOD_S", 0.0001)
    leaders = LeaderFollowers(lambda: True)
    leadership = leaders.wait_to_lead()
    leaders.begin_turn(leadership)
    leaders.end_turn(leadership)
    follower = Follower(leaders)
    while not leaders._sleeps:
        assert not follower.is_leader.is_set()
    assert not leadership.is_over
    leaders.close()
    follower.join()
    assert follower.leadership is None


def test_close_ends_the_wait_of_all_followers():
    leaders = LeaderFollowers(lambda: True)
    leaders.wait_to_lead()
    followers = [Follower(leaders) for _ in range(3)]
    leaders.close()
    for follower in followers:
        follower.join()
        assert follower.leadership is None
