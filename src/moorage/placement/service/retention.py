"""The background task that prunes the change log, a batch at a time, so that no writer waits for it.

Entries that a later state depends on stay, regardless of age: the last complete state of each existing subject, and
the last usages after it. The task goes through the entries once, in the order of the log: an entry is deleted when the
newer one that supersedes it gets old, so a quiet provider costs nothing, however often this runs.

Any number of processes may run this: one row is locked while entries are deleted, and a process that finds it locked
does nothing. A crash loses nothing: progress is recorded in the same transaction.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.db.transactions import in_transaction
from moorage.placement.forest.change_events import Cursor, superseded
from moorage.placement.store import change_store
from moorage.placement.store.change_store import OldEntry, Retention

#: Entries that one transaction examines: a few milliseconds, for which a writer on SQLite waits.
BATCH = 500
#: Pause between two transactions, at least as long as the last one took: on SQLite a waiting writer only polls for
#: its turn, and would hardly get it between transactions without a pause.
BREATH = timedelta(milliseconds=20)
#: Pause between two rounds, regardless of the write rate.
PAUSE = timedelta(seconds=60)


class RetentionTask:
    name = "placement-retention"

    def __init__(self, engine: Engine, clock: Clock, *, history: timedelta) -> None:
        self._engine = engine
        self._clock = clock
        self._history = history
        #: The last entry examined. The database stores it without the position within a number.
        self._reached = Cursor(-1)

    def run_once(self) -> datetime:
        """Take a batch of what is older than `change_history` away. The next moment: soon, or when more will be old."""
        began = self._clock.now()
        following = in_transaction(self._engine, self._trim)
        now = self._clock.now()
        return now + max(BREATH, now - began) if following is None else max(following, now + PAUSE)

    def _trim(self, connection: Connection) -> datetime | None:
        """One batch; when there will be something to do next, None: now."""
        now = self._clock.now()
        retention = change_store.claim_retention(connection)
        if retention is None:
            return now
        # Of the number before the first one some entries may not have been gone through: it may hold very many.
        reached = max(self._reached, Cursor(retention.first - 2))
        rows = change_store.oldest_entries(connection, reached, BATCH)
        # In the order of the log, not of the clocks: those of two processes may differ.
        batch = list(takewhile(lambda row: row.at < now - self._history, rows))
        if batch:
            self._take_away(connection, retention, batch)
        if len(batch) == BATCH:
            return None
        return rows[len(batch)].at + self._history if len(batch) < len(rows) else now + self._history

    def _take_away(self, connection: Connection, retention: Retention, batch: Sequence[OldEntry]) -> None:
        upto = batch[-1].cursor
        subjects = {row.subject for row in batch if row.subject is not None}
        old = superseded(change_store.entry_headers(connection, subjects, upto))
        old += [row.cursor for row in batch if row.subject is None]
        since = max(row.at for row in batch)
        reaches = Retention(upto.sequence + 1, max(since, retention.since or since))
        change_store.delete_entries(connection, old, reaches)
        self._reached = upto
