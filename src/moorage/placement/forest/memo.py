"""What is computed from parts of a forest, kept for as long as those parts are the same objects.

A forest is immutable and its successor shares what did not change, so "is it still the same object" is all that must
be asked: after a claim everything is still good that was computed from uuids, trees, traits and aggregates.
"""

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from operator import is_
from typing import TypeVar, cast

import numpy as np

T = TypeVar("T")

#: Entries kept, and bytes in their arrays together; who was not asked for longest goes first. An entry has some bytes
#: per provider, so at a hundred thousand providers it is the bytes that count.
MAX_ENTRIES = 512
MAX_BYTES = 32 * 2**20
#: Kept however large: a query or two ask for so many, and making one of a million providers takes seconds.
MIN_ENTRIES = 16


class ForestMemo:
    """Handed on from forest to forest. Safe with many threads: at worst, two compute the same."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry] = {}

    def get(self, key: Hashable, sources: tuple[object, ...], make: Callable[[], T]) -> T:
        """What `make` gives; it must depend on nothing but `key` and `sources`, which nobody changes in place."""
        entry = self._entries.pop(key, None)
        if entry is None or not _same(entry[0], sources):
            entry = self._made(sources, make(), entry)
        self._entries[key] = entry  # at the end, for it was asked for last
        return cast(T, entry[1])

    def revised(self, key: Hashable, sources: tuple[object, ...], revise: Callable[[T | None], T]) -> T:
        """What `revise` makes of what it made last; of None at first, and where that was with other sources.

        It may depend on more than `key` and `sources`, if it finds out itself what of that has changed.
        """
        entry = self._entries.get(key)
        last = entry[1] if entry is not None and _same(entry[0], sources) else None
        made = revise(cast(T | None, last))
        if entry is None or made is not last:
            entry = self._made(sources, made, entry)
        self._entries.pop(key, None)
        self._entries[key] = entry
        return made

    def _made(self, sources: tuple[object, ...], made: object, instead_of: "_Entry | None") -> "_Entry":
        size = _size(made)
        if instead_of is None or size > instead_of[2]:
            self._make_room(size)
        return sources, made, size

    def _make_room(self, size: int) -> None:
        entries = list(self._entries.copy().items())  # a copy is made at once: other threads go on
        size += sum(entry[2] for _, entry in entries)
        for place, (key, entry) in enumerate(entries):
            remaining = len(entries) - place
            if remaining < MIN_ENTRIES or (remaining < MAX_ENTRIES and size <= MAX_BYTES):
                return
            self._entries.pop(key, None)
            size -= entry[2]


#: (sources, what was made, bytes)
_Entry = tuple[tuple[object, ...], object, int]


def _same(held: tuple[object, ...], given: tuple[object, ...]) -> bool:
    return len(held) == len(given) and all(map(is_, held, given))


def _size(value: object) -> int:
    """Bytes in an array, or in those that are attributes of a dataclass."""
    parts = [getattr(value, field.name) for field in fields(value)] if is_dataclass(value) else [value]
    return sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
