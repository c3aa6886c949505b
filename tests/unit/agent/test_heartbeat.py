"""When an agent sends a heartbeat."""

from datetime import timedelta

import pytest

from moorage.agent.host_agent import MAX_SILENT_PERIODS, HeartbeatTask
from moorage.agent.jobs.job_task import PollerElection
from moorage.core.errors import Unavailable

PERIOD_S = 10.0


class Compute:
    def __init__(self):
        self.reports = []
        self.is_away = False

    def register_host(self, host, **report):
        if self.is_away:
            raise Unavailable("nobody answers")
        self.reports.append(report)


@pytest.fixture
def compute():
    return Compute()


@pytest.fixture
def election():
    return PollerElection(lambda _: None)


@pytest.fixture
def report():
    return {"vcpus": 1}


@pytest.fixture
def task(report, compute, election, clock):
    return HeartbeatTask("compute-1", lambda: dict(report), compute, election, clock, PERIOD_S)


def send_heartbeats(task, clock, times=1):
    for _ in range(times):
        clock.advance_to(task.run_once())


def test_an_agent_that_claims_no_jobs_sends_a_heartbeat_in_each_period(task, compute, clock):
    begin = clock.now()
    send_heartbeats(task, clock, 5)
    assert len(compute.reports) == 5
    assert clock.now() - begin == timedelta(seconds=5 * PERIOD_S)


def test_after_successful_claims_of_jobs_only_every_nth_heartbeat_is_sent(task, compute, election, clock):
    for _ in range(3 * MAX_SILENT_PERIODS):
        election.answered_at = clock.now()
        send_heartbeats(task, clock)
    assert len(compute.reports) == 3


def test_a_changed_report_is_sent_with_the_next_heartbeat_in_any_case(task, compute, election, clock, report):
    for vcpus in (1, 1, 2, 2):
        report["vcpus"] = vcpus
        election.answered_at = clock.now()
        send_heartbeats(task, clock)
    assert compute.reports == [{"vcpus": 1}, {"vcpus": 2}]


def test_without_further_answers_to_claims_heartbeats_are_sent_again(task, compute, election, clock):
    election.answered_at = clock.now()
    send_heartbeats(task, clock, 4)
    assert len(compute.reports) == 3


def test_a_failed_heartbeat_is_sent_again_in_the_next_period(task, compute, election, clock, caplog):
    compute.is_away = True
    election.answered_at = clock.now()
    send_heartbeats(task, clock)
    assert "heartbeat failed" in caplog.text
    compute.is_away = False
    election.answered_at = clock.now()
    send_heartbeats(task, clock)
    assert len(compute.reports) == 1
