"""The number of servers that fit, and the limits that a request exceeds, compared with counting one by one."""

from hypothesis import given
from hypothesis import strategies as st

from moorage.compute.model.quota import (
    UNLIMITED,
    added_amounts,
    exceeded_limits,
    larger_amounts,
    resource_amounts,
    servers_that_fit,
    sum_amounts,
)

NAMES = st.sampled_from(["instances", "cores", "class:CUSTOM_GOLD"])
UNITS = st.integers(0, 6)
AMOUNTS = st.dictionaries(NAMES, UNITS)
LIMITS = st.dictionaries(NAMES, st.integers(UNLIMITED, 12))


@given(LIMITS, AMOUNTS, AMOUNTS, st.integers(1, 8))
def test_the_number_of_servers_that_fit_equals_adding_them_one_by_one(limits, used, one, most):
    count, now = 0, dict(used)
    while count < most and not exceeded_limits(limits, now, one):
        now = sum_amounts((now, one))
        count += 1
    assert servers_that_fit(limits, used, one, most) == count


@given(LIMITS, AMOUNTS, AMOUNTS)
def test_exceeded_limits_are_those_that_usage_and_request_together_exceed(limits, used, asked):
    found = {each.name for each in exceeded_limits(limits, used, asked)}
    for name in {*limits, *used, *asked}:
        limit = limits.get(name, UNLIMITED)
        is_over = limit != UNLIMITED and asked.get(name, 0) > 0 and used.get(name, 0) + asked[name] > limit
        assert (name in found) == is_over


@given(AMOUNTS, AMOUNTS)
def test_amounts_before_plus_added_amounts_equal_the_larger_amounts(before, after):
    reached = sum_amounts((before, added_amounts(before, after)))
    assert {name: units for name, units in reached.items() if units} == {
        name: units for name, units in larger_amounts(before, after).items() if units
    }


@given(st.dictionaries(st.sampled_from(["VCPU", "PCPU", "MEMORY_MB", "CUSTOM_GOLD"]), UNITS), st.integers(1, 5))
def test_amounts_of_several_servers_are_a_multiple_of_the_amounts_of_one(resources, servers):
    assert resource_amounts(resources, servers=servers) == sum_amounts([resource_amounts(resources)] * servers)
