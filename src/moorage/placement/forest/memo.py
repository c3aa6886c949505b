"""Results computed from parts of a forest, kept while those parts are the same objects.

A forest is immutable and its successor shares all unchanged parts, so a result is valid if its sources are still the
same objects: after a claim, everything computed from uuids, trees, traits and aggregates is still valid.
"""

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from operator import is_
from typing import TypeVar, cast

import numpy as np

T = TypeVar("T")

#: Limits on the number of entries and on the bytes of their arrays; the least recently used entry is evicted first. An
#: entry has a few bytes per provider, so with a hundred thousand providers the limit on bytes is reached first.
MAX_ENTRIES = 512
MAX_BYTES = 32 * 2**20
#: Entries kept regardless of size: one or two queries need that many, and computing one for a million providers takes
#: seconds.
MIN_ENTRIES = 16


class ForestMemo:
    """Shared by successive forests. Thread-safe: at worst, two threads compute the same result."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry] = {}

    def get(self, key: Hashable, sources: tuple[object, ...], make: Callable[[], T]) -> T:
        """The result of `make`, which must depend only on `key` and `sources`; sources are never changed in place."""
        entry = self._entries.pop(key, None)
        if entry is None or not _are_same_objects(entry[0], sources):
            entry = self._new_entry(sources, make(), entry)
        self._entries[key] = entry  # at the end: most recently used
        return cast(T, entry[1])

    def revised(self, key: Hashable, sources: tuple[object, ...], revise: Callable[[T | None], T]) -> T:
        """The result of `revise`, called with its last result; with None if there is none for these sources.

        It may depend on more than `key` and `sources` if it detects such changes itself.
        """
        entry = self._entries.get(key)
        last = entry[1] if entry is not None and _are_same_objects(entry[0], sources) else None
        made = revise(cast(T | None, last))
        if entry is None or made is not last:
            entry = self._new_entry(sources, made, entry)
        self._entries.pop(key, None)
        self._entries[key] = entry
        return made

    def _new_entry(self, sources: tuple[object, ...], made: object, replaced: "_Entry | None") -> "_Entry":
        size = _size(made)
        if replaced is None or size > replaced[2]:
            self._make_room(size)
        return sources, made, size

    def _make_room(self, size: int) -> None:
        entries = list(self._entries.copy().items())  # a copy, because other threads continue to change it
        size += sum(entry[2] for _, entry in entries)
        for place, (key, entry) in enumerate(entries):
            remaining = len(entries) - place
            if remaining < MIN_ENTRIES or (remaining < MAX_ENTRIES and size <= MAX_BYTES):
                return
            self._entries.pop(key, None)
            size -= entry[2]


#: (sources, result, bytes)
_Entry = tuple[tuple[object, ...], object, int]


def _are_same_objects(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    return len(before) == len(now) and all(map(is_, before, now))


def _size(value: object) -> int:
    """Bytes in an array, or in the array attributes of a dataclass."""
    parts = [getattr(value, field.name) for field in fields(value)] if is_dataclass(value) else [value]
    return sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
