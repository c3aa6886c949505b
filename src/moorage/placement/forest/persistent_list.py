"""An immutable list that is cheap to change in a few places."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

#: By item of a chunk: a number that changes when the item changes.
Stamps = NDArray[np.int64]

#: Results computed from one chunk alone. {name: result}
Memo = dict[str, Any]

_STAMPS = "stamps"
_next_stamp = count().__next__

CHUNK_BITS = 7
_CHUNK = 1 << CHUNK_BITS
CHUNK_MASK = _CHUNK - 1


@dataclass(frozen=True, slots=True)
class PersistentList(Generic[T]):
    """An immutable list. A changed copy costs two small tuples instead of one large one."""

    chunks: tuple[tuple[T, ...], ...] = ()
    #: One memo for each chunk; a changed chunk gets a new, empty one.
    memos: tuple[Memo, ...] = field(default=(), compare=False, repr=False)

    def __getitem__(self, index: int) -> T:
        return self.chunks[index >> CHUNK_BITS][index & CHUNK_MASK]

    def __len__(self) -> int:
        return 0 if not self.chunks else (len(self.chunks) - 1) * _CHUNK + len(self.chunks[-1])

    def __iter__(self) -> Iterator[T]:
        for chunk in self.chunks:
            yield from chunk

    @classmethod
    def of(cls, items: Sequence[T]) -> "PersistentList[T]":
        chunks = tuple(tuple(items[start : start + _CHUNK]) for start in range(0, len(items), _CHUNK))
        return cls(chunks, tuple({} for _ in chunks))

    def with_memos(self) -> Iterator[tuple[tuple[T, ...], Memo]]:
        return zip(self.chunks, self.memos, strict=True)

    def some(self, indexes: Iterable[int]) -> list[T]:
        chunks = self.chunks
        return [chunks[index >> CHUNK_BITS][index & CHUNK_MASK] for index in indexes]

    def stamps(self) -> list[Stamps]:
        """One array per chunk; an unchanged chunk keeps its array. Stamps do not keep the items alive."""
        return [
            memo[_STAMPS] if _STAMPS in memo else memo.setdefault(_STAMPS, _stamped(None, len(chunk), ()))
            for chunk, memo in self.with_memos()
        ]

    def with_items(self, changed: Mapping[int, T]) -> "PersistentList[T]":
        """A copy with changed items: {index: item}. New indexes must follow the end without a gap."""
        chunks, memos = [*self.chunks], [*self.memos]
        open_chunks: dict[int, list[T]] = {}
        for index in sorted(changed):
            number = index >> CHUNK_BITS
            if number not in open_chunks:
                if number == len(chunks):
                    chunks.append(())
                    memos.append({})
                open_chunks[number] = [*chunks[number]]
            chunk, place = open_chunks[number], index & CHUNK_MASK
            if place == len(chunk):
                chunk.append(changed[index])
            else:
                chunk[place] = changed[index]
        for number, chunk in open_chunks.items():
            stamps = memos[number].get(_STAMPS)
            chunks[number], memos[number] = tuple(chunk), {}
            if stamps is not None:  # somebody reads stamps
                places = [index & CHUNK_MASK for index in changed if index >> CHUNK_BITS == number]
                memos[number][_STAMPS] = _stamped(stamps, len(chunk), places)
        return PersistentList(tuple(chunks), tuple(memos))


def _stamped(before: Stamps | None, length: int, changed: Sequence[int]) -> Stamps:
    """Stamps with new numbers at the `changed` places; at all places if `before` is None."""
    stamps = np.full(length, _next_stamp())
    if before is not None:
        old = before.copy()
        old[[place for place in changed if place < len(old)]] = stamps[0]
        stamps[: len(old)] = old
    return stamps
