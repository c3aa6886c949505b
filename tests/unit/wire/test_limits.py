"""Time limits of slow clients (`moorage.wire.server.limits`), and threads per kind of request (`threads`)."""

import pytest

from moorage.wire.admission import Admissions, _pattern
from moorage.wire.server.limits import Pace
from moorage.wire.server.request_body import BodyIntake
from moorage.wire.server.threads import ThreadSlots


def test_a_silent_client_has_a_limited_time():
    pace = Pace(20.0, 1000)
    assert pace.start_waiting(100.0) == 120.0
    assert pace.start_waiting(110.0) == 120.0, "a second call must not extend the wait"


def test_a_client_that_keeps_the_minimum_rate_has_no_time_limit():
    pace, now = Pace(20.0, 1000), 0.0
    for _ in range(10_000):
        assert pace.start_waiting(now) > now + 10.0
        now += 10.0
        pace.record_transfer(10_000, now)


def test_a_client_below_the_minimum_rate_runs_out_of_time():
    """At half of the rate, after twice the time of a silent client."""
    pace, now = Pace(20.0, 1000), 0.0
    while pace.start_waiting(now) > now + 1.0:
        now += 1.0
        pace.record_transfer(500, now)
    assert 38.0 <= now <= 40.0


def test_single_bytes_do_not_extend_the_time_of_a_client():
    pace, now = Pace(20.0, 1000), 0.0
    while pace.start_waiting(now) > now:
        now += 0.5
        pace.record_transfer(1, now)
    assert now <= 20.5


def test_a_fast_transfer_does_not_allow_a_longer_pause_afterwards():
    pace = Pace(20.0, 1000)
    pace.start_waiting(0.0)
    pace.record_transfer(1_000_000_000, 1.0)
    assert pace.start_waiting(1.0) == 21.0


SMALL, UPLOAD = BodyIntake(100), BodyIntake(streams=True, owner="a")


def test_the_last_two_threads_are_reserved_for_urgent_requests():
    slots = ThreadSlots(8, 4)
    assert [slots.acquire(SMALL, is_urgent=False) for _ in range(7)] == [True] * 6 + [False]
    assert [slots.acquire(SMALL, is_urgent=True) for _ in range(2)] == [True, True]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_with_up_to_four_threads_none_is_reserved(threads):
    slots = ThreadSlots(threads, 4)
    assert [slots.acquire(SMALL, is_urgent=False) for _ in range(threads + 1)] == [True] * threads + [False]


def test_uploads_may_use_half_of_the_threads_and_those_of_a_project_half_of_these():
    slots = ThreadSlots(16, 100)
    assert [slots.acquire(UPLOAD, is_urgent=False) for _ in range(5)] == [True] * 4 + [False]
    other = BodyIntake(streams=True, owner="b")
    assert [slots.acquire(other, is_urgent=False) for _ in range(5)] == [True] * 4 + [False]
    assert not slots.acquire(BodyIntake(streams=True, owner="c"), is_urgent=False)
    assert slots.acquire(SMALL, is_urgent=False)


def test_the_longest_waiting_request_that_may_run_is_next():
    slots = ThreadSlots(4, 2)
    other = BodyIntake(streams=True, owner="b")
    assert slots.acquire(UPLOAD, is_urgent=False)
    assert slots.acquire(other, is_urgent=False)
    for name, intake in (("first", UPLOAD), ("second", other), ("third", UPLOAD)):
        assert slots.enqueue(name, intake)
    assert slots.release(other) == ["second"]
    slots.acquire(other, is_urgent=False)
    assert slots.release(UPLOAD) == ["first"]
    assert slots.next_waiting() == ["third"], "the thread of a first request that has gone is free for the third"


def test_a_request_does_not_wait_if_a_thread_has_become_free():
    slots = ThreadSlots(1, 1)
    assert slots.acquire(SMALL, is_urgent=False)
    slots.release(SMALL)
    assert not slots.enqueue("nobody", SMALL)


def test_release_all_ends_all_waits():
    slots = ThreadSlots(1, 1)
    slots.acquire(SMALL, is_urgent=False)
    assert slots.enqueue("first", SMALL)
    assert slots.release_all() == ["first"]
    assert slots.acquire(SMALL, is_urgent=False)


@pytest.mark.parametrize(
    ("target", "is_urgent"),
    [
        ("/placement/healthcheck", True),
        ("/identity/v3/auth/tokens", True),
        ("/compute/agent/v1/hosts/a/jobs", True),
        ("/metrics", True),
        ("/compute/v2.1/servers?x=/healthcheck", False),
        ("/compute/v2.1/servers/healthcheck", False),
        ("/compute?/agent/v1/", False),
        ("/identityx/", False),
    ],
)
def test_urgent_requests_are_recognised_by_their_path(target, is_urgent):
    assert Admissions().is_urgent(target) is is_urgent


def test_a_parameter_of_a_route_matches_one_whole_path_segment():
    pattern = _pattern("/boats/{name}/sails/{sail.id}")
    assert pattern.match("/boats/a b/sails/1")
    assert not pattern.match("/boats/a/b/sails/1")
    assert not pattern.match("/boats/a/sails/1/x")
    assert not pattern.match("/boats//sails/1")
