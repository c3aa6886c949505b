"""The duty that finds servers a host, and gives allocations back.

Its jobs are on `BUILD_QUEUE`, those of one server one at a time:

    build            flavor_resources -> candidates -> select -> claim -> assign, and a job for the host
    release          the allocation is given back; `final`: the server is DELETED then
    publish-status   the trait of a disabled host is set or taken away

Run again after a crash at any line, a build gives back what it may have claimed and begins anew; until the one
transaction that assigns the host nobody else has acted on the claim. A good build costs two requests to Placement.

Not here: which host is better (`moorage.scheduler`), and what the host does (`moorage.agent`).
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine

from moorage.compute import action_store, host_store, lifecycle, store
from moorage.compute.host_service import HostService
from moorage.compute.messages import build_job
from moorage.compute.model import (
    BUILD_QUEUE,
    JOB_BUILD,
    JOB_PUBLISH_STATUS,
    JOB_RELEASE,
    Fault,
    PowerState,
    Server,
    TaskState,
    VmState,
)
from moorage.compute.placing import NoHost, Place, Placer
from moorage.compute.server_service import SCHEDULE_EVENT
from moorage.core.clock import Clock
from moorage.core.errors import ConcurrentUpdate, Invalid, MoorageError, NotFound, RemoteError, Unavailable
from moorage.core.ids import Ids
from moorage.core.names import DISABLED_HOST_TRAIT, RESERVED_HOST_TRAIT
from moorage.db.transactions import in_transaction, read
from moorage.jobs.hints import Hints
from moorage.jobs.model import FENCED_CODE, Job, JobState, NewJob
from moorage.placement.client import PlacementClient
from moorage.telemetry.logs import request_context

log = logging.getLogger(__name__)

#: After this, another builder may take the job.
LEASE_S = 60.0
#: Claims of one build, by builders that died of it or found Placement away, before the server goes to ERROR.
MAX_ATTEMPTS = 10
#: Pause before the next attempt, doubled each time.
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class BuildDuty:
    """`poll_s`: how often to look without being woken (other processes enqueue too); None: only when woken.

    `worker` must be nobody else's name. One that is the same after a restart goes on at once with what it had
    begun; without one, a name of its own is made, and what a former process had begun waits for its lease to end.
    """

    name = "compute.build"
    listens_to = (BUILD_QUEUE,)

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        placement: PlacementClient,
        hosts: HostService,
        hints: Hints,
        *,
        worker: str | None = None,
        poll_s: float | None = 5.0,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._ids = ids
        self._placement = placement
        self._placer = Placer(engine, placement, hosts)
        self._hints = hints
        self._worker = worker or f"builder/{ids.uuid()}"
        self._poll = None if poll_s is None else timedelta(seconds=poll_s)
        self._has_prepared = False
        self._work: dict[str, Callable[[Job], None]] = {
            JOB_BUILD: self._build,
            JOB_RELEASE: self._release,
            JOB_PUBLISH_STATUS: self._publish_status,
        }

    def tick(self) -> datetime | None:
        try:
            self._prepare()
        except Unavailable as error:
            log.warning("nothing is built yet", extra={"reason": error.message})
            return self._clock.now() + timedelta(seconds=FIRST_PAUSE_S)
        while job := self._claim():
            self._run(job)
        with read(self._engine) as connection:
            due = store.BUILD_JOBS.next_due(connection, BUILD_QUEUE)
        if self._poll is None:
            return due
        poll = self._clock.now() + self._poll
        return poll if due is None else min(due, poll)

    def _prepare(self) -> None:
        """Placement refuses a query that names a trait it does not know."""
        if not self._has_prepared:
            self._placement.ensure_trait(RESERVED_HOST_TRAIT)
            self._has_prepared = True

    def _claim(self) -> Job | None:
        """One at a time: a second builder can take the next one meanwhile."""

        def work(connection: Connection) -> list[Job]:
            return store.BUILD_JOBS.claim(connection, BUILD_QUEUE, self._worker, self._clock.now(), LEASE_S)

        return next(iter(in_transaction(self._engine, work)), None)

    def _run(self, job: Job) -> None:
        before = request_context.get()
        request_context.set(("compute", str(job.payload.get("request_id", ""))))
        try:
            self._work[job.kind](job)
        except MoorageError as error:
            if error.error_code == FENCED_CODE:
                log.warning("another builder has this job by now", extra={"job": job.id, "epoch": job.epoch})
            else:
                self._postpone(job, error.message)
        except Exception as error:  # the top of a job: one that always fails must not stand before all others
            log.exception("job failed", extra={"job": job.id, "kind": job.kind})
            self._postpone(job, f"{type(error).__name__}, see the log of the compute service")
        finally:
            request_context.set(before)

    def _postpone(self, job: Job, reason: str) -> None:
        """A service does not answer, say: that is no lack of hosts, so the job waits and is tried again."""
        pause_s = min(FIRST_PAUSE_S * 2 ** min(job.attempt - 1, 10), LONGEST_PAUSE_S)
        not_before = self._clock.now() + timedelta(seconds=pause_s)
        log.warning("postponed", extra={"job": job.id, "kind": job.kind, "reason": reason, "pause_s": pause_s})
        if job.kind == JOB_BUILD and job.attempt >= MAX_ATTEMPTS:
            self._fail(job, f"The server could not be scheduled: {reason}", "")
            return
        in_transaction(
            self._engine, lambda connection: store.BUILD_JOBS.release(connection, job.id, job.epoch, not_before)
        )

    # ----------------------------------------------------------------------------------------- build

    def _build(self, job: Job) -> None:
        with read(self._engine) as connection:
            server = store.server(connection, job.key)
        if server is None or not _waits_for_host(server):
            self._abandon(job)
            return
        if job.attempt > MAX_ATTEMPTS:
            self._fail(job, "The server could not be scheduled: its builder died each time.", "")
            return
        try:
            place = self._placer.place(
                server,
                job.payload.get("image_properties", {}),
                may_hold_something=job.attempt > 1,
                check_turn=lambda: self._extend(job),
            )
        except Invalid as error:
            place = NoHost(f"The flavor cannot be placed: {error.message}", "")
        except RemoteError as error:
            if error.status >= 500:
                raise Unavailable(error.message) from error
            place = NoHost(f"Placement refused the request: {_last_paragraph(error)}", error.message)
        if isinstance(place, NoHost):
            self._fail(job, f"No valid host was found. {place.reason}", place.details)
        else:
            self._assign(job, place)

    def _extend(self, job: Job) -> None:
        """Raises `Conflict` ``jobs.fenced`` when it is not our turn any more."""
        until = self._clock.now() + timedelta(seconds=LEASE_S)
        in_transaction(self._engine, lambda connection: store.BUILD_JOBS.extend(connection, job.id, job.epoch, until))

    def _assign(self, job: Job, place: Place) -> None:
        """The host, and its job, in one transaction."""

        def work(connection: Connection) -> str | None:
            now = self._clock.now()
            store.BUILD_JOBS.finish(connection, job.id, job.epoch, JobState.DONE, {"host": place.host}, now)
            server = store.lock_server(connection, job.key)
            if server is None or not _waits_for_host(server):
                self._enqueue_release(connection, job)
                return None
            operation, action_id = lifecycle.CREATE, job.payload["action_id"]
            store.update_server(
                connection, server.id, now, host=place.host, task_state=operation.task, placed=place.placed
            )
            action_store.finish_event(connection, action_id, SCHEDULE_EVENT, now)
            action_store.begin_event(connection, action_id, operation.event, place.host, now)
            ids = {"action_id": action_id, "request_id": job.payload["request_id"]}
            store.HOST_JOBS.enqueue(connection, build_job(server, place.placed, place.host, operation, ids), now)
            return place.host

        host = in_transaction(self._engine, work)
        if host is not None:
            log.info("placed", extra={"server": job.key, "host": host, "claims": place.claims})
            self._hints.send(host)

    def _fail(self, job: Job, message: str, details: str) -> None:
        """ERROR with a reason; whatever may have been claimed is given back by the next job."""

        def work(connection: Connection) -> None:
            now = self._clock.now()
            store.BUILD_JOBS.finish(connection, job.id, job.epoch, JobState.FAILED, {"error": message}, now)
            server = store.lock_server(connection, job.key)
            if server is None or not _waits_for_host(server):
                return
            fault = Fault(500, message.strip(), details, now)
            store.update_server(connection, server.id, now, vm_state=VmState.ERROR, task_state=None, fault=fault)
            action_store.finish_event(connection, job.payload["action_id"], SCHEDULE_EVENT, now, error=message)
            self._enqueue_release(connection, job)

        in_transaction(self._engine, work)
        log.info("not placed", extra={"server": job.key, "reason": message})

    def _abandon(self, job: Job) -> None:
        """The server was deleted, or reset by an administrator, before it had a host: it shall hold nothing."""

        def work(connection: Connection) -> None:
            store.BUILD_JOBS.finish(connection, job.id, job.epoch, JobState.DONE, None, self._clock.now())
            self._enqueue_release(connection, job)

        in_transaction(self._engine, work)

    def _enqueue_release(self, connection: Connection, job: Job) -> None:
        payload = {"request_id": job.payload["request_id"], "action_id": job.payload["action_id"], "final": False}
        release = NewJob(self._ids.uuid(), BUILD_QUEUE, JOB_RELEASE, job.key, payload)
        store.BUILD_JOBS.enqueue(connection, release, self._clock.now())

    def _finish(self, job: Job) -> None:
        in_transaction(
            self._engine,
            lambda connection: store.BUILD_JOBS.finish(
                connection, job.id, job.epoch, JobState.DONE, None, self._clock.now()
            ),
        )

    # ----------------------------------------------------------------------------- release and status

    def _release(self, job: Job) -> None:
        """The effect comes first, and again when its commit got lost: giving back twice gives back once."""
        self._placement.release(job.key)

        def work(connection: Connection) -> None:
            now = self._clock.now()
            store.BUILD_JOBS.finish(connection, job.id, job.epoch, JobState.DONE, None, now)
            server = store.lock_server(connection, job.key)
            if server is None or not job.payload["final"] or server.vm_state is VmState.DELETED:
                return
            action_store.finish_event(connection, job.payload["action_id"], lifecycle.DELETE.event, now)
            after = lifecycle.SERVER_STATES.check(server.vm_state, VmState.DELETED)
            gone = {"vm_state": after, "task_state": None, "power_state": PowerState.NONE, "placed": None}
            store.update_server(connection, server.id, now, deleted_at=now, **gone)

        in_transaction(self._engine, work)

    def _publish_status(self, job: Job) -> None:
        with read(self._engine) as connection:
            host = host_store.host(connection, job.payload["host"])
        if host is not None:
            try:
                generation, traits = self._placement.traits(host.report.provider_uuid)
                off = {DISABLED_HOST_TRAIT}
                wanted = traits - off if host.is_enabled else traits | off
                if wanted != traits:
                    self._placement.set_traits(host.report.provider_uuid, generation, wanted)
            except NotFound:
                log.warning("the host has no provider yet", extra={"host": host.name})
            except ConcurrentUpdate as error:
                raise Unavailable(error.message) from error  # somebody else changed it: later, with what is new
        self._finish(job)


def _last_paragraph(error: RemoteError) -> str:
    """Placement's own sentence, after the one that its web framework puts before it."""
    return str(error.fields.get("detail") or error.message).rpartition("\n\n")[2].strip()


def _waits_for_host(server: Server) -> bool:
    return server.vm_state is VmState.BUILDING and server.task_state is TaskState.SCHEDULING
