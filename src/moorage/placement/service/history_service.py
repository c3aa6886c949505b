"""Past states of providers and consumers, and the log entries that led to them.

Entries have the time of the process that wrote them; their order is the order of commits. The state at a time includes
all changes up to it.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import orjson
from sqlalchemy import Connection

from moorage.core.errors import Gone, NotFound
from moorage.core.json import Json
from moorage.db.session import read_one_state
from moorage.placement.forest.change_entries import (
    CONSUMER_KINDS,
    PROVIDER_KINDS,
    ChangeEvent,
    Cursor,
    SubjectKind,
    iso_utc,
    with_usages,
)
from moorage.placement.service.deps import PlacementDeps
from moorage.placement.store import change_store
from moorage.placement.store.change_store import TimeRange


@dataclass(frozen=True, slots=True)
class PastState:
    """A past state: the requested time, the last change up to it, and the complete document."""

    at: datetime
    changed_at: datetime
    cursor: Cursor
    document: dict[str, Json]


@dataclass(frozen=True)
class ChangeHistoryService:
    deps: PlacementDeps

    def provider_state(self, uuid: str, at: datetime | None) -> PastState:
        """The state at `at` (None or a future time: now).

        Raises `NotFound`, and `Gone` for a time before the retained history.
        """
        with read_one_state(self.deps.engine) as connection:
            return self._provider(connection, uuid, self._check_retained(connection, at))

    def provider_states(self, uuids: Iterable[str], at: datetime) -> list[PastState]:
        """The states at `at` of providers that existed then. Raises `Gone` for times before the retained history."""
        states = []
        with read_one_state(self.deps.engine) as connection:
            at = self._check_retained(connection, at)
            for uuid in uuids:
                with suppress(NotFound):
                    states.append(self._provider(connection, uuid, at))
        return states

    def _provider(self, connection: Connection, uuid: str, at: datetime) -> PastState:
        complete = self._last_complete_entry(connection, SubjectKind.PROVIDER, uuid, at)
        usages = change_store.newest_entry(connection, uuid, SubjectKind.USAGES, at)
        document = _document(complete)
        if usages is None or usages.cursor < complete.cursor:
            return PastState(at, complete.at, complete.cursor, document)
        return PastState(at, usages.at, usages.cursor, with_usages(document, _document(usages)))

    def consumer_state(self, uuid: str, at: datetime | None) -> PastState:
        """Same as `provider_state`; a consumer without allocations does not exist."""
        with read_one_state(self.deps.engine) as connection:
            at = self._check_retained(connection, at)
            complete = self._last_complete_entry(connection, SubjectKind.CONSUMER, uuid, at)
        return PastState(at, complete.at, complete.cursor, _document(complete))

    def provider_entries(self, uuid: str, period: TimeRange, after: Cursor, limit: int) -> list[ChangeEvent]:
        """Changes in `period` and after `after`, in order.

        Raises `Gone` if the period begins before the retained history.
        """
        return self._entries(uuid, PROVIDER_KINDS, period, after, limit)

    def consumer_entries(self, uuid: str, period: TimeRange, after: Cursor, limit: int) -> list[ChangeEvent]:
        return self._entries(uuid, CONSUMER_KINDS, period, after, limit)

    def _entries(
        self, uuid: str, kinds: Collection[str], period: TimeRange, after: Cursor, limit: int
    ) -> list[ChangeEvent]:
        with read_one_state(self.deps.engine) as connection:
            if period.since is not None:
                self._check_retained(connection, period.since)
            return change_store.subject_entries(connection, uuid, kinds, period, after, limit)

    def _check_retained(self, connection: Connection, at: datetime | None) -> datetime:
        """`at`, or now. Raises `Gone` for a time before the retained history."""
        now = self.deps.clock.now()
        at = now if at is None else min(at, now)
        since = change_store.read_retention(connection).since
        if since is not None and at < since:
            raise Gone(f"There is no state of {iso_utc(at)}; history begins at {iso_utc(since)}", since=iso_utc(since))
        return at

    def _last_complete_entry(self, connection: Connection, kind: SubjectKind, uuid: str, at: datetime) -> ChangeEvent:
        found = change_store.newest_entry(connection, uuid, kind, at)
        if found is None:
            raise NotFound(f"There was no {kind} {uuid} at {iso_utc(at)}")
        if found.document is None:
            raise NotFound(f"There was no {kind} {uuid} at {iso_utc(at)}; it was deleted at {iso_utc(found.at)}")
        return found


def _document(entry: ChangeEvent) -> dict[str, Json]:
    document: dict[str, Json] = orjson.loads(entry.document or "null")
    return document
