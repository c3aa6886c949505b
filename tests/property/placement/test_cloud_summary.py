"""The cloud summary equals sums over single providers, and the pages of trees together are the whole list."""

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.placement.explain.cloud_summary import (
    AggregatePart,
    TreeFilter,
    natural_key,
    summarise_cloud,
    summed_units,
    tree_page,
)
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import NameTable
from tests.property.placement.test_candidates import AGGREGATES, CLASSES, TRAITS, Dice, world


def case(seed):
    dice = Dice(seed)
    providers = world(dice)
    wanted = TreeFilter(
        search=dice.mostly("", "1", "N", "p2"),
        member_of=dice.mostly(None, AGGREGATES[0], "unknown"),
        resource_class=dice.mostly(None, CLASSES[0], "UNKNOWN"),
        trait=dice.mostly(None, TRAITS[0], "UNKNOWN"),
    )
    return Forest.build(providers, NameTable(), 0), wanted, dice.randint(1, 3)


def trees_by_root(forest):
    """{id of the root: all providers of its tree}"""
    found = {}
    for provider in forest.all_providers():
        found.setdefault(provider.root_id, []).append(provider)
    return found


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1).map(case))
def test_a_cloud_summary_equals_the_sums_over_all_providers(case):
    forest, *_ = case
    found = summarise_cloud(forest, CLASSES)
    assert (found.trees, found.providers) == (len(trees_by_root(forest)), len(forest))
    assert sorted(found.units, key=lambda units: units.name) == summed_units(forest.all_providers())
    for part in found.aggregates:
        near = [
            tree
            for tree in trees_by_root(forest).values()
            if any(part.uuid in provider.aggregates for provider in tree)
        ]
        units = {one.name: one for one in summed_units(provider for tree in near for provider in tree)}
        told = tuple(units[name] for name in CLASSES if name in units)
        assert part == AggregatePart(part.uuid, len(near), told)
    assert {part.uuid for part in found.aggregates} == {
        uuid for one in forest.all_providers() for uuid in one.aggregates
    }


def passes(tree, wanted):
    text = wanted.search.lower()
    return (
        any(text in one.name.lower() or one.uuid.startswith(text) for one in tree)
        and (wanted.member_of is None or any(wanted.member_of in one.aggregates for one in tree))
        and (wanted.resource_class is None or any(wanted.resource_class in one.inventories for one in tree))
        and (wanted.trait is None or any(wanted.trait in one.traits for one in tree))
    )


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1).map(case))
def test_the_pages_together_are_all_trees_that_pass_the_filter_in_order_of_name(case):
    forest, wanted, limit = case
    rows, after = [], None
    while True:
        page = tree_page(forest, wanted, after, limit)
        rows += page.rows
        assert len(page.rows) <= limit
        if page.following is None:
            break
        after = page.following
    passing = [tree for tree in trees_by_root(forest).values() if passes(tree, wanted)]
    expected = sorted((next(one for one in tree if one.is_root).name for tree in passing), key=natural_key)
    assert [row.root.name for row in rows] == expected
    assert page.matching == len(expected)
    by_name = {next(one for one in tree if one.is_root).name: tree for tree in passing}
    assert all(list(row.units) == summed_units(by_name[row.root.name]) for row in rows)


def test_names_are_sorted_by_the_numbers_in_them():
    assert sorted(["host-10", "host-2", "Host-1", "7", "host"], key=natural_key) == [
        "7",
        "host",
        "Host-1",
        "host-2",
        "host-10",
    ]
