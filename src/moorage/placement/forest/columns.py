"""One resource class as arrays, which a search filters before it reads any object."""

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
        if amount > MAX_INT:  # nor would it be a number for arrays
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

    def room_at(self, rows: Rows, most: int) -> Units:
        """By index in `rows`: units that one consumer could take there, in 0 ... `most`."""
        room: Units = np.minimum(self.capacity[rows] - self.used[rows], self.max_unit[rows])
        return room.clip(0, most)

    def attainable_at(self, rows: Rows, wanted: int) -> Units:
        """By index in `rows`: the amount nearest to `wanted` that a new consumer could take there; 0 if it could take nothing.

        An amount of at most `wanted` comes before a larger one.
        """
        most = np.minimum(self.max_unit[rows], self.capacity[rows] - self.used[rows])
        least, fewer = np.maximum(self.min_unit[rows], 1), np.minimum(wanted, most)
        if ((step := self.step_size[rows]) > 1).any():  # dividing takes longer than all the rest
            least, fewer = -(-least // step) * step, fewer // step * step
        amounts: Units = np.maximum(fewer, least)
        amounts[amounts > most] = 0
        return amounts

    def with_used(self, used: Mapping[int, int]) -> "Column":
        """`used` is {slot: units}, of slots that have a row."""
        column = self.used.copy()
        slots = np.fromiter(used, dtype=np.int32, count=len(used))
        column[np.searchsorted(self.slots, slots)] = np.fromiter(used.values(), dtype=np.int64, count=len(used))
        return replace(self, used=column)


def columns_of(providers: Sequence[Provider]) -> dict[str, Column]:
    """{resource class: its column}. `providers`: by slot."""
    #: Ten thousand hosts have a few kinds of inventories, mostly the same object. {id: (inventories, slots)}
    kinds: dict[int, tuple[Mapping[str, Inventory], list[int]]] = {}
    for slot, provider in enumerate(providers):
        kinds.setdefault(id(provider.inventories), (provider.inventories, []))[1].append(slot)
    by_class: dict[str, list[tuple[Inventory, list[int]]]] = defaultdict(list)
    for offered, slots in kinds.values():
        for name, inventory in offered.items():
            by_class[name].append((inventory, slots))
    return {name: _gathered(name, offers, providers) for name, offers in by_class.items()}


def _gathered(name: str, offers: Sequence[tuple[Inventory, list[int]]], providers: Sequence[Provider]) -> Column:
    slots = concatenated(slots for _, slots in offers)
    limits = np.array([_limits(inventory) for inventory, _ in offers], dtype=np.int64)
    order = np.argsort(slots)
    slots, kinds = slots[order], np.repeat(np.arange(len(offers)), [len(some) for _, some in offers])[order]
    capacity, min_unit, max_unit, step_size = (np.ascontiguousarray(units) for units in limits[kinds].T)
    used = [providers[slot].used.get(name, 0) for slot in slots.tolist()]
    return Column(slots, capacity, np.array(used, dtype=np.int64), min_unit, max_unit, step_size)


def concatenated(lists: Iterable[list[int]]) -> Slots:
    return np.fromiter(chain.from_iterable(lists), dtype=np.int32)


def _limits(inventory: Inventory) -> tuple[int, int, int, int]:
    return inventory.capacity, inventory.min_unit, inventory.max_unit, inventory.step_size


# --- changing them ----------------------------------------------------------------------------------------------


def replaced_columns(
    columns: Mapping[str, Column], before: Mapping[int, Provider | None], after: Mapping[int, Provider | None]
) -> dict[str, Column]:
    """Each class that one of these had or has otherwise, by slot. Arrays in which nothing changes stay the same."""
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
    """`rows` are by slot; None takes one out."""
    gone = np.array(sorted(slot for slot, row in rows.items() if row is None), dtype=np.int32)
    slots = column.slots
    units: tuple[Units, ...] = (column.capacity, column.used, column.min_unit, column.max_unit, column.step_size)
    if len(gone):
        places = np.searchsorted(slots, gone)
        slots, units = np.delete(slots, places), tuple(np.delete(array, places) for array in units)
    present = sorted(slot for slot, row in rows.items() if row is not None)
    if not present:
        return Column(slots, *units)
    coming = np.array(present, dtype=np.int32)
    values = np.array([rows[slot] for slot in present], dtype=np.int64).T
    places = np.searchsorted(slots, coming)
    known = np.zeros(len(coming), dtype=np.bool_)
    known[places < len(slots)] = slots[places[places < len(slots)]] == coming[places < len(slots)]
    if known.any():
        units = tuple(_set(array, places[known], new[known]) for array, new in zip(units, values, strict=True))
    if not known.all():
        at, new_slots = places[~known], coming[~known]
        slots = np.insert(slots, at, new_slots)
        units = tuple(np.insert(array, at, new[~known]) for array, new in zip(units, values, strict=True))
    return Column(slots, *units)


def _set(array: Units, places: NDArray[np.intp], new: Units) -> Units:
    """The same array where it has these values already."""
    if (array[places] == new).all():
        return array
    changed = array.copy()
    changed[places] = new
    return changed


_NO_UNITS: Units = np.empty(0, dtype=np.int64)
_EMPTY = Column(np.empty(0, dtype=np.int32), _NO_UNITS, _NO_UNITS, _NO_UNITS, _NO_UNITS, _NO_UNITS)
