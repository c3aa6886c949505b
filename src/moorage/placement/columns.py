"""One resource class in arrays: what a search narrows before it looks at any object."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from moorage.placement.model import MAX_INT, Inventory, Provider

Slots = NDArray[np.int32]
Units = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Column:
    """One resource class: a row for each provider that has inventory of it, by slot."""

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

    def with_used(self, used: Mapping[int, int]) -> "Column":
        """`used` is {slot: units}, of slots that have a row."""
        column = self.used.copy()
        slots = np.fromiter(used, dtype=np.int32, count=len(used))
        column[np.searchsorted(self.slots, slots)] = np.fromiter(used.values(), dtype=np.int64, count=len(used))
        return replace(self, used=column)


def columns_of(providers: Iterable[tuple[int, Provider]]) -> dict[str, Column]:
    """`providers` by slot, in order."""
    #: {class: (slots, places in `kinds`, units used)}
    rows: dict[str, tuple[list[int], list[int], list[int]]] = defaultdict(lambda: ([], [], []))
    #: Ten thousand hosts have a few kinds of inventory: most are one object. {identity: (place, inventory)}
    kinds: dict[int, tuple[int, Inventory]] = {}
    for slot, provider in providers:
        used = provider.used
        for name, inventory in provider.inventories.items():
            slots, places, units = rows[name]
            slots.append(slot)
            place, _ = kinds.setdefault(id(inventory), (len(kinds), inventory))
            places.append(place)
            units.append(used.get(name, 0))
    table = np.array([_limits(inventory) for _, inventory in kinds.values()], dtype=np.int64).reshape(-1, 4)
    return {name: _gathered(table, *lists) for name, lists in rows.items()}


def _limits(inventory: Inventory) -> tuple[int, int, int, int]:
    return inventory.capacity, inventory.min_unit, inventory.max_unit, inventory.step_size


def _gathered(table: Units, slots: list[int], places: list[int], used: list[int]) -> Column:
    capacity, min_unit, max_unit, step_size = (np.ascontiguousarray(column) for column in table[places].T)
    return Column(
        np.array(slots, dtype=np.int32), capacity, np.array(used, dtype=np.int64), min_unit, max_unit, step_size
    )


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
