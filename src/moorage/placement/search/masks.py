"""Properties of providers as boolean arrays by slot: traits, aggregates, the units that fit, and the filters of
``GET /resource_providers``.

The properties are cached in the forest's memo (`ForestMemo`) while their source arrays stay the same objects.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moorage.placement.forest.columns import Column, Rows, Slots, Units
from moorage.placement.forest.forest import Forest
from moorage.placement.search.query import NO_AGGREGATES, NO_TRAITS, AggregateFilter, AllOfAny, TraitFilter

#: By slot, or by row of a column.
Mask = NDArray[np.bool_]
Distances = NDArray[np.float64]

#: Minimum distance of a shortage, and distance of a class that the provider cannot give at all.
SHORT = 1.0
ABSENT = 100.0

#: Index the rows of a column by slot if at least one slot in `SPARSE` has a row; otherwise use binary search.
SPARSE = 16
#: For fewer than one row in `FEW`, compute only these rows; otherwise compute all rows and cache them.
FEW = 8


def with_any(forest: Forest, traits: frozenset[str]) -> Mask:
    """By slot: True if the provider has at least one of `traits`."""
    return _any_of([_with_trait(forest, trait) for trait in traits], len(forest.roots))


def with_any_of_all(forest: Forest, wanted: AllOfAny) -> list[Mask]:
    """One mask by slot for each set in `wanted`: True if the provider has at least one trait of the set."""
    return [with_any(forest, any_of) for any_of in wanted]


def members_of_any(forest: Forest, aggregates: frozenset[str]) -> Mask:
    """By slot: True if the provider is in at least one of `aggregates`."""
    present = [_in_aggregate(forest, aggregate) for aggregate in aggregates if aggregate in forest.aggregates]
    return _any_of(present, len(forest.roots))


def in_all(forest: Forest, wanted: AllOfAny) -> Mask:
    """By slot: True if the provider is in at least one aggregate of each set in `wanted`."""
    mask = np.ones(len(forest.roots), dtype=np.bool_)
    for any_of in wanted:
        mask &= members_of_any(forest, any_of)
    return mask


def _any_of(masks: list[Mask], count: int) -> Mask:
    if len(masks) == 1:
        return masks[0]
    found = np.zeros(count, dtype=np.bool_)
    for mask in masks:
        found |= mask
    return found


def _with_trait(forest: Forest, trait: str) -> Mask:
    slots = forest.with_trait.get(trait)
    return forest.memo.get(("trait", trait), (slots, forest.roots), lambda: _mask(forest, slots))


def _in_aggregate(forest: Forest, aggregate: str) -> Mask:
    members = forest.aggregates.get(aggregate)

    def make() -> Mask:
        return _mask(forest, None if members is None else np.fromiter(members, dtype=np.int32, count=len(members)))

    return forest.memo.get(("aggregate", aggregate), (members, forest.roots), make)


def is_sharing(forest: Forest) -> Mask:
    """By slot: True if the provider shares its inventory with the members of its aggregates."""
    sharing = forest.sharing

    def make() -> Mask:
        return _mask(forest, np.fromiter(sharing, dtype=np.int32, count=len(sharing)))

    return forest.memo.get("sharing", (sharing, forest.roots), make)


def _mask(forest: Forest, slots: Slots | None) -> Mask:
    mask = np.zeros(len(forest.roots), dtype=np.bool_)
    if slots is not None:
        mask[slots] = True
    return mask


# --- one resource class -----------------------------------------------------------------------------------------


def allowed(forest: Forest, name: str, column: Column, amount: int) -> Mask | None:
    """By row: True if one consumer may hold exactly `amount`, regardless of usage. None: all rows allow it."""

    def make() -> Mask | None:
        mask = (column.min_unit <= amount) & (column.max_unit >= amount) & (amount % column.step_size == 0)
        return None if mask.all() else mask

    sources = (column.min_unit, column.max_unit, column.step_size)
    return forest.memo.get(("allowed", name, amount), sources, make)


def fitting(forest: Forest, name: str, column: Column, amount: int) -> Mask:
    """By row: True if a new consumer could take `amount` there. Has one more element at the end, which is False."""

    def make() -> Mask:
        mask = np.zeros(len(column.slots) + 1, dtype=np.bool_)
        np.less_equal(column.used, column.capacity - amount, out=mask[:-1])
        if (units := allowed(forest, name, column, amount)) is not None:
            mask[:-1] &= units
        return mask

    sources = (column.used, column.capacity, column.min_unit, column.max_unit, column.step_size)
    return forest.memo.get(("fitting", name, amount), sources, make)


def rows_at(forest: Forest, name: str, slots: Slots) -> Rows:
    """By index in `slots`: the provider's row in the column of the class; the number of rows if it has none."""
    column = forest.columns.get(name)
    if column is None:
        return np.zeros(len(slots), dtype=np.intp)
    if len(column.slots) * SPARSE >= len(forest.roots):
        row_by_slot = forest.memo.get(
            ("rows", name), (column.slots, forest.roots), lambda: _row_by_slot(forest, column)
        )
        return row_by_slot[slots]
    rows = np.searchsorted(column.slots, slots)
    rows[column.slots[np.minimum(rows, len(column.slots) - 1)] != slots] = len(column.slots)
    return rows


def _row_by_slot(forest: Forest, column: Column) -> Rows:
    count = len(column.slots)
    row_by_slot = np.full(len(forest.roots), count, dtype=np.intp)
    row_by_slot[column.slots] = np.arange(count)
    return row_by_slot


def fits(forest: Forest, name: str, amount: int, rows: Rows) -> Mask:
    """By index in `rows`, which are from `rows_at`: True if a new consumer could take `amount` there."""
    column = forest.columns.get(name)
    if column is None:
        return np.zeros(len(rows), dtype=np.bool_)
    if len(rows) * FEW >= len(column.slots):
        return fitting(forest, name, column, amount)[rows]
    found = np.zeros(len(rows), dtype=np.bool_)
    present = rows < len(column.slots)
    found[present] = column.fits_at(rows[present], amount)
    return found


def available(forest: Forest, name: str, most: int, rows: Rows) -> Units:
    """By index in `rows`, which are from `rows_at`: units that one consumer could take, from 0 to `most`."""
    found = np.zeros(len(rows), dtype=np.int64)
    if (column := forest.columns.get(name)) is not None:
        present = rows < len(column.slots)
        found[present] = column.available_at(rows[present], most)
    return found


def shortage(forest: Forest, name: str, wanted: int, rows: Rows, fits: Mask) -> Distances:
    """By index in `rows` (from `rows_at`): distance from being able to give `wanted` units to a new consumer.

    0 if they fit; `SHORT` plus the missing fraction (at most 1) if another amount would fit; `ABSENT` if none would.
    `fits`: the result of the function `fits` for the same arguments.
    """
    found = np.zeros(len(rows))
    if fits.all():
        return found
    short = np.flatnonzero(~fits)
    found[short] = ABSENT
    if (column := forest.columns.get(name)) is not None:
        short = short[rows[short] < len(column.slots)]
        amounts = column.attainable_at(rows[short], wanted)
        missing = SHORT + np.minimum(np.abs(wanted - amounts) / wanted, 1.0)
        found[short] = np.where(amounts > 0, missing, ABSENT)
    return found


@dataclass(frozen=True, slots=True)
class ProviderFilter:
    """The query of GET /resource_providers; all conditions must hold."""

    name: str | None = None
    uuid: str | None = None
    in_tree: str | None = None
    resources: Mapping[str, int] | None = None
    traits: TraitFilter = NO_TRAITS
    aggregates: AggregateFilter = NO_AGGREGATES


def matching_slots(forest: Forest, wanted: ProviderFilter) -> list[int]:
    """Slots of the providers that meet all conditions of `wanted`, ascending."""
    if wanted.name is None and wanted.uuid is None and wanted.in_tree is None:
        return np.flatnonzero(_matching(forest, wanted)).tolist()
    slots = _named_slots(forest, wanted)
    if slots and (wanted.resources or wanted.traits != NO_TRAITS or wanted.aggregates != NO_AGGREGATES):
        matching = _matching(forest, wanted)
        slots = [slot for slot in slots if matching[slot]]
    return slots


def _named_slots(forest: Forest, wanted: ProviderFilter) -> list[int]:
    """Slots of the providers with this name, with this uuid, and in this tree, as far as given; in order."""
    slot_sets: list[Collection[int]] = []
    for key, slot_of in ((wanted.name, forest.slot_of_name), (wanted.uuid, forest.slot_of_uuid)):
        if key is not None:
            slot = slot_of.get(key)
            slot_sets.append(() if slot is None else (slot,))
    if wanted.in_tree is not None:
        member = forest.slot_of_uuid.get(wanted.in_tree)
        slot_sets.append(() if member is None else forest.tree(member))
    return sorted(set(slot_sets[0]).intersection(*slot_sets[1:]))


def _matching(forest: Forest, wanted: ProviderFilter) -> Mask:
    """By slot: True if the provider meets the conditions on resources, traits and aggregates."""
    passes: Mask = np.asarray(forest.roots >= 0, dtype=np.bool_)
    for name, amount in (wanted.resources or {}).items():
        fits = np.zeros(len(passes), dtype=np.bool_)
        if (column := forest.columns.get(name)) is not None:
            fits[column.fitting(amount)] = True
        passes &= fits
    for any_of in wanted.traits.required:
        passes &= with_any(forest, any_of)
    if wanted.traits.forbidden:
        passes &= ~with_any(forest, wanted.traits.forbidden)
    for any_of in wanted.aggregates.required:
        passes &= members_of_any(forest, any_of)
    if wanted.aggregates.forbidden:
        passes &= ~members_of_any(forest, wanted.aggregates.forbidden)
    return passes
