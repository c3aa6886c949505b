"""Caches the allocations of consumers and providers until a provider in the answer changes.

A write that changes a consumer or its allocations also changes every provider that the consumer held or holds units of
(see the write set of a claim), and each changed provider is another object in the next forest. So an answer is valid
while its providers are the same objects as before it was read. Empty and very long answers are not cached.

The cache is used if this process knows the last change number without a query (`store.writer_lease`), and on SQLite, where
that query costs a sixth of the query for allocations. Agents of hosts repeat the same reads.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Allocation, Consumer, NameTable, Provider
from moorage.placement.store.holding_store import AllocationReads
from moorage.placement.sync.snapshot import Snapshot

A = TypeVar("A")

#: Allocations in all cached answers, and in the longest: about 15 MiB.
MAX_ALLOCATIONS = 50_000
MAX_ANSWER = 500


class AllocationCache:
    """A cache with the methods of `AllocationReads`; at most `MAX_ALLOCATIONS` allocations, and `MAX_ANSWER` per answer."""

    def __init__(self, holdings: AllocationReads, snapshot: Snapshot) -> None:
        self._of_consumer = _AnswerCache(snapshot, holdings.consumer_allocations, _providers_of_consumer)
        self._of_provider = _AnswerCache(snapshot, holdings.provider_allocations, _provider_itself)
        self.project_usages = holdings.project_usages

    def consumer_allocations(self, uuid: str) -> tuple[Consumer | None, list[Allocation]]:
        return self._of_consumer(uuid)

    def provider_allocations(self, uuid: str) -> tuple[int, list[Allocation]] | None:
        return self._of_provider(uuid)


def _providers_of_consumer(_uuid: str, answer: tuple[Consumer | None, list[Allocation]]) -> tuple[set[str], int]:
    return {allocation.provider_uuid for allocation in answer[1]}, len(answer[1])


def _provider_itself(uuid: str, answer: tuple[int, list[Allocation]] | None) -> tuple[set[str], int]:
    return ({uuid}, len(answer[1]) + 1) if answer is not None else (set(), 0)


@dataclass(frozen=True, slots=True)
class _Entry(Generic[A]):
    answer: A
    providers: tuple[Provider, ...]
    names: NameTable
    size: int

    def is_right(self, forest: Forest) -> bool:
        return forest.names is self.names and all(forest.by_id(one.id) is one for one in self.providers)


class _AnswerCache(Generic[A]):
    """Answers to one question, by uuid."""

    def __init__(
        self, snapshot: Snapshot, ask: Callable[[str], A], about: Callable[[str, A], tuple[Iterable[str], int]]
    ) -> None:
        """`about` returns the uuids of the providers in an answer, and the answer's size."""
        self._snapshot = snapshot
        self._ask = ask
        self._about = about
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry[A]] = {}
        self._size = 0

    def __call__(self, uuid: str) -> A:
        entry = self._entries.get(uuid)
        if (
            entry is not None
            and (forest := self._snapshot.current_without_query()) is not None
            and entry.is_right(forest)
        ):
            return entry.answer
        # Taken before the query: later changes replace the provider objects.
        before = self._snapshot.cached()
        answer = self._ask(uuid)
        uuids, size = self._about(uuid, answer)
        providers = tuple(found for one in uuids if (found := before.by_uuid(one)) is not None)
        is_kept = 0 < size <= MAX_ANSWER and len(providers) == len(set(uuids))
        self._put(uuid, _Entry(answer, providers, before.names, size) if is_kept else None)
        return answer

    def _put(self, uuid: str, entry: _Entry[A] | None) -> None:
        """Replaces the entry of `uuid`; the oldest entries are evicted."""
        with self._lock:
            if (old := self._entries.pop(uuid, None)) is not None:
                self._size -= old.size
            if entry is None:
                return
            self._entries[uuid] = entry
            self._size += entry.size
            while self._size > MAX_ALLOCATIONS // 2:  # there are two of these
                self._size -= self._entries.pop(next(iter(self._entries))).size
