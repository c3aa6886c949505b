"""An immutable list that is cheap to change in a few places."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

_CHUNK_BITS = 7
_CHUNK = 1 << _CHUNK_BITS


@dataclass(frozen=True, slots=True)
class Chunks(Generic[T]):
    """An immutable list whose changed copy costs two small tuples instead of one large one."""

    chunks: tuple[tuple[T, ...], ...] = ()

    def __getitem__(self, index: int) -> T:
        return self.chunks[index >> _CHUNK_BITS][index & (_CHUNK - 1)]

    def __len__(self) -> int:
        return 0 if not self.chunks else (len(self.chunks) - 1) * _CHUNK + len(self.chunks[-1])

    def __iter__(self) -> Iterator[T]:
        for chunk in self.chunks:
            yield from chunk

    @classmethod
    def of(cls, items: Sequence[T]) -> "Chunks[T]":
        return cls(tuple(tuple(items[start : start + _CHUNK]) for start in range(0, len(items), _CHUNK)))

    def with_items(self, changed: Mapping[int, T]) -> "Chunks[T]":
        """Indexes up to the present length may be set; those from there on must follow without a gap."""
        chunks = [*self.chunks]
        open_chunks: dict[int, list[T]] = {}
        for index in sorted(changed):
            number = index >> _CHUNK_BITS
            if number not in open_chunks:
                if number == len(chunks):
                    chunks.append(())
                open_chunks[number] = [*chunks[number]]
            chunk, place = open_chunks[number], index & (_CHUNK - 1)
            if place == len(chunk):
                chunk.append(changed[index])
            else:
                chunk[place] = changed[index]
        for number, chunk in open_chunks.items():
            chunks[number] = tuple(chunk)
        return Chunks(tuple(chunks))
