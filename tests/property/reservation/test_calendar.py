"""The calendar's arrays compared with a simple table of minutes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.reservation.capacity import calendar as calendar_module
from moorage.reservation.capacity.calendar import Calendar, HostCapacity, HostUsage, utilisation
from moorage.reservation.model.slot_demand import WHOLE_HOST, SlotDemand

ZERO = datetime(2026, 1, 1, tzinfo=UTC)
HOSTS = (3, 7, 8)
CLASSES = ("VCPU", "MEMORY_MB")
SPAN = 12  # minutes; few, so that ends meet starts often

minutes = st.integers(0, SPAN)
periods = st.tuples(minutes, minutes).filter(lambda pair: pair[0] != pair[1]).map(sorted)
amounts = st.fixed_dictionaries({name: st.integers(0, 4) for name in CLASSES})
usages = st.builds(
    lambda host, period, amount: HostUsage(host, at(period[0]), at(period[1]), amount),
    st.sampled_from(HOSTS),
    periods,
    amounts,
)
CAPACITY = {"VCPU": 64, "MEMORY_MB": 60}
whole_hosts = usages.map(lambda usage: replace(usage, amounts={WHOLE_HOST: 1}))
capacities = st.lists(
    st.fixed_dictionaries({name: st.integers(0, 12) for name in CLASSES}), min_size=3, max_size=3
).map(lambda rows: [HostCapacity(host, row) for host, row in zip(HOSTS, rows, strict=True)])
requests = amounts.filter(lambda amount: any(amount.values()))


def at(minute: int) -> datetime:
    return ZERO + timedelta(minutes=minute)


def minute_by_minute(hosts, taken, request, period):
    """Counts usage per host and minute; returns the smallest number that fits in any minute."""
    slots = []
    for host in hosts:
        fitting = []
        for minute in range(*period):
            for name, wanted in request.items():
                used = sum(
                    usage.amounts[name]
                    for usage in taken
                    if usage.host == host.host and usage.start <= at(minute) < usage.end
                )
                if wanted:
                    fitting.append(max(0, (host.capacity[name] - used) // wanted))
        slots.append(min(fitting))
    return slots


@given(capacities, st.lists(usages, max_size=12), requests, periods)
@settings(max_examples=300, deadline=None)
def test_slots_equal_those_counted_minute_by_minute(hosts, taken, request, period):
    """R16, R19 (instance-reservation): in every resource and at every instant of the period."""
    calendar = Calendar(hosts, taken)
    assert calendar.slots(SlotDemand(request), at(period[0]), at(period[1])).tolist() == minute_by_minute(
        hosts, taken, request, period
    )


@given(capacities, st.lists(usages, max_size=8), st.lists(usages, max_size=8), st.integers(0, 8), requests, periods)
@settings(max_examples=300, deadline=None)
def test_a_changed_calendar_equals_one_built_from_the_result(hosts, taken, added, removed, request, period):
    gone, stay = taken[:removed], taken[removed:]
    calendar = Calendar(hosts, taken).with_usage(added).with_usage(usage.released() for usage in gone)
    assert calendar.slots(SlotDemand(request), at(period[0]), at(period[1])).tolist() == minute_by_minute(
        hosts, [*stay, *added], request, period
    )


@given(capacities, st.lists(usages, min_size=1, max_size=8), requests, periods)
@settings(max_examples=100, deadline=None)
def test_merging_changes_into_the_array_does_not_change_the_free_slots(hosts, taken, request, period):
    listed = Calendar(hosts, []).with_usage(taken)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(calendar_module, "MAX_CHANGES", 5)
        folded = Calendar(hosts, [])
        for _ in range(5):  # adds and removes the same usage: more changes than are kept as a list
            folded = folded.with_usage(taken).with_usage(usage.released() for usage in taken)
        folded = folded.with_usage(taken)
    start, end = at(period[0]), at(period[1])
    assert (
        folded.slots(SlotDemand(request), start, end).tolist() == listed.slots(SlotDemand(request), start, end).tolist()
    )


@given(
    capacities,
    capacities,
    st.lists(usages, max_size=8),
    st.lists(usages, max_size=8),
    st.lists(usages, max_size=4),
    st.sets(st.sampled_from(HOSTS), min_size=1),
    st.sampled_from([1, 2, 256]),
    periods,
)
@settings(max_examples=300, deadline=None)
def test_hosts_that_are_replaced_lose_their_old_capacity_and_usage(
    hosts, later, taken, anew, added, read, most, period
):
    """Also after earlier changes and before later ones. `most`: changed hosts that are kept outside of the array."""
    anew = [usage for usage in anew if usage.host in read]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(calendar_module, "MAX_CHANGED_HOSTS", most)
        calendar = Calendar(hosts, taken[:4]).with_usage(taken[4:])
        calendar = calendar.replaced([host for host in later if host.host in read], anew).with_usage(added)
    there = [new if new.host in read else old for old, new in zip(hosts, later, strict=True)]
    expected = Calendar(there, [*(usage for usage in taken if usage.host not in read), *anew, *added])
    start, end = at(period[0]), at(period[1])
    assert calendar.capacity.tolist() == expected.capacity.tolist()
    assert calendar.peak(start, end).tolist() == expected.peak(start, end).tolist()
    assert used_over_time(calendar) == used_over_time(expected)


@given(
    st.lists(usages | whole_hosts, max_size=8),
    st.lists(usages | whole_hosts, max_size=4),
    st.sets(st.sampled_from(HOSTS)),
    st.none() | st.sets(st.sampled_from([*HOSTS, 99])),
    periods,
    st.integers(1, SPAN),
)
@settings(max_examples=300, deadline=None)
def test_utilisation_is_the_highest_usage_within_each_step(taken, added, read, asked, period, step):
    """For all hosts or some of them, after usage was added and after hosts were replaced by empty ones."""
    hosts = [HostCapacity(host, CAPACITY) for host in HOSTS]
    calendar = Calendar(hosts, taken).replaced([host for host in hosts if host.host in read], []).with_usage(added)
    there = [usage for usage in taken if usage.host not in read] + added
    there = [replace(usage, amounts=CAPACITY) if WHOLE_HOST in usage.amounts else usage for usage in there]
    if asked is not None:
        there = [usage for usage in there if usage.host in asked]
    expected = []
    for first in range(*period, step):
        within = range(first, min(first + step, period[1]))
        most = {name: max(_used_in(there, name, minute) for minute in within) for name in CLASSES}
        most["HOSTS"] = max(_used_hosts(there, minute) for minute in within)
        expected += [{name: units for name, units in most.items() if units}] * len(within)
    shown = utilisation(calendar, at(period[0]), at(period[1]), timedelta(minutes=step), asked)
    assert [each.used for each in shown for _ in range((each.end - each.start) // timedelta(minutes=1))] == expected
    assert all(before.used != after.used for before, after in pairwise(shown)), (
        "neighbours with the same usage must be one"
    )


def _used_in(taken, name, minute):
    return sum(usage.amounts[name] for usage in taken if usage.start <= at(minute) < usage.end)


def _used_hosts(taken, minute):
    return len({usage.host for usage in taken if usage.start <= at(minute) < usage.end and any(usage.amounts.values())})


def used_over_time(calendar):
    """{(host, minute): usage}, if not zero."""
    segments = calendar.segments()
    return {
        (row, second): use
        for row, start, end, use in zip(
            *(getattr(segments, name).tolist() for name in ("row", "start", "end", "use")), strict=True
        )
        for second in range(start, end, 60)
        if any(use)
    }
