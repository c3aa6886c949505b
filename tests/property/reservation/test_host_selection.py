"""A selection of hosts breaks no rule, and is refused only if no selection is possible."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.reservation.capacity.host_selection import CapacityRequest
from moorage.reservation.model.slot_demand import SlotDemand
from tests.unit.reservation.picking import pickup_hosts

slots = st.dictionaries(st.integers(1, 4), st.integers(1, 4), max_size=4)
affinities = st.sampled_from([None, True, False])
held = st.dictionaries(st.integers(1, 4), st.integers(1, 2), max_size=2)


ONE = SlotDemand({"VCPU": 1})


def slots_of(counts):
    return {host: [ONE.wanted] * count for host, count in counts.items()}


def admitted(picked: dict[int, int], affinity: bool | None) -> bool:
    used = {host: count for host, count in picked.items() if count}
    return {None: True, True: len(used) == 1, False: all(count == 1 for count in used.values())}[affinity]


@given(slots, st.integers(1, 8), affinities, held)
@settings(max_examples=500, deadline=None)
def test_hosts_are_selected_exactly_if_a_valid_selection_exists(slots, amount, affinity, held):
    ways = [
        dict(zip(slots, counts, strict=True))
        for counts in product(*(range(count + 1) for count in slots.values()))
        if sum(counts) == amount
    ]
    possible = any(admitted(way, affinity) for way in ways)
    picked = pickup_hosts(slots, CapacityRequest("r", ONE, amount, affinity, held=slots_of(held)))
    assert (picked is not None) == possible
    if picked is not None:
        assert sum(picked.values()) == amount
        assert all(0 < count <= slots[host] for host, count in picked.items())
        assert admitted(dict(picked), affinity)


@given(slots, st.integers(1, 8), held)
@settings(max_examples=300, deadline=None)
def test_without_affinity_as_many_held_slots_as_possible_are_kept(slots, amount, held):
    picked = pickup_hosts(slots, CapacityRequest("r", ONE, amount, None, held=slots_of(held)))
    if picked is not None:
        keepable = sum(min(count, slots.get(host, 0)) for host, count in held.items())
        kept = sum(min(count, picked.get(host, 0)) for host, count in held.items())
        assert kept == min(amount, keepable)
