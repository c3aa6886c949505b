"""Past states of providers and consumers, and the log entries that led to them.

Entries carry the clock time of the process that wrote them; their order is the order of commits. A state "at" a time
includes everything written by then.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.core.errors import Gone, NotFound
from moorage.db.transactions import read_one_state
from moorage.placement.forest.change_documents import SubjectKind
from moorage.placement.forest.change_events import OF_CONSUMER, OF_PROVIDER, ChangeEvent, Cursor, iso_utc, with_usages
from moorage.placement.store import change_store
from moorage.placement.store.change_store import TimeRange


@dataclass(frozen=True, slots=True)
class State:
    """A past state: the time asked for, the last change by then, and the complete document."""

    at: datetime
    changed_at: datetime
    cursor: Cursor
    document: dict[str, Any]


class ChangeHistoryService:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def provider(self, uuid: str, at: datetime | None) -> State:
        """The state at `at` (None or a future time: now). Raises `NotFound`, and `Gone` before the retained history."""
        with read_one_state(self._engine) as connection:
            return self._provider(connection, uuid, self._kept(connection, at))

    def providers(self, uuids: Iterable[str], at: datetime) -> list[State]:
        """Those of them that existed then. Raises `Gone`."""
        states = []
        with read_one_state(self._engine) as connection:
            at = self._kept(connection, at)
            for uuid in uuids:
                with suppress(NotFound):
                    states.append(self._provider(connection, uuid, at))
        return states

    def _provider(self, connection: Connection, uuid: str, at: datetime) -> State:
        whole = self._last(connection, SubjectKind.PROVIDER, uuid, at)
        usages = change_store.newest_entry(connection, uuid, SubjectKind.USAGES, at)
        document = _document(whole)
        if usages is None or usages.cursor < whole.cursor:
            return State(at, whole.at, whole.cursor, document)
        return State(at, usages.at, usages.cursor, with_usages(document, _document(usages)))

    def consumer(self, uuid: str, at: datetime | None) -> State:
        """Same as `provider`; a consumer without allocations does not exist."""
        with read_one_state(self._engine) as connection:
            at = self._kept(connection, at)
            whole = self._last(connection, SubjectKind.CONSUMER, uuid, at)
        return State(at, whole.at, whole.cursor, _document(whole))

    def provider_entries(self, uuid: str, period: TimeRange, after: Cursor, limit: int) -> list[ChangeEvent]:
        """Changes in `period`, in order, after `after`. Raises `Gone` if the period begins before the retained history."""
        return self._entries(uuid, OF_PROVIDER, period, after, limit)

    def consumer_entries(self, uuid: str, period: TimeRange, after: Cursor, limit: int) -> list[ChangeEvent]:
        return self._entries(uuid, OF_CONSUMER, period, after, limit)

    def _entries(
        self, uuid: str, kinds: Collection[str], period: TimeRange, after: Cursor, limit: int
    ) -> list[ChangeEvent]:
        with read_one_state(self._engine) as connection:
            if period.since is not None:
                self._kept(connection, period.since)
            return change_store.subject_entries(connection, uuid, kinds, period, after, limit)

    def _kept(self, connection: Connection, at: datetime | None) -> datetime:
        """`at`, or now. Raises `Gone` for a time before the retained history."""
        now = self._clock.now()
        at = now if at is None else min(at, now)
        since = change_store.read_retention(connection).since
        if since is not None and at < since:
            raise Gone(f"Nothing is kept of {iso_utc(at)}; history begins at {iso_utc(since)}", since=iso_utc(since))
        return at

    def _last(self, connection: Connection, kind: SubjectKind, uuid: str, at: datetime) -> ChangeEvent:
        found = change_store.newest_entry(connection, uuid, kind, at)
        if found is None:
            raise NotFound(f"There was no {kind} {uuid} at {iso_utc(at)}")
        if found.document is None:
            raise NotFound(f"There was no {kind} {uuid} at {iso_utc(at)}; it went away at {iso_utc(found.at)}")
        return found


def _document(entry: ChangeEvent) -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads(entry.document or "null")
    return document
