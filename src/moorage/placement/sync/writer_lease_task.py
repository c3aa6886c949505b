"""The background task that takes and renews this process's writer lease while there are reads, and notices other writers.

It costs one round trip three times per lease length while there are reads, otherwise one every two seconds. If it is
late, hangs or fails, the lease expires and reads ask the database again.
"""

import threading
from contextlib import suppress
from datetime import datetime, timedelta

from sqlalchemy import Engine

from moorage.core.clock import Clock
from moorage.core.errors import MoorageError, Unavailable
from moorage.db.statement_pipelines import StatementPipeline
from moorage.placement.store import writer_lease
from moorage.placement.store.writer_lease import LeaseChange, WriterLease

#: Seconds between reads of the row while there is nothing to renew; well below `lease.SHARED_S`.
LOOK_S = 2.0
#: Immediate retries when another process has changed the row.
TRIES = 3
#: At shutdown, wait no longer than this to give the lease back; it expires by itself.
LEAVE_TIMEOUT_S = 0.5


class WriterLeaseTask:
    name = "placement-lease"

    def __init__(self, engine: Engine, clock: Clock, lease: WriterLease) -> None:
        self._batches = StatementPipeline(engine)
        self._clock = clock
        self._lease = lease
        self._look_at = float("-inf")

    def run_once(self) -> datetime | None:
        if not (self._batches.is_far and self._lease.length_s):
            return None
        try:
            if self._is_due():
                self._look_at = self._lease.now() + LOOK_S
                self._step()
        except Unavailable:  # reads and writes report it
            self._lease.renounce()
        except BaseException:
            self._lease.renounce()
            raise
        return self._clock.now() + timedelta(seconds=self._lease.length_s / 3)

    def _is_due(self) -> bool:
        wanted_change = self._lease.wanted_change()
        return self._lease.now() >= self._look_at or (
            wanted_change is not None and wanted_change.holder == self._lease.name
        )

    def _step(self) -> None:
        for _ in range(TRIES):
            sent, known, wanted_change = self._lease.now(), self._lease.known(), self._lease.wanted_change()
            row = writer_lease.exchange_row(self._batches, wanted_change)
            if self._lease.answered(wanted_change, row, sent, known) or self._lease.wanted_change() is None:
                return

    def leave(self) -> None:
        """Give the lease back, so that the next process need not wait for its end. Call after the last run."""
        wanted_change = self._lease.leave()
        if wanted_change is not None:
            thread = threading.Thread(target=self._give_back, args=(wanted_change,), name=self.name, daemon=True)
            thread.start()
            thread.join(LEAVE_TIMEOUT_S)

    def _give_back(self, wanted_change: LeaseChange) -> None:
        with suppress(MoorageError):
            writer_lease.exchange_row(self._batches, wanted_change)
