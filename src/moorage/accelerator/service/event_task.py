"""Tells compute what became of the accelerator requests of a server, until it has heard or nobody waits any more.

A request is in its new state before its event goes out: whoever asks on hearing it finds it so. A failure is told again
and again until the requests are deleted, since Nova hears an event only while it waits for it.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine

from moorage.accelerator.model.binding import NOVA_BIND_TIMEOUT, RequestState
from moorage.accelerator.model.rows import RequestRecord
from moorage.accelerator.service.host_jobs import EVENTS_QUEUE, JOB_LEASE_S
from moorage.accelerator.store import accelerator_store
from moorage.accelerator.store import tables as t
from moorage.compute.client.compute_client import ComputeClient
from moorage.core.clock import Clock
from moorage.core.errors import MoorageError, NotFound
from moorage.db.prepared_transactions import PreparedDatabase
from moorage.jobs.model import Job, JobState
from moorage.jobs.store import JobStore

log = logging.getLogger(__name__)

EVENT_NAME = "accelerator-request-bound"
FIRST_RETRY_PAUSE_S = 1.0
MAX_RETRY_PAUSE_S = 30.0
MAX_JOBS_PER_RUN = 20

JOBS = JobStore(t.jobs)


class EventsTask:
    """One per process; `worker` is its name, the same after a restart and nobody else's. `poll_s`: how often to look
    without being told.
    """

    def __init__(self, engine: Engine, clock: Clock, compute: ComputeClient, *, worker: str, poll_s: float) -> None:
        self.name = f"accelerator events by {worker}"
        self.listens_to = (EVENTS_QUEUE,)
        self._database = PreparedDatabase(engine)
        self._clock = clock
        self._compute = compute
        self._worker = worker
        self._poll = timedelta(seconds=poll_s)

    def run_once(self) -> datetime:
        """Two transactions, however many there are to tell: claims with what they are about, and what became of them."""
        claimed = self._database.in_transaction(self._claim)
        ends = [self._send_events_of(job, rows) for job, rows in claimed]

        def settle(connection: Connection) -> datetime | None:
            for end in ends:
                end(connection)
            return JOBS.next_due(connection, EVENTS_QUEUE)

        due = self._database.in_transaction(settle)
        poll = self._clock.now() + self._poll
        return poll if due is None else min(max(due, self._clock.now()), poll)

    def _claim(self, connection: Connection) -> list[tuple[Job, list[RequestRecord]]]:
        now = self._clock.now()
        jobs = JOBS.claim(connection, EVENTS_QUEUE, self._worker, now, JOB_LEASE_S, MAX_JOBS_PER_RUN)
        return [(job, _requests_of_job(connection, job)) for job in jobs]

    def _send_events_of(self, job: Job, rows: Sequence[RequestRecord]) -> Callable[[Connection], object]:
        """What is to be written about the job: done twice, compute is told twice."""
        is_over = self._clock.now() - job.created_at >= NOVA_BIND_TIMEOUT
        heard = not rows or self._send_to_compute(job.payload["instance_uuid"], rows)
        failed = any(row.state == RequestState.BIND_FAILED for row in rows)
        now = self._clock.now()
        if rows and not is_over and (failed or not heard):
            again = now + timedelta(seconds=min(FIRST_RETRY_PAUSE_S * 2 ** (job.attempt - 1), MAX_RETRY_PAUSE_S))
            return lambda connection: JOBS.release(connection, job.id, job.epoch, again)
        return lambda connection: JOBS.finish(connection, job.id, job.epoch, JobState.DONE, None, now)

    def _send_to_compute(self, instance_uuid: str, rows: Sequence[RequestRecord]) -> bool:
        """Whether compute took it."""
        events = [
            {
                "name": EVENT_NAME,
                "server_uuid": instance_uuid,
                "tag": row.uuid,
                "status": "completed" if row.state == RequestState.BOUND else "failed",
            }
            for row in rows
        ]
        try:
            self._compute.send_events(events)
        except NotFound:
            return False  # it does not know the server yet
        except MoorageError as error:
            log.warning("compute does not take an event; trying again", extra={"why": error.message})
            return False
        return True


def _requests_of_job(connection: Connection, job: Job) -> list[RequestRecord]:
    """Those of the job's requests that are still what it is about."""
    rows = accelerator_store.requests_by_uuid(connection, job.payload["requests"])
    about = (RequestState.BOUND, RequestState.BIND_FAILED)
    return [row for row in rows if row.state in about and row.instance_uuid == job.payload["instance_uuid"]]
