"""Decisions on claims compared with plain arithmetic over a list of allocations."""

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Inventory, NameTable, Provider
from moorage.placement.rules.allocation_writes import ClaimedUsage, decide_capacity

CLASSES = ["A", "B"]
CONSUMERS = ["c1", "c2", "c3"]
PROVIDERS = [1, 2]

holdings = st.dictionaries(
    st.sampled_from(PROVIDERS), st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 4), min_size=1), max_size=2
)
worlds = st.dictionaries(st.sampled_from(CONSUMERS), holdings)
inventories = st.builds(
    Inventory,
    total=st.integers(1, 8),
    reserved=st.integers(0, 2),
    min_unit=st.integers(1, 2),
    max_unit=st.integers(1, 4),
    step_size=st.integers(1, 2),
    allocation_ratio=st.sampled_from([1.0, 2.0, 0.5]),
)
offers = st.fixed_dictionaries({number: st.dictionaries(st.sampled_from(CLASSES), inventories) for number in PROVIDERS})


def held(world, number, name):
    return sum(of.get(number, {}).get(name, 0) for of in world.values())


def slow_allows(offered, before, after, wanted):
    """Whether no wanted amount breaks a unit rule and no provider exceeds its capacity (or grows further above it)."""
    for of in wanted.values():
        for number, amounts in of.items():
            for name, amount in amounts.items():
                inventory = offered[number].get(name)
                if inventory is None or not inventory.min_unit <= amount <= inventory.max_unit:
                    return False
                if amount % inventory.step_size:
                    return False
                now = held(after, number, name)
                capacity = (inventory.total - inventory.reserved) * inventory.allocation_ratio
                if now > capacity and now > held(before, number, name):
                    return False
    return True


@settings(max_examples=600, deadline=None)
@given(offers, worlds, worlds)
def test_a_claim_is_allowed_exactly_if_plain_arithmetic_allows_it(offered, before, wanted):
    used = {number: {name: held(before, number, name) for name in CLASSES} for number in PROVIDERS}
    forest = Forest.build(
        [
            Provider(number, f"u{number}", f"n{number}", 0, 0, None, number, offered[number], used[number])
            for number in PROVIDERS
        ],
        NameTable(),
        0,
    )
    after = before | wanted
    decision = decide_capacity(forest, {consumer: before.get(consumer, {}) for consumer in wanted}, wanted)
    assert isinstance(decision, ClaimedUsage) == slow_allows(offered, before, after, wanted)
    if isinstance(decision, ClaimedUsage):
        for number, amounts in decision.used.items():
            assert amounts == {name: held(after, number, name) for name in CLASSES if held(after, number, name)}
        untouched = set(PROVIDERS) - set(decision.used)
        assert all(held(before, number, name) == held(after, number, name) for number in untouched for name in CLASSES)
