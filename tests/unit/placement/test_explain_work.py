"""The cost of explanations, counted in compared providers, so that it does not depend on the machine."""

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
    """Two devices below each host."""
    devices = [
        Provider(number, f"u{number}", f"n{number}", 0, 0, root := number % HOSTS + 1, root, {"VGPU": Inventory(1)})
        for number in range(HOSTS + 1, 3 * HOSTS + 1)
    ]
    return [*flat(), *devices]


def sharing():
    """One store shares its disk with ten hosts, the others have none."""
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
    """The number of compared providers of each call."""
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


#: Again after each claim: the shortage, and how much several groups could get from one provider.
WEIGHED = {"more than anybody has", "devices, perhaps the same"}


@pytest.mark.parametrize("name", REQUESTS)
def test_after_a_claim_nobody_is_compared_again_who_has_room_for_another(name, compared):
    providers, pairs = REQUESTS[name]
    forest, request = Forest.build(providers(), NameTable(), 0), parse_request([*pairs, ("limit", "10")], (1, 39))
    explain(forest, request)
    assert compared[0] >= HOSTS, "all of them at first"
    del compared[:]

    explain(forest, request)
    assert compared == [], "nothing has changed"

    near = max(map(len, forest.trees.values())) + len(forest.sharing)
    for ids in ((HOSTS // 2,), (5, HOSTS - 1)):
        forest = claimed(forest, *ids)
        explain(forest, request)
        if name in WEIGHED:
            assert near <= sum(compared) <= near * (2 * len(ids) + MAX_CLOSEST)
        else:
            assert sum(compared) <= near * MAX_CLOSEST
        del compared[:]


def test_who_gets_full_is_compared_again_and_nobody_else(compared):
    forest, request = Forest.build(flat(), NameTable(), 0), parse_request([*FITS, ("limit", "10")], (1, 39))
    explain(forest, request)
    del compared[:]
    full = replace(forest.by_id(HOSTS // 2), used={"VCPU": 16})
    assert "on 999 of 1000 hosts" in explain(forest.with_changes({full.id: full}), request).text
    assert compared == [1]


def test_another_limit_is_the_same_question(compared):
    forest = Forest.build(flat(), NameTable(), 0)
    explain(forest, parse_request([*FITS, ("limit", "10")], (1, 39)))
    del compared[:]
    explain(forest, parse_request([*FITS, ("limit", "1000")], (1, 39)))
    assert compared == []


def test_what_is_claimed_of_a_shared_provider_is_seen_by_those_it_shares_with(compared):
    forest, request = (
        Forest.build(sharing(), NameTable(), 0),
        parse_request([("resources", "VCPU:1,DISK_GB:10")], (1, 39)),
    )
    assert explain(forest, request).text == "10 candidates on 10 of 1000 hosts."
    del compared[:]
    forest = forest.with_changes({HOSTS + 1: replace(forest.by_uuid("store"), used={"DISK_GB": 995})})
    assert "resources:DISK_GB=10 left 0" in explain(forest, request).text
    assert compared[0] == 20, "ten hosts with the store near each"


def test_what_is_kept_keeps_no_provider_that_is_no_more():
    """For sixty thousand hosts, a state for each kind of request would be gigabytes."""
    before = providers_there_are()
    forest = Forest.build(flat(), NameTable(), 0)
    for units in range(1, 20):
        explain(forest, parse_request([("resources", f"VCPU:{units}")], (1, 39)))
        forest = claimed(forest, *range(1, HOSTS + 1))
    assert providers_there_are() - before < 3 * HOSTS


def providers_there_are():
    gc.collect()
    return sum(type(one) is Provider for one in gc.get_objects())


def test_nothing_is_kept_of_a_request_without_end(compared):
    forest = Forest.build(flat(), NameTable(), 0)
    pairs = [(f"resources_{number}", f"VCPU:{number + 1}") for number in range(200)]
    request = parse_request([*pairs, ("group_policy", "none")], (1, 39))
    explain(forest, request)
    del compared[:]
    explain(forest, request)
    assert compared[0] == HOSTS
