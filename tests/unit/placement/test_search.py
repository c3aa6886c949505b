"""The cost of a search, measured as the number of tried providers, which does not depend on the machine."""

from dataclasses import replace

import pytest

from moorage.core.errors import Invalid
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Inventory, NameTable, Provider
from moorage.placement.search import candidates
from moorage.placement.search.candidates import list_candidates
from moorage.placement.search.request import parse_request
from moorage.placement.search.search_budget import BudgetItem, SearchBudget


def flat(count):
    """Hosts without children."""
    offered = {"VCPU": Inventory(16), "MEMORY_MB": Inventory(1024)}
    return [Provider(n, f"u{n}", f"n{n}", 0, 0, None, n, offered) for n in range(1, count + 1)]


def wide(hosts, devices, *, distinct=False):
    """Hosts with single devices below; `distinct` ones differ by a trait."""
    providers = []
    for _ in range(hosts):
        root = len(providers) + 1
        providers.append(Provider(root, f"u{root}", f"n{root}", 0, 0, None, root))
        for _ in range(devices):
            number = len(providers) + 1
            traits = frozenset({f"CUSTOM_{number}"}) if distinct else frozenset()
            providers.append(
                Provider(number, f"u{number}", f"n{number}", 0, 0, root, root, {"PGPU": Inventory(1)}, traits=traits)
            )
    return providers


def groups(count, **extra):
    pairs = [(f"resources{number}", "PGPU:1") for number in range(1, count + 1)]
    return parse_request(
        [
            *pairs,
            ("group_policy", extra.pop("policy", "isolate")),
            *((key, str(value)) for key, value in extra.items()),
        ],
        (1, 39),
    )


@pytest.fixture
def steps(monkeypatch):
    """The steps (tried members, named providers) of all searches of a test."""
    spent = []

    class Counted(SearchBudget):
        def spend(self, work, steps):
            if work is not BudgetItem.COMPARING:  # array operations: a few steps for thousands of providers
                spent.append(steps)
            super().spend(work, steps)

    monkeypatch.setattr(candidates, "SearchBudget", Counted)
    return spent


def forest(providers):
    return Forest.build(providers, NameTable(), 0)


def test_a_search_ends_when_the_limit_is_reached(steps):
    assert len(list_candidates(forest(wide(5000, 1)), groups(1, limit=3))) == 3
    assert sum(steps) <= 3 * 3 * 3


def test_hosts_with_one_possible_candidate_are_found_without_trying_each(steps):
    request = parse_request([("resources", "VCPU:1,MEMORY_MB:1")], (1, 39))
    assert len(list_candidates(forest(flat(5000)), request)) == 5000
    assert steps == []


def test_full_hosts_are_not_tried(steps):
    providers = flat(100)
    providers[57] = Provider(58, "u58", "n58", 0, 0, None, 58, {"VCPU": Inventory(64)})
    request = parse_request([("resources", "VCPU:17")], (1, 39))
    (found,) = list_candidates(forest(providers), request)
    assert forest(providers).at(found.anchor).uuid == "u58"
    assert steps == []


@pytest.mark.parametrize("distinct", [False, True])
def test_more_groups_than_devices_fail_without_trying_every_order(steps, distinct):
    """8 groups on 7 devices are 40320 orders: equal devices need one, different ones at most all subsets."""
    assert list_candidates(forest(wide(1, 7, distinct=distinct)), groups(8)) == []
    assert sum(steps) <= (8 * 8 if not distinct else 2**7 * 8)


def test_64_groups_on_64_equal_devices_are_found_in_few_steps(steps):
    assert len(list_candidates(forest(wide(1, 64)), groups(64, limit=1))) == 1
    assert sum(steps) <= 64 * 65


def test_limited_candidates_are_spread_over_as_many_hosts_as_possible():
    many = forest(wide(5, 8))
    found = list_candidates(many, groups(3, limit=5))
    assert len({candidate.anchor for candidate in found}) == 5
    assert len(list_candidates(many, groups(3, limit=50))) == 50, "permutations must fill the rest of the limit"


@pytest.mark.parametrize(
    ("build", "request_"),
    [
        (lambda: flat(5000), parse_request([("resources", "VCPU:1"), ("limit", "50")], (1, 39))),
        (lambda: wide(5000, 1), groups(1, limit=50)),
    ],
    ids=["one way each", "searched"],
)
def test_a_sample_is_spread_over_all_hosts_and_depends_on_its_seed(steps, build, request_):
    providers = build()
    many = forest(providers)
    first, again, other = (
        {candidate.anchor for candidate in list_candidates(many, request_, sample=seed)}
        for seed in ("one", "one", "two")
    )
    assert len(first) == 50
    assert first == again
    assert len(first & other) < 10
    for anchors in (first, other):
        tenths = {anchor * 10 // len(providers) for anchor in anchors}
        assert len(tenths) >= 5, "the sample is from less than half of the hosts"
    assert sum(steps) <= 3 * 50 * 3, "more hosts were tried than the sample needs"


def test_a_sample_finds_the_only_host_with_free_capacity():
    providers = flat(3000)
    providers[57] = Provider(58, "u58", "n58", 0, 0, None, 58, {"VCPU": Inventory(64)})
    request = parse_request([("resources", "VCPU:17"), ("limit", "5")], (1, 39))
    (found,) = list_candidates(forest(providers), request, sample="any")
    assert forest(providers).at(found.anchor).uuid == "u58"


@pytest.mark.parametrize("suffix", ["", "1"])
def test_a_search_with_in_tree_compares_only_the_providers_of_that_tree(monkeypatch, suffix):
    compared = []

    class Watched(candidates.MemberBlock):
        def __init__(self, *parts):
            super().__init__(*parts)
            compared.append(len(self.slots))

    monkeypatch.setattr(candidates, "MemberBlock", Watched)
    providers = wide(100, 3)
    uuid = "00000000-0000-0000-0000-000000000001"
    providers[4] = replace(providers[4], uuid=uuid)
    pairs = [("resources", "PGPU:1"), ("resources1", "PGPU:1"), ("group_policy", "none"), (f"in_tree{suffix}", uuid)]
    assert len(list_candidates(forest(providers), parse_request(pairs, (1, 39)))) == 6
    assert compared == [4]


def test_a_search_of_hosts_that_all_differ_ends_when_the_limit_is_reached(steps):
    """600 hosts with devices of different sizes, and thousands of solutions on each."""
    providers = []
    for host in range(600):
        root = len(providers) + 1
        providers.append(Provider(root, f"u{root}", f"n{root}", 0, 0, None, root))
        for device in range(6):
            number = len(providers) + 1
            units = 1 + (host // 5**device) % 5
            providers.append(Provider(number, f"u{number}", f"n{number}", 0, 0, root, root, {"PGPU": Inventory(units)}))
    found = list_candidates(forest(providers), groups(5, policy="none", limit=100))
    assert len(found) == 100
    assert sum(steps) <= 100 * 5 * 5


def test_a_search_beyond_the_step_limit_is_refused_with_a_reason():
    with pytest.raises(
        Invalid, match=r"stopped at its limit of 1000 steps\. It spent most of them on trying"
    ) as caught:
        list_candidates(forest(wide(1, 9, distinct=True)), groups(9), max_steps=1000)
    assert caught.value.error_code == "placement.query.too_complex"


def test_groups_on_one_provider_share_its_capacity():
    """OpenStack Placement's option for wide trees ignores usage here, so they cannot be claimed (measured)."""
    root = Provider(1, "u1", "n1", 0, 0, None, 1, {"VGPU": Inventory(2)}, {"VGPU": 1})
    pairs = [("resources1", "VGPU:1"), ("resources2", "VGPU:1"), ("group_policy", "none")]
    assert list_candidates(forest([root]), parse_request(pairs, (1, 39))) == []
    empty = Provider(1, "u1", "n1", 0, 0, None, 1, {"VGPU": Inventory(2)})
    (found,) = list_candidates(forest([empty]), parse_request(pairs, (1, 39)))
    assert found.allocations == {0: {"VGPU": 2}}
    assert found.mappings == {"1": (0,), "2": (0,)}
