"""Packing compared with all ways to place slots: never more than possible, and the maximum for slots of one group."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.reservation.capacity.calendar import Calendar, HostCapacity
from moorage.reservation.capacity.host_selection import CapacityRequest, Shortage, plan, still_fits, usages
from moorage.reservation.model.slot_demand import WHOLE_HOST, DemandGroup, SlotDemand, class_of
from tests.unit.reservation.test_host_selection import END, START

CLASSES = ("VCPU", "CUSTOM_FPGA")

amounts = st.fixed_dictionaries({name: st.integers(0, 4) for name in CLASSES})
providers = st.lists(amounts, min_size=1, max_size=3)
wanted = st.fixed_dictionaries({name: st.integers(0, 3) for name in CLASSES}).filter(lambda one: any(one.values()))


def host_of(number, shelves):
    """A host whose providers each have every class; `#2` in a label means the host's provider with index 2."""
    capacity, names = {}, {}
    for place, shelf in enumerate(shelves):
        for name, amount in shelf.items():
            key = f"{name}#{place}" if place else name
            capacity[key], names[key] = amount, f"p{number}.{place}"
    return HostCapacity(number, capacity, {}, names, {})


def groups_of(demand):
    """The amounts of each part of a slot, from one provider each."""
    plain = [{name: amount} for name, amount in demand.wanted.items()]
    return [*(group.wanted for group in demand.groups.values()), *plain]


def most(shelves, demand):
    """The largest possible number of slots, found by trying every way to place the next one."""
    best = 0
    for places in product(range(len(shelves)), repeat=len(groups_of(demand))):
        if demand.isolate and len(set(places[: len(demand.groups)])) < len(demand.groups):
            continue
        left = [dict(shelf) for shelf in shelves]
        for place, part in zip(places, groups_of(demand), strict=True):
            for name, amount in part.items():
                left[place][name] -= amount
        if all(amount >= 0 for shelf in left for amount in shelf.values()):
            best = max(best, 1 + most(left, demand))
    return best


@given(providers, wanted)
@settings(max_examples=200, deadline=None)
def test_slots_of_one_group_are_packed_as_densely_as_possible(shelves, resources):
    for demand in (SlotDemand(resources), SlotDemand(groups={"1": DemandGroup(resources)})):
        assert Calendar([host_of(1, shelves)], []).slots(demand, START, END).tolist() == [most(shelves, demand)]


@given(providers, wanted, wanted, st.booleans())
@settings(max_examples=100, deadline=None)
def test_slots_of_two_groups_never_exceed_the_possible_number(shelves, one, two, isolate):
    """Different groups compete, so packing may find fewer slots; but it finds none only if none is possible."""
    demand = SlotDemand(groups={"1": DemandGroup(one), "2": DemandGroup(two)}, isolate=isolate)
    (found,) = Calendar([host_of(1, shelves)], []).slots(demand, START, END).tolist()
    possible = most(shelves, demand)
    assert found <= possible
    assert (found > 0) == (possible > 0)


asks = st.lists(
    st.one_of(
        st.builds(lambda resources, amount, affinity: (SlotDemand(resources), amount, affinity), wanted, st.integers(1, 3),
                  st.sampled_from([None, True, False])),
        st.builds(lambda resources, amount: (SlotDemand(groups={"1": DemandGroup(resources)}), amount, None), wanted,
                  st.integers(1, 2)),
        st.just((SlotDemand(whole_host=True), 1, None)),
    ),
    min_size=1,
    max_size=3,
)  # fmt: skip


@given(st.lists(providers, min_size=1, max_size=3), st.tuples(asks, asks))
@settings(max_examples=200, deadline=None)
def test_leases_of_all_types_never_overbook(hosts, leases):
    """R19 (instance-reservation): leases that are planned one after the other exceed no capacity and share no host that is reserved whole."""
    capacities = [host_of(number, shelves) for number, shelves in enumerate(hosts, 1)]
    calendar, taken = Calendar(capacities, []), {}
    for number, lease in enumerate(leases):
        wanted = [CapacityRequest(f"{number}.{at}", *each) for at, each in enumerate(lease)]
        planned = plan(calendar, wanted, START, END)
        if isinstance(planned, Shortage):
            continue
        assert still_fits(calendar, planned, START, END)
        for ask in wanted:
            placing = planned[ask.reservation_id]
            assert sum(map(len, placing.values())) == ask.amount
            for host, slots in placing.items():
                for slot in slots:
                    assert ask.demand.whole_host or by_class(slot) == ask.demand.totals
                    taken.setdefault(host, []).append(slot)
            calendar = calendar.with_usage(usages(placing, START, END))
    for host, slots in taken.items():
        capacity = {**capacities[host - 1].capacity, WHOLE_HOST: 1}
        assert all(sum(slot.get(name, 0) for slot in slots) <= there for name, there in capacity.items())
        assert len(slots) == 1 or not any(WHOLE_HOST in slot for slot in slots)


def by_class(slot):
    totals = {}
    for name, amount in slot.items():
        totals[class_of(name)] = totals.get(class_of(name), 0) + amount
    return totals
