from moorage.reservation.capacity.calendar import Calendar, HostCapacity, HostUsage
from moorage.reservation.capacity.host_selection import CapacityRequest, Shortage, plan
from moorage.reservation.model.slot_demand import DemandGroup, SlotDemand, label, relabelled
from tests.unit.reservation.test_host_selection import END, START

#: A host with two NUMA nodes and two FPGA regions, one at each node.
NODES = ("numa0", "numa1")
HOST = HostCapacity(
    1,
    {"DISK_GB": 100, "VCPU": 4, "VCPU#1": 4, "CUSTOM_FPGA": 1, "CUSTOM_FPGA#1": 1},
    {"VCPU": 4, "VCPU#1": 4},
    {"DISK_GB": "host", "VCPU": "numa0", "VCPU#1": "numa1", "CUSTOM_FPGA": "fpga0", "CUSTOM_FPGA#1": "fpga1"},
    {
        "host": [],
        "numa0": ["host"],
        "numa1": ["host"],
        "fpga0": ["numa0", "host"],
        "fpga1": ["numa1", "host"],
    },
)


def fit(demand, *usages, host=HOST):
    return int(Calendar([host], usages).slots(demand, START, END)[0])


def used(**amounts):
    return HostUsage(1, START, END, {name.replace("_1", "#1"): amount for name, amount in amounts.items()})


def test_an_amount_is_taken_from_one_provider():
    """Two nodes with 4 VCPU each have capacity for two slots of 3 VCPU, but not for one of 5."""
    assert fit(SlotDemand({"VCPU": 3})) == 2
    assert fit(SlotDemand({"VCPU": 5})) == 0
    assert fit(SlotDemand({"VCPU": 1})) == 8


def test_usage_counts_only_against_its_own_provider():
    assert fit(SlotDemand({"VCPU": 3}), used(VCPU=2)) == 1
    assert fit(SlotDemand({"VCPU": 3}), used(VCPU=2, VCPU_1=2)) == 0


def test_classes_without_a_group_may_be_taken_from_different_providers():
    assert fit(SlotDemand({"VCPU": 3, "CUSTOM_FPGA": 1, "DISK_GB": 10})) == 2


def test_all_classes_of_a_group_are_taken_from_one_provider():
    assert fit(SlotDemand(groups={"1": DemandGroup({"VCPU": 2}), "2": DemandGroup({"VCPU": 2})})) == 2
    assert fit(SlotDemand(groups={"1": DemandGroup({"VCPU": 1, "CUSTOM_FPGA": 1})})) == 0


def test_isolated_groups_are_taken_from_different_providers():
    two = {"1": DemandGroup({"VCPU": 1}), "2": DemandGroup({"VCPU": 1})}
    assert fit(SlotDemand(groups=two), used(VCPU=4)) == 2
    assert fit(SlotDemand(groups=two, isolate=True), used(VCPU=4)) == 0


def test_groups_in_the_same_subtree_are_taken_from_the_same_numa_node():
    near = SlotDemand(
        groups={"n": DemandGroup({"VCPU": 3}), "a": DemandGroup({"CUSTOM_FPGA": 1})}, same_subtree=(("n", "a"),)
    )
    assert fit(near) == 2
    assert fit(near, used(VCPU=4, CUSTOM_FPGA_1=1)) == 0


def test_traits_of_a_group_restrict_its_providers():
    def having(required, forbidden):
        return frozenset({"fpga1"}) if required else frozenset({"fpga0"})

    assert fit(SlotDemand(groups={"1": DemandGroup({"CUSTOM_FPGA": 1}, ("CUSTOM_X",))}).known(having)) == 1
    assert fit(SlotDemand(groups={"1": DemandGroup({"CUSTOM_FPGA": 1}, (), ("CUSTOM_X",))}).known(having)) == 1
    plain = DemandGroup({"CUSTOM_FPGA": 1, "VCPU": 1}, ("CUSTOM_X",))
    assert fit(SlotDemand(plain.resources, plain=plain).known(having)) == 1
    assert fit(SlotDemand(plain.resources, plain=plain).known(lambda *_: frozenset())) == 0


def test_a_plan_names_the_provider_of_each_slot():
    planned = plan(Calendar([HOST], [used(VCPU=2)]), [CapacityRequest("r", SlotDemand({"VCPU": 2}), 3)], START, END)
    assert sorted(map(str, planned["r"][1])) == ["{'VCPU#1': 2}", "{'VCPU#1': 2}", "{'VCPU': 2}"]
    assert isinstance(
        plan(Calendar([HOST], [used(VCPU=3)]), [CapacityRequest("r", SlotDemand({"VCPU": 2}), 3)], START, END), Shortage
    )


def test_held_slots_keep_their_provider():
    held = {1: [{"VCPU#1": 3}]}
    planned = plan(Calendar([HOST], []), [CapacityRequest("r", SlotDemand({"VCPU": 3}), 2, held=held)], START, END)
    assert planned["r"][1] == ({"VCPU#1": 3}, {"VCPU": 3})


def test_providers_keep_their_labels_when_other_providers_are_removed():
    before = {"VCPU": "numa0", "VCPU#1": "numa1"}
    assert relabelled(before, {"VCPU": "numa1"}) == {"VCPU": "VCPU#1"}
    assert relabelled({}, {"VCPU": "a", "VCPU#1": "b", "X": "b"}) == {"VCPU": "VCPU", "VCPU#1": "VCPU#1", "X": "X"}
    assert label("X", 2) == "X#2"
