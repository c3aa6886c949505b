"""The inventories of one resource class as arrays, which searches filter before they read any object."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from moorage.core.inventories import MAX_INT
from moorage.placement.forest.model import Inventory, Provider

Slots = NDArray[np.int32]
#: Indexes into the arrays of a column.
Rows = NDArray[np.intp]
Units = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Column:
    """One resource class: a row for each provider with inventory of it, ordered by slot."""

    slots: Slots
    capacity: Units
    used: Units
    min_unit: Units
    max_unit: Units
    step_size: Units

    def fitting(self, amount: int) -> Slots:
        """Slots of the providers where a new consumer could take `amount`."""
        if amount > MAX_INT:  # fits nowhere, and might exceed the arrays' integers
            return self.slots[:0]
        fits = self.used + amount <= self.capacity
        fits &= self.min_unit <= amount
        fits &= self.max_unit >= amount
        if amount > 1 and (self.step_size > 1).any():
            fits &= amount % self.step_size == 0
        elif amount == 1:
            fits &= self.step_size == 1
        return self.slots[fits]

    def fits_at(self, rows: Rows, amount: int) -> NDArray[np.bool_]:
        """By index in `rows`: True if a new consumer could take `amount` there."""
        fits: NDArray[np.bool_] = self.used[rows] <= self.capacity[rows] - amount
        fits &= self.min_unit[rows] <= amount
        fits &= self.max_unit[rows] >= amount
        fits &= amount % self.step_size[rows] == 0
        return fits

    def available_at(self, rows: Rows, most: int) -> Units:
        """By index in `rows`: units that one consumer could take there, from 0 to `most`."""
        available: Units = np.minimum(self.capacity[rows] - self.used[rows], self.max_unit[rows])
        return available.clip(0, most)

    def attainable_at(self, rows: Rows, wanted: int) -> Units:
        """By index in `rows`: the amount nearest to `wanted` that a new consumer could take there; 0 if none.

        An amount of at most `wanted` is preferred to a larger one.
        """
        most = np.minimum(self.max_unit[rows], self.capacity[rows] - self.used[rows])
        least, fewer = np.maximum(self.min_unit[rows], 1), np.minimum(wanted, most)
        if ((step := self.step_size[rows]) > 1).any():  # division takes longer than all other operations
            least, fewer = -(-least // step) * step, fewer // step * step
        amounts: Units = np.maximum(fewer, least)
        amounts[amounts > most] = 0
        return amounts

    def with_used(self, used: Mapping[int, int]) -> "Column":
        """The column with new usages. `used`: {slot: units}; all slots must have a row."""
        column = self.used.copy()
        slots = np.fromiter(used, dtype=np.int32, count=len(used))
        column[np.searchsorted(self.slots, slots)] = np.fromiter(used.values(), dtype=np.int64, count=len(used))
        return replace(self, used=column)


def columns_of(providers: Sequence[Provider]) -> dict[str, Column]:
    """{resource class: its column}. `providers`: by slot."""
    #: Ten thousand hosts have few different inventories, which mostly are the same objects. {id: (inventories, slots)}
    kinds: dict[int, tuple[Mapping[str, Inventory], list[int]]] = {}
    for slot, provider in enumerate(providers):
        kinds.setdefault(id(provider.inventories), (provider.inventories, []))[1].append(slot)
    by_class: dict[str, list[tuple[Inventory, list[int]]]] = defaultdict(list)
    for inventories, slots in kinds.values():
        for name, inventory in inventories.items():
            by_class[name].append((inventory, slots))
    return {name: _column_of(name, groups, providers) for name, groups in by_class.items()}


def _column_of(name: str, groups: Sequence[tuple[Inventory, list[int]]], providers: Sequence[Provider]) -> Column:
    slots = concatenated(slots for _, slots in groups)
    limits = np.array([_limits(inventory) for inventory, _ in groups], dtype=np.int64)
    order = np.argsort(slots)
    slots, kinds = slots[order], np.repeat(np.arange(len(groups)), [len(some) for _, some in groups])[order]
    capacity, min_unit, max_unit, step_size = (np.ascontiguousarray(units) for units in limits[kinds].T)
    used = [providers[slot].used.get(name, 0) for slot in slots.tolist()]
    return Column(slots, capacity, np.array(used, dtype=np.int64), min_unit, max_unit, step_size)


def concatenated(lists: Iterable[list[int]]) -> Slots:
    return np.fromiter(chain.from_iterable(lists), dtype=np.int32)


def _limits(inventory: Inventory) -> tuple[int, int, int, int]:
    return inventory.capacity, inventory.min_unit, inventory.max_unit, inventory.step_size


# --- changed columns --------------------------------------------------------------------------------------------


def replaced_columns(
    columns: Mapping[str, Column], before: Mapping[int, Provider | None], after: Mapping[int, Provider | None]
) -> dict[str, Column]:
    """The columns after the providers have changed from `before` to `after`, both by slot.

    Unchanged arrays stay the same.
    """
    changes: dict[str, dict[int, _Row | None]] = defaultdict(dict)
    uses: dict[str, dict[int, int]] = defaultdict(dict)
    for slot, new in after.items():
        old = before[slot]
        if old is not None and new is not None and old.inventories == new.inventories:
            for name in old.inventories:
                if old.used.get(name, 0) != (units := new.used.get(name, 0)):
                    uses[name][slot] = units
            continue
        was, now = _rows(old), _rows(new)
        for name in was.keys() | now.keys():
            if was.get(name) != now.get(name):
                changes[name][slot] = now.get(name)
    result = dict(columns)
    for name, used in uses.items():
        result[name] = result[name].with_used(used)
    for name, rows in changes.items():
        column = _with_rows(result.get(name, _EMPTY), rows)
        if len(column.slots):
            result[name] = column
        else:
            del result[name]
    return result


#: (capacity, used, min_unit, max_unit, step_size), as in `Column`.
_Row = tuple[int, int, int, int, int]


def _rows(provider: Provider | None) -> dict[str, _Row]:
    """{class: row}"""
    if provider is None:
        return {}
    rows: dict[str, _Row] = {}
    for name, inventory in provider.inventories.items():
        capacity, min_unit, max_unit, step_size = _limits(inventory)
        rows[name] = (capacity, provider.used.get(name, 0), min_unit, max_unit, step_size)
    return rows


def _with_rows(column: Column, rows: Mapping[int, _Row | None]) -> Column:
    """The column with changed rows. `rows`: {slot: its new row, None to remove it}."""
    removed = np.array(sorted(slot for slot, row in rows.items() if row is None), dtype=np.int32)
    slots = column.slots
    units: tuple[Units, ...] = (column.capacity, column.used, column.min_unit, column.max_unit, column.step_size)
    if len(removed):
        places = np.searchsorted(slots, removed)
        slots, units = np.delete(slots, places), tuple(np.delete(array, places) for array in units)
    set_slots = sorted(slot for slot, row in rows.items() if row is not None)
    if not set_slots:
        return Column(slots, *units)
    set_array = np.array(set_slots, dtype=np.int32)
    values = np.array([rows[slot] for slot in set_slots], dtype=np.int64).T
    places = np.searchsorted(slots, set_array)
    known = np.zeros(len(set_array), dtype=np.bool_)
    known[places < len(slots)] = slots[places[places < len(slots)]] == set_array[places < len(slots)]
    if known.any():
        units = tuple(_set(array, places[known], new[known]) for array, new in zip(units, values, strict=True))
    if not known.all():
        at, new_slots = places[~known], set_array[~known]
        slots = np.insert(slots, at, new_slots)
        units = tuple(np.insert(array, at, new[~known]) for array, new in zip(units, values, strict=True))
    return Column(slots, *units)


def _set(array: Units, places: NDArray[np.intp], new: Units) -> Units:
    """The array with new values at `places`; the same object if it has these values already."""
    if (array[places] == new).all():
        return array
    changed = array.copy()
    changed[places] = new
    return changed


_NO_UNITS: Units = np.empty(0, dtype=np.int64)
_EMPTY = Column(np.empty(0, dtype=np.int32), _NO_UNITS, _NO_UNITS, _NO_UNITS, _NO_UNITS, _NO_UNITS)
