"""The background task that deletes old entries of the change log in batches, so that writers wait for it only briefly.

Entries on which a later state depends stay, regardless of age: the last complete state of each existing subject, and
the last usages after it. The task examines each entry once, in the order of the log. It deletes an entry when the newer
entry that supersedes it becomes old, so a provider without changes costs nothing.

Several processes may run this task: it locks one row while it deletes entries, and does nothing if it finds the row
locked. A crash is harmless, because progress is recorded in the same transaction.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.db.session import in_transaction
from moorage.placement.forest.change_events import Cursor, superseded
from moorage.placement.store import change_store
from moorage.placement.store.change_store import OldEntry, Retention

#: Number of entries that one transaction examines. It takes a few milliseconds, during which writers on SQLite wait.
BATCH = 500
#: Minimum pause between two transactions; it is also at least as long as the last one took. On SQLite, waiting writers
#: poll for the lock, and would rarely get it between transactions without a pause.
MIN_PAUSE = timedelta(milliseconds=20)
#: Minimum pause after all old entries were deleted, at any write rate.
MIN_ROUND_PAUSE = timedelta(seconds=60)


class RetentionTask:
    name = "placement-retention"

    def __init__(self, engine: Engine, clock: Clock, *, history: timedelta) -> None:
        self._engine = engine
        self._clock = clock
        self._history = history
        #: The last entry examined. The database stores it without the position within a number.
        self._reached = Cursor(-1)

    def run_once(self) -> datetime:
        """Deletes a batch of entries older than `history`. Returns the time of the next run."""
        began = self._clock.now()
        following = in_transaction(self._engine, self._delete_batch)
        now = self._clock.now()
        return now + max(MIN_PAUSE, now - began) if following is None else max(following, now + MIN_ROUND_PAUSE)

    def _delete_batch(self, connection: Connection) -> datetime | None:
        """Deletes one batch. Returns the time when the next entry becomes old; None: more entries are old already."""
        now = self._clock.now()
        retention = change_store.claim_retention(connection)
        if retention is None:
            return now
        # A number can have very many entries: some of the last deleted number may not have been examined yet.
        reached = max(self._reached, Cursor(retention.first - 2))
        rows = change_store.oldest_entries(connection, reached, BATCH)
        # In the order of the log, because the clocks of two processes may differ.
        batch = list(takewhile(lambda row: row.at < now - self._history, rows))
        if batch:
            self._delete_superseded(connection, retention, batch)
        if len(batch) == BATCH:
            return None
        return rows[len(batch)].at + self._history if len(batch) < len(rows) else now + self._history

    def _delete_superseded(self, connection: Connection, retention: Retention, batch: Sequence[OldEntry]) -> None:
        upto = batch[-1].cursor
        subjects = {row.subject for row in batch if row.subject is not None}
        old = superseded(change_store.entry_headers(connection, subjects, upto))
        old += [row.cursor for row in batch if row.subject is None]
        since = max(row.at for row in batch)
        reaches = Retention(upto.sequence + 1, max(since, retention.since or since))
        change_store.delete_entries(connection, old, reaches)
        self._reached = upto
