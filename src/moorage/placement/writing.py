"""Every write goes through here: the transaction, the number in the change log, and what this process remembers."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from sqlalchemy import Connection, Engine, Row
from sqlalchemy.exc import IntegrityError

from moorage.core.errors import ConcurrentUpdate, NotFound
from moorage.db.transactions import in_transaction
from moorage.placement import changes, store
from moorage.placement.model import Provider
from moorage.placement.snapshot import Snapshot

T = TypeVar("T")

CONCURRENT_UPDATE = "placement.concurrent_update"

#: How often a write is begun again because another one put the same new row (consumer, name) in first.
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Written(Generic[T]):
    """What a transaction did: its result, the ids to note in the change log, and states that need no reading again."""

    result: T
    changed: Collection[int]
    states: dict[int, Provider] | None = None


class Writer:
    def __init__(self, engine: Engine, snapshot: Snapshot) -> None:
        self._engine = engine
        self._snapshot = snapshot

    def run(self, work: Callable[[Connection], Written[T]]) -> T:
        """`work` in a transaction; run again where the database gave it up or a duplicate came first."""

        def numbered(connection: Connection) -> tuple[Written[T], int]:
            written = work(connection)
            return written, changes.record(connection, written.changed) if written.changed else 0

        for _ in range(ATTEMPTS):
            try:
                written, sequence = in_transaction(self._engine, numbered)
            except IntegrityError:
                continue
            if written.states is not None and sequence:
                self._snapshot.wrote(sequence, written.states)
            return written.result
        raise ConcurrentUpdate(
            "Another thread concurrently updated the data. Please retry your update", code=CONCURRENT_UPDATE
        )


def locked(connection: Connection, uuid: str, message: str | None = None) -> Row[tuple[object, ...]]:
    """The provider's row, locked. Raises `NotFound`."""
    row = store.lock_provider(connection, uuid)
    if row is None:
        raise NotFound(message or f"No resource provider with uuid {uuid} found")
    return row
