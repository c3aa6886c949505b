"""The task that takes rows away that are older than the operator keeps them, a few at a time, so that no writer waits for it.

Any number of processes may have it: who comes second finds less to do.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.db.transactions import in_transaction

#: Rows that one transaction takes away: some milliseconds, which a writer on SQLite waits.
BATCH = 500
#: Between two transactions, and as long as the last one took where that is longer.
BREATH = timedelta(milliseconds=20)
#: Between two rounds in which not enough was old: a thirtieth of the time that rows are kept, within these.
LEAST_PAUSE, MOST_PAUSE = timedelta(hours=1), timedelta(days=1)

#: Takes away at most so many rows, the oldest first, of those that are older than a moment; how many it were.
Remove = Callable[[Connection, datetime, int], int]


class PruningTask:
    def __init__(self, name: str, engine: Engine, clock: Clock, remove: Remove, *, keep: timedelta) -> None:
        self.name = name
        self._engine = engine
        self._clock = clock
        self._remove = remove
        self._keep = keep
        self.pause = min(max(keep / 30, LEAST_PAUSE), MOST_PAUSE)

    def run_once(self) -> datetime:
        began = self._clock.now()
        before = began - self._keep
        removed = in_transaction(self._engine, lambda connection: self._remove(connection, before, BATCH))
        now = self._clock.now()
        return now + (max(BREATH, now - began) if removed == BATCH else self.pause)
