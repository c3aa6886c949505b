"""A value derived from a forest is computed once, and again when its source is another object."""

from dataclasses import replace

import numpy as np

from moorage.placement.forest.forest import Forest
from moorage.placement.forest.inverted_index import MAX_PENDING_SLOTS
from moorage.placement.forest.memo import MAX_BYTES, MAX_ENTRIES, MIN_ENTRIES, ForestMemo
from moorage.placement.forest.model import SHARING_TRAIT, Inventory, NameTable, Provider

HOST = Provider(1, "u1", "n1", 0, 0, None, 1, {"VCPU": Inventory(8)}, {}, frozenset({"T"}), frozenset({"g"}))


def test_the_same_sources_give_the_same_object():
    memo, source = ForestMemo(), object()
    first = memo.get("key", (source,), lambda: [1])
    assert memo.get("key", (source,), lambda: [2]) is first


def test_other_sources_are_computed_anew():
    memo = ForestMemo()
    assert memo.get("key", ([],), lambda: 1) == 1
    assert memo.get("key", ([],), lambda: 2) == 2, "equal, but not the same object"


def test_who_was_not_asked_for_longest_goes_first():
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


def made_again(memo, source, number):
    asked = []
    for one in reversed(range(number)):
        memo.get(one, (source,), lambda one=one: asked.append(one))
    return asked


def test_arrays_are_kept_up_to_a_number_of_bytes():
    memo, source, number = ForestMemo(), object(), 2 * MIN_ENTRIES
    fill(memo, source, number + 1, MAX_BYTES // number)
    assert made_again(memo, source, number + 1) == [0], "it made room for the last one"


def test_what_a_query_needs_is_kept_however_large_the_forest():
    """The uuids of a million providers exceed the cache's limit; without this rule each request made them again, for 7
    s.
    """
    memo, source = ForestMemo(), object()
    fill(memo, source, MIN_ENTRIES + 1, MAX_BYTES)
    assert made_again(memo, source, MIN_ENTRIES + 1) == [0]


def test_a_claim_leaves_everything_but_usage_as_it_is():
    forest = Forest.build([HOST], NameTable(), 0)
    after = forest.with_changes({1: replace(HOST, used={"VCPU": 2}, revision=1)})
    for name in ("slot_of_uuid", "trees", "roots", "with_trait", "aggregates", "sharing", "memo"):
        assert getattr(after, name) is getattr(forest, name), name
    assert after.columns["VCPU"].slots is forest.columns["VCPU"].slots


def test_a_claim_from_who_shares_leaves_all_that_share_as_they_are():
    """The layout of the whole forest is derived from it."""
    store = replace(HOST, traits=frozenset({SHARING_TRAIT}))
    forest = Forest.build([store], NameTable(), 0)
    after = forest.with_changes({1: replace(store, used={"VCPU": 2}, revision=1)})
    assert after.sharing is forest.sharing
    assert forest.with_changes({1: HOST}).sharing == frozenset()


def test_another_inventory_leaves_uuids_trees_traits_and_aggregates_as_they_are():
    forest = Forest.build([HOST], NameTable(), 0)
    after = forest.with_changes({1: replace(HOST, inventories={"VCPU": Inventory(9)}, revision=1)})
    assert after.columns["VCPU"].capacity.tolist() == [9]
    for name in ("slot_of_uuid", "trees", "roots", "with_trait", "aggregates", "memo"):
        assert getattr(after, name) is getattr(forest, name), name


def test_what_many_writes_offer_is_gathered_once_and_what_was_before_let_go():
    """Also with more writes than are recorded; every forest in between keeps its own answers."""
    forests = [Forest.build([HOST], NameTable(), 0)]
    for units in range(1, 2 * MAX_PENDING_SLOTS):
        new = replace(HOST, id=units + 1, root_id=units + 1, uuid=f"host {units}", name=f"host {units}")
        used = replace(HOST, used={"VCPU": units}, revision=units)
        forests.append(forests[-1].with_changes({new.id: new, HOST.id: used}))
    assert forests[-1].index._pending is not None, "nobody asked"
    for units in (2 * MAX_PENDING_SLOTS - 1, MAX_PENDING_SLOTS, 3):
        column = forests[units].columns["VCPU"]
        assert column.used.tolist() == [units, *[0] * units]
        assert forests[units].columns["VCPU"] is column
        assert forests[units].index._pending is None
