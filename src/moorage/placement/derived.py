"""What is computed from parts of a forest, kept for as long as those parts are the same objects.

A forest is immutable and its successor shares what did not change, so "is it still the same object" is all that must
be asked: after a claim everything is still good that was computed from uuids, trees, traits and aggregates.
"""

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

T = TypeVar("T")

#: Entries kept; the oldest goes first. Each is at most some bytes per provider.
KEPT = 256


class Derived:
    """Handed on from forest to forest. Safe with many threads: at worst, two compute the same."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[Hashable, tuple[tuple[object, ...], object]] = {}

    def get(self, key: Hashable, sources: tuple[object, ...], make: Callable[[], T]) -> T:
        """What `make` gives; it must depend on nothing but `key` and `sources`, which nobody changes in place."""
        entry = self._entries.get(key)
        if entry is not None and _same(entry[0], sources):
            return cast(T, entry[1])
        made = make()
        self._entries.pop(key, None)
        while len(self._entries) >= KEPT:
            oldest = next(iter(self._entries), None)
            self._entries.pop(oldest, None)
        self._entries[key] = (sources, made)
        return made


def _same(held: tuple[object, ...], given: tuple[object, ...]) -> bool:
    return len(held) == len(given) and all(one is other for one, other in zip(held, given, strict=True))
