"""The cost of explanations, measured as the number of compared providers, which does not depend on the machine."""

import gc
from dataclasses import replace

import pytest

from moorage.placement.explain import host_verdicts
from moorage.placement.explain.closest_hosts import MAX_CLOSEST
from moorage.placement.explain.explanation import explain
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import SHARING_TRAIT, Inventory, NameTable, Provider
from moorage.placement.search.equivalence_classes import MemberBlock
from moorage.placement.search.request import parse_request

HOSTS = 1000
OFFERED = {"VCPU": Inventory(16), "MEMORY_MB": Inventory(4096), "CUSTOM_FULL": Inventory(1)}
HELD = {"VCPU": 2, "CUSTOM_FULL": 1}


def host(number, **more):
    return Provider(number, f"u{number}", f"n{number}", 0, 0, None, number, OFFERED, HELD, **more)


def flat():
    return [host(number, traits=frozenset({"CUSTOM_ODD"} if number % 2 else ())) for number in range(1, HOSTS + 1)]


def nested():
    """Hosts with two devices below each."""
    devices = [
        Provider(number, f"u{number}", f"n{number}", 0, 0, root := number % HOSTS + 1, root, {"VGPU": Inventory(1)})
        for number in range(HOSTS + 1, 3 * HOSTS + 1)
    ]
    return [*flat(), *devices]


def sharing():
    """A storage provider that shares its disk with ten hosts; the other hosts have no disk."""
    hosts = [host(number, aggregates=frozenset({"g"} if number <= 10 else ())) for number in range(1, HOSTS + 1)]
    store = HOSTS + 1
    disk = {"DISK_GB": Inventory(1000)}
    return [
        *hosts,
        Provider(store, "store", "store", 0, 0, None, store, disk, {}, frozenset({SHARING_TRAIT}), frozenset({"g"})),
    ]


FITS = [("resources", "VCPU:2,MEMORY_MB:64")]
REQUESTS = {
    "fits": (flat, FITS),
    "fits those with a trait": (flat, [*FITS, ("required", "CUSTOM_ODD")]),
    "all full": (flat, [("resources", "VCPU:2,CUSTOM_FULL:1")]),
    "more than anybody has": (flat, [("resources", "VCPU:9999")]),
    "what nobody has": (flat, [("resources", "FPGA:1")]),
    "devices": (nested, [*FITS, ("resources_1", "VGPU:1"), ("resources_2", "VGPU:1"), ("group_policy", "isolate")]),
    "devices, perhaps the same": (
        nested,
        [*FITS, ("resources_1", "VGPU:1"), ("resources_2", "VGPU:1"), ("group_policy", "none")],
    ),
    "a device too many": (
        nested,
        [*FITS, *((f"resources_{number}", "VGPU:1") for number in range(3)), ("group_policy", "isolate")],
    ),
    "what is shared": (sharing, [("resources", "VCPU:1,DISK_GB:10")]),
    "more than is shared": (sharing, [("resources", "VCPU:1,DISK_GB:9999")]),
}


@pytest.fixture
def compared(monkeypatch):
    """The number of compared providers of each comparison."""
    counts = []

    class Counted(MemberBlock):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            counts.append(len(self.slots))

    monkeypatch.setattr(host_verdicts, "MemberBlock", Counted)
    return counts


def claimed(forest, *ids):
    held = {number: forest.by_id(number) for number in ids}
    return forest.with_changes(
        {number: replace(one, used={**one.used, "VCPU": one.used["VCPU"] + 1}) for number, one in held.items()}
    )


#: Requests for which more is compared after each claim: how much is missing, and how much several groups can get from
#: one provider.
COMPARED_FURTHER = {"more than anybody has", "devices, perhaps the same"}


@pytest.mark.parametrize("name", REQUESTS)
def test_after_a_claim_only_the_trees_of_the_changed_hosts_are_compared_again(name, compared):
    providers, pairs = REQUESTS[name]
    forest, request = Forest.build(providers(), NameTable(), 0), parse_request([*pairs, ("limit", "10")], (1, 39))
    explain(forest, request)
    assert compared[0] >= HOSTS, "the first explanation must compare all hosts"
    del compared[:]

    explain(forest, request)
    assert compared == [], "nothing has changed"

    near = max(map(len, forest.trees.values())) + len(forest.sharing)
    for ids in ((HOSTS // 2,), (5, HOSTS - 1)):
        forest = claimed(forest, *ids)
        explain(forest, request)
        if name in COMPARED_FURTHER:
            assert near <= sum(compared) <= near * (2 * len(ids) + MAX_CLOSEST)
        else:
            assert sum(compared) <= near * MAX_CLOSEST
        del compared[:]


def test_a_host_that_becomes_full_is_the_only_one_that_is_compared_again(compared):
    forest, request = Forest.build(flat(), NameTable(), 0), parse_request([*FITS, ("limit", "10")], (1, 39))
    explain(forest, request)
    del compared[:]
    full = replace(forest.by_id(HOSTS // 2), used={"VCPU": 16})
    assert "on 999 of 1000 hosts" in explain(forest.with_changes({full.id: full}), request).text
    assert compared == [1]


def test_the_same_request_with_another_limit_compares_nothing_again(compared):
    forest = Forest.build(flat(), NameTable(), 0)
    explain(forest, parse_request([*FITS, ("limit", "10")], (1, 39)))
    del compared[:]
    explain(forest, parse_request([*FITS, ("limit", "1000")], (1, 39)))
    assert compared == []


def test_after_a_claim_on_a_sharing_provider_the_hosts_that_it_serves_are_compared_again(compared):
    forest, request = (
        Forest.build(sharing(), NameTable(), 0),
        parse_request([("resources", "VCPU:1,DISK_GB:10")], (1, 39)),
    )
    assert explain(forest, request).text == "10 candidates on 10 of 1000 hosts."
    del compared[:]
    forest = forest.with_changes({HOSTS + 1: replace(forest.by_uuid("store"), used={"DISK_GB": 995})})
    assert "resources:DISK_GB=10 left 0" in explain(forest, request).text
    assert compared[0] == 20, "ten hosts, each with the sharing provider"


def test_cached_explanations_keep_no_outdated_provider_in_memory():
    """With sixty thousand hosts, keeping a forest for each kind of request would take gigabytes."""
    before = providers_in_memory()
    forest = Forest.build(flat(), NameTable(), 0)
    for units in range(1, 20):
        explain(forest, parse_request([("resources", f"VCPU:{units}")], (1, 39)))
        forest = claimed(forest, *range(1, HOSTS + 1))
    assert providers_in_memory() - before < 3 * HOSTS


def providers_in_memory():
    gc.collect()
    return sum(type(one) is Provider for one in gc.get_objects())


def test_the_explanation_of_a_huge_request_is_not_cached(compared):
    forest = Forest.build(flat(), NameTable(), 0)
    pairs = [(f"resources_{number}", f"VCPU:{number + 1}") for number in range(200)]
    request = parse_request([*pairs, ("group_policy", "none")], (1, 39))
    explain(forest, request)
    del compared[:]
    explain(forest, request)
    assert compared[0] == HOSTS
