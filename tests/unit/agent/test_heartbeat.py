"""When an agent sends a heartbeat."""

from datetime import timedelta

import pytest

from moorage.agent.host.host_agent import MAX_SILENT_PERIODS, HeartbeatTask
from moorage.core.errors import Unavailable
from moorage.jobs.poller_election import PollerElection

PERIOD_S = 10.0


class Compute:
    def __init__(self):
        self.told = []
        self.is_away = False

    def register_host(self, host, **facts):
        if self.is_away:
            raise Unavailable("nobody answers")
        self.told.append(facts)


@pytest.fixture
def compute():
    return Compute()


@pytest.fixture
def election():
    return PollerElection(lambda _: None)


@pytest.fixture
def facts():
    return {"vcpus": 1}


@pytest.fixture
def task(facts, compute, election, clock):
    return HeartbeatTask("compute-1", lambda: dict(facts), compute, election, clock, PERIOD_S)


def beat(task, clock, times=1):
    for _ in range(times):
        clock.advance_to(task.run_once())


def test_a_host_that_asks_nobody_for_jobs_beats_each_period(task, compute, clock):
    begin = clock.now()
    beat(task, clock, 5)
    assert len(compute.told) == 5
    assert clock.now() - begin == timedelta(seconds=5 * PERIOD_S)


def test_an_answer_to_who_asked_for_jobs_is_sign_enough_but_not_for_ever(task, compute, election, clock):
    for _ in range(3 * MAX_SILENT_PERIODS):
        election.answered_at = clock.now()
        beat(task, clock)
    assert len(compute.told) == 3


def test_changed_facts_are_told_in_any_case(task, compute, election, clock, facts):
    for vcpus in (1, 1, 2, 2):
        facts["vcpus"] = vcpus
        election.answered_at = clock.now()
        beat(task, clock)
    assert compute.told == [{"vcpus": 1}, {"vcpus": 2}]


def test_when_asking_for_jobs_fails_it_beats_again(task, compute, election, clock):
    election.answered_at = clock.now()
    beat(task, clock, 4)
    assert len(compute.told) == 3


def test_a_beat_that_failed_is_made_up_for_by_the_next(task, compute, election, clock, caplog):
    compute.is_away = True
    election.answered_at = clock.now()
    beat(task, clock)
    assert "heartbeat failed" in caplog.text
    compute.is_away = False
    election.answered_at = clock.now()
    beat(task, clock)
    assert len(compute.told) == 1
