"""A forest that was changed step by step equals the forest built from the result."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import SHARING_TRAIT, Inventory, NameTable, Provider
from moorage.placement.forest.persistent_list import PersistentList

CLASSES = ["A", "B"]


@st.composite
def histories(draw):
    """A list of {provider id: new state or None}, as the change log would give them."""
    alive = {}
    next_id = 1
    history = []
    for _ in range(draw(st.integers(1, 6))):
        changed = {}
        for _ in range(draw(st.integers(1, 4))):
            kind = draw(st.sampled_from(["new", "new", "use", "offer", "rename", "move", "delete"]))
            if kind == "new" or not alive:
                parent = draw(st.none() | st.sampled_from(sorted(alive))) if alive else None
                root = alive[parent].root_id if parent else next_id
                changed[next_id] = Provider(next_id, f"u{next_id}", f"n{next_id}", 0, 0, parent, root)
                alive[next_id] = changed[next_id]
                next_id += 1
                continue
            number = draw(st.sampled_from(sorted(alive)))
            if kind == "delete":
                if any(provider.parent_id == number for provider in alive.values()):
                    continue
                del alive[number]
                changed[number] = None
                continue
            if kind == "rename":
                free = {p.name for p in alive.values()}
                name = draw(
                    st.sampled_from(
                        [name for name in ("x", "y", "z", alive[number].name) if name not in free]
                        or [alive[number].name]
                    )
                )
                changed[number] = alive[number] = replace(alive[number], name=name)
                continue
            if kind == "move":
                for moved in moved_providers(draw, alive, number):
                    changed[moved.id] = alive[moved.id] = moved
                continue
            changed[number] = alive[number] = other_state(draw, alive[number], kind)
        history.append(changed)
    return history


def other_state(draw, provider, kind):
    if kind == "use":
        used = {name: draw(st.integers(0, 3)) for name in provider.inventories}
        return replace(provider, used=used, revision=provider.revision + 1)
    names = draw(st.sets(st.sampled_from(CLASSES)))
    return replace(
        provider,
        inventories={name: Inventory(total=draw(st.integers(1, 9))) for name in sorted(names)},
        used={},
        traits=frozenset(draw(st.sets(st.sampled_from(["T1", SHARING_TRAIT])))),
        aggregates=frozenset(draw(st.sets(st.sampled_from(["g1", "g2"])))),
        revision=provider.revision + 1,
    )


def moved_providers(draw, alive, number):
    """The changed rows when a provider and its subtree move below another provider or become a tree."""
    below = {number}
    while more := {p.id for p in alive.values() if p.parent_id in below} - below:
        below |= more
    targets = sorted(set(alive) - below)
    parent = draw(st.none() | st.sampled_from(targets)) if targets else None
    root = alive[parent].root_id if parent else number
    yield replace(alive[number], parent_id=parent, root_id=root)
    for child in below - {number}:
        yield replace(alive[child], root_id=root)


@settings(max_examples=300, deadline=None)
@given(histories())
def test_a_forest_changed_step_by_step_equals_one_built_from_the_result(history):
    forest = Forest.build([], NameTable(), 0)
    alive = {}
    for sequence, changed in enumerate(history, 1):
        for number, state in changed.items():
            if state is None:
                alive.pop(number, None)
            else:
                alive[number] = state
        forest = forest.with_changes(changed, sequence=sequence)
        built = Forest.build([alive[number] for number in sorted(alive)], NameTable(), sequence)
        assert content_by_uuid(forest) == content_by_uuid(built)


def content_by_uuid(forest):
    """The content of a forest with uuids instead of slots, because slots differ between two equal forests."""

    def uuid(slot):
        return forest.at(int(slot)).uuid

    return {
        "providers": {provider.uuid: provider for provider in forest.all_providers()},
        "ids": {number: uuid(slot) for number, slot in forest.slot_of_id.items()},
        "names": {name: uuid(slot) for name, slot in forest.slot_of_name.items()},
        "uuids": {name: uuid(slot) for name, slot in forest.slot_of_uuid.items()},
        "roots": {uuid(slot): uuid(forest.roots[slot]) for slot in np.flatnonzero(forest.roots >= 0)},
        "parents": {
            uuid(slot): None if (parent := forest.parents[slot]) < 0 else uuid(parent)
            for slot in np.flatnonzero(forest.roots >= 0)
        },
        "trees": {uuid(root): (uuid(slots[0]), {uuid(s) for s in slots}) for root, slots in forest.trees.items()},
        "parents first": all(
            forest.parent_of(slot) in slots[:place]
            for slots in forest.trees.values()
            for place, slot in enumerate(slots)
            if place
        ),
        "traits": {trait: {uuid(slot) for slot in slots} for trait, slots in forest.with_trait.items()},
        "columns": {
            name: {
                uuid(slot): (*map(int, row),)
                for slot, *row in zip(
                    column.slots,
                    column.capacity,
                    column.used,
                    column.min_unit,
                    column.max_unit,
                    column.step_size,
                    strict=True,
                )
            }
            for name, column in forest.columns.items()
        },
        "aggregates": {name: {uuid(slot) for slot in slots} for name, slots in forest.aggregates.items()},
        "sharing": {uuid(slot) for slot in forest.sharing},
        "sequence": forest.sequence,
    }


offers = st.builds(
    Inventory,
    total=st.integers(1, 6),
    reserved=st.integers(0, 1),
    min_unit=st.integers(1, 2),
    max_unit=st.integers(1, 4),
    step_size=st.integers(1, 3),
    allocation_ratio=st.sampled_from([0.5, 1.0, 1.5]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(offers, st.integers(0, 3)), min_size=1, max_size=8), st.integers(1, 4))
def test_a_column_finds_the_providers_in_which_an_amount_fits(stock, amount):
    providers = [
        Provider(number, f"u{number}", f"n{number}", 0, 0, None, number, {"A": inventory}, {"A": used})
        for number, (inventory, used) in enumerate(stock, 1)
    ]
    forest = Forest.build(providers, NameTable(), 0)
    fitting = {forest.at(slot).id for slot in forest.columns["A"].fitting(amount).tolist()}
    assert fitting == {provider.id for provider in providers if provider.fits("A", amount)}


@given(st.lists(st.integers(), max_size=400), st.dictionaries(st.integers(0, 399), st.integers()), st.integers(0, 300))
def test_a_persistent_list_equals_a_list_after_the_same_changes(items, changed, appended):
    changed = {index: value for index, value in changed.items() if index < len(items)}
    changed |= {len(items) + number: number for number in range(appended)}
    chunks = PersistentList.of(items).with_items(changed)
    expected = [*items, *range(appended)]
    for index, value in changed.items():
        expected[index] = value
    assert list(chunks) == expected
    assert len(chunks) == len(expected)
    assert all(chunks[index] == value for index, value in enumerate(expected))
