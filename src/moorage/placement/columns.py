"""One resource class in arrays: what a search narrows before it looks at any object."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moorage.placement.model import Provider

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
        fits = self.used + amount <= self.capacity
        fits &= self.min_unit <= amount
        fits &= self.max_unit >= amount
        if amount > 1 and (self.step_size > 1).any():
            fits &= amount % self.step_size == 0
        elif amount == 1:
            fits &= self.step_size == 1
        return self.slots[fits]

    def with_used(self, used: Mapping[int, int]) -> "Column":
        """`used` is {slot: units}; slots without a row are ignored."""
        column = self.used.copy()
        slots = np.fromiter(used, dtype=np.int32, count=len(used))
        rows = np.searchsorted(self.slots, slots)
        for row, slot, units in zip(rows.tolist(), slots.tolist(), used.values(), strict=True):
            if row < len(self.slots) and self.slots[row] == slot:
                column[row] = units
        return replace(self, used=column)


def columns_of(providers: Iterable[tuple[int, Provider]]) -> dict[str, Column]:
    rows: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for slot, provider in providers:
        for name in provider.inventories:
            rows[name].append(_row(slot, provider, name))
    return {name: _column(listed) for name, listed in rows.items()}


def _row(slot: int, provider: Provider, name: str) -> tuple[int, ...]:
    inventory = provider.inventories[name]
    return (
        slot,
        inventory.capacity,
        provider.used.get(name, 0),
        inventory.min_unit,
        inventory.max_unit,
        inventory.step_size,
    )


def _column(rows: Sequence[tuple[int, ...]]) -> Column:
    table: NDArray[Any] = np.array(sorted(rows), dtype=np.int64).reshape(-1, 6)
    slots, capacity, used, min_unit, max_unit, step_size = (np.ascontiguousarray(table[:, n]) for n in range(6))
    return Column(slots.astype(np.int32), capacity, used, min_unit, max_unit, step_size)


def replaced_columns(
    columns: Mapping[str, Column], before: Mapping[int, Provider | None], after: Mapping[int, Provider | None]
) -> dict[str, Column]:
    """Each class that one of these had or has: their rows taken out and put in."""
    result = dict(columns)
    states = [*before.values(), *after.values()]
    for name in {name for provider in states if provider is not None for name in provider.inventories}:
        new_rows = [
            _row(slot, provider, name)
            for slot, provider in after.items()
            if provider is not None and name in provider.inventories
        ]
        kept = result.get(name)
        if kept is not None:
            stays = ~np.isin(kept.slots, np.fromiter(after, dtype=np.int32, count=len(after)))
            units = (kept.capacity, kept.used, kept.min_unit, kept.max_unit, kept.step_size)
            kept = Column(kept.slots[stays], *(array[stays] for array in units))
        column = _merged(kept, _column(new_rows))
        if len(column.slots):
            result[name] = column
        else:
            result.pop(name, None)
    return result


def _merged(kept: Column | None, added: Column) -> Column:
    if kept is None or not len(kept.slots):
        return added
    if not len(added.slots):
        return kept
    slots = np.concatenate((kept.slots, added.slots))
    order = np.argsort(slots, kind="stable")
    pairs = (
        (kept.capacity, added.capacity),
        (kept.used, added.used),
        (kept.min_unit, added.min_unit),
        (kept.max_unit, added.max_unit),
        (kept.step_size, added.step_size),
    )
    return Column(slots[order], *(np.concatenate(pair)[order] for pair in pairs))
