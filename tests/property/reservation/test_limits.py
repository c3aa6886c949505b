"""A project's limits, compared with a count of every minute."""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.reservation.model.limits import ProjectLimits, Reserved, counted, refusal
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


@given(reserved, periods, st.integers(0, 12))
@settings(max_examples=200, deadline=None)
def test_a_request_is_refused_exactly_if_its_peak_exceeds_the_limit(rows, period, most):
    peak = max(use(rows, minute) for minute in range(*period))
    said = refusal(ProjectLimits(now={"VCPU": most}), timedelta(days=1), rows, at(period[0]), at(period[1]))
    assert (said is not None) == (peak > most)


@given(reserved, st.integers(1, SPAN), st.integers(0, 40))
@settings(max_examples=200, deadline=None)
def test_a_request_is_refused_exactly_if_the_hours_within_some_period_exceed_the_limit(rows, length, most):
    minutes = [use(rows, minute) for minute in range(-SPAN, 2 * SPAN)]
    taken = max(sum(minutes[begin : begin + length]) for begin in range(len(minutes)))
    # A minute is an hour here: sixty times as much is reserved.
    more = [Reserved(row.reservation_id, row.start, row.end, {"VCPU": 60 * row.amounts["VCPU"]}) for row in rows]
    said = refusal(ProjectLimits(hours={"VCPU": most}), timedelta(minutes=length), more, at(0), at(SPAN))
    assert (said is not None) == (taken > most)


def test_whole_hosts_are_counted_as_hosts_and_other_resources_by_class():
    assert counted([{"@host": 1}, {"@host": 1}]) == {"HOSTS": 2}
    assert counted([{"VCPU": 2, "MEMORY_MB": 5}, {"VCPU": 1}]) == {"VCPU": 3, "MEMORY_MB": 5}
