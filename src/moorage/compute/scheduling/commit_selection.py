"""Commits claimed hosts to the database: servers, actions and a build job for each host, in one transaction.

No other component acts on the claims before the commit; a job that is run again releases them first. The transaction
checks whether each server still waits for a host (if it was deleted meanwhile, its claim is released) and checks its
server group again.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Engine

from moorage.compute.model import lifecycle
from moorage.compute.model.job_payloads import build_job
from moorage.compute.model.servers import BUILD_QUEUE, JOB_RELEASE, Server, TaskState, VmState
from moorage.compute.requests.group_service import recheck_placement
from moorage.compute.requests.server_service import SCHEDULE_EVENT
from moorage.compute.scheduling import build_retries
from moorage.compute.scheduling.selection import Selection
from moorage.compute.store import action_store, server_store
from moorage.core.clock import Clock
from moorage.core.ids import Ids
from moorage.db.session import in_transaction
from moorage.jobs.model import Job, NewJob
from moorage.jobs.wakeups import Hints
from moorage.telemetry import tracing
from moorage.telemetry.tracing import PAYLOAD_KEY

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BuildOrder:
    """The content of a build job: one server, or several that are placed together or not at all."""

    job: Job
    actions: dict[str, str]  #: {server id: action id}

    @classmethod
    def of(cls, job: Job) -> "BuildOrder":
        together = job.payload.get("servers") or [{"id": job.key, "action_id": job.payload["action_id"]}]
        return cls(job, {one["id"]: one["action_id"] for one in together})

    @property
    def tried(self) -> dict[str, str]:
        return dict(self.job.payload.get("tried", {}))

    @property
    def image_properties(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.job.payload.get("image_properties", {})
        return found


#: An order, and the selections for its waiting servers.
OrderSelections = tuple[BuildOrder, Sequence[tuple[Server, Selection]]]


class SelectionCommitter:
    """Writes selections to the database and enqueues the hosts' build jobs."""

    def __init__(self, engine: Engine, clock: Clock, ids: Ids, hints: Hints) -> None:
        self._engine = engine
        self._clock = clock
        self._ids = ids
        self._hints = hints

    def commit(self, selections: Sequence[OrderSelections]) -> None:
        """Commits all selections or none.

        Raises `Conflict` ``jobs.fenced`` if another worker now holds one of the jobs, and
        `PlacementRejected` if a server group rejects a host.
        """
        given = in_transaction(self._engine, lambda connection: self._commit_in(connection, selections))
        for server_id, selection in given.items():
            log.info("host selected", extra={"server": server_id, "host": selection.host, "claims": selection.claims})
        for host in {selection.host for selection in given.values()}:
            self._hints.send(host)

    def _commit_in(self, connection: Connection, selections: Sequence[OrderSelections]) -> dict[str, Selection]:
        """{server id: selection}, without servers that no longer wait."""
        now = self._clock.now()
        ended = [
            (order.job, {"hosts": {server.id: selection.host for server, selection in pairs}})
            for order, pairs in selections
        ]
        server_store.BUILD_JOBS.finish_all(connection, ended, now)
        every = {server.id: (order, selection) for order, pairs in selections for server, selection in pairs}
        locked = server_store.lock_servers(connection, every)
        given: dict[str, Selection] = {}
        jobs: list[NewJob] = []
        targets: list[tuple[Server, str]] = []
        for server_id, (order, selection) in every.items():
            server = locked.get(server_id)
            if server is None or not waits_for_host(server):
                self.enqueue_release(connection, order, server_id)
                continue
            given[server_id] = selection
            targets.append((server, selection.root_uuid))
            jobs.append(_host_job(order, server, selection))
        if given:
            recheck_placement(connection, targets)
            operation = lifecycle.CREATE
            placed_at = {server_id: (selection.host, selection.placed) for server_id, selection in given.items()}
            server_store.assign_servers(connection, placed_at, operation.task, now)
            hosts = {every[server_id][0].actions[server_id]: selection.host for server_id, selection in given.items()}
            action_store.begin_next_events(connection, hosts, SCHEDULE_EVENT, operation.event, now)
            server_store.HOST_JOBS.enqueue_all(connection, jobs, now)
        return given

    def enqueue_release(self, connection: Connection, order: BuildOrder, server_id: str) -> None:
        payload = {
            "request_id": order.job.payload["request_id"],
            "action_id": order.actions[server_id],
            "final": False,
        }
        release = NewJob(self._ids.uuid(), BUILD_QUEUE, JOB_RELEASE, server_id, payload)
        server_store.BUILD_JOBS.enqueue(connection, release, self._clock.now())


def waits_for_host(server: Server) -> bool:
    return server.vm_state is VmState.BUILDING and server.task_state is TaskState.SCHEDULING


def _host_job(order: BuildOrder, server: Server, selection: Selection) -> NewJob:
    ids = {"action_id": order.actions[server.id], "request_id": order.job.payload["request_id"]}
    if (
        PAYLOAD_KEY in order.job.payload and tracing.current_tracer() is not None
    ):  # also if several orders are committed together
        ids[PAYLOAD_KEY] = order.job.payload[PAYLOAD_KEY]
    made = build_job(server, selection.placed, selection.host, lifecycle.CREATE, ids)
    more: dict[str, Any] = {
        "alternates": build_retries.alternate_documents(selection.alternates),
        "image_properties": order.image_properties,
    }
    if order.tried:
        made = replace(made, id=f"{made.id}:{len(order.tried)}")
        more["tried"] = order.tried
    return replace(made, payload={**made.payload, **more})
