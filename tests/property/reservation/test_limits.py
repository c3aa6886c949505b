"""The limits of a project or user, compared with a count of every minute."""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.reservation.model.limits import Limits, Reserved, Window, charged, counted, first_exceeded
from tests.property.reservation.test_calendar import SPAN, at, periods

reserved = st.lists(
    st.builds(
        lambda n, period, amount: Reserved(f"{n}", at(period[0]), at(period[1]), {"VCPU": amount}),
        st.integers(0, 99),
        periods,
        st.integers(0, 4),
    ),
    max_size=6,
)


def use(rows, minute):
    return sum(row.amounts["VCPU"] for row in rows if row.start <= at(minute) < row.end)


@given(reserved, reserved, reserved, st.integers(0, 12))
@settings(max_examples=300, deadline=None)
def test_a_request_is_refused_exactly_if_the_peak_where_it_adds_exceeds_the_limit(others, asked, before, most):
    found = first_exceeded(Limits(now={"VCPU": most}), Window(at(0), timedelta(days=1)), others, asked, before)
    peaks = [
        use(others, minute) + use(asked, minute) for minute in range(SPAN) if use(asked, minute) > use(before, minute)
    ]
    assert (found is not None) == (max(peaks, default=0) > most)
    if found is not None:
        assert found.used + found.asked == max(peaks)


@given(reserved, reserved, st.integers(1, SPAN), st.integers(0, 40))
@settings(max_examples=200, deadline=None)
def test_a_request_is_refused_exactly_if_the_hours_within_some_period_exceed_the_limit(others, asked, length, most):
    windows = [range(begin, begin + length) for begin in range(-SPAN, 2 * SPAN)]
    sums = [(sum(use(others, each) for each in one), sum(use(asked, each) for each in one)) for one in windows]
    # A minute is an hour here: sixty times as much is reserved.
    sixty = [
        [Reserved(row.reservation_id, row.start, row.end, {"VCPU": 60 * row.amounts["VCPU"]}) for row in rows]
        for rows in (others, asked)
    ]
    found = first_exceeded(Limits(hours={"VCPU": most}), Window(at(0), timedelta(minutes=length)), *sixty)
    assert (found is not None) == (max((used + adds for used, adds in sums if adds), default=0) > most)


def test_a_whole_host_counts_as_a_host_and_with_all_that_it_has():
    whole = {7: {"VCPU": 8, "VCPU#1": 8, "CUSTOM_GPU": 2}}
    assert charged({7: [{"@host": 1}]}, whole) == {"HOSTS": 1, "VCPU": 16, "CUSTOM_GPU": 2}
    assert charged({7: [{"VCPU": 1}]}, whole) == {"VCPU": 1}


def test_whole_hosts_are_counted_as_hosts_and_other_resources_by_class():
    assert counted([{"@host": 1}, {"@host": 1}]) == {"HOSTS": 2}
    assert counted([{"VCPU": 2, "MEMORY_MB": 5}, {"VCPU": 1}]) == {"VCPU": 3, "MEMORY_MB": 5}
