"""Leases in several regions at the same time: the protocol, and its simulation."""

from collections import Counter

import pytest

from bench.region_booking import LENGTH_M, Load, Step, book, simulate

NOTHING = dict.fromkeys(Step, 0.0)
WORK = dict.fromkeys(Step, 0.005)
#: Leases of one region at the same time.
FIT = 2


def test_alone_a_lease_takes_a_round_trip_for_the_search_the_hold_and_the_lease_each():
    found = simulate(Load(regions=2, across=2, clients=1, round_trip_s=0.1, bookings=20), NOTHING)
    quickest = min(one.took_s for one in found.across)
    assert quickest == pytest.approx(0.3)
    for one in found.across:
        assert one.took_s == pytest.approx(0.1 * (one.searches + 2))
        assert (one.attempts, one.released) == (1, 0)


def test_a_lease_in_one_region_takes_two_round_trips():
    found = simulate(Load(regions=2, across=2, clients=1, round_trip_s=0.1, bookings=20), NOTHING)
    assert {round(one.took_s, 6) for one in found.bookings if len(one.regions) == 1} == {0.2}


@pytest.mark.parametrize("at_once", [True, False])
def test_no_region_is_overbooked_whatever_its_clients_do_at_the_same_time(at_once):
    load = Load(regions=4, across=3, clients=12, round_trip_s=0.05, bookings=150, at_once=at_once)
    found = simulate(load, WORK)
    begun = Counter(
        (region, minute)
        for one in found.bookings
        for region in one.regions
        for minute in range(one.start, one.start + LENGTH_M)
    )
    assert max(begun.values()) == FIT
    assert found.attempts > 1, "no client was in the way of another"


def test_a_region_that_works_for_one_request_at_a_time_bounds_the_rate():
    load = Load(regions=1, across=1, clients=8, round_trip_s=0.0, bookings=100)
    assert simulate(load, WORK).per_second == pytest.approx(1 / (2 * 0.005), rel=0.1)


def test_the_same_arguments_give_the_same_outcome():
    load = Load(regions=3, across=2, clients=4, round_trip_s=0.02, bookings=40)
    assert simulate(load, WORK) == simulate(load, WORK)


def test_a_refused_hold_releases_the_others_and_the_search_goes_on_from_there():
    booking = book((0, 1), at_once=True)
    assert [one.step for one in next(booking)] == [Step.OFFER] * 2
    assert {one.start for one in booking.send([0, 60])} == {60}, "asks from the later of the two offers on"
    assert [one.step for one in booking.send([60, 60])] == [Step.HOLD] * 2
    assert [(one.region, one.step) for one in booking.send([60, None])] == [(0, Step.RELEASE)]
    assert [(one.step, one.start) for one in booking.send([0])] == [(Step.OFFER, 60)] * 2


def test_a_full_calendar_ends_the_search():
    booking = book((0, 1), at_once=True)
    next(booking)
    with pytest.raises(RuntimeError, match="no start is left"):
        booking.send([0, None])


def test_in_one_region_a_refused_hold_is_repeated():
    booking = book((3,), at_once=True)
    assert [(one.region, one.step) for one in next(booking)] == [(3, Step.HOLD_NEXT)]
    assert [one.step for one in booking.send([None])] == [Step.HOLD_NEXT]
    assert [one.step for one in booking.send([60])] == [Step.LEASE]
    with pytest.raises(StopIteration) as end:
        booking.send([0])
    assert (end.value.value.start, end.value.value.attempts) == (60, 2)
