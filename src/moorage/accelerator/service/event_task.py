"""Sends events to compute when the accelerator requests of a server are bound or failed, until Nova has stopped
waiting.

The new state of a request is committed before its event is sent, so a caller that gets the event reads that state. A
failure is sent repeatedly until the requests are deleted, because Nova handles an event only while it waits for one.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine

from moorage.accelerator.model.binding import NOVA_BIND_TIMEOUT, RequestState
from moorage.accelerator.model.rows import RequestRecord
from moorage.accelerator.service.host_jobs import EVENTS_QUEUE
from moorage.accelerator.store import accelerator_store
from moorage.accelerator.store import tables as t
from moorage.compute.client.compute_client import ComputeClient
from moorage.core.backoff import Backoff
from moorage.core.clock import Clock
from moorage.core.errors import MoorageError, NotFound
from moorage.db.session import in_transaction
from moorage.jobs.contract import BoundJob, payload_of
from moorage.jobs.host_jobs import JOB_LEASE_S
from moorage.jobs.model import Job, JobState
from moorage.jobs.store import JobStore

log = logging.getLogger(__name__)

EVENT_NAME = "accelerator-request-bound"
#: Between two sendings of the same event.
BACKOFF = Backoff(first_s=1.0, longest_s=30.0)
MAX_JOBS_PER_RUN = 20

JOBS = JobStore(t.jobs)


class EventsTask:
    """One per process. `worker` is a unique name that stays the same after a restart. `poll_s`: the longest pause
    between runs.
    """

    def __init__(self, engine: Engine, clock: Clock, compute: ComputeClient, *, worker: str, poll_s: float) -> None:
        self.name = f"accelerator events by {worker}"
        self.listens_to = (EVENTS_QUEUE,)
        self._engine = engine
        self._clock = clock
        self._compute = compute
        self._worker = worker
        self._poll = timedelta(seconds=poll_s)

    def run_once(self) -> datetime:
        """Two transactions for any number of events: one claims jobs and reads their requests, one stores the
        results.
        """
        claimed = in_transaction(self._engine, self._claim)
        ends = [self._send_events_of(job, rows) for job, rows in claimed]

        def settle(connection: Connection) -> datetime | None:
            for end in ends:
                end(connection)
            return JOBS.next_due(connection, EVENTS_QUEUE)

        due = in_transaction(self._engine, settle)
        poll = self._clock.now() + self._poll
        return poll if due is None else min(max(due, self._clock.now()), poll)

    def _claim(self, connection: Connection) -> list[tuple[Job, list[RequestRecord]]]:
        now = self._clock.now()
        jobs = JOBS.claim(connection, EVENTS_QUEUE, self._worker, now, JOB_LEASE_S, MAX_JOBS_PER_RUN)
        return [(job, _requests_of_job(connection, job)) for job in jobs]

    def _send_events_of(self, job: Job, rows: Sequence[RequestRecord]) -> Callable[[Connection], object]:
        """Send the events of a job; returns the write to do for it. If it runs twice, compute gets the events twice,
        which is harmless.
        """
        is_over = self._clock.now() - job.created_at >= NOVA_BIND_TIMEOUT
        instance_uuid = payload_of(job.kind, job.payload, BoundJob).instance_uuid
        was_accepted = not rows or self._send_to_compute(instance_uuid, rows)
        failed = any(row.state == RequestState.BIND_FAILED for row in rows)
        now = self._clock.now()
        if rows and not is_over and (failed or not was_accepted):
            again = now + timedelta(seconds=BACKOFF.pause_s(job.attempt))
            return lambda connection: JOBS.release(connection, job.id, job.epoch, again)
        return lambda connection: JOBS.finish(connection, job.id, job.epoch, JobState.DONE, None, now)

    def _send_to_compute(self, instance_uuid: str, rows: Sequence[RequestRecord]) -> bool:
        """Returns whether compute accepted the events."""
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
            return False  # compute does not know the server yet
        except MoorageError as error:
            log.warning("compute did not accept an event; it will be sent again", extra={"why": error.message})
            return False
        return True


def _requests_of_job(connection: Connection, job: Job) -> list[RequestRecord]:
    """The requests of the job that are still resolved and belong to its instance."""
    order = payload_of(job.kind, job.payload, BoundJob)
    rows = accelerator_store.requests_by_uuid(connection, order.requests)
    about = (RequestState.BOUND, RequestState.BIND_FAILED)
    return [row for row in rows if row.state in about and row.instance_uuid == order.instance_uuid]
