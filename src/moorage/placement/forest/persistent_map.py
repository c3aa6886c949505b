"""An immutable mapping that is cheap to change in a few places."""

from collections.abc import Iterator, Mapping, ValuesView
from typing import Any, Generic, TypeVar, cast, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

#: Value in the upper layer: the key was removed.
_GONE: Any = object()
_MISSING: Any = object()

#: The upper layer may have this many keys, or the square root of the number of keys in the lower layer if that is more.
#: Then copying the upper layer at each change costs about as much as merging the layers now and then.
_MIN_UPPER_SIZE = 64


class PersistentMap(Mapping[K, V], Generic[K, V]):
    """An immutable map of two layers: a large one that many versions share, and a small one with the later changes."""

    __slots__ = ("_length", "_lower", "_upper")

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        """`items` must not be changed afterwards."""
        self._lower: Mapping[K, V] = items or {}
        self._upper: Mapping[K, V] = {}
        self._length = len(self._lower)

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...
    def get(self, key: K, /, default: V | D | None = None) -> V | D | None:
        found = self._upper.get(key, _MISSING)
        if found is _MISSING:
            return self._lower.get(key, default)
        return default if found is _GONE else found

    def __getitem__(self, key: K) -> V:
        found = self.get(key, _MISSING)
        if found is _MISSING:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        found = self._upper.get(cast(K, key), _MISSING)
        return key in self._lower if found is _MISSING else found is not _GONE

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        yield from (key for key in self._lower if key not in self._upper)
        yield from (key for key, value in self._upper.items() if value is not _GONE)

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def each_value(self) -> Iterator[V]:
        """Yields the values in the order of the keys, without a lookup per key."""
        yield from (value for key, value in self._lower.items() if key not in self._upper)
        yield from (value for value in self._upper.values() if value is not _GONE)

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self)!r})"

    def changed(self, items: Mapping[K, V], gone: frozenset[K] | set[K] = frozenset()) -> "PersistentMap[K, V]":
        """A copy with `items` added and `gone` removed; a key in both is kept."""
        removed = {key for key in gone if key not in items}
        new_keys = sum(key not in self for key in items)
        removed_keys = sum(key in self for key in removed)
        upper = {**self._upper, **dict.fromkeys(removed, _GONE), **items}
        new: PersistentMap[K, V] = PersistentMap()
        new._length = self._length + new_keys - removed_keys
        if len(upper) ** 2 <= max(_MIN_UPPER_SIZE**2, len(self._lower)):
            new._lower, new._upper = self._lower, upper
        else:
            new._lower = {key: value for key, value in {**self._lower, **upper}.items() if value is not _GONE}
        return new


class _Values(ValuesView[V]):
    _mapping: PersistentMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        return self._mapping.each_value()
