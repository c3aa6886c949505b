"""Jobs in SQL: enqueued with the state change that causes them, claimed for a time, finished by their claimant.

All methods of `JobStore` work inside the caller's transaction (`moorage.db.session.write`). These statements hold
for any number of processes, on every database:

* No key has two CLAIMED jobs: `claimed_key` is unique, so the database refuses the second one.
* Of the jobs of one key, the oldest visible one runs first. A claim holds the key until the job is finished, even
  when its lease has ended and another worker claims the job.
* A claim increases the epoch; `extend`, `release` and `finish` with an older epoch raise `Conflict` ``jobs.fenced``.

`PruningTask` deletes old rows: finished jobs, and other services' histories.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.exc import IntegrityError

from moorage.core.clock import Clock
from moorage.core.errors import Conflict, MoorageError, NotFound, RetryableConflict
from moorage.db.session import in_transaction
from moorage.db.types import ResultRow
from moorage.jobs.contract import JobKind
from moorage.jobs.model import ATTEMPTS_CODE, FENCED_CODE, Job, JobState, NewJob
from moorage.jobs.statements import ChangeStatements, ClaimStatements, EnqueueStatements, Path, ReadStatements
from moorage.jobs.worker_watch import DeadWorker, IsFirst
from moorage.telemetry.tracing import with_trace

#: Called in the claiming transaction for a job that was given up after its last attempt.
GivenUp = Callable[[Connection, Job], None]


class ClaimRequest(NamedTuple):
    queue: str
    worker: str
    limit: int


class Ending(NamedTuple):
    """The end of a claimed job in a final state."""

    job: Job
    state: JobState
    result: Mapping[str, object]


_FINAL = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})


class JobStore:
    """The jobs in `table`. With `max_attempts`, a claim beyond that number gives the job up instead (FAILED).

    `secrets` are paths to texts in payloads, such as ``("password",)``. They are blanked when the job ends, in
    any state.
    """

    def __init__(self, table: Table, *, max_attempts: int | None = None, secrets: tuple[Path, ...] = ()) -> None:
        self.table = table
        self._max_attempts = max_attempts
        self._enqueueing, self._claiming, self._changing, self._looking = _statements(table, secrets)
        #: Whether worker ``by`` can claim a job of queue ``of_queue`` ``now``. One cheap statement, for frequent polls.
        self.any_claimable = self._looking.any_claimable
        #: The oldest job of the queue ``of_queue`` that a claim would find at any time; ignores jobs with a lease or a
        #: pause.
        self.ready_now = self._looking.ready_now
        #: The end of the first lease or pause in the queue ``of_queue``.
        self.due_later = self._looking.due_later

    def enqueue(self, connection: Connection, job: NewJob, now: datetime) -> None:
        """Add `job` as the last one of its key. A job with this id that exists stays as it is."""
        self.enqueue_all(connection, [job], now)

    def enqueue_all(self, connection: Connection, jobs: Sequence[NewJob], now: datetime) -> None:
        """Add `jobs` in their order; see `enqueue`."""
        rows = [
            {
                "id": job.id,
                "queue": job.queue,
                "open_queue": job.queue,
                "kind": job.kind,
                "serial_key": job.key,
                "payload": with_trace(job.payload),
                "state": JobState.READY,
                "attempt": 0,
                "epoch": 0,
                "lease_until": job.not_before,
                "created_at": now,
            }
            for job in jobs
        ]
        if rows:
            connection.execute(self._enqueueing.insert_unless_there(connection.dialect), rows)

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
        """Claim at most `limit` jobs of `queue`, oldest first, for `worker` until `now` + `lease_s`.

        Claims READY jobs, CLAIMED jobs whose lease has ended, and jobs that `worker` had claimed before: a worker that
        asks again was restarted, or has not seen the answer to its last claim. So a worker's name must be unique.
        `given_up` is called for each job that has had its `max_attempts`, so that its owner can say why.
        Raises `RetryableConflict` when another process claimed the same key first, or reads `worker`'s jobs at this
        moment: then nothing is claimed, and the caller runs the transaction again.
        """
        return self.claim_all(connection, [ClaimRequest(queue, worker, limit)], now, lease_s, given_up=given_up)[0]

    def claim_all(
        self,
        connection: Connection,
        requests: Sequence[ClaimRequest],
        now: datetime,
        lease_s: float,
        *,
        given_up: GivenUp | None = None,
    ) -> list[list[Job]]:
        """The jobs of each request, which must be of different queues; see `claim`."""
        until = now + timedelta(seconds=lease_s)
        found = [self._find_claimable(connection, request, now, given_up) for request in requests]
        taken = [(row, one.worker) for one, rows in zip(requests, found, strict=True) for row in rows]
        if taken:
            self._take(connection, taken, until)
        return [
            [_claimed_job(row, one.worker, until) for row in rows] for one, rows in zip(requests, found, strict=True)
        ]

    def _find_claimable(
        self, connection: Connection, request: ClaimRequest, now: datetime, given_up: GivenUp | None
    ) -> list[ResultRow]:
        """The rows of the jobs to claim, locked."""
        values = {"of_queue": request.queue, "now": now, "limit": request.limit, "by": request.worker}
        rows = connection.execute(self._claiming.claimable, values).all()
        if not rows and connection.execute(self._claiming.left_over, values).all():
            # MariaDB locks each row that it reads, other workers' rows too. A worker that skipped its own locked job
            # would have to wait for the lease to end.
            raise RetryableConflict(f"another worker reads the jobs that {request.worker} has claimed at this moment")
        claimed = []
        for row in rows:
            if self._max_attempts is not None and row.attempt >= self._max_attempts:
                job = self._give_up(connection, row, now)
                if given_up is not None:
                    given_up(connection, job)
            else:
                claimed.append(row)
        return claimed

    def extend(self, connection: Connection, job_id: str, epoch: int, lease_until: datetime) -> None:
        """Extend the claim to `lease_until`, even after the lease has ended, while no other worker has the job."""
        values = {"of_id": job_id, "of_epoch": epoch, "until": lease_until}
        if connection.execute(self._changing.extend, values).rowcount == 0:
            raise refusal(self.get(connection, job_id), job_id, epoch, JobState.CLAIMED)

    def release(self, connection: Connection, job_id: str, epoch: int, not_before: datetime | None = None) -> None:
        """Make a claimed job READY again, at once or from `not_before` on. It keeps its place in the queue."""
        values = {"of_id": job_id, "of_epoch": epoch, "until": not_before}
        if connection.execute(self._changing.release, values).rowcount == 0:
            raise refusal(self.get(connection, job_id), job_id, epoch, JobState.READY)

    def finish(
        self,
        connection: Connection,
        job_id: str,
        epoch: int,
        state: JobState,
        result: Mapping[str, object] | None,
        now: datetime,
    ) -> bool:
        """Put a claimed job into a final `state`. False: the same report came before, and nothing changed.

        An agent repeats a report whose answer it has not seen. The caller acts on a report only when this returns True.
        """
        if state not in _FINAL:
            raise ValueError(f"{state} is not a final state of a job")
        values = {
            "of_id": job_id,
            "of_epoch": epoch,
            "final": state,
            "what": None if result is None else dict(result),
            "now": now,
        }
        if connection.execute(self._changing.finish, values).rowcount:
            return True
        job = self.get(connection, job_id)
        if job is not None and (job.epoch, job.state) == (epoch, state):
            return False
        raise refusal(job, job_id, epoch, state)

    def finish_all(self, connection: Connection, endings: Sequence[Ending], now: datetime) -> None:
        """Put several claimed jobs into their final states.

        Raises `Conflict` or `NotFound` for the first job that cannot be finished, also when it is finished already; the
        caller must not commit the transaction then.
        """
        values = [
            {"of_id": job.id, "of_epoch": job.epoch, "final": state, "what": dict(result), "now": now}
            for job, state, result in endings
        ]
        if not values or connection.execute(self._changing.finish, values).rowcount == len(values):
            return
        for job, state, _ in endings:
            found = self.get(connection, job.id)
            if found is None or (found.epoch, found.state) != (job.epoch, state):
                raise refusal(found, job.id, job.epoch, state)
        names = ", ".join(job.id for job, _, _ in endings)
        raise Conflict(
            f"one of the jobs {names} was finished before; it cannot be finished again", code="moorage.state"
        )

    def lock_all(self, connection: Connection, ids: Sequence[str]) -> dict[str, Job]:
        """{id: job} for existing jobs, locked until the transaction ends; always in the same order."""
        statement = self._looking.locked_by_ids.on(connection)
        return {row.id: _job(row) for row in connection.execute(statement, {"ids": list(ids)})}

    def end_leases_of(self, connection: Connection, dead: DeadWorker, now: datetime) -> None:
        """Ends the leases of a dead worker's claims. It may still report until another worker claims a job.

        The claimant's name is the worker's `name`, a slash and a further name. If another process has the same name,
        nothing is done: its `claim` returns these jobs.
        """
        if dead.name is not None:
            connection.execute(self._changing.end_leases_of(f"{dead.name}/"), {"now": now})

    def cancel(self, connection: Connection, job_id: str, now: datetime) -> bool:
        """Cancel a job that no worker has claimed. False: it is claimed or finished, or does not exist."""
        return connection.execute(self._changing.cancel, {"of_id": job_id, "now": now}).rowcount > 0

    def revoke(self, connection: Connection, key: str, queue: str, now: datetime) -> None:
        """Cancel all open jobs of `key` in `queue`, claimed ones too: later reports about those are refused."""
        connection.execute(self._changing.revoke, {"of_key": key, "of_queue": queue, "now": now})

    def revoke_one(self, connection: Connection, job_id: str, now: datetime) -> None:
        """Cancel one open job, even if it is claimed; see `revoke`."""
        connection.execute(self._changing.revoke_one, {"of_id": job_id, "now": now})

    def next_due(self, connection: Connection, queue: str) -> datetime | None:
        """The moment (possibly past) from which on a claim would find a job; None: poll again when woken.

        Ignores jobs that wait for an older job of their key.
        """
        ready = connection.execute(self._looking.ready_now, {"of_queue": queue}).scalar()
        if ready is not None:
            return _moment(ready)
        due = connection.execute(self._looking.due_later, {"of_queue": queue}).scalar()
        return None if due is None else _moment(due)

    def next_queue(self, connection: Connection, key: str) -> str | None:
        """Queue of the oldest READY job of `key`, or None.

        Send it a hint when a job of `key` has ended: the next job's own hint may have come while that one still ran.
        """
        found = connection.execute(self._looking.next_queue, {"of_key": key}).scalar()
        return None if found is None else str(found)

    def get(self, connection: Connection, job_id: str) -> Job | None:
        row = connection.execute(self._looking.by_id, {"of_id": job_id}).one_or_none()
        return None if row is None else _job(row)

    def open_in(self, connection: Connection, queue: str) -> list[Job]:
        """All unfinished jobs of `queue`, oldest first."""
        return [_job(row) for row in connection.execute(self._looking.open_in, {"of_queue": queue})]

    def story(self, connection: Connection, key: str) -> list[Job]:
        """All jobs of `key` that are still in the table, oldest first."""
        return [_job(row) for row in connection.execute(self._looking.by_key, {"of_key": key})]

    def prune(
        self, connection: Connection, finished_before: datetime, limit: int, *, last_of: Sequence[str] = ()
    ) -> int:
        """Delete at most `limit` jobs that ended before `finished_before`, oldest first; return how many.

        Keeps open jobs of any age, and the last DONE job of each key in `last_of`. A worker that reports on a deleted
        job gets `NotFound`, and stops as a fenced worker does.
        """
        values = {"before": finished_before, "limit": limit + len(last_of)}
        kept = {connection.execute(self._changing.last_done, {"of_key": key}).scalar() for key in last_of}
        found = [row.position for row in connection.execute(self._changing.old, values)]
        positions = [position for position in found if position not in kept][:limit]
        if positions:  # MariaDB takes no LIMIT in a subquery of IN
            connection.execute(self._changing.forget, {"positions": positions})
        return len(positions)

    def _take(self, connection: Connection, taken: Sequence[tuple[ResultRow, str]], until: datetime) -> None:
        """Claim the rows, which this transaction has locked since it read them, each for its worker."""
        values = [{"at": row.position, "by": worker, "until": until} for row, worker in taken]
        try:
            number = connection.execute(self._claiming.take, values).rowcount
        except IntegrityError as error:
            keys = ", ".join(repr(row.serial_key) for row, _ in taken)
            raise RetryableConflict(f"another process has just claimed a job of {keys}") from error
        if number != len(taken):
            raise RetryableConflict("another process has just changed one of these jobs")

    def _give_up(self, connection: Connection, row: ResultRow, now: datetime) -> Job:
        worker = row.worker or "nobody"
        reason = f"given up after {row.attempt} attempts; the last worker, {worker}, did not report in time"
        what = {"error": reason, "code": ATTEMPTS_CODE}
        connection.execute(self._changing.give_up, {"at": row.position, "what": what, "now": now})
        return _job(connection.execute(self._looking.by_id, {"of_id": row.id}).one())


def refusal(job: Job | None, job_id: str, epoch: int, wanted: JobState) -> Conflict | NotFound:
    """The error for a worker whose claim of `epoch` does not allow the state `wanted`."""
    if job is None:
        return NotFound(f"there is no job {job_id}")
    if job.epoch == epoch:
        return Conflict(f"job {job_id} is {job.state}, not claimed: it cannot become {wanted}", code="moorage.state")
    return Conflict(
        f"job {job_id} was claimed again by {job.worker} in epoch {job.epoch}; a report of epoch {epoch} is too late",
        code=FENCED_CODE,
        epoch=job.epoch,
    )


def _claimed_job(row: ResultRow, worker: str, until: datetime) -> Job:
    """The job of a row that was read before it was claimed."""
    claimed = replace(_job(row), state=JobState.CLAIMED, lease_until=until, worker=worker)
    return replace(claimed, epoch=row.epoch + 1, attempt=row.attempt + 1)


@cache
def _statements(
    table: Table, secrets: tuple[Path, ...]
) -> tuple[EnqueueStatements, ClaimStatements, ChangeStatements, ReadStatements]:
    return EnqueueStatements(table), ClaimStatements(table), ChangeStatements(table, secrets), ReadStatements(table)


def _moment(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise TypeError(f"{value!r} is not a datetime")
    return value


def _kind(row: ResultRow) -> JobKind:
    try:
        return JobKind(row.kind)
    except ValueError as error:
        raise MoorageError(
            f"job {row.id} in queue {row.queue} has the kind {row.kind!r}, which this release does not know: a newer "
            "release wrote it; upgrade this process",
            code="jobs.kind",
        ) from error


def _job(row: ResultRow) -> Job:
    return Job(
        id=row.id,
        queue=row.queue,
        kind=_kind(row),
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


#: Rows that one transaction deletes. That takes some milliseconds, for which other writers wait on SQLite.
PRUNE_BATCH_ROWS = 500
#: Pause between two transactions of a long deletion; as long as the last transaction, if that took longer.
PRUNE_SHORT_PAUSE = timedelta(milliseconds=20)
#: Bounds of the pause after a run that deleted less than a batch: a thirtieth of the time that rows are kept.
PRUNE_MIN_PAUSE, PRUNE_MAX_PAUSE = timedelta(hours=1), timedelta(days=1)

#: (connection, before, limit): deletes up to `limit` rows older than `before`, oldest first; returns their number.
RemoveOldRows = Callable[[Connection, datetime, int], int]


class PruningTask:
    """Deletes rows that are older than `keep`, few at a time, so that no writer waits for it.

    `is_first`: whether this process deletes, of all that run the task. Another one is woken by the task's name when it
    becomes the first. If two delete for a moment, one finds less to delete.
    """

    def __init__(
        self, name: str, engine: Engine, clock: Clock, remove: RemoveOldRows, *, keep: timedelta, is_first: IsFirst
    ) -> None:
        self.name = name
        self._is_first = is_first
        self._engine = engine
        self._clock = clock
        self._remove = remove
        self._keep = keep
        self.pause = min(max(keep / 30, PRUNE_MIN_PAUSE), PRUNE_MAX_PAUSE)

    def run_once(self) -> datetime:
        began = self._clock.now()
        removed = in_transaction(self._engine, lambda connection: self._remove_batch(connection, began - self._keep))
        now = self._clock.now()
        return now + (max(PRUNE_SHORT_PAUSE, now - began) if removed == PRUNE_BATCH_ROWS else self.pause)

    def _remove_batch(self, connection: Connection, before: datetime) -> int:
        return self._remove(connection, before, PRUNE_BATCH_ROWS) if self._is_first(connection) else 0
