"""Finds workers that died, and gives up their claims at once, so that others need not wait until the claims expire.

A worker is a process that claims jobs or events of a service. It has a row in the service's table of workers
(`tables.workers_table`). Each process reads the rows every second. Another worker is dead

* if it ran on this machine and its process does not exist any more (`processes.is_running`), or
* if this machine cannot check its pid and its heartbeat has not changed in `MISSES` readings.

Heartbeats are counted, not dated, so the clocks of two machines are never compared. Workers send them only while a
worker is registered that cannot check their pid. If a living worker is taken for dead (it was paused), its claims go
to others in a new epoch, its late writes are refused, and it registers again.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, Table, bindparam, delete, insert, select, update

from moorage.core.clock import Clock
from moorage.core.errors import MoorageError
from moorage.db.session import in_transaction, read
from moorage.db.types import ResultRow
from moorage.jobs.background_tasks import Wakeups
from moorage.jobs.processes import ProcessIdentity, is_running

log = logging.getLogger(__name__)

#: Between two readings, and between two heartbeats.
PERIOD = timedelta(seconds=1)
#: A worker on another machine is dead after this number of consecutive readings without a new heartbeat. With the
#: readings before and after them, its claims are free within 5 s.
MISSES = 3


@dataclass(frozen=True, slots=True)
class Worker:
    """`id` is new at each start of a process; `name` stays the same. Two processes may have one name, but no id."""

    id: str
    name: str
    process: ProcessIdentity


@dataclass(frozen=True, slots=True)
class DeadWorker:
    """`name`: None if another process of this name lives, which continues with the claims of that name."""

    id: str
    name: str | None


#: Gives up the claims of a dead worker, in the caller's transaction.
GiveUpClaims = Callable[[Connection, DeadWorker, datetime], None]


class WorkerWatch:
    """A task. Call `register` before the worker claims anything.

    `wakes`: topics of the tasks that can take over the claims.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        clock: Clock,
        wakeups: Wakeups,
        worker: Worker,
        table: Table,
        give_up: GiveUpClaims,
        wakes: Sequence[str],
    ) -> None:
        self.name = name
        self.worker = worker
        self._engine = engine
        self._clock = clock
        self._wakeups = wakeups
        self._give_up = give_up
        self._wakes = wakes
        #: {id: (its heartbeats, consecutive readings without a new one)}
        self._heartbeats: dict[str, tuple[int, int]] = {}
        self._others: frozenset[str] = frozenset()
        self._all = select(table)
        self._register = insert(table)
        self._beat = update(table).where(table.c.id == worker.id).values(heartbeats=table.c.heartbeats + 1)
        self._remove = delete(table).where(table.c.id == bindparam("dead"))

    def register(self) -> None:
        self._show_life(self._rows())

    def run_once(self) -> datetime:
        try:
            rows = self._rows()
            self._show_life(rows)
        except MoorageError:
            self._heartbeats.clear()  # the others could not send heartbeats either
            raise
        others = [row for row in rows if row.id != self.worker.id]
        dead = [row for row in others if not self._lives(row)]
        left = frozenset(row.id for row in others).difference(row.id for row in dead)
        living = {self.worker.name, *(row.name for row in others if row.id in left)}
        for row in dead:
            self._free_claims(DeadWorker(row.id, None if row.name in living else row.name))
            log.warning("a worker died; its claims are free", extra={"worker": row.name, "pid": row.pid})
        if dead or self._others - left:  # another process may have been the first to free them
            for topic in self._wakes:
                self._wakeups.wake(topic)
        self._others = left
        self._heartbeats = {key: seen for key, seen in self._heartbeats.items() if key in left}
        return self._clock.now() + PERIOD

    def _rows(self) -> list[ResultRow]:
        with read(self._engine) as connection:
            return list(connection.execute(self._all))

    def _show_life(self, rows: Sequence[ResultRow]) -> None:
        """Registers the worker, also after it was taken for dead, or sends a heartbeat if another worker needs it."""
        here = self.worker.process
        if all(row.id != self.worker.id for row in rows):
            values = {
                "id": self.worker.id,
                "name": self.worker.name,
                "machine": here.machine,
                "pid": here.pid,
                "started": here.started,
                "heartbeats": 0,
                "registered_at": self._clock.now(),
            }
            in_transaction(self._engine, lambda connection: connection.execute(self._register, values))
        elif any(row.id != self.worker.id and (not here.machine or row.machine != here.machine) for row in rows):
            in_transaction(self._engine, lambda connection: connection.execute(self._beat))

    def _lives(self, row: ResultRow) -> bool:
        lives = is_running(ProcessIdentity(row.machine, row.pid, row.started), self.worker.process)
        if lives is not None:
            return lives
        before, misses = self._heartbeats.get(row.id, (None, 0))
        misses = misses + 1 if before == row.heartbeats else 0
        self._heartbeats[row.id] = row.heartbeats, misses
        return misses < MISSES

    def _free_claims(self, dead: DeadWorker) -> None:
        def free(connection: Connection) -> None:
            self._give_up(connection, dead, self._clock.now())
            connection.execute(self._remove, {"dead": dead.id})

        in_transaction(self._engine, free)
