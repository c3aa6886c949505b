"""Properties of providers as arrays by slot: has this trait, is in that aggregate, could give so many units.

All are kept with the forest (`moorage.placement.derived`) for as long as what they were made of stays.
"""

import numpy as np
from numpy.typing import NDArray

from moorage.placement.columns import Column, Slots, Units
from moorage.placement.forest import Forest
from moorage.placement.query import AggregateFilter, AllOfAny, TraitFilter

#: By slot, or by row of a column.
Mask = NDArray[np.bool_]
Distances = NDArray[np.float64]

#: How far units are that are short, at least, and those of which there is nothing to be had.
SHORT = 1.0
ABSENT = 100.0

#: A column's rows are indexed by slot where at least one slot in so many has a row; else they are searched.
SPARSE = 16


def with_any(forest: Forest, traits: frozenset[str]) -> Mask:
    """By slot: has it at least one of these traits?"""
    return _any_of([_with_trait(forest, trait) for trait in traits], len(forest.roots))


def with_any_of_all(forest: Forest, wanted: AllOfAny) -> list[Mask]:
    """A mask by slot for each of the sets: has it at least one of these traits?"""
    return [with_any(forest, any_of) for any_of in wanted]


def members_of_any(forest: Forest, aggregates: frozenset[str]) -> Mask:
    """By slot: is it in at least one of these aggregates?"""
    present = [_in_aggregate(forest, aggregate) for aggregate in aggregates if aggregate in forest.aggregates]
    return _any_of(present, len(forest.roots))


def in_all(forest: Forest, wanted: AllOfAny) -> Mask:
    """By slot: is it in one aggregate of each set?"""
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
    return forest.derived.get(("trait", trait), (slots, forest.roots), lambda: _mask(forest, slots))


def _in_aggregate(forest: Forest, aggregate: str) -> Mask:
    members = forest.aggregates.get(aggregate)

    def make() -> Mask:
        return _mask(forest, None if members is None else np.fromiter(members, dtype=np.int32, count=len(members)))

    return forest.derived.get(("aggregate", aggregate), (members, forest.roots), make)


def is_sharing(forest: Forest) -> Mask:
    """By slot: does it share its inventory with the members of its aggregates?"""
    sharing = forest.sharing

    def make() -> Mask:
        return _mask(forest, np.fromiter(sharing, dtype=np.int32, count=len(sharing)))

    return forest.derived.get("sharing", (sharing, forest.roots), make)


def sources(forest: Forest, traits: TraitFilter, aggregates: AggregateFilter) -> tuple[object, ...]:
    """What it depends on who meets these filters, and who is in which tree."""
    named = sorted(traits.forbidden.union(*traits.required))
    within = sorted(aggregates.forbidden.union(*aggregates.required))
    return (forest.roots, *map(forest.with_trait.get, named), *map(forest.aggregates.get, within))


def _mask(forest: Forest, slots: Slots | None) -> Mask:
    mask = np.zeros(len(forest.roots), dtype=np.bool_)
    if slots is not None:
        mask[slots] = True
    return mask


# --- one resource class -----------------------------------------------------------------------------------------


def allowed(forest: Forest, name: str, column: Column, amount: int) -> Mask | None:
    """By row: may one consumer hold exactly `amount`, whatever others hold? None: on all of them."""

    def make() -> Mask | None:
        mask = (column.min_unit <= amount) & (column.max_unit >= amount) & (amount % column.step_size == 0)
        return None if mask.all() else mask

    sources = (column.min_unit, column.max_unit, column.step_size)
    return forest.derived.get(("allowed", name, amount), sources, make)


def fitting(forest: Forest, name: str, column: Column, amount: int) -> Mask:
    """By row: could a new consumer take `amount` there? One row more at the end, which says no."""

    def make() -> Mask:
        mask = np.zeros(len(column.slots) + 1, dtype=np.bool_)
        np.less_equal(column.used, column.capacity - amount, out=mask[:-1])
        if (units := allowed(forest, name, column, amount)) is not None:
            mask[:-1] &= units
        return mask

    sources = (column.used, column.capacity, column.min_unit, column.max_unit, column.step_size)
    return forest.derived.get(("fitting", name, amount), sources, make)


def rows_at(forest: Forest, name: str, slots: Slots) -> Slots:
    """By place in `slots`: its row in the class's column; the one after the last where it has none."""
    column = forest.columns.get(name)
    if column is None:
        return np.zeros(len(slots), dtype=np.int32)
    if len(column.slots) * SPARSE >= len(forest.roots):
        index = forest.derived.get(("rows", name), (column.slots, forest.roots), lambda: _index(forest, column))
        return index[slots]
    rows = np.searchsorted(column.slots, slots).astype(np.int32)
    rows[column.slots[np.minimum(rows, len(column.slots) - 1)] != slots] = len(column.slots)
    return rows


def _index(forest: Forest, column: Column) -> NDArray[np.int32]:
    count = len(column.slots)
    index = np.full(len(forest.roots), count, dtype=np.int32)
    index[column.slots] = np.arange(count, dtype=np.int32)
    return index


def room(forest: Forest, name: str, most: int, rows: Slots) -> Units:
    """By place in `rows`, which are from `rows_at`: units that one consumer could take, `most` at most, 0 at least."""
    column = forest.columns.get(name)
    if column is None:
        return np.zeros(len(rows), dtype=np.int64)

    def make() -> Units:
        free = np.zeros(len(column.slots) + 1, dtype=np.int64)
        np.minimum(column.capacity - column.used, column.max_unit, out=free[:-1])
        return np.clip(free, 0, most)

    sources = (column.used, column.capacity, column.max_unit)
    return forest.derived.get(("room", name, most), sources, make)[rows]


def attainable(forest: Forest, name: str, wanted: int) -> Units:
    """By row: the amount nearest to `wanted` that a new consumer could take there, fewer rather than more; 0 where it
    could not take any. One row more at the end, where there is nothing.
    """
    column = forest.columns.get(name)
    if column is None:
        return np.zeros(1, dtype=np.int64)

    def make() -> Units:
        most = np.minimum(column.max_unit, column.capacity - column.used)
        least = -(-np.maximum(column.min_unit, 1) // column.step_size) * column.step_size
        fewer = np.minimum(wanted, most) // column.step_size * column.step_size
        amounts = np.where(fewer >= least, fewer, np.where(least <= most, least, 0))
        return np.append(amounts, 0)

    sources = (column.used, column.capacity, column.min_unit, column.max_unit, column.step_size)
    return forest.derived.get(("attainable", name, wanted), sources, make)


def shortage(forest: Forest, name: str, wanted: int) -> Distances:
    """By row: how far a new consumer who wants so much is from having it there.

    0 where it fits, `SHORT` and the share that is missing (1 at most) where there is less, `ABSENT` where there is
    nothing to be had. One row more at the end, where there is nothing.
    """
    column = forest.columns.get(name)
    if column is None:
        return np.full(1, ABSENT)
    fits, amounts = fitting(forest, name, column, wanted), attainable(forest, name, wanted)

    def make() -> Distances:
        short = SHORT + np.minimum(np.abs(wanted - amounts) / wanted, 1.0)
        return np.where(fits, 0.0, np.where(amounts > 0, short, ABSENT))

    return forest.derived.get(("shortage", name, wanted), (fits, amounts), make)
