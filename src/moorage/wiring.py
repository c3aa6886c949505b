"""Builds a plane from its configuration: the one place where everything meets. Only the CLI and tests import it.

A plane is its WSGI application (the services of this process, mounted), its duties (what goes on in the background)
and what must happen at start and stop. Services that another process runs are reached over HTTP with the same clients.
"""

import dataclasses
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Engine

import os_acc
from moorage.accelerator import agent_api
from moorage.accelerator import routes as accelerator_routes
from moorage.accelerator.agent import AcceleratorAgent
from moorage.accelerator.agent_socket import SocketServer, is_too_long
from moorage.accelerator.client import AcceleratorClient
from moorage.accelerator.drivers.description import built_in_host
from moorage.accelerator.drivers.simulated import SimulatedDriver
from moorage.accelerator.service import AcceleratorService
from moorage.agent.host import AgentSettings, HostAgent
from moorage.agent.published import PublishedFile
from moorage.agent.resource_tracker import ProviderFiles, ResourceTracker, resources_topic
from moorage.agent.virt.host_description import HostDescription, read_description
from moorage.agent.virt.simulated import SimulatedDriver as SimulatedHypervisor
from moorage.compute import routes as compute_routes
from moorage.compute.build import BuildDuty
from moorage.compute.client import ComputeClient
from moorage.compute.service import ComputeService
from moorage.config import ENDPOINT_PATHS, Config
from moorage.core.clock import AdjustableClock, Clock, SystemClock
from moorage.core.errors import MoorageError, StartError, Unavailable
from moorage.core.ids import Ids, RandomIds
from moorage.db import migrations
from moorage.db.engine import open_engine
from moorage.db.transactions import read
from moorage.identity import routes as identity_routes
from moorage.identity.authenticators import (
    EmbeddedTokens,
    HttpBasic,
    NoAuth,
    Nobody,
    TokensOrBasic,
    refuse_beyond_loopback,
)
from moorage.identity.client import PasswordTokens
from moorage.identity.embedded import EmbeddedIdentity, credentials, open_or_create
from moorage.identity.keystone import KeystoneTokens
from moorage.identity.policy import RuleTable
from moorage.identity.service import IdentityService
from moorage.images import routes as image_routes
from moorage.images.cache import DigestCache
from moorage.images.client import ImageLookup
from moorage.images.directory import ImageDirectory
from moorage.images.glance import GlanceImages
from moorage.images.service import ImageService
from moorage.jobs.duties import Duty, DutyThreads, Wakeups
from moorage.jobs.hints import Hints, open_hints
from moorage.placement import routes as placement_routes
from moorage.placement.client import PlacementClient
from moorage.placement.service import PlacementService
from moorage.rehearsal import routes as rehearsal_routes
from moorage.rehearsal.clock import open_clock
from moorage.reservation import routes as reservation_routes
from moorage.reservation.service import ReservationService, ReservationSettings
from moorage.wire.app import ServiceApi, Surroundings, WsgiApp, build, mount
from moorage.wire.auth import Authenticator
from moorage.wire.client import NoCredentials, ServiceClient, TokenSource
from moorage.wire.cors import CrossOrigin
from moorage.wire.transports import InProcessTransport, SocketTransport, Transport

log = logging.getLogger(__name__)

S = TypeVar("S")


@dataclass
class Plane:
    """What `build_plane` made. `start` and `stop` once each; between them `app` is served."""

    app: WsgiApp
    clock: Clock
    wakeups: Wakeups
    duties: list[Duty] = field(default_factory=list)
    starts: list[Callable[[], object]] = field(default_factory=list)
    stops: list[Callable[[], object]] = field(default_factory=list)

    def start(self) -> None:
        """Synchronise, publish the host, then let the duties run, each in a thread of its own."""
        self.prepare()
        threads = DutyThreads(self.clock, self.wakeups)
        threads.start(self.duties)
        self.stops.append(threads.stop)

    def prepare(self) -> None:
        """Everything of `start` but the threads: whoever runs the duties in virtual time calls this."""
        for step in self.starts:
            step()

    def stop(self) -> None:
        """In the reverse order of the start; what fails is logged and does not keep the rest from ending."""
        for step in reversed(self.stops):
            try:
                step()
            except MoorageError:
                log.exception("a part of the plane did not end cleanly")


def build_plane(config: Config, *, clock: Clock | None = None, ids: Ids | None = None) -> Plane:
    """The plane that `config` describes; nothing runs yet. Raises `StartError` for what cannot be used."""
    return _Builder(config, clock or _clock(config), ids or RandomIds()).build()


def _clock(config: Config) -> Clock:
    return open_clock(config.state) if config.plane.clock == "adjustable" else SystemClock()


class _Builder:
    def __init__(self, config: Config, clock: Clock, ids: Ids) -> None:
        self.config = config
        self.clock = clock
        self.ids = ids
        self.wakeups = Wakeups()
        self.hints: Hints = open_hints(config.plane.hints or None, self.wakeups)
        self.apps: dict[str, WsgiApp] = {}
        self.plane = Plane(mount(self.apps), clock, self.wakeups)
        self.identity = self._identity()
        self.authenticator = self._authenticator()
        self.credentials = self._credentials()

    def build(self) -> Plane:
        config = self.config
        if isinstance(self.clock, AdjustableClock):
            self.clock.on_advance.append(self.wakeups.wake_all)
            self._serve("moorage", rehearsal_routes.API, self.clock, rehearsal_routes.RULES)
        for name in ("identity", "placement", "image", "compute", "accelerator", "reservation", "agent"):
            if name in config.runs:
                getattr(self, f"_build_{name}")()
        self.plane.stops.append(self.hints.close)
        self.plane.app = self._across_origins(self.plane.app)
        return self.plane

    def _across_origins(self, app: WsgiApp) -> WsgiApp:
        origins, headers = (
            frozenset(word.strip() for word in text.split(",") if word.strip())
            for text in (self.config.server.cors_origins, self.config.server.cors_headers.lower())
        )
        return CrossOrigin(origins, headers).around(app) if origins else app

    # Who is calling

    def _identity(self) -> EmbeddedIdentity | None:
        identity, runs = self.config.identity, self.config.runs
        if identity.mode not in ("embedded", "http_basic") or runs == {"agent"}:
            return None
        if "identity" not in runs:
            raise StartError(
                f"{self.config.source}: with [identity] mode = {identity.mode} the process that serves "
                f"{', '.join(sorted(runs - {'agent'}))} must run identity too, for tokens are signed with a key in its "
                "state directory; add it to [plane] services, or use mode = keystone"
            )
        return open_or_create(
            self.config.state,
            clock=self.clock,
            ids=self.ids,
            users_file=Path(identity.users_file) if identity.users_file else None,
            token_lifetime=timedelta(seconds=identity.token_lifetime_s),
        )

    def _authenticator(self) -> Authenticator:
        identity = self.config.identity
        if self.identity is not None:
            tokens = EmbeddedTokens(self.identity)
            if identity.mode == "embedded":
                return tokens
            return TokensOrBasic(tokens, HttpBasic(self.identity, self.clock))
        if identity.mode in ("embedded", "http_basic"):
            return Nobody()
        if identity.mode == "none":
            if not identity.allow_none_beyond_loopback:
                refuse_beyond_loopback(self.config.server.address)
            return NoAuth(beyond_loopback=identity.allow_none_beyond_loopback)
        keystone = KeystoneTokens(
            auth_url=identity.keystone_url,
            username=identity.username,
            password=identity.password,
            project=identity.project,
        )
        self.plane.app = keystone.around(self.plane.app)
        return keystone

    def _credentials(self) -> TokenSource:
        """As whom the services of this process call each other."""
        identity = self.config.identity
        if identity.mode == "none":
            return NoCredentials()
        password = identity.password
        if not password:
            password, _ = credentials(self.config.state, identity.username)
        keystone = identity.keystone_url.removesuffix("/").removesuffix("/v3")
        return PasswordTokens(
            SocketTransport(keystone) if identity.mode == "keystone" else self._transport("identity"),
            username=identity.username,
            password=password,
            project=identity.project,
            clock=self.clock,
        )

    # Services and the ways to them

    def _serve(
        self, prefix: str, api: ServiceApi[S], service: S, rules: RuleTable, engine: Engine | None = None
    ) -> None:
        around = Surroundings(
            authenticator=self.authenticator,
            policy=rules,
            ids=self.ids,
            public_url=self.config.server.public_url or None,
            health=(lambda: _trouble_of(engine)) if engine is not None else dict,
        )
        self.apps[f"/{prefix}"] = build(api, service, around)

    def _transport(self, service: str) -> Transport:
        """Into this process, or to the URL that [endpoints] names."""
        prefix = "/" + ENDPOINT_PATHS[service].split("/")[1]
        elsewhere: str = getattr(self.config.endpoints, service)
        if elsewhere:
            return SocketTransport(elsewhere)
        if service not in self.config.runs:
            raise StartError(
                f"{self.config.source}: {service} is neither in [plane] services nor has it a URL in [endpoints]"
            )
        return InProcessTransport(self.plane.app, f"{self.config.url}{prefix}")

    def _client(self, service: str, version: str | None = None) -> ServiceClient:
        return ServiceClient(
            self._transport(service),
            service_type=service,
            version=version,
            credentials=self.credentials,
            clock=self.clock,
        )

    def _engine(self, service: str) -> Engine:
        engine = open_engine(self.config.database_url(service))
        self.plane.stops.append(engine.dispose)
        try:
            migrations.upgrade(engine, service)
        except Unavailable as error:
            where = engine.url.render_as_string(hide_password=True)
            raise StartError(
                f"the database of {service} at {where} does not answer; start it, or correct [database] {service}"
            ) from error
        return engine

    def _worker(self, name: str) -> str:
        """A name that no other process has and that this one has again after a restart: see `JobStore.claim`."""
        return f"{socket.gethostname()}:{self.config.state}/{name}"

    # One service each

    def _build_identity(self) -> None:
        if self.identity is None:
            return  # Keystone serves it, or nobody needs it
        endpoints = {name: self._public_endpoint(name) for name in ENDPOINT_PATHS}
        service = IdentityService(self.identity, endpoints, region=self.config.plane.region)
        self._serve("identity", identity_routes.API, service, identity_routes.RULES)

    def _public_endpoint(self, service: str) -> str:
        """For the catalogue: below this process, or the URL of [endpoints] with the version that clients expect."""
        elsewhere: str = getattr(self.config.endpoints, service)
        _, _, version = ENDPOINT_PATHS[service][1:].partition("/")
        return f"{elsewhere.rstrip('/')}/{version}".rstrip("/") if elsewhere else ENDPOINT_PATHS[service]

    def _build_placement(self) -> None:
        engine = self._engine("placement")
        service = PlacementService(engine, self.clock, self.ids)
        self.plane.starts.append(service.start)
        rules = placement_routes.POLICIES[self.config.placement.policy]
        self._serve("placement", placement_routes.API, service, rules, engine)

    def _build_image(self) -> None:
        service = ImageService(
            ImageDirectory(self.config.state / "images", clock=self.clock, ids=self.ids), clock=self.clock, ids=self.ids
        )
        self._serve("image", image_routes.API, service, image_routes.RULES)

    def _build_compute(self) -> None:
        engine = self._engine("compute")
        options = self.config.compute
        service = ComputeService(
            engine,
            self.clock,
            self.ids,
            self.hints,
            images=ImageLookup(self._client("image")),
            up_window_s=options.host_down_after_s,
            job_lease_s=self.config.agent.job_lease_s,
        )
        self._serve("compute", compute_routes.API, service, compute_routes.RULES, engine)
        placement = PlacementClient(self._client("placement"))
        self.plane.duties.append(
            BuildDuty(
                engine,
                self.clock,
                self.ids,
                placement,
                service.hosts,
                self.hints,
                worker=self._worker("builder"),
                poll_s=options.poll_period_s,
            )
        )

    def _build_accelerator(self) -> None:
        engine = self._engine("accelerator")
        service = AcceleratorService(engine, self.clock, self.ids)
        self._serve("accelerator", accelerator_routes.API, service, accelerator_routes.RULES, engine)

    def _build_reservation(self) -> None:
        engine = self._engine("reservation")
        options = dataclasses.asdict(self.config.reservation)
        poll_s: float = options.pop("poll_period_s")
        service = ReservationService(
            engine,
            self.clock,
            self.ids,
            PlacementClient(self._client("placement")),
            ComputeClient(self._client("compute")),
            self.wakeups,
            settings=ReservationSettings(**options),
        )
        self.plane.duties.append(service.runner(poll_s=poll_s))
        self._serve("reservation", reservation_routes.API, service, reservation_routes.RULES, engine)

    # The host

    def _build_agent(self) -> None:
        options = self.config.agent
        accelerators = self._accelerator_agent(options.host)
        virt = SimulatedHypervisor(self._host_description(), self.config.state / "host", self.clock)
        tracker = ResourceTracker(
            driver=virt,
            grafts=accelerators,
            placement=PlacementClient(self._client("placement")),
            files=ProviderFiles(
                Path(self.config.compute.provider_config_location),
                allow_writable_by_others=self.config.compute.provider_config_writable_by_others,
            ),
            published=PublishedFile(self.config.state / "host" / "published.json"),
            clock=self.clock,
            ids=self.ids,
        )
        local = InProcessTransport(agent_api.wsgi_app(accelerators, self.ids))
        agent = HostAgent(
            host=options.host,
            driver=virt,
            tracker=tracker,
            acceleration=os_acc.Client(local, clock=self.clock),
            refers_to_accelerators=os_acc.refers_to_accelerators,
            compute=ComputeClient(self._client("compute")),
            clock=self.clock,
            wakeups=self.wakeups,
            settings=AgentSettings(
                workers=options.workers,
                heartbeat_period_s=options.heartbeat_period_s,
                update_period_s=options.update_period_s,
                poll_period_s=options.poll_period_s,
                keep_alive_period_s=options.job_lease_s / 4,
            ),
        )
        # The host reads its files first: a fault in them stops the start before a device is touched.
        self.plane.starts.append(agent.start)
        self.plane.stops.append(accelerators.close)
        self._serve_os_acc(accelerators)
        self.plane.duties += [accelerators, *agent.duties]

    def _serve_os_acc(self, accelerators: AcceleratorAgent) -> None:
        """For the os_acc of other processes of this host; our own agent needs no socket."""
        wanted = self.config.accelerator.agent_socket
        path = Path(wanted) if wanted else self.config.state / "os-acc.sock"
        if not wanted and is_too_long(path):
            log.warning(
                "no socket for os_acc: its path is too long; name a shorter one as [accelerator] agent_socket",
                extra={"path": str(path)},
            )
            return
        server = SocketServer(agent_api.wsgi_app(accelerators, self.ids), path)
        self.plane.starts.append(server.start)
        self.plane.stops.append(server.stop)

    def _accelerator_agent(self, host: str) -> AcceleratorAgent:
        state = self.config.state / "accelerators"
        driver = SimulatedDriver(built_in_host(), state / "simulated", self.clock)
        return AcceleratorAgent(
            host,
            [driver],
            state,
            GlanceImages(self._client("image")),
            DigestCache(
                state / "bitstreams", max_bytes=self.config.accelerator.bitstream_cache_bytes, clock=self.clock
            ),
            self.clock,
            reports=AcceleratorClient(self._client("accelerator")),
            changed=lambda: self._accelerators_changed(host),
            report_every=timedelta(seconds=self.config.accelerator.report_period_s),
        )

    def _accelerators_changed(self, host: str) -> None:
        self.wakeups.wake(resources_topic(host))
        self.wakeups.wake(f"accelerator-agent@{host}")

    def _host_description(self) -> HostDescription:
        if self.config.agent.host_description:
            return read_description(Path(self.config.agent.host_description))
        return HostDescription(name=self.config.agent.host)


def _trouble_of(engine: Engine) -> dict[str, str]:
    try:
        with read(engine) as connection:
            connection.exec_driver_sql("SELECT 1")
    except MoorageError as error:
        return {"database": error.message}
    return {}
