"""The cost of hostile requests, measured in steps, which do not depend on the machine."""

import functools
import tracemalloc

import pytest

from moorage.core.errors import Invalid
from moorage.placement.explain.explanation import explain
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Inventory, NameTable, Provider
from moorage.placement.search import candidates
from moorage.placement.search.candidates import find_candidates
from moorage.placement.search.request import parse_request
from moorage.placement.search.search_budget import MAX_STEPS, SearchBudget


@functools.cache
def cloud(hosts, devices, *, units=1):
    """Hosts with two NUMA nodes and this many VGPU devices below each. Every third device has CUSTOM_ODD."""
    providers = []

    def add(parent, root, inventories, traits=frozenset()):
        number = len(providers) + 1
        offered = {name: Inventory(total) for name, total in inventories.items()}
        providers.append(
            Provider(number, f"u{number}", f"n{number}", 0, 0, parent, root or number, offered, traits=traits)
        )
        return number

    for _ in range(hosts):
        host = add(None, None, {"VCPU": 64})
        for _ in range(2):
            node = add(host, host, {"PCPU": 16})
            for device in range(devices):
                add(node, host, {"VGPU": units}, frozenset({"CUSTOM_ODD"}) if device % 3 == 0 else frozenset())
    return Forest.build(providers, NameTable(), 0)


def groups(count, amount=lambda number: 1, policy="isolate", **extra):
    pairs = [(f"resources_{number}", f"VGPU:{amount(number)}") for number in range(count)]
    extra_pairs = [(key, one) for key, values in extra.items() for one in values]
    return parse_request([*pairs, ("group_policy", policy), *extra_pairs], (1, 39))


def together(*suffixes):
    return ",".join(f"_{number}" for number in suffixes)


@pytest.fixture
def spent(monkeypatch):
    """The budgets of the searches of a test."""
    made = []

    class RecordedBudget(SearchBudget):
        def __init__(self, steps):
            super().__init__(steps)
            made.append(self)

    monkeypatch.setattr(candidates, "SearchBudget", RecordedBudget)
    return made


# Functions, because building all of them takes a second, which each process that collects tests would need.
WIDE = functools.partial(cloud, 20, 8, units=16)
SINGLE = functools.partial(cloud, 20, 8)

#: Impossible requests are recognised without a search: (function that returns the forest, request, maximum steps)
IMPOSSIBLE = {
    "a group more than there are devices": (SINGLE, groups(17, limit=["1000"]), 2000),
    "hundreds of groups": (SINGLE, groups(500, limit=["1000"]), 5000),
    "more units than there are": (WIDE, groups(50, lambda number: 1 + number % 16, "none", limit=["1000"]), 2000),
    "all on one node": (SINGLE, groups(9, same_subtree=[together(*range(9))], limit=["1000"]), 2000),
    "a nest of subtrees": (
        WIDE,
        groups(40, policy="none", limit=["1000"], same_subtree=[together(*range(most)) for most in range(30, 40)]),
        400_000,
    ),
    "a chain of subtrees": (
        SINGLE,
        groups(16, limit=["1000"], same_subtree=[together(one, one + 1) for one in range(15)]),
        5000,
    ),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_or_wide_request_needs_few_steps(spent, name):
    forest, request, most = IMPOSSIBLE[name]
    assert len(find_candidates(forest(), request)) in (0, 1000)
    assert spent[0].spent <= most


#: Requests with too many candidates or too many ways to try: {name: (function that returns the
#: forest, request, advice in the error)}
ENDLESS = {
    "all orders of 16 devices": (SINGLE, groups(16), "distinguish the providers"),
    "fifty groups anywhere": (WIDE, groups(50, policy="none"), "distinguish the providers"),
    "three thousand different groups": (
        functools.partial(cloud, 2000, 2),
        parse_request([*((f"resources_{n}", f"VCPU:{n + 1}") for n in range(3000)), ("group_policy", "none")], (1, 39)),
        "fewer different groups",
    ),
    "every way on every host": (
        functools.partial(cloud, 200, 16, units=16),
        parse_request([("resources", "VGPU:1,PCPU:1,VCPU:1"), ("resources_1", "VGPU:2")], (1, 39)),
        "set a limit",
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_request_that_needs_too_many_steps_is_refused_with_advice(name):
    forest, request, advice = ENDLESS[name]
    with pytest.raises(Invalid, match=advice) as refusal:
        find_candidates(forest(), request)
    assert refusal.value.error_code == "placement.query.too_complex"
    assert "max_search_steps" in str(refusal.value)


def test_an_explanation_has_the_same_step_limit():
    forest, request, _ = ENDLESS["three thousand different groups"]
    with pytest.raises(Invalid, match="fewer different groups"):
        explain(forest(), request, max_steps=100_000)


#: A twentieth of the usual limit, because tracing memory makes the search slow.
STEPS = MAX_STEPS // 20


@pytest.mark.parametrize("name", ENDLESS)
def test_the_memory_of_a_refused_search_is_limited(name):
    build, request, _ = ENDLESS[name]
    forest = build()
    tracemalloc.start()
    try:
        with pytest.raises(Invalid):
            find_candidates(forest, request, max_steps=STEPS)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 100 * STEPS + 2**20


def test_the_step_limit_can_be_set():
    request = groups(8)
    forest = cloud(1, 4)
    with pytest.raises(Invalid, match="limit of 1000 steps"):
        find_candidates(forest, request, max_steps=1000)
    assert len(find_candidates(forest, request)) == 40320, "all 8! orders must be found"


def test_a_repeated_search_counts_as_many_steps_as_the_first(spent):
    request = groups(6, limit=["500"])
    find_candidates(SINGLE(), request)
    find_candidates(SINGLE(), request)
    assert spent[0].spent == spent[1].spent > 0


def test_an_explanation_of_many_groups_omits_the_closest_hosts_to_stay_within_the_limit():
    """The closest hosts are omitted if they would cost more than the search; only a few changes are tried."""
    forest, request, _ = ENDLESS["three thousand different groups"]
    explanation = explain(cloud(20, 1), request)
    assert explanation.candidates == 0
    assert explanation.steps[-1].after == 0
    assert explain(forest(), request, max_steps=2 * MAX_STEPS).closest == ()


def test_thousands_of_traits_and_aggregates_need_few_steps(spent):
    traits = ",".join(f"CUSTOM_{number}" for number in range(2000))
    aggregates = "in:" + ",".join(f"00000000-0000-0000-0000-{number:012}" for number in range(2000))
    pairs = [("resources_1", "VGPU:1"), ("required_1", traits), ("member_of_1", aggregates)]
    assert len(find_candidates(SINGLE(), parse_request(pairs, (1, 39)))) == 0
    assert spent[0].spent <= 20_000
