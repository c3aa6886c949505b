"""Jobs in SQL: enqueued with the state change that causes them, claimed for a time, finished by whoever still may.

All functions work inside the caller's transaction (`moorage.db.transactions.write`). What holds, whatever the
number of processes, and on every database:

* never two CLAIMED jobs of one key: `claimed_key` is unique, so the database refuses the second one;
* of the jobs of one key the oldest visible one goes first, and a claim holds the key until it is finished, even
  when its lease is over and another worker takes it;
* a claim bumps the epoch; `extend`, `release` and `finish` with an older one raise `Conflict` ``jobs.fenced``.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Dialect, Row, Table, and_, bindparam, delete, or_, select, update
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql import Executable

from moorage.core.errors import Conflict, NotFound, RetryableConflict
from moorage.jobs.model import ATTEMPTS_CODE, FENCED_CODE, Job, JobState, NewJob

#: What is done, in the claiming transaction, about a job that was given up after its last attempt.
GivenUp = Callable[[Connection, Job], None]

_FINAL = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})


class JobStore:
    """The jobs in `table`. With `max_attempts` a claim that would be one more gives the job up instead (FAILED)."""

    def __init__(self, table: Table, *, max_attempts: int | None = None) -> None:
        self.table = table
        self._max_attempts = max_attempts
        self._statements = _Statements(table)

    def enqueue(self, connection: Connection, job: NewJob, now: datetime) -> None:
        """Add `job` at the end of its key. An id that is there already stays as it is."""
        connection.execute(
            self._statements.enqueue(connection.dialect),
            {
                "id": job.id,
                "queue": job.queue,
                "open_queue": job.queue,
                "kind": job.kind,
                "serial_key": job.key,
                "payload": job.payload,
                "state": JobState.READY,
                "attempt": 0,
                "epoch": 0,
                "created_at": now,
            },
        )

    def claim(
        self,
        connection: Connection,
        queue: str,
        worker: str,
        now: datetime,
        lease_s: float,
        limit: int = 1,
        *,
        given_up: GivenUp | None = None,
    ) -> list[Job]:
        """At most `limit` jobs of `queue`, oldest first, for `worker` until `now` + `lease_s`.

        READY ones, CLAIMED ones whose lease is over, and what `worker` had claimed before: one that asks again was
        restarted, or has not seen the answer to its last claim. So a worker's name must be nobody else's.
        `given_up` is told of each job that had its `max_attempts`, so that its owner can say why. Raises
        `RetryableConflict` when another process was quicker with the same key: nothing is claimed then, and the
        transaction is to be run again.
        """
        rows = connection.execute(
            self._statements.claimable, {"of_queue": queue, "now": now, "limit": limit, "by": worker}
        ).all()
        until = now + timedelta(seconds=lease_s)
        claimed = []
        for row in rows:
            if self._max_attempts is not None and row.attempt >= self._max_attempts:
                job = self._give_up(connection, row, now)
                if given_up is not None:
                    given_up(connection, job)
            else:
                self._take(connection, row, worker, until)
                claimed.append(row.position)
        if not claimed:
            return []
        return [_job(row) for row in connection.execute(self._statements.by_positions, {"positions": claimed})]

    def extend(self, connection: Connection, job_id: str, epoch: int, lease_until: datetime) -> None:
        """The worker is still at it. Also after the lease is over, as long as nobody else has the job."""
        values = {"of_id": job_id, "of_epoch": epoch, "until": lease_until}
        if connection.execute(self._statements.extend, values).rowcount == 0:
            raise self._refusal(connection, job_id, epoch, JobState.CLAIMED)

    def release(self, connection: Connection, job_id: str, epoch: int, not_before: datetime | None = None) -> None:
        """Give a claimed job back, to be claimed again at once or from `not_before` on. It keeps its place."""
        values = {"of_id": job_id, "of_epoch": epoch, "until": not_before}
        if connection.execute(self._statements.release, values).rowcount == 0:
            raise self._refusal(connection, job_id, epoch, JobState.READY)

    def finish(
        self,
        connection: Connection,
        job_id: str,
        epoch: int,
        state: JobState,
        result: Mapping[str, Any] | None,
        now: datetime,
    ) -> bool:
        """Put a claimed job into a final `state`. False: the same report was here before, nothing changed.

        An agent repeats a report whose answer it has not seen; what follows from a report must follow once.
        """
        if state not in _FINAL:
            raise ValueError(f"{state} does not end a job")
        values = {
            "of_id": job_id,
            "of_epoch": epoch,
            "final": state,
            "what": None if result is None else dict(result),
            "now": now,
        }
        if connection.execute(self._statements.finish, values).rowcount:
            return True
        job = self.get(connection, job_id)
        if job is not None and (job.epoch, job.state) == (epoch, state):
            return False
        raise self._refusal(connection, job_id, epoch, state)

    def cancel(self, connection: Connection, job_id: str, now: datetime) -> bool:
        """Cancel a job that nobody has begun. False: it is claimed or finished already, or not there."""
        return connection.execute(self._statements.cancel, {"of_id": job_id, "now": now}).rowcount > 0

    def next_due(self, connection: Connection, queue: str) -> datetime | None:
        """When to look again: from this moment on (maybe past) a claim would find a job; None: when woken.

        Jobs behind another one of their key do not count; they come when that one is finished.
        """
        ready = connection.execute(self._statements.ready_now, {"of_queue": queue}).scalar()
        if ready is not None:
            return _moment(ready)
        due = connection.execute(self._statements.due_later, {"of_queue": queue}).scalar()
        return None if due is None else _moment(due)

    def get(self, connection: Connection, job_id: str) -> Job | None:
        row = connection.execute(self._statements.by_id, {"of_id": job_id}).one_or_none()
        return None if row is None else _job(row)

    def story(self, connection: Connection, key: str) -> list[Job]:
        """All jobs of `key` that were not pruned, oldest first."""
        return [_job(row) for row in connection.execute(self._statements.by_key, {"of_key": key})]

    def prune(self, connection: Connection, finished_before: datetime) -> int:
        """Forget jobs that were finished before this moment; how many."""
        return connection.execute(self._statements.prune, {"before": finished_before}).rowcount

    def _take(self, connection: Connection, row: Row[Any], worker: str, until: datetime) -> None:
        values = {"at": row.position, "of_epoch": row.epoch, "by": worker, "until": until}
        try:
            taken = connection.execute(self._statements.take, values).rowcount
        except IntegrityError as error:
            raise RetryableConflict(f"another process claimed a job of {row.serial_key!r} at this moment") from error
        if not taken:
            raise RetryableConflict(f"another process claimed job {row.id} at this moment")

    def _give_up(self, connection: Connection, row: Row[Any], now: datetime) -> Job:
        worker = row.worker or "nobody"
        reason = f"given up after {row.attempt} attempts; the last one was by {worker}, who did not report in time"
        what = {"error": reason, "code": ATTEMPTS_CODE}
        connection.execute(self._statements.give_up, {"at": row.position, "what": what, "now": now})
        given_up = self.get(connection, row.id)
        assert given_up is not None  # noqa: S101 - its row is locked by us
        return given_up

    def _refusal(self, connection: Connection, job_id: str, epoch: int, wanted: JobState) -> Conflict | NotFound:
        job = self.get(connection, job_id)
        if job is None:
            return NotFound(f"there is no job {job_id}")
        if job.epoch == epoch:
            return Conflict(
                f"job {job_id} is {job.state}, not claimed: it cannot become {wanted}", code="moorage.state"
            )
        return Conflict(
            f"job {job_id} was claimed again by {job.worker} in epoch {job.epoch}; a report of epoch {epoch} is too late",
            code=FENCED_CODE,
            epoch=job.epoch,
        )


class _Statements:
    """Built once per table: building them costs several times what SQLite needs to run them."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._enqueue: dict[str, Executable] = {}
        job = table.c
        in_queue = job.open_queue == bindparam("of_queue")
        first_of_key = self._first_of_key()
        mine = and_(job.id == bindparam("of_id"), job.epoch == bindparam("of_epoch"), job.state == JobState.CLAIMED)
        lease_over = job.lease_until <= bindparam("now", type_=job.lease_until.type)
        self.claimable = (
            select(table)
            .where(
                in_queue,
                or_(
                    and_(job.state == JobState.CLAIMED, or_(lease_over, job.worker == bindparam("by"))),
                    and_(job.state == JobState.READY, or_(job.lease_until.is_(None), lease_over), first_of_key),
                ),
            )
            .order_by(job.position)
            .limit(bindparam("limit"))
            .with_for_update(skip_locked=True)
        )
        until = bindparam("until", type_=job.lease_until.type)
        now = bindparam("now", type_=job.created_at.type)
        what = bindparam("what", type_=job.result.type)
        at = job.position == bindparam("at")
        self.take = (
            update(table)
            .where(at, job.epoch == bindparam("of_epoch"))
            .values(
                state=JobState.CLAIMED.value,
                claimed_key=job.serial_key,
                epoch=job.epoch + 1,
                attempt=job.attempt + 1,
                lease_until=until,
                worker=bindparam("by"),
            )
        )
        ended = {"open_queue": None, "claimed_key": None, "lease_until": None, "finished_at": now}
        self.give_up = update(table).where(at).values(state=JobState.FAILED.value, result=what, **ended)
        self.extend = update(table).where(mine).values(lease_until=until)
        self.release = update(table).where(mine).values(state=JobState.READY.value, claimed_key=None, lease_until=until)
        self.finish = update(table).where(mine).values(state=bindparam("final"), result=what, **ended)
        self.cancel = (
            update(table)
            .where(job.id == bindparam("of_id"), job.state == JobState.READY)
            .values(state=JobState.CANCELLED.value, **ended)
        )
        self.prune = delete(table).where(job.finished_at < bindparam("before", type_=job.finished_at.type))
        self.by_id = select(table).where(job.id == bindparam("of_id"))
        self.by_key = select(table).where(job.serial_key == bindparam("of_key")).order_by(job.position)
        self.by_positions = (
            select(table).where(job.position.in_(bindparam("positions", expanding=True))).order_by(job.position)
        )
        self.ready_now = (
            select(job.created_at)
            .where(in_queue, job.state == JobState.READY, job.lease_until.is_(None), first_of_key)
            .order_by(job.position)
            .limit(1)
        )
        self.due_later = (
            select(job.lease_until)
            .where(in_queue, job.lease_until.is_not(None), or_(job.state == JobState.CLAIMED, first_of_key))
            .order_by(job.lease_until)
            .limit(1)
        )

    def enqueue(self, dialect: Dialect) -> Executable:
        if dialect.name not in self._enqueue:
            self._enqueue[dialect.name] = _insert_unless_there(self._table, dialect)
        return self._enqueue[dialect.name]

    def _first_of_key(self) -> ColumnElement[bool]:
        """No other job of the key is claimed, and none that is ready is older."""
        other = self._table.alias("other")
        job = self._table.c
        same_key = other.c.serial_key == job.serial_key
        claimed = select(other.c.position).where(same_key, other.c.state == JobState.CLAIMED)
        older = select(other.c.position).where(
            same_key, other.c.state == JobState.READY, other.c.position < job.position
        )
        return and_(~claimed.exists(), ~older.exists())


def _insert_unless_there(table: Table, dialect: Dialect) -> Executable:
    if dialect.name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing(index_elements=["id"])
    if dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing(index_elements=["id"])
    # Not INSERT IGNORE, which also turns values that are too long or missing into warnings.
    return mysql.insert(table).on_duplicate_key_update(id=table.c.id)


def _moment(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise TypeError(f"{value!r} is no moment")
    return value


def _job(row: Row[Any]) -> Job:
    return Job(
        id=row.id,
        queue=row.queue,
        kind=row.kind,
        key=row.serial_key,
        payload=row.payload,
        state=JobState(row.state),
        attempt=row.attempt,
        epoch=row.epoch,
        lease_until=row.lease_until,
        worker=row.worker,
        created_at=row.created_at,
        finished_at=row.finished_at,
        result=row.result,
    )
