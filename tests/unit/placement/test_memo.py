"""The cache of values that are computed from a forest: a value is computed again only for other source objects."""

from dataclasses import replace

import numpy as np

from moorage.placement.forest.forest import MAX_BYTES, MAX_ENTRIES, MIN_ENTRIES, Forest, ForestMemo
from moorage.placement.forest.inverted_index import MAX_PENDING_SLOTS
from moorage.placement.forest.model import SHARING_TRAIT, Inventory, NameTable, Provider

HOST = Provider(1, "u1", "n1", 0, 0, None, 1, {"VCPU": Inventory(8)}, {}, frozenset({"T"}), frozenset({"g"}))


def test_a_value_is_computed_once_for_the_same_source_object():
    memo, source = ForestMemo(), object()
    first = memo.get("key", (source,), lambda: [1])
    assert memo.get("key", (source,), lambda: [2]) is first


def test_a_value_is_computed_again_for_another_source_object():
    memo = ForestMemo()
    assert memo.get("key", ([],), lambda: 1) == 1
    assert memo.get("key", ([],), lambda: 2) == 2, "the source is equal, but another object"


def test_the_least_recently_used_value_is_removed_first():
    memo, source = ForestMemo(), object()
    for number in range(MAX_ENTRIES):
        memo.get(number, (source,), lambda number=number: number)
    assert memo.get(0, (source,), lambda: "anew") == 0
    memo.get(MAX_ENTRIES, (source,), lambda: MAX_ENTRIES)
    assert memo.get(0, (source,), lambda: "anew") == 0
    assert memo.get(1, (source,), lambda: "anew") == "anew"


def fill(memo, source, number, size):
    for one in range(number):
        memo.get(one, (source,), lambda: np.empty(size, dtype=np.uint8))


def computed_again(memo, source, number):
    asked = []
    for one in reversed(range(number)):
        memo.get(one, (source,), lambda one=one: asked.append(one))
    return asked


def test_cached_arrays_have_a_maximum_total_size():
    memo, source, number = ForestMemo(), object(), 2 * MIN_ENTRIES
    fill(memo, source, number + 1, MAX_BYTES // number)
    assert computed_again(memo, source, number + 1) == [0], "only the oldest value was removed"


def test_a_minimum_number_of_values_is_kept_whatever_their_size():
    """The uuids of a million providers exceed the maximum size. Without this rule each request would take 7 s."""
    memo, source = ForestMemo(), object()
    fill(memo, source, MIN_ENTRIES + 1, MAX_BYTES)
    assert computed_again(memo, source, MIN_ENTRIES + 1) == [0]


def test_after_a_claim_the_forest_shares_everything_but_usage_with_the_previous_one():
    forest = Forest.build([HOST], NameTable(), 0)
    after = forest.with_changes({1: replace(HOST, used={"VCPU": 2}, revision=1)})
    for name in ("slot_of_uuid", "trees", "roots", "with_trait", "aggregates", "sharing", "memo"):
        assert getattr(after, name) is getattr(forest, name), name
    assert after.columns["VCPU"].slots is forest.columns["VCPU"].slots


def test_after_a_claim_on_a_sharing_provider_the_set_of_sharing_providers_is_the_same_object():
    """The layout of the whole forest is computed from this set."""
    store = replace(HOST, traits=frozenset({SHARING_TRAIT}))
    forest = Forest.build([store], NameTable(), 0)
    after = forest.with_changes({1: replace(store, used={"VCPU": 2}, revision=1)})
    assert after.sharing is forest.sharing
    assert forest.with_changes({1: HOST}).sharing == frozenset()


def test_after_a_change_of_inventory_uuids_trees_traits_and_aggregates_are_the_same_objects():
    forest = Forest.build([HOST], NameTable(), 0)
    after = forest.with_changes({1: replace(HOST, inventories={"VCPU": Inventory(9)}, revision=1)})
    assert after.columns["VCPU"].capacity.tolist() == [9]
    for name in ("slot_of_uuid", "trees", "roots", "with_trait", "aggregates", "memo"):
        assert getattr(after, name) is getattr(forest, name), name


def test_the_index_of_inventories_applies_many_writes_at_the_next_query():
    """Also with more writes than it records. Every forest in between gives its own answers."""
    forests = [Forest.build([HOST], NameTable(), 0)]
    for units in range(1, 2 * MAX_PENDING_SLOTS):
        new = replace(HOST, id=units + 1, root_id=units + 1, uuid=f"host {units}", name=f"host {units}")
        used = replace(HOST, used={"VCPU": units}, revision=units)
        forests.append(forests[-1].with_changes({new.id: new, HOST.id: used}))
    assert forests[-1].index._pending is not None, "there was no query yet"
    for units in (2 * MAX_PENDING_SLOTS - 1, MAX_PENDING_SLOTS, 3):
        column = forests[units].columns["VCPU"]
        assert column.used.tolist() == [units, *[0] * units]
        assert forests[units].columns["VCPU"] is column
        assert forests[units].index._pending is None
