from datetime import UTC, datetime

import pytest

from moorage.core.errors import Invalid
from moorage.reservation.calendar import Calendar, HostCapacity, Usage
from moorage.reservation.pick import Ask, Shortage, difference, holds, pickup_hosts, plan, query_available_hosts

START, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


def hosts(*cores: int, taken: tuple[Usage, ...] = ()) -> Calendar:
    return Calendar([HostCapacity(host, {"VCPU": each}) for host, each in enumerate(cores, 1)], taken)


def ask(amount: int, affinity: bool | None = None, *, name: str = "r", vcpus: int = 1, **more) -> Ask:
    return Ask(name, {"VCPU": vcpus}, amount, affinity, **more)


def test_search_answers_how_many_fit_on_each_host():
    """R16 (instance-reservation): hosts with 0 are left out."""
    calendar = hosts(8, 4, 2, taken=(Usage(2, START, END, {"VCPU": 3}),))
    assert query_available_hosts(calendar, ask(1, vcpus=2), START, END) == {1: 4, 3: 1}


def test_search_looks_only_at_eligible_hosts():
    assert query_available_hosts(hosts(8, 4), ask(1, eligible=frozenset({2})), START, END) == {2: 4}


def test_without_policy_amount_may_exceed_the_number_of_hosts():
    """R17 (instance-reservation): affinity NULL is any spread."""
    assert pickup_hosts({1: 2, 2: 3}, ask(5)) == {1: 2, 2: 3}


def test_affinity_takes_one_host():
    """R17 (instance-reservation): affinity True; the smallest gap that is large enough."""
    assert pickup_hosts({1: 9, 2: 3, 3: 4}, ask(4, affinity=True)) == {3: 4}
    assert pickup_hosts({1: 3, 2: 3}, ask(4, affinity=True)) is None


def test_anti_affinity_takes_distinct_hosts():
    """R17 (instance-reservation): affinity False."""
    assert pickup_hosts({1: 9, 2: 3, 3: 4}, ask(3, affinity=False)) == {1: 1, 2: 1, 3: 1}
    assert pickup_hosts({1: 9, 2: 9}, ask(3, affinity=False)) is None


def test_hosts_that_are_held_are_preferred():
    """R17 (instance-reservation): on update the reservation's own hosts come first."""
    assert pickup_hosts({1: 1, 2: 8}, ask(3, held={2: 2})) == {2: 3}
    assert pickup_hosts({1: 2, 2: 8}, ask(1, affinity=False, held={2: 1})) == {2: 1}
    assert pickup_hosts({1: 2, 2: 8}, ask(2, affinity=True, held={2: 2})) == {2: 2}


def test_held_slots_stay_where_they_are_when_others_would_fit_tighter():
    assert pickup_hosts({1: 2, 2: 8, 3: 8}, ask(4, held={2: 1, 3: 2})) == {3: 3, 2: 1}


def test_what_must_be_kept_is_kept_or_there_is_no_plan():
    assert pickup_hosts({1: 8}, ask(3, held={2: 2}, keep_held=True)) is None
    assert pickup_hosts({1: 8, 2: 2}, ask(3, held={2: 2}, keep_held=True)) == {2: 2, 1: 1}


def test_an_increase_adds_and_a_decrease_removes_exactly_the_surplus():
    """R18 (instance-reservation): duplicate (reservation, host) pairs are counted."""
    assert difference({1: 2}, {1: 3, 2: 1}) == ({1: 1, 2: 1}, {})
    assert difference({1: 3, 2: 1}, {1: 1}) == ({}, {1: 2, 2: 1})


def test_reservations_of_one_lease_see_each_other():
    """D2: the peer accepts two 8-vCPU reservations on one 8-vCPU host."""
    result = plan(hosts(8), [ask(1, name="a", vcpus=8), ask(1, name="b", vcpus=8)], START, END)
    assert isinstance(result, Shortage)
    assert plan(hosts(8, 8), [ask(1, name="a", vcpus=8), ask(1, name="b", vcpus=8)], START, END) == {
        "a": {1: 1},
        "b": {2: 1},
    }


def test_affinity_goes_before_what_fits_anywhere():
    planned = plan(hosts(4, 4), [ask(4, name="loose"), ask(4, affinity=True, name="tight")], START, END)
    assert planned == {"tight": {1: 4}, "loose": {2: 4}}


def test_a_request_for_nothing_is_refused():
    """D6: the peer loops for ever on it."""
    with pytest.raises(Invalid, match="at least one resource"):
        Ask("r", {"VCPU": 0, "MEMORY_MB": 0}, 1, None)


@pytest.mark.parametrize(
    ("asked", "free", "words"),
    [
        (ask(20), 12, "12 fit, on 2 hosts"),
        (ask(9, affinity=True), 8, "on one host (affinity); the most that fit on one host then are 8"),
        (ask(3, affinity=False), 2, "on as many hosts (anti-affinity); 2 hosts have room"),
        (ask(6, held={3: 1}, keep_held=True), 12, "cannot be kept"),
    ],
)
def test_a_shortage_says_what_is_free(asked, free, words):
    result = plan(hosts(8, 4), [asked], START, END)
    assert isinstance(result, Shortage)
    assert (result.free, result.reservation_id) == (free, "r")
    assert words in result.reason


def test_a_plan_holds_only_where_all_of_it_fits():
    asks = [ask(2, name="a"), ask(2, name="b")]
    planned = {"a": {1: 2}, "b": {1: 2}}
    assert holds(hosts(4), asks, planned, START, END)
    assert not holds(hosts(3), asks, planned, START, END)
    assert not holds(hosts(), asks, planned, START, END)
