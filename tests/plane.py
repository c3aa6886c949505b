"""Planes for tests: services, tasks and databases that `moorage.wiring` builds, in this process and in virtual time.

    with InProcessPlane(tmp_path, "placement,image,compute", compute={"quota_cores": -1}) as plane:
        plane.client("placement", version="1.39").request("POST", "/resource_providers", json={"name": "rp"})
        status, headers, body = plane.send("GET", "/compute/v2.1/servers", who="alice:red", roles="member")
        plane.task("compute.build").run_once()      # one task
        plane.run_for(60)                       # all of them
        plane.service("compute").hosts          # the object behind the API
        host = plane.beside("compute-1", "agent", agent={"host": "compute-1"})  # another process of the same cloud

A plane is one process; planes made with `beside` form one cloud. A plane does nothing by itself: tests send requests,
and tasks run in `settle`, `run_for` and `run_until`. A `Way` causes faults: every request from a plane's parts to a
service passes through it.

A program that a test starts may also use a plane, with the machine's time, and serve it:

    with InProcessPlane(directory, "placement", clock=SystemClock(), ids=RandomIds()) as plane:
        plane.plane.start_tasks()
        serve(plane.plane.app, port)    # or `plane.alone("placement")`

Not here: planes that `moorage up` runs and the stock clients drive (`tests.system.planes`).
"""

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from moorage.config import ENDPOINT_PATHS, Config
from moorage.core.clock import Clock, VirtualClock
from moorage.core.errors import Unavailable
from moorage.core.ids import Ids, SeededIds
from moorage.identity.authentication.authenticators import TestTokens
from moorage.jobs.background_tasks import Task, TasksInVirtualTime, Wakeups
from moorage.jobs.wakeups import Hints, InProcessHints
from moorage.wire.app import WsgiApp
from moorage.wire.client import ServiceClient, TokenSource
from moorage.wire.http import Authenticator
from moorage.wire.transports import ClientResponse, InProcessTransport, Transport
from moorage.wiring import Plane, build_plane
from tests.conftest import START
from tests.migrated import create_migrated
from tests.people import create_first_people

#: The URL at which every plane is reached.
URL = "http://cloud.example:8778"

_DAY_S = 24 * 3600.0

#: Options that differ from the defaults: there is no polling, because hints arrive within one process. Periods are
#: longer, because each round costs time in tests that cover several days.
SECTIONS: Mapping[str, Mapping[str, object]] = {
    "plane": {"state_path": "."},
    "agent": {
        "workers": 1,
        "heartbeat_period_s": 20.0,
        "update_period_s": 3600.0,
        "poll_period_s": 3600.0,
    },
    "compute": {
        "poll_period_s": _DAY_S,
        "provider_config_watch_s": 0.0,
        "bare_metal_period_s": _DAY_S,
    },
    "accelerator": {"report_period_s": _DAY_S, "poll_period_s": _DAY_S},
    "reservation": {"poll_period_s": _DAY_S, "watch_period_s": 0.0},
    "placement": {"watchers": 0},
    "audit": {"period_s": 0.0},
}


class _Statements(dict[Any, Any]):
    """Compiled statements of one kind of database. SQLAlchemy's keys begin with the dialect of each engine."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key[1:])

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key[1:], value)

    def __contains__(self, key: Any) -> bool:
        return super().__contains__(key[1:])


_STATEMENTS = {name: _Statements() for name in ("sqlite", "postgresql", "mysql", "mariadb")}


class Killed(BaseException):
    """Stands for the death of the process: no code catches it, and nothing is undone."""


class Bearer:
    """Credentials by the convention of `TestTokens`: ``user:project`` and roles."""

    def __init__(self, who: str = "moorage:service", roles: str = "admin,service") -> None:
        self._headers = {"x-auth-token": who, "x-roles": roles}

    def headers(self, *, renew: bool = False) -> Mapping[str, str]:
        return self._headers


class HostBearer:
    """Credentials of the agent of `host`, by the convention of `TestTokens`."""

    def __init__(self, host: str) -> None:
        self._headers = {"x-auth-token": f"host:{host}", "x-moorage-host": host}

    def headers(self, *, renew: bool = False) -> Mapping[str, str]:
        return self._headers


#: `TestTokens` reads the caller from the request; services call each other as `SERVICE`.
TOKENS, SERVICE = TestTokens(), Bearer()


class Request(NamedTuple):
    method: str
    path: str  #: below the service, with the query
    body: bytes | Iterable[bytes] | None = None
    headers: Mapping[str, str] = MappingProxyType({})

    @property
    def resource(self) -> str:
        """The path without its query."""
        return self.path.partition("?")[0]


class Seen(NamedTuple):
    """A response with its body decoded if it is JSON."""

    status: int
    headers: Mapping[str, str]
    body: Any


Send = Callable[[], ClientResponse]


class Way:
    """Records and intercepts the requests of a plane to one service (or to ``os_acc``). Survives restarts of the plane.

    `requests` are recorded in the order in which they are sent. `around` handles each of them: it may raise before or
    after it calls `send`, return an answer of its own, or do something in between. Downloads (`stream`) are neither
    recorded nor changed.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.around: Callable[[Request, Send], ClientResponse] = _directly

    def clear(self) -> None:
        """Deletes the recorded requests, and passes every later request on unchanged."""
        self.requests.clear()
        self.around = _directly

    def on(self, what: str, around: Callable[[Request, Send], ClientResponse], *, times: float = math.inf) -> None:
        """`around` handles the next `times` requests that begin with `what`, for example ``PUT /allocations/``. The
        handler that was set before handles all other requests.
        """
        before, left = self.around, times

        def choose(request: Request, send: Send) -> ClientResponse:
            nonlocal left
            if left <= 0 or not f"{request.method} {request.path}".startswith(what):
                return before(request, send)
            left -= 1
            return around(request, send)

        self.around = choose

    @property
    def writes(self) -> list[Request]:
        return [request for request in self.requests if request.method != "GET"]

    def die(self, index: int, when: str) -> None:
        """Raises `Killed` ``before`` or ``after`` one request: the one with this `index`; the next request has 0."""
        die_at = len(self.requests) + index

        def around(request: Request, send: Send) -> ClientResponse:
            is_here = len(self.requests) == die_at + 1
            if is_here and when == "before":
                raise Killed(request)
            answer = send()
            if is_here:
                raise Killed(request)
            return answer

        self.around = around

    def over(self, transport: Transport) -> Transport:
        """`transport` with this interceptor in front of it."""
        return _OnTheWay(self, transport)

    def pass_on(self, request: Request, send: Send) -> ClientResponse:
        self.requests.append(request)
        return self.around(request, send)


def failing(error: BaseException) -> Callable[[Request, Send], ClientResponse]:
    """A handler for `Way.on`: raises `error` instead of sending the request."""

    def fail(_request: Request, _send: Send) -> ClientResponse:
        raise error

    return fail


def _directly(_request: Request, send: Send) -> ClientResponse:
    return send()


class _OnTheWay:
    """A transport whose requests go through a `Way`."""

    def __init__(self, way: Way, inner: Transport) -> None:
        self._way, self._inner = way, inner

    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | Iterable[bytes] | None = None
    ) -> ClientResponse:
        request = Request(method, path, body, headers)
        return self._way.pass_on(request, lambda: self._inner.send(method, path, headers, body))

    def stream(self, method: str, path: str, headers: Mapping[str, str]) -> Any:
        return self._inner.stream(method, path, headers)


class _Cloud:
    """The state that all planes of one cloud share."""

    def __init__(self, clock: Any, ids: Ids, url: str) -> None:
        self.clock = clock
        self.ids = ids
        self.url = url
        self.wakeups = Wakeups()
        self.planes: list[InProcessPlane] = []
        self._tasks: TasksInVirtualTime | None = None

    def changed(self) -> None:
        """A plane was started or stopped: updates the running planes, and wakes all waiting tasks."""
        self._tasks = None

    @property
    def tasks(self) -> TasksInVirtualTime:
        if self._tasks is None:
            every = [task for plane in self.planes if plane.is_running for task in plane.in_turn()]
            self._tasks = TasksInVirtualTime(self.clock, self.wakeups, every)
        return self._tasks

    def reach(self, url: str) -> Transport:
        """A transport to the plane that runs the service; the plane is looked up at each request."""
        service = urlsplit(url).path.strip("/")

        def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            for plane in self.planes:
                if plane.is_running and service in plane.config.runs:
                    return plane.plane.app(environ, start_response)
            raise Unavailable(f"{url} does not answer", url=url)

        return InProcessTransport(serve, url)


class InProcessPlane:
    """One process of a cloud. The constructor starts it unless `starts` is false; then call `start`. Its tasks run only
    when a test runs them.
    """

    def __init__(
        self,
        directory: Path,
        services: str,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        url: str = URL,
        authenticator: Authenticator | None = TOKENS,
        credentials: TokenSource | None = SERVICE,
        hints: Callable[[Wakeups], Hints] = InProcessHints,
        reach: Callable[[str], Transport] | None = None,
        resting: tuple[str, ...] = (),
        built: Callable[[Plane], object] = lambda _plane: None,
        has_sockets: bool = False,
        starts: bool = True,
        cloud: _Cloud | None = None,
        **sections: Mapping[str, object],
    ) -> None:
        """`services` as in [plane] services; `sections` are options by section, ``compute={"quota_cores": -1}``.

        Under a `VirtualClock`, which is the default, `settle` and `run_for` run the tasks. Under another clock they run
        in threads, or the test calls them.

        `authenticator` and `credentials`: None means what [identity] configures, by default the plane's own users.
        `built` is called with each plane after it is built and before it starts. `reach` returns the transport to URLs
        of [endpoints] outside the cloud; without it these do not answer, for example ``endpoints={"image":
        "http://nowhere"}``. `resting`: name prefixes of tasks that `settle` and `run_for` skip; only a test calls them.
        Databases are SQLite files in `directory` unless ``database=`` says otherwise.
        """
        self.directory = directory
        self.cloud = cloud or _Cloud(clock or VirtualClock(START), ids or SeededIds(1), url)
        self.ways = {name: Way() for name in (*ENDPOINT_PATHS, "os_acc")}
        self.config = _config(directory, services, self._elsewhere(services), sections)
        self._authenticator, self._credentials = authenticator, credentials
        self._hints, self._reach, self._built = hints, reach, built
        self.resting, self._has_sockets = resting, has_sockets
        self._plane: Plane | None = None
        self.cloud.planes.append(self)
        if starts:
            self.start()

    def beside(self, name: str, services: str, **options: Any) -> "InProcessPlane":
        """Starts another process of the same cloud in the directory `name` below this one's. `options` as above.

        It shares clock, ids and hints with this one. It reaches services that it does not run at the planes that run
        them. A service that both planes run has one database.
        """
        databases: dict[str, object] = {}
        for plane in reversed(self.cloud.planes):  # the database of a service belongs to the first plane that runs it
            databases |= plane.config.database_urls()
        options["database"] = databases | dict(options.get("database", {}))
        shared = {
            "authenticator": self._authenticator,
            "credentials": self._credentials,
            "hints": self._hints,
            "reach": self._reach,
            "resting": self.resting,
        }
        return InProcessPlane(self.directory / name, services, cloud=self.cloud, **(shared | options))

    def _elsewhere(self, services: str) -> dict[str, str]:
        """{service: URL} of the services that another plane of the cloud runs."""
        others = {name for plane in self.cloud.planes for name in plane.config.runs} - set(services.split(","))
        options = {name: name for name in ENDPOINT_PATHS} | {"network": "moorage_network"}
        return {options[name]: f"{self.cloud.url}/{name}" for name in ENDPOINT_PATHS if name in others}

    def _way_to(self, url: str) -> Transport:
        is_inside = self._reach is None or url.startswith(f"{self.cloud.url}/")
        return self.cloud.reach(url) if is_inside else self._reach(url)

    # ------------------------------------------------------------------------------------ life and death

    def start(self, **sections: Mapping[str, object]) -> Self:
        """Starts the plane with empty memory and the existing files. Raises `StartError`.

        `sections` are options that changed since the last start.
        """
        self.config = _with_options(self.config, sections)
        if self.cloud.planes == [self]:
            self.cloud.wakeups = Wakeups()  # the tasks that waited before the restart no longer exist
        for service in self.config.database_urls():
            _lay(service, self.config)
        if self._authenticator is None and self.config.has_users:
            create_first_people(self.config, self.clock, self.ids)
        self._plane = build_plane(
            self.config,
            clock=self.cloud.clock,
            ids=self.cloud.ids,
            reach=self._way_to,
            hints=self._hints,
            wakeups=self.cloud.wakeups,
            authenticator=self._authenticator,
            credentials=self._credentials,
            host_credentials=None if self._credentials is None else HostBearer,
            through=lambda service, transport: self.ways[service].over(transport),
            has_sockets=self._has_sockets,
        )
        for engine in self._plane.engines.values():
            # All planes of a test process share SQLAlchemy's compiled statements.
            engine.update_execution_options(compiled_cache=_STATEMENTS[engine.dialect.name])
        try:
            self._built(self._plane)
            self._plane.prepare()
        except BaseException:  # also a simulated death of the process must close what was opened; raised again
            self.kill()
            raise
        self.cloud.changed()
        return self

    def stop(self) -> None:
        """Stops it in order, as Ctrl-C does."""
        if self._plane is not None:
            plane, self._plane = self._plane, None
            self.cloud.changed()
            plane.stop()

    def kill(self) -> None:
        """Stops it without any cleanup of its own: only what the operating system does for a dead process happens."""
        if self._plane is not None:
            plane, self._plane = self._plane, None
            self.cloud.changed()
            accelerators: Any = plane.built.get("accelerators")
            if accelerators is not None:
                accelerators.close()  # releases its lock file
            for engine in plane.engines.values():
                engine.dispose()

    def restart(self, **sections: Mapping[str, object]) -> Self:
        """Kills it and starts it again; `sections` are changed options."""
        self.kill()
        return self.start(**sections)

    @property
    def is_running(self) -> bool:
        return self._plane is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Stops every plane of the cloud."""
        for plane in reversed(self.cloud.planes):
            plane.stop()

    # ------------------------------------------------------------------------------------ its parts

    @property
    def plane(self) -> Plane:
        if self._plane is None:
            raise Unavailable(f"the plane in {self.directory} does not run")
        return self._plane

    @property
    def clock(self) -> Any:
        return self.cloud.clock

    @property
    def ids(self) -> Ids:
        return self.cloud.ids

    @property
    def wakeups(self) -> Wakeups:
        return self.cloud.wakeups

    def service(self, name: str) -> Any:
        """The object behind an API (``compute``) or a part of a host (``hypervisor``); see `Plane.built`."""
        return self.plane.built[name]

    def task(self, name: str) -> Any:
        """The task with this full name or unique prefix."""
        every = {task.name: task for task in (*self.plane.tasks, *self.plane.simulated_host_tasks)}
        found = [name] if name in every else [each for each in every if each.startswith(name)]
        if len(found) != 1:
            raise LookupError(f"{len(found)} tasks are called {name}; there are {', '.join(every)}")
        return every[found[0]]

    def in_turn(self) -> list[Task]:
        """The tasks that `settle`, `run_for` and `run_until` run."""
        return [
            task
            for task in (*self.plane.tasks, *self.plane.simulated_host_tasks)
            if not task.name.startswith(self.resting)
        ]

    def engine(self, service: str) -> Any:
        """The database of a service that this plane runs."""
        return self.plane.engines[service]

    def alone(self, service: str) -> WsgiApp:
        """The application of one service at the root of its address, without its prefix, as OpenStack serves it."""
        return self.plane.apps[f"/{service}"]

    # ------------------------------------------------------------------------------------ those who call it

    def transport(self, path: str = "") -> InProcessTransport:
        """A transport to the plane's address, or to `path` below it. Each request goes to the plane as it runs then."""
        return InProcessTransport(self._serve, f"{self.cloud.url}{path}")

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        return self.plane.app(environ, start_response)

    def client(
        self, service: str, who: str = "moorage:service", roles: str = "admin,service", *, version: str | None = None
    ) -> ServiceClient:
        """A client of `service` with the plane's own credentials, or those of `who`: ``user:project``. No `Way` records
        it.
        """
        return ServiceClient(
            self.transport(f"/{service}"),
            service_type=service,
            version=version,
            credentials=Bearer(who, roles),
            clock=self.clock,
        )

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        who: str | None = "root:admin",
        roles: str | None = "admin",
        version: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Seen:
        """A request to `path` below the plane's address. `version` is the microversion, ``2.96``.

        `body` is sent unchanged if it is bytes, and as JSON otherwise. Without `who` or `roles`, their headers are left
        out.
        """
        sent = dict(headers or {})
        for name, value in (("x-auth-token", who), ("x-roles", roles)):
            if value is not None:
                sent.setdefault(name, value)
        if version is not None:
            sent["openstack-api-version"] = f"{path.split('/')[1]} {version}"
        if body is not None and not isinstance(body, bytes):
            sent.setdefault("content-type", "application/json")
            body = json.dumps(body).encode()
        answer = self.transport().send(method, path, sent, body)
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return Seen(answer.status, answer.headers, json.loads(answer.body) if is_json and answer.body else answer.body)

    # ------------------------------------------------------------------------------------ time

    def settle(self) -> None:
        """Runs the due tasks of the whole cloud until nothing is left to do."""
        self.cloud.tasks.settle()

    def run_until(self, moment: datetime) -> None:
        self.cloud.tasks.run_until(moment)

    def run_for(self, seconds: float) -> None:
        self.run_until(self.clock.now() + timedelta(seconds=seconds))

    def forget_waits(self) -> None:
        """Makes every task of the cloud due now, as after a start."""
        self.cloud.changed()


def _config(
    directory: Path, services: str, endpoints: Mapping[str, str], sections: Mapping[str, Mapping[str, object]]
) -> Config:
    directory.mkdir(parents=True, exist_ok=True)
    config = Config(source=directory / "moorage.conf")
    given: dict[str, Mapping[str, object]] = {
        "compute": {"provider_config_location": str(directory / "provider_config")},
        "endpoints": endpoints,
    }
    if "agent" in services:
        (directory / "provider_config").mkdir(mode=0o700, exist_ok=True)
    for options in (SECTIONS, given, {"plane": {"services": services}}, sections):
        config = _with_options(config, options)
    return config


def _with_options(config: Config, sections: Mapping[str, Mapping[str, object]]) -> Config:
    changed = {name: dataclasses.replace(getattr(config, name), **values) for name, values in sections.items()}
    return dataclasses.replace(config, **changed)


def _lay(service: str, config: Config) -> None:
    """Creates the tables of `service` in its database, unless it exists already or is on a server."""
    url = config.database_url(service)
    path = Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///"):
        create_migrated(service, path)
