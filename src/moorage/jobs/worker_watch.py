"""Finds workers that died, and gives up their claims at once, so that others need not wait until the claims expire.

A worker is a process that claims jobs or events of a service. It has a row in the service's table of workers
(`tables.workers_table`). Each process reads the rows every second. Another worker is dead

* if it ran on this machine and its process does not exist any more (`is_running`), or
* if this machine cannot check its pid, or finds the process stopped (SIGSTOP), and its heartbeat has not changed in
  `MISSES` readings.

Heartbeats are counted, not dated, so the clocks of two machines are never compared. Workers send them only while a
worker is registered that cannot check their pid. If a living worker is taken for dead (it was paused), its claims go
to others in a new epoch, its late writes are refused, and it registers again.

A pid alone does not identify a process: another process gets it later, and containers and machines have pids of their
own. So a pid is compared only where it means the same (`ProcessIdentity.machine`), and together with the start time.
This needs Linux; elsewhere no process can be checked.

Work that is not divided into claims, such as pruning, is done by the first of the living workers (`FirstWorker`).
"""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection, Engine, Table, bindparam, delete, insert, select, update

from moorage.core.clock import Clock
from moorage.core.errors import MoorageError
from moorage.db.session import in_transaction, read
from moorage.db.types import ResultRow
from moorage.jobs.background_tasks import Wakeups

log = logging.getLogger(__name__)

#: States of ``/proc/<pid>/stat`` of a process that has ended and whose parent has not noticed yet.
_ENDED = frozenset("ZX")
#: That of a process that was stopped by a signal. It may go on at any moment. A busy process, or one that is traced,
#: never has it.
_STOPPED = "T"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """`machine`: the boot of the machine and the pid namespace; empty if nobody can check this process.

    `started`: clock ticks since the boot.
    """

    machine: str
    pid: int
    started: int


#: Of a process that nobody can check.
UNKNOWN = ProcessIdentity("", 0, 0)


def this_process() -> ProcessIdentity:
    pid = os.getpid()
    try:
        if Path("/proc/self").readlink().name != str(pid):
            return UNKNOWN  # /proc shows the pids of another namespace
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/pid").stat().st_ino
        return ProcessIdentity(f"{boot}/{namespace}", pid, _state_and_start(pid)[1])
    except (OSError, ValueError):
        return UNKNOWN


def is_running(process: ProcessIdentity, here: ProcessIdentity) -> bool | None:
    """Whether `process` still runs. None: the process `here` cannot tell, or `process` is stopped."""
    if not here.machine or process.machine != here.machine or process.pid < 1:
        return None
    try:
        state, started = _state_and_start(process.pid)
    except (FileNotFoundError, ProcessLookupError):
        return _is_hidden(process.pid)
    except (OSError, ValueError):
        return None
    if started != process.started or state in _ENDED:
        return False
    return None if state == _STOPPED else True


def _is_hidden(pid: int) -> bool | None:
    """None if there is such a process and /proc does not show it (mount option ``hidepid``), False if there is none."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return None
    return None


def _state_and_start(pid: int) -> tuple[str, int]:
    # The name of the program, in parentheses, may contain spaces and parentheses. Fields 3 and 22 follow it.
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    if len(fields) < 20:
        raise ValueError(f"/proc/{pid}/stat has {len(fields)} fields after the name of the program")
    return fields[0], int(fields[19])


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


#: Whether this process does the work that only one process does, read in the caller's transaction.
IsFirst = Callable[[Connection], bool]


class FirstWorker:
    """Whether `worker` registered before all others in `table`: the one that does what is not divided into claims.

    It stays the first until another worker has removed its row because it died, or was suspended; when it goes on, it
    registers again and is the last. A transaction that it had begun before was ended by the database
    (`moorage.db.timeouts`). Only the order counts, so clocks that differ do no harm.
    """

    def __init__(self, table: Table, worker: Worker) -> None:
        self._id = worker.id
        self._first = select(table.c.id).order_by(table.c.registered_at, table.c.id).limit(1)

    def __call__(self, connection: Connection) -> bool:
        first: str | None = connection.execute(self._first).scalar_one_or_none()
        return first == self._id


class WorkerWatch:
    """A task. Call `register` before the worker claims anything.

    `wakes`: topics of the tasks that can take over the claims, and of those that only the first worker does.
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
            self._heartbeats[row.id] = row.heartbeats, 0
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
