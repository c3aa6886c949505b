"""Jobs in SQL: enqueued with the state change that causes them, claimed for a time, finished by whoever still may.

All functions work inside the caller's transaction (`moorage.db.transactions.write`). What holds, whatever the
number of processes, and on every database:

* never two CLAIMED jobs of one key: `claimed_key` is unique, so the database refuses the second one;
* of the jobs of one key the oldest visible one goes first, and a claim holds the key until it is finished, even
  when its lease is over and another worker takes it;
* a claim bumps the epoch; `extend`, `release` and `finish` with an older one raise `Conflict` ``jobs.fenced``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import Connection, Engine, Row, Table
from sqlalchemy.exc import IntegrityError

from moorage.core.clock import Clock
from moorage.core.errors import Conflict, NotFound, RetryableConflict
from moorage.db.transactions import in_transaction
from moorage.jobs.model import ATTEMPTS_CODE, FENCED_CODE, Job, JobState, NewJob
from moorage.jobs.statements import Changing, Claiming, Enqueueing, Looking, Path
from moorage.telemetry.tracing import with_trace

#: What is done, in the claiming transaction, about a job that was given up after its last attempt.
GivenUp = Callable[[Connection, Job], None]

_FINAL = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})


class JobStore:
    """The jobs in `table`. With `max_attempts` a claim that would be one more gives the job up instead (FAILED).

    `secrets` lead to texts in payloads, ``("password",)``, that are not kept longer than the job is open: they are empty
    afterwards, however it ended.
    """

    def __init__(self, table: Table, *, max_attempts: int | None = None, secrets: tuple[Path, ...] = ()) -> None:
        self.table = table
        self._max_attempts = max_attempts
        self._enqueueing, self._claiming, self._changing, self._looking = _statements(table, secrets)
        #: Has the queue ``of_queue`` any job that is not finished? One statement, for who asks often and in vain.
        self.any_open = self._looking.any_open

    def enqueue(self, connection: Connection, job: NewJob, now: datetime) -> None:
        """Add `job` at the end of its key. An id that is there already stays as it is."""
        self.enqueue_all(connection, [job], now)

    def enqueue_all(self, connection: Connection, jobs: Sequence[NewJob], now: datetime) -> None:
        """As `enqueue`, in their order."""
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
        """At most `limit` jobs of `queue`, oldest first, for `worker` until `now` + `lease_s`.

        READY ones, CLAIMED ones whose lease is over, and what `worker` had claimed before: one that asks again was
        restarted, or has not seen the answer to its last claim. So a worker's name must be nobody else's.
        `given_up` is told of each job that had its `max_attempts`, so that its owner can say why. Raises
        `RetryableConflict` when another process was quicker with the same key, or looks at what `worker` had at this
        moment: nothing is claimed then, and the transaction is to be run again.
        """
        rows = connection.execute(
            self._claiming.claimable, {"of_queue": queue, "now": now, "limit": limit, "by": worker}
        ).all()
        if not rows and connection.execute(self._claiming.left_over, {"of_queue": queue, "by": worker}).all():
            # MariaDB locks each row it looks at, others' too. Who passed over its own would wait for its lease to end.
            raise RetryableConflict(f"what {worker} had claimed is being looked at by another worker at this moment")
        until = now + timedelta(seconds=lease_s)
        claimed = []
        for row in rows:
            if self._max_attempts is not None and row.attempt >= self._max_attempts:
                job = self._give_up(connection, row, now)
                if given_up is not None:
                    given_up(connection, job)
            else:
                claimed.append(row)
        return self._take(connection, claimed, worker, until) if claimed else []

    def extend(self, connection: Connection, job_id: str, epoch: int, lease_until: datetime) -> None:
        """The worker is still at it. Also after the lease is over, as long as nobody else has the job."""
        values = {"of_id": job_id, "of_epoch": epoch, "until": lease_until}
        if connection.execute(self._changing.extend, values).rowcount == 0:
            raise self._refusal(connection, job_id, epoch, JobState.CLAIMED)

    def release(self, connection: Connection, job_id: str, epoch: int, not_before: datetime | None = None) -> None:
        """Give a claimed job back, to be claimed again at once or from `not_before` on. It keeps its place."""
        values = {"of_id": job_id, "of_epoch": epoch, "until": not_before}
        if connection.execute(self._changing.release, values).rowcount == 0:
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
        if connection.execute(self._changing.finish, values).rowcount:
            return True
        job = self.get(connection, job_id)
        if job is not None and (job.epoch, job.state) == (epoch, state):
            return False
        raise self._refusal(connection, job_id, epoch, state)

    def finish_all(self, connection: Connection, ended: Sequence[tuple[Job, Mapping[str, Any]]], now: datetime) -> None:
        """Several claimed jobs are DONE, each with its result, and none of them was before. Raises what is in the way of
        one of them; the transaction is not to be committed then.
        """
        values = [
            {"of_id": job.id, "of_epoch": job.epoch, "final": JobState.DONE, "what": dict(result), "now": now}
            for job, result in ended
        ]
        if connection.execute(self._changing.finish, values).rowcount == len(values):
            return
        for job, _ in ended:
            found = self.get(connection, job.id)
            if found is None or (found.epoch, found.state) != (job.epoch, JobState.DONE):
                raise self._refusal(connection, job.id, job.epoch, JobState.DONE)
        names = ", ".join(job.id for job, _ in ended)
        raise Conflict(f"of the jobs {names} one was finished before: it cannot become done", code="moorage.state")

    def cancel(self, connection: Connection, job_id: str, now: datetime) -> bool:
        """Cancel a job that nobody has begun. False: it is claimed or finished already, or not there."""
        return connection.execute(self._changing.cancel, {"of_id": job_id, "now": now}).rowcount > 0

    def revoke(self, connection: Connection, key: str, queue: str, now: datetime) -> None:
        """Cancel all that is open of `key` in `queue`, also what is claimed: its reports come too late from now on."""
        connection.execute(self._changing.revoke, {"of_key": key, "of_queue": queue, "now": now})

    def revoke_one(self, connection: Connection, job_id: str, now: datetime) -> None:
        """As `revoke`, of one job."""
        connection.execute(self._changing.revoke_one, {"of_id": job_id, "now": now})

    def next_due(self, connection: Connection, queue: str) -> datetime | None:
        """When to look again: from this moment on (maybe past) a claim would find a job; None: when woken.

        Jobs behind another one of their key do not count; they come when that one is finished.
        """
        ready = connection.execute(self._looking.ready_now, {"of_queue": queue}).scalar()
        if ready is not None:
            return _moment(ready)
        due = connection.execute(self._looking.due_later, {"of_queue": queue}).scalar()
        return None if due is None else _moment(due)

    def next_queue(self, connection: Connection, key: str) -> str | None:
        """Whose turn it is when a job of `key` has ended: who waited behind it may have heard its hint in vain."""
        found = connection.execute(self._looking.next_queue, {"of_key": key}).scalar()
        return None if found is None else str(found)

    def get(self, connection: Connection, job_id: str) -> Job | None:
        row = connection.execute(self._looking.by_id, {"of_id": job_id}).one_or_none()
        return None if row is None else _job(row)

    def open_in(self, connection: Connection, queue: str) -> list[Job]:
        """All jobs of `queue` that are not finished, oldest first."""
        return [_job(row) for row in connection.execute(self._looking.open_in, {"of_queue": queue})]

    def story(self, connection: Connection, key: str) -> list[Job]:
        """All jobs of `key` that were not pruned, oldest first."""
        return [_job(row) for row in connection.execute(self._looking.by_key, {"of_key": key})]

    def prune(
        self, connection: Connection, finished_before: datetime, limit: int, *, last_of: Sequence[str] = ()
    ) -> int:
        """Forget at most `limit` jobs that were finished before this moment, the oldest first; how many.

        What is open stays, whatever its age, and so does the last DONE job of each key in `last_of`. Who reports on one
        that is forgotten is told that there is none, and stops, as one who is fenced.
        """
        values = {"before": finished_before, "limit": limit + len(last_of)}
        kept = {connection.execute(self._changing.last_done, {"of_key": key}).scalar() for key in last_of}
        found = [row.position for row in connection.execute(self._changing.old, values)]
        positions = [position for position in found if position not in kept][:limit]
        if positions:  # MariaDB takes no LIMIT in a subquery of IN
            connection.execute(self._changing.forget, {"positions": positions})
        return len(positions)

    def _take(self, connection: Connection, rows: Sequence[Row[Any]], worker: str, until: datetime) -> list[Job]:
        """They are locked since they were found, so they are as they were found."""
        values = {"positions": [row.position for row in rows], "by": worker, "until": until}
        try:
            taken = connection.execute(self._claiming.take, values).rowcount
        except IntegrityError as error:
            keys = ", ".join(repr(row.serial_key) for row in rows)
            raise RetryableConflict(f"another process claimed a job of {keys} at this moment") from error
        if taken != len(rows):
            raise RetryableConflict("another process changed one of these jobs at this moment")
        return [
            replace(
                _job(row),
                state=JobState.CLAIMED,
                epoch=row.epoch + 1,
                attempt=row.attempt + 1,
                lease_until=until,
                worker=worker,
            )
            for row in rows
        ]

    def _give_up(self, connection: Connection, row: Row[Any], now: datetime) -> Job:
        worker = row.worker or "nobody"
        reason = f"given up after {row.attempt} attempts; the last one was by {worker}, who did not report in time"
        what = {"error": reason, "code": ATTEMPTS_CODE}
        connection.execute(self._changing.give_up, {"at": row.position, "what": what, "now": now})
        return _job(connection.execute(self._looking.by_id, {"of_id": row.id}).one())

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


@cache
def _statements(table: Table, secrets: tuple[Path, ...]) -> tuple[Enqueueing, Claiming, Changing, Looking]:
    return Enqueueing(table), Claiming(table), Changing(table, secrets), Looking(table)


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


#: Rows that one transaction takes away: some milliseconds, which a writer on SQLite waits.
PRUNE_BATCH_ROWS = 500
#: Between two transactions, and as long as the last one took where that is longer.
PRUNE_SHORT_PAUSE = timedelta(milliseconds=20)
#: Between two rounds in which not enough was old: a thirtieth of the time that rows are kept, within these.
PRUNE_MIN_PAUSE, PRUNE_MAX_PAUSE = timedelta(hours=1), timedelta(days=1)

#: Takes away at most so many rows, the oldest first, of those that are older than a moment; how many it were.
RemoveOldRows = Callable[[Connection, datetime, int], int]


class PruningTask:
    def __init__(self, name: str, engine: Engine, clock: Clock, remove: RemoveOldRows, *, keep: timedelta) -> None:
        self.name = name
        self._engine = engine
        self._clock = clock
        self._remove = remove
        self._keep = keep
        self.pause = min(max(keep / 30, PRUNE_MIN_PAUSE), PRUNE_MAX_PAUSE)

    def run_once(self) -> datetime:
        began = self._clock.now()
        before = began - self._keep
        removed = in_transaction(self._engine, lambda connection: self._remove(connection, before, PRUNE_BATCH_ROWS))
        now = self._clock.now()
        return now + (max(PRUNE_SHORT_PAUSE, now - began) if removed == PRUNE_BATCH_ROWS else self.pause)
