"""Which thread takes requests up (`moorage.wire.server.leader_followers`)."""

import threading

import pytest

from moorage.core import blocking_hook
from moorage.wire.server.leader_followers import LeaderFollowers

PATIENCE_S = 30


class Deputy:
    """A thread that takes the wheel and says that it has it."""

    def __init__(self, wheel):
        self.drive = None
        self.has_it = threading.Event()
        self._wheel = wheel
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self):
        self.drive = self._wheel.wait_to_lead()
        self.has_it.set()

    def join(self):
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture(autouse=True)
def _nobody_listens():
    yield
    blocking_hook.set_callback(None)


def test_who_waits_gives_the_wheel_to_the_deputy():
    wheel = LeaderFollowers(lambda: True)
    drive = wheel.wait_to_lead()
    deputy = Deputy(wheel)
    wheel.begin_turn(drive)
    assert not drive.is_over
    blocking_hook.about_to_block()
    blocking_hook.about_to_block()  # a second time it has nothing to give
    assert drive.is_over
    assert deputy.has_it.wait(PATIENCE_S)
    assert not deputy.drive.is_over
    wheel.end_turn(drive)
    assert not deputy.drive.is_over


def test_who_serves_the_only_client_keeps_it_while_waiting():
    wheel = LeaderFollowers(lambda: False)
    drive = wheel.wait_to_lead()
    wheel.begin_turn(drive)
    blocking_hook.about_to_block()
    assert not drive.is_over


def test_the_wheel_is_taken_from_who_stays_in_a_turn_without_a_word():
    wheel = LeaderFollowers(lambda: False)
    drive = wheel.wait_to_lead()
    wheel.begin_turn(drive)
    deputy = Deputy(wheel)
    assert deputy.has_it.wait(PATIENCE_S)
    assert drive.is_over


def test_also_where_nothing_was_done_for_long_before(monkeypatch):
    monkeypatch.setattr("moorage.wire.server.leader_followers.IDLE_CHECKS", 0)  # sleeps at its first look
    wheel = LeaderFollowers(lambda: False)
    drive = wheel.wait_to_lead()
    deputy = Deputy(wheel)
    while not wheel._sleeps:
        assert not deputy.has_it.is_set()
    monkeypatch.setattr("moorage.wire.server.leader_followers.IDLE_CHECKS", 20)
    wheel.begin_turn(drive)
    assert deputy.has_it.wait(PATIENCE_S)


def test_who_waits_for_requests_keeps_it(monkeypatch):
    monkeypatch.setattr("moorage.wire.server.leader_followers.CHECK_PERIOD_S", 0.0001)
    wheel = LeaderFollowers(lambda: True)
    drive = wheel.wait_to_lead()
    wheel.begin_turn(drive)
    wheel.end_turn(drive)
    deputy = Deputy(wheel)
    while not wheel._sleeps:
        assert not deputy.has_it.is_set()
    assert not drive.is_over
    wheel.close()
    deputy.join()
    assert deputy.drive is None


def test_at_the_end_all_are_told():
    wheel = LeaderFollowers(lambda: True)
    wheel.wait_to_lead()
    deputies = [Deputy(wheel) for _ in range(3)]
    wheel.close()
    for deputy in deputies:
        deputy.join()
        assert deputy.drive is None
