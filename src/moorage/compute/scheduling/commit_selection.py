"""Commits claimed hosts to the database: servers, actions and a build job for each host, in one transaction.

No other component acts on the claims before the commit; a job that is run again releases them first. The transaction
checks whether each server still waits for a host (if it was deleted meanwhile, its claim is released) and checks its
server group again.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine

from moorage.compute.model import lifecycle
from moorage.compute.model.job_payloads import SelectHosts, ServerAction, build_job, ports_job, read_payload
from moorage.compute.model.servers import BUILD_QUEUE, NetworkInterface, Server, TaskState, VmState
from moorage.compute.requests.group_service import recheck_placement
from moorage.compute.requests.server_service import SCHEDULE_EVENT
from moorage.compute.scheduling import build_retries
from moorage.compute.scheduling.interfaces import Interfaces, bind_ports
from moorage.compute.scheduling.job_worker import extend_lease
from moorage.compute.scheduling.selection import Outcome, Selection
from moorage.compute.store import action_store, server_store
from moorage.core.clock import Clock
from moorage.core.ids import Ids
from moorage.db.session import in_transaction
from moorage.jobs.contract import JobKind
from moorage.jobs.model import Job, JobState, NewJob
from moorage.jobs.store import Ending
from moorage.jobs.wakeups import Hints
from moorage.network.client.server_ports import ServerPorts
from moorage.telemetry import tracing
from moorage.telemetry.tracing import PAYLOAD_KEY

log = logging.getLogger(__name__)

#: Servers whose ports are bound between two looks at the claim on their jobs.
BOUND_AT_ONCE = 16
#: The claim on the jobs is extended after this time.
EXTENDED_AFTER = timedelta(seconds=15)


@dataclass
class Build:
    """A build job: one server, or several that get hosts together or not at all.

    `waiting`: those of its servers that wait for a host.
    """

    job: Job
    waiting: Sequence[Server] = ()
    outcome: Outcome | None = None  #: of the search for hosts; None: not searched yet
    may_hold_allocations: bool = False  #: from an earlier search
    payload: SelectHosts = field(init=False)
    actions: dict[str, str] = field(init=False)  #: {server id: action id}

    def __post_init__(self) -> None:
        self.payload = read_payload(self.job, SelectHosts)
        together = self.payload.servers or (ServerAction(self.job.key, self.payload.action_id),)
        self.actions = {one.id: one.action_id for one in together}

    @property
    def selections(self) -> list[tuple[Server, Selection]]:
        """A selection for each waiting server; empty if the search found no host."""
        return list(zip(self.waiting, self.outcome, strict=True)) if isinstance(self.outcome, Sequence) else []


class SelectionCommitter:
    """Writes selections to the database and enqueues the hosts' build jobs."""

    def __init__(self, engine: Engine, clock: Clock, ids: Ids, hints: Hints, server_ports: ServerPorts | None) -> None:
        self._engine = engine
        self._server_ports = server_ports
        self._clock = clock
        self._ids = ids
        self._hints = hints

    def commit(self, builds: Sequence[Build]) -> None:
        """Commits the selections of all builds or none.

        Raises `Conflict` ``jobs.fenced`` if another worker now holds one of the jobs, `PlacementRejected` if a server
        group rejects a host, and `PortsRefused` if the network service refuses a server's ports.

        Binds the ports first: a host needs their addresses. If the build ends without a server, the code that ends
        it (such as the next attempt) releases them.
        """
        bound = self._bind_ports(builds)
        given = in_transaction(self._engine, lambda connection: self._commit_in(connection, builds, bound))
        for server_id, selection in given.items():
            log.info("host selected", extra={"server": server_id, "host": selection.host, "claims": selection.claims})
        for host in {selection.host for selection in given.values()}:
            self._hints.send(host)

    def _bind_ports(self, builds: Sequence[Build]) -> Interfaces:
        """A Neutron takes a request per port, so this may take longer than the jobs are claimed for."""
        selected = [(server, chosen.host) for one in builds for server, chosen in one.selections if server.interfaces]
        bound: dict[str, tuple[NetworkInterface, ...]] = {}
        extended_at: datetime | None = None
        for start in range(0, len(selected), BOUND_AT_ONCE):
            if extended_at is None or self._clock.now() - extended_at > EXTENDED_AFTER:
                extended_at = self._clock.now()
                for one in builds:  # so that a builder which was overtaken does not bind the ports to another host
                    extend_lease(self._engine, self._clock, one.job)
            bound |= bind_ports(self._server_ports, selected[start : start + BOUND_AT_ONCE])
        return bound

    def _commit_in(self, connection: Connection, builds: Sequence[Build], bound: Interfaces) -> dict[str, Selection]:
        """{server id: selection}, without servers that no longer wait."""
        now = self._clock.now()
        endings = [
            Ending(one.job, JobState.DONE, {"hosts": {server.id: chosen.host for server, chosen in one.selections}})
            for one in builds
        ]
        server_store.BUILD_JOBS.finish_all(connection, endings, now)
        every = {server.id: (one, chosen) for one in builds for server, chosen in one.selections}
        locked = server_store.lock_servers(connection, every)
        given: dict[str, Selection] = {}
        jobs: list[NewJob] = []
        targets: list[tuple[Server, str]] = []
        for server_id, (build, selection) in every.items():
            server = locked.get(server_id)
            if server is None or not waits_for_host(server):
                self.enqueue_release(connection, build, server_id)
                continue
            server = replace(server, interfaces=bound.get(server_id, ()))
            given[server_id] = selection
            targets.append((server, selection.root_uuid))
            jobs.append(_host_job(build, server, selection))
        if given:
            recheck_placement(connection, targets)
            operation = lifecycle.CREATE
            placed_at = {server_id: (selection.host, selection.placed) for server_id, selection in given.items()}
            server_store.assign_servers(connection, placed_at, operation.task, now)
            hosts = {every[server_id][0].actions[server_id]: selection.host for server_id, selection in given.items()}
            action_store.begin_next_events(connection, hosts, SCHEDULE_EVENT, operation.event, now)
            for server_id in given.keys() & bound.keys():
                server_store.update_server(connection, server_id, now, interfaces=bound[server_id])
            server_store.HOST_JOBS.enqueue_all(connection, jobs, now)
        return given

    def enqueue_release(self, connection: Connection, build: Build, server_id: str) -> None:
        if build.payload.has_interfaces:
            ports = ports_job(self._ids.uuid(), server_id, build.payload.request_id, release=True)
            server_store.BUILD_JOBS.enqueue(connection, ports, self._clock.now())
        payload: dict[str, str | bool] = {
            "request_id": build.payload.request_id,
            "action_id": build.actions[server_id],
            "final": False,
        }
        release = NewJob(self._ids.uuid(), BUILD_QUEUE, JobKind.RELEASE, server_id, payload)
        server_store.BUILD_JOBS.enqueue(connection, release, self._clock.now())


def waits_for_host(server: Server) -> bool:
    return server.vm_state is VmState.BUILDING and server.task_state is TaskState.SCHEDULING


def _host_job(build: Build, server: Server, selection: Selection) -> NewJob:
    ids: dict[str, str] = {"action_id": build.actions[server.id], "request_id": build.payload.request_id}
    trace = build.job.payload.get(PAYLOAD_KEY)
    if isinstance(trace, str) and tracing.current_tracer() is not None:  # also if several builds are committed together
        ids[PAYLOAD_KEY] = trace
    made = build_job(server, selection.placed, selection.host, lifecycle.CREATE, ids)
    more: dict[str, Any] = {
        "alternates": build_retries.alternate_documents(selection.alternates),
        "image_properties": build.payload.image_properties,
    }
    if build.payload.tried:
        made = replace(made, id=f"{made.id}:{len(build.payload.tried)}")
        more["tried"] = build.payload.tried
    return replace(made, payload={**made.payload, **more})
