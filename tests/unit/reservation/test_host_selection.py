import sys
from datetime import UTC, datetime

import pytest

from moorage.core.errors import Invalid
from moorage.reservation.capacity.calendar import Calendar, HostCapacity, HostUsage
from moorage.reservation.capacity.host_selection import (
    CapacityRequest,
    Shortage,
    difference,
    plan,
    query_available_hosts,
    still_fits,
)
from moorage.reservation.model.slot_demand import SlotDemand
from tests.unit.reservation.picking import pickup_hosts

START, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


def hosts(*cores: int, taken: tuple[HostUsage, ...] = ()) -> Calendar:
    return Calendar([HostCapacity(host, {"VCPU": each}) for host, each in enumerate(cores, 1)], taken)


def ask(amount: int, affinity: bool | None = None, *, name: str = "r", vcpus: int = 1, **more) -> CapacityRequest:
    return CapacityRequest(name, SlotDemand({"VCPU": vcpus}), amount, affinity, **more)


def on(counts: dict[int, int], vcpus: int = 1):
    """`counts` ({host: number of slots}) as {host: amounts of each slot}."""
    return {host: ({"VCPU": vcpus},) * count for host, count in counts.items()}


def whole(amount: int, most: int | None = None, *, name: str = "r", **more) -> CapacityRequest:
    return CapacityRequest(name, SlotDemand(whole_host=True), amount, most=most, **more)


def test_the_number_of_free_slots_on_each_host_is_found():
    """R16 (instance-reservation)"""
    calendar = hosts(8, 4, 2, taken=(HostUsage(2, START, END, {"VCPU": 3}),))
    assert query_available_hosts(calendar, ask(1, vcpus=2), START, END).tolist() == [4, 0, 1]


def test_only_eligible_hosts_have_free_slots():
    assert query_available_hosts(hosts(8, 4), ask(1, eligible=frozenset({2})), START, END).tolist() == [0, 4]


def test_without_affinity_slots_are_spread_over_any_hosts():
    """R17 (instance-reservation): affinity NULL."""
    assert pickup_hosts({1: 2, 2: 3}, ask(5)) == {1: 2, 2: 3}


def test_with_affinity_all_slots_are_on_the_host_that_they_fill_best():
    """R17 (instance-reservation): affinity True."""
    assert pickup_hosts({1: 9, 2: 3, 3: 4}, ask(4, affinity=True)) == {3: 4}
    assert pickup_hosts({1: 3, 2: 3}, ask(4, affinity=True)) is None


def test_with_anti_affinity_each_slot_is_on_another_host():
    """R17 (instance-reservation): affinity False."""
    assert pickup_hosts({1: 9, 2: 3, 3: 4}, ask(3, affinity=False)) == {1: 1, 2: 1, 3: 1}
    assert pickup_hosts({1: 9, 2: 9}, ask(3, affinity=False)) is None


def test_hosts_that_the_reservation_already_has_are_preferred():
    """R17 (instance-reservation): on update the reservation's own hosts come first."""
    assert pickup_hosts({1: 1, 2: 8}, ask(3, held=on({2: 2}))) == {2: 3}
    assert pickup_hosts({1: 2, 2: 8}, ask(1, affinity=False, held=on({2: 1}))) == {2: 1}
    assert pickup_hosts({1: 2, 2: 8}, ask(2, affinity=True, held=on({2: 2}))) == {2: 2}


def test_held_slots_stay_even_if_other_hosts_would_be_filled_better():
    assert pickup_hosts({1: 2, 2: 8, 3: 8}, ask(4, held=on({2: 1, 3: 2}))) == {3: 3, 2: 1}


def test_with_keep_held_the_held_slots_are_kept_or_the_request_is_refused():
    """R17, A15 (instance-reservation): servers may run in the slots of an active reservation."""
    assert pickup_hosts({1: 8}, ask(3, held=on({2: 2}), keep_held=True)) is None
    assert pickup_hosts({1: 8, 2: 2}, ask(3, held=on({2: 2}), keep_held=True)) == {2: 2, 1: 1}


def test_an_increase_adds_and_a_decrease_removes_exactly_the_surplus():
    """R18 (instance-reservation): duplicate (reservation, host) pairs are counted."""
    one, two = {"VCPU": 1}, {"VCPU": 2}
    assert difference([(1, one), (1, one)], on({1: 3, 2: 1})) == ([], [(1, one), (2, one)])
    assert difference([(1, one), (1, one), (1, one), (2, one)], on({1: 1})) == ([1, 2, 3], [])
    assert difference([(1, one), (1, one)], {1: [one, two]}) == ([1], [(1, two)])


def test_the_reservations_of_a_lease_are_planned_together():
    """D2: the peer accepts two 8-vCPU reservations on one 8-vCPU host."""
    result = plan(hosts(8), [ask(1, name="a", vcpus=8), ask(1, name="b", vcpus=8)], START, END)
    assert isinstance(result, Shortage)
    assert plan(hosts(8, 8), [ask(1, name="a", vcpus=8), ask(1, name="b", vcpus=8)], START, END) == {
        "a": on({1: 1}, 8),
        "b": on({2: 1}, 8),
    }


def test_reservations_with_affinity_are_planned_before_those_without():
    planned = plan(hosts(4, 4), [ask(4, name="loose"), ask(4, affinity=True, name="tight")], START, END)
    assert planned == {"tight": on({1: 4}), "loose": on({2: 4})}


def test_reservations_of_whole_hosts_are_planned_before_those_of_slots():
    planned = plan(hosts(2, 4), [ask(2, name="loose"), whole(1, name="whole")], START, END)
    assert {name: set(placing) for name, placing in planned.items()} == {"whole": {1}, "loose": {2}}


def test_hosts_above_the_minimum_are_reserved_after_all_reservations_have_their_minimum():
    planned = plan(hosts(4, 4, 4, 4), [whole(1, most=9, name="whole"), ask(5, name="loose")], START, END)
    assert {name: len(placing) for name, placing in planned.items()} == {"whole": 2, "loose": 2}


def instructions(work) -> int:
    """The number of instructions of Python's virtual machine for `work`, without those inside NumPy."""
    counted = 0

    def trace(frame, event, _):
        nonlocal counted
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counted += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return counted


@pytest.mark.parametrize("affinity", [None, True, False])
def test_planning_uses_array_operations_instead_of_a_loop_over_hosts(affinity):
    """G1: counts Python's instructions, which must not grow with the hosts; a loop took 8 ms for 10,000 hosts."""
    few, many = hosts(*[8] * 20), hosts(*[8] * 2000)
    wanted = [ask(2, affinity, held=on({3: 1}))]
    for calendar in (few, many):
        plan(calendar, wanted, START, END)  # computes what each calendar caches at its first query
    assert (
        instructions(lambda: plan(many, wanted, START, END))
        <= instructions(lambda: plan(few, wanted, START, END)) + 100
    )


def test_a_request_for_nothing_is_refused():
    """D6: the peer runs into an endless loop."""
    with pytest.raises(Invalid, match="at least one resource"):
        SlotDemand({"VCPU": 0, "MEMORY_MB": 0})


@pytest.mark.parametrize(
    ("asked", "free", "words"),
    [
        (ask(20), 12, "12 fit, on 2 hosts"),
        (ask(9, affinity=True), 8, "on one host (affinity); at most 8 fit on one host"),
        (ask(3, affinity=False), 2, "on different hosts (anti-affinity); 2 hosts have free capacity"),
        (whole(3), 2, "3 whole hosts cannot be reserved in that period; 2 are free"),
        (ask(6, held=on({3: 1}), keep_held=True), 12, "cannot be kept"),
    ],
)
def test_the_reason_of_a_shortage_names_what_is_free(asked, free, words):
    result = plan(hosts(8, 4), [asked], START, END)
    assert isinstance(result, Shortage)
    assert (result.free, result.reservation_id) == (free, "r")
    assert words in result.reason


def test_a_plan_still_fits_only_if_all_of_its_slots_fit():
    planned = {"a": on({1: 2}), "b": on({1: 2})}
    assert still_fits(hosts(4), planned, START, END)
    assert not still_fits(hosts(3), planned, START, END)
    assert not still_fits(hosts(), planned, START, END)


def test_a_plan_for_a_whole_host_and_a_slot_on_it_exclude_each_other():
    planned = plan(hosts(4), [whole(1)], START, END)
    taken = HostUsage(1, START, END, {"VCPU": 1})
    assert still_fits(hosts(4), planned, START, END)
    assert not still_fits(hosts(4, taken=(taken,)), planned, START, END)
    lent = hosts(4).with_usage([HostUsage(1, START, END, dict(planned["r"][1][0]))])
    assert not still_fits(lent, {"a": on({1: 1})}, START, END)
    assert not still_fits(lent, planned, START, END)
