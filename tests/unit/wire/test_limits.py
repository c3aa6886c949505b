"""Limits for slow clients (`moorage.wire.server.limits`), and threads for each kind of request (`thread_slots`)."""

import pytest

from moorage.wire.admission import Admissions, _pattern
from moorage.wire.server.limits import Pace
from moorage.wire.server.request_body import BodyIntake
from moorage.wire.server.thread_slots import ThreadSlots


def test_a_silent_client_has_its_allowance_and_no_more():
    pace = Pace(20.0, 1000)
    assert pace.start_waiting(100.0) == 120.0
    assert pace.start_waiting(110.0) == 120.0, "asked again it is the same wait"


def test_a_client_that_keeps_the_rate_may_go_on_for_ever():
    pace, now = Pace(20.0, 1000), 0.0
    for _ in range(10_000):
        assert pace.start_waiting(now) > now + 10.0
        now += 10.0
        pace.record_transfer(10_000, now)


def test_a_client_below_the_rate_uses_its_allowance_up():
    """At half of the rate: after twice the allowance."""
    pace, now = Pace(20.0, 1000), 0.0
    while pace.start_waiting(now) > now + 1.0:
        now += 1.0
        pace.record_transfer(500, now)
    assert 38.0 <= now <= 40.0


def test_a_byte_now_and_then_is_no_rate():
    pace, now = Pace(20.0, 1000), 0.0
    while pace.start_waiting(now) > now:
        now += 0.5
        pace.record_transfer(1, now)
    assert now <= 20.5


def test_a_quick_start_earns_no_longer_rest():
    pace = Pace(20.0, 1000)
    pace.start_waiting(0.0)
    pace.record_transfer(1_000_000_000, 1.0)
    assert pace.start_waiting(1.0) == 21.0


SMALL, UPLOAD = BodyIntake(100), BodyIntake(streams=True, owner="a")


def test_the_last_two_threads_are_for_what_is_urgent():
    places = ThreadSlots(8, 4)
    assert [places.acquire(SMALL, is_urgent=False) for _ in range(7)] == [True] * 6 + [False]
    assert [places.acquire(SMALL, is_urgent=True) for _ in range(2)] == [True, True]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_with_few_threads_all_are_for_everybody(threads):
    places = ThreadSlots(threads, 4)
    assert [places.acquire(SMALL, is_urgent=False) for _ in range(threads + 1)] == [True] * threads + [False]


def test_uploads_have_half_of_the_threads_and_a_project_half_of_those():
    places = ThreadSlots(16, 100)
    assert [places.acquire(UPLOAD, is_urgent=False) for _ in range(5)] == [True] * 4 + [False]
    other = BodyIntake(streams=True, owner="b")
    assert [places.acquire(other, is_urgent=False) for _ in range(5)] == [True] * 4 + [False]
    assert not places.acquire(BodyIntake(streams=True, owner="c"), is_urgent=False)
    assert places.acquire(SMALL, is_urgent=False)


def test_who_waits_longest_of_those_that_may_is_next():
    places = ThreadSlots(4, 2)
    other = BodyIntake(streams=True, owner="b")
    assert places.acquire(UPLOAD, is_urgent=False)
    assert places.acquire(other, is_urgent=False)
    for name, intake in (("first", UPLOAD), ("second", other), ("third", UPLOAD)):
        assert places.enqueue(name, intake)
    assert places.release(other) == ["second"]
    places.acquire(other, is_urgent=False)
    assert places.release(UPLOAD) == ["first"]
    assert places.next_waiting() == ["third"], "where the first one was gone"


def test_nobody_waits_for_a_place_that_came_free_meanwhile():
    places = ThreadSlots(1, 1)
    assert places.acquire(SMALL, is_urgent=False)
    places.release(SMALL)
    assert not places.enqueue("nobody", SMALL)


def test_at_the_end_nobody_waits():
    places = ThreadSlots(1, 1)
    places.acquire(SMALL, is_urgent=False)
    assert places.enqueue("first", SMALL)
    assert places.release_all() == ["first"]
    assert places.acquire(SMALL, is_urgent=False)


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
def test_what_is_urgent_is_told_by_the_path(target, is_urgent):
    assert Admissions().is_urgent(target) is is_urgent


def test_a_template_fits_whole_segments():
    pattern = _pattern("/boats/{name}/sails/{sail.id}")
    assert pattern.match("/boats/a b/sails/1")
    assert not pattern.match("/boats/a/b/sails/1")
    assert not pattern.match("/boats/a/sails/1/x")
    assert not pattern.match("/boats//sails/1")
