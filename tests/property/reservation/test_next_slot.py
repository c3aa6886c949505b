"""The next slot compared with a check of every minute."""

from datetime import timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from moorage.reservation.capacity.calendar import Calendar, HostCapacity, HostUsage
from moorage.reservation.capacity.host_selection import CapacityRequest, Shortage, plan
from moorage.reservation.capacity.next_slot import first_fit
from moorage.reservation.model.slot_demand import SlotDemand
from tests.property.reservation.test_calendar import HOSTS, SPAN, at, capacities, requests, usages

demands = st.just(SlotDemand(whole_host=True)) | requests.map(SlotDemand)
asks = st.builds(
    CapacityRequest,
    st.sampled_from("ab"),
    demands,
    st.integers(1, 9),
    st.sampled_from([None, True, False]),
    st.none() | st.frozensets(st.sampled_from(HOSTS)),
)
minutes = st.integers(0, SPAN)
lengths = st.integers(1, SPAN).map(lambda n: timedelta(minutes=n))


def fits(calendar, wanted, minute, length):
    return not isinstance(plan(calendar, wanted, at(minute), at(minute) + length), Shortage)


def minute_by_minute(calendar, wanted, earliest, latest, length):
    return next((at(m) for m in range(earliest, latest + 1) if fits(calendar, wanted, m, length)), None)


@given(capacities, st.lists(usages, max_size=12), st.lists(usages, max_size=4), asks, minutes, minutes, lengths)
@settings(max_examples=400, deadline=None)
def test_the_next_slot_is_the_one_found_minute_by_minute(hosts, taken, added, ask, earliest, latest, length):
    calendar = Calendar(hosts, taken).with_usage(added).with_usage(usage.released() for usage in taken[:2])
    expected = minute_by_minute(calendar, [ask], earliest, latest, length)
    assert first_fit(calendar, [ask], at(earliest), at(latest), length) == expected


@given(capacities, st.lists(usages, max_size=8), demands, st.integers(1, 90), lengths)
@settings(max_examples=50, deadline=None)
def test_the_next_slot_starts_at_a_full_minute_even_if_usage_ends_within_one(hosts, taken, demand, seconds, length):
    """Cleaning may end within a minute, but a start is a full minute."""
    longer = [HostUsage(each.host, each.start, each.end + timedelta(seconds=seconds), each.amounts) for each in taken]
    calendar, ask = Calendar(hosts, longer), CapacityRequest("a", demand, 2, None)
    length += timedelta(seconds=seconds)
    assert first_fit(calendar, [ask], at(0), at(40), length) == minute_by_minute(calendar, [ask], 0, 40, length)


@given(capacities, st.lists(usages, max_size=12), st.lists(asks, max_size=3), minutes, lengths)
@settings(max_examples=200, deadline=None)
def test_several_reservations_fit_together_in_the_next_slot(hosts, taken, several, earliest, length):
    wanted = [CapacityRequest(str(n), a.demand, a.amount, a.affinity, a.eligible) for n, a in enumerate(several)]
    calendar = Calendar(hosts, taken)
    found = first_fit(calendar, wanted, at(earliest), at(3 * SPAN), length)
    free = max([earliest, *(round((usage.end - at(0)) / timedelta(minutes=1)) for usage in taken)])
    if found is None:
        assert not fits(calendar, wanted, free, length), "it would fit after the end of all usage"
    else:
        assert not isinstance(plan(calendar, wanted, found, found + length), Shortage)
        assert found == at(earliest) or any(usage.end == found for usage in taken)


@given(st.integers(1, 3000), st.integers(300, 2000))
@example(2999, 600)
@settings(max_examples=20, deadline=None)
def test_the_next_slot_of_many_small_slots_is_never_too_early(amount, capacity):
    host = [HostCapacity(number, {"VCPU": capacity - number}) for number in HOSTS]
    taken = [
        HostUsage(number, at(step), at(step + 1), {"VCPU": 97 * (SPAN - step) * (number % 4 + 1)})
        for number in HOSTS
        for step in range(SPAN)
    ]
    calendar = Calendar(host, [usage for usage in taken if usage.amounts["VCPU"] < capacity])
    ask, length = CapacityRequest("a", SlotDemand({"VCPU": 1}), amount, None), timedelta(minutes=2)
    found, expected = (
        first_fit(calendar, [ask], at(0), at(SPAN), length),
        minute_by_minute(calendar, [ask], 0, SPAN, length),
    )
    assert found == expected if amount <= 256 else found is None or found >= expected
