"""Components that all parts of a plane share: clock, ids, hints, credentials, databases, and the transports."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Engine, Table

from moorage.config import ENDPOINT_PATHS, Config
from moorage.core.clock import Clock, is_real_time
from moorage.core.errors import DamagedDatabase, MoorageError, StartError, Unavailable, message_for_tenants
from moorage.core.ids import Ids
from moorage.db import migrations
from moorage.db.engine import open_engine
from moorage.db.session import read
from moorage.identity.policy import RuleTable
from moorage.jobs.background_tasks import Task, TaskPool, TaskRun, TaskRuns, TaskThreads, Wakeups
from moorage.jobs.wakeups import Hints
from moorage.jobs.worker_watch import FirstWorker, GiveUpClaims, IsFirst, Worker, WorkerWatch
from moorage.telemetry.metrics import Metrics
from moorage.telemetry.tracing import Tracer
from moorage.telemetry.trail import Trail
from moorage.wire.admission import Admissions, Identify
from moorage.wire.app import AppContext, ServiceApi, WsgiApp, build_app
from moorage.wire.client import NoCredentials, ServiceClient, TokenSource
from moorage.wire.forwarded import TrustedProxies
from moorage.wire.http import Authenticator, Headers
from moorage.wire.middleware import TracedTransport, traced_app
from moorage.wire.transports import InProcessTransport, SocketTransport, Transport
from moorage.wiring.telemetry import trace_statements

if TYPE_CHECKING:
    from moorage.identity.embedded import EmbeddedIdentity

log = logging.getLogger(__name__)

S = TypeVar("S")

#: Number of threads for the tasks of many simulated hosts.
SIMULATED_HOST_THREADS = 16

#: Maximum wait after moving a rehearsal's clock; a task may be busy for longer.
CATCH_UP_S = 5.0

#: Time limit of a request of a host's agent, so that a service process that is suspended keeps no host silent. Longer
#: than a service waits for its database (`moorage.db.timeouts`), and a third of `[compute] host_down_after_s`.
HOST_ANSWER_S = 20.0


@dataclass
class Plane:
    """The result of `build_plane`. Call `start` and `stop` once each; serve `app` in between."""

    app: WsgiApp
    clock: Clock
    wakeups: Wakeups
    #: how the server admits request bodies for `app`
    admission: Admissions = field(default_factory=Admissions)
    #: tasks that each have their own thread
    tasks: list[Task] = field(default_factory=list)
    #: tasks of simulated hosts, too many for threads of their own; they share `SIMULATED_HOST_THREADS`
    simulated_host_tasks: list[Task] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)
    starts: list[Callable[[], object]] = field(default_factory=list)
    #: end long-lived answers, which a server would otherwise wait for at stop
    drains: list[Callable[[], object]] = field(default_factory=list)
    stops: list[Callable[[], object]] = field(default_factory=list)
    #: the process was asked to stop; the health check reports it
    is_draining: bool = False
    #: run on SIGHUP, to read files again
    reloads: list[Callable[[], object]] = field(default_factory=list)
    #: {name: object}: the services of this process and, for a host, ``agent``, ``hypervisor``, ``tracker``,
    #: ``accelerators`` and ``os_acc``. For tests that inspect or call one of them.
    built: dict[str, object] = field(default_factory=dict)
    #: {service: its database}, for the services of this process
    engines: dict[str, Engine] = field(default_factory=dict)
    #: {``/placement``: its application}, mounted by `app`; each can also be served at the root of an address
    apps: dict[str, WsgiApp] = field(default_factory=dict)
    #: tasks that run in threads
    _running: Sequence[Task] = ()
    _task_runs: TaskRuns = field(default_factory=TaskRuns)

    def start(self) -> None:
        """Synchronises, publishes the host, then starts each task in its own thread."""
        self.prepare()
        self.start_tasks()

    def start_tasks(self) -> None:
        threads = TaskThreads(self.clock, self.wakeups, self._count_task_run)
        threads.start(self.tasks)
        self.stops.append(threads.stop)
        if self.simulated_host_tasks:
            pool = TaskPool(self.clock, self.wakeups, SIMULATED_HOST_THREADS, self._count_task_run)
            pool.start(self.simulated_host_tasks)
            self.stops.append(pool.stop)
        self._running = [*self.tasks, *self.simulated_host_tasks]

    def catch_up(self) -> None:
        """Call it after the clock was moved. Returns when every task has run since, or after `CATCH_UP_S`."""
        since = time.perf_counter()
        self.wakeups.wake_all()
        self._task_runs.wait_for([task.name for task in self._running], since, CATCH_UP_S)

    def run_from_now_on(self, task: Task) -> None:
        """Runs a task in a thread, also if this process does not run the others."""
        threads = TaskThreads(self.clock, self.wakeups)
        threads.start([task])
        self.stops.append(threads.stop)

    def prepare(self) -> None:
        """`start` without the threads, for callers that run the tasks in virtual time."""
        for step in self.starts:
            step()

    def _count_task_run(self, done: TaskRun) -> None:
        self._task_runs.record(done)
        due = math.inf if done.due is None else done.due.timestamp()
        now = self.clock.now().timestamp()
        self.metrics.count_task_run(done.task, now, succeeded=done.succeeded, took_s=done.took_s, due=due)

    def reload(self) -> None:
        for step in self.reloads:
            step()

    def drain(self) -> None:
        """Ends long-lived answers. Call it as soon as the process is asked to stop; new requests are still served."""
        self.is_draining = True
        for step in self.drains:
            step()

    def stop(self) -> None:
        """Stops in reverse order. An error is logged and does not keep the other parts from stopping."""
        self.drain()
        for step in reversed(self.stops):
            try:
                step()
            except MoorageError:
                log.exception("a part of the plane did not stop cleanly")


@dataclass
class Components:
    """The shared parts, filled from top to bottom: authentication first, since every service needs it."""

    config: Config
    clock: Clock
    ids: Ids
    #: this process in claims on jobs and events
    this_worker: Worker
    wakeups: Wakeups
    hints: Hints
    #: {prefix: application}; the plane's mount looks it up for each request
    apps: dict[str, WsgiApp]
    plane: Plane
    authenticator: Authenticator
    #: the built-in users and tokens, in the modes that have them
    identity: "EmbeddedIdentity | None" = None
    #: credentials with which the services of this process call each other
    credentials: TokenSource = field(default_factory=NoCredentials)
    #: {host: credentials of its agent}
    host_credentials: Callable[[str], TokenSource] = lambda _host: NoCredentials()
    #: {URL: transport} for services of other processes
    reach: Callable[[str], Transport] = SocketTransport
    #: the same for the agents of hosts
    reach_from_host: Callable[[str], Transport] = SocketTransport
    #: wraps the transport of a service for the clients of this process
    through: Callable[[str, Transport], Transport] = lambda _service, transport: transport
    #: whether this process listens: a host on Unix sockets, for local commands, and compute for consoles
    has_sockets: bool = True
    #: identifies a caller from the WSGI environment alone; None: the authenticator does
    identify: Identify | None = None
    #: trusted proxies in front of this process
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    #: None if tracing is off
    tracer: Tracer | None = None
    #: None if there is no audit trail
    trail: Trail | None = None
    _of_hosts: dict[str, Transport] = field(default_factory=dict)
    _credentials_of_hosts: dict[str, TokenSource] = field(default_factory=dict)

    def serve(
        self, prefix: str, api: ServiceApi[S], service: S, rules: RuleTable, engine: Engine | None = None
    ) -> None:
        around = AppContext(
            authenticator=self.authenticator,
            policy=rules,
            ids=self.ids,
            public_url=self.config.server.public_url or None,
            proxies=self.proxies,
            health=lambda: self._faults(engine),
            requests=self.plane.metrics.request_meter(prefix),
            trail=self.trail,
        )
        app = build_app(api, service, around)
        self.plane.admission.add_service(f"/{prefix}", api, self.identify or _identify_with(self.authenticator))
        self.plane.built[prefix] = service
        self.apps[f"/{prefix}"] = app if self.tracer is None else traced_app(app, prefix, self.tracer)

    def _faults(self, engine: Engine | None) -> dict[str, str]:
        if self.plane.is_draining:
            return {"process": "it is shutting down; use another one"}
        return {} if engine is None else _database_fault(engine)

    def has(self, service: str) -> bool:
        """Whether this process runs the service or [endpoints] names it."""
        return service in self.config.runs or bool(getattr(self.config.endpoints, service))

    def transport(self, service: str, *, from_host: bool = False) -> Transport:
        """A transport into this process, or to the URL in [endpoints]."""
        way = self.through(service, self._transport(service, self.reach_from_host if from_host else self.reach))
        return way if self.tracer is None else TracedTransport(way, service, self.tracer)

    def server_networks(self) -> ServiceClient | None:
        """A client of Moorage's own network service, which has the ports of servers; None: there is none.

        It is not `client`: with [endpoints] network, that is a client of a Neutron.
        """
        if not self.has_server_networks:
            return None
        way = self._to_own_networks()
        if self.tracer is not None:
            way = TracedTransport(way, "network", self.tracer)
        return ServiceClient(way, service_type="network", credentials=self.credentials, clock=self.clock)

    @property
    def has_server_networks(self) -> bool:
        """Whether this process runs Moorage's network service or [endpoints] names it."""
        return "network" in self.config.runs or bool(self.config.endpoints.moorage_network)

    def _to_own_networks(self) -> Transport:
        if elsewhere := self.config.endpoints.moorage_network:
            return self.through("network", self.reach(elsewhere))
        return self.through("network", InProcessTransport(self.plane.app, f"{self.config.url}/network"))

    def _transport(self, service: str, reach: Callable[[str], Transport]) -> Transport:
        elsewhere: str = getattr(self.config.endpoints, service)
        if elsewhere:
            return reach(elsewhere)
        prefix = "/" + ENDPOINT_PATHS[service].split("/")[1]
        if service not in self.config.runs:
            raise StartError(f"{self.config.source}: {service} is neither in [plane] services nor in [endpoints]")
        return InProcessTransport(self.plane.app, f"{self.config.url}{prefix}")

    def address(self, service: str) -> str:
        """The URL of the service for links: that in [endpoints], or below this process's public URL."""
        elsewhere: str = getattr(self.config.endpoints, service)
        return elsewhere.rstrip("/") or f"{self.config.base_url}/{ENDPOINT_PATHS[service].split('/')[1]}"

    def client(self, service: str, version: str | None = None) -> ServiceClient:
        return ServiceClient(
            self.transport(service),
            service_type=service,
            version=version,
            credentials=self.credentials,
            clock=self.clock,
        )

    def host_client(self, service: str, host: str) -> ServiceClient:
        """A client for the agent of `host`. All agents of a process share the connections."""
        if service not in self._of_hosts:
            self._of_hosts[service] = self.transport(service, from_host=True)
        if host not in self._credentials_of_hosts:
            self._credentials_of_hosts[host] = self.host_credentials(host)
        return ServiceClient(
            self._of_hosts[service],
            service_type=service,
            credentials=self._credentials_of_hosts[host],
            clock=self.clock,
        )

    def engine(self, service: str) -> Engine:
        return open_database(self.config, self.plane, self.tracer, service)

    def worker(self, name: str) -> str:
        """A worker name that is unique to this process and the same after a restart: see `JobStore.claim`."""
        return f"{self.this_worker.name}/{name}"

    def watch_workers(
        self, service: str, engine: Engine, table: Table, give_up: GiveUpClaims, wakes: Sequence[str]
    ) -> None:
        """Frees the claims of workers that died. In virtual time planes share a process, and none dies unnoticed."""
        if not is_real_time(self.clock):
            return
        watch = WorkerWatch(
            f"{service}.workers", engine, self.clock, self.wakeups, self.this_worker, table, give_up, wakes
        )
        self.plane.starts += [watch.register, partial(self.plane.run_from_now_on, watch)]

    def first_of(self, workers: Table) -> IsFirst:
        """Whether this process does what only one of these workers does; in virtual time, each plane does it."""
        return FirstWorker(workers, self.this_worker) if is_real_time(self.clock) else lambda _connection: True


def open_database(config: Config, plane: Plane, tracer: Tracer | None, service: str) -> Engine:
    """The engine of the service's database, migrated; it is disposed of when `plane` stops. Raises `StartError`."""
    engine = open_engine(config.database_url(service))
    plane.stops.append(engine.dispose)
    plane.metrics.watch_engine(service, engine)
    plane.engines[service] = engine
    if tracer is not None and config.tracing.statements:
        trace_statements(engine, service, tracer)
    try:
        migrations.upgrade(engine, service)
    except DamagedDatabase:
        raise
    except Unavailable as error:
        where = engine.url.render_as_string(hide_password=True)
        raise StartError(
            f"the database of {service} at {where} does not answer; start it, or correct [database] {service}"
        ) from error
    return engine


def _identify_with(authenticator: Authenticator) -> Identify:
    return lambda environ: authenticator.authenticate(Headers(environ), environ)


def _database_fault(engine: Engine) -> dict[str, str]:
    try:
        with read(engine) as connection:
            connection.exec_driver_sql("SELECT 1")
    except MoorageError as error:
        return {"database": message_for_tenants(error)}
    return {}
