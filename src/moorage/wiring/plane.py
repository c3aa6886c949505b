"""Builds a plane part by part, in order."""

import socket
from collections.abc import Callable, Mapping
from functools import partial

from moorage import rehearsal as rehearsal_routes
from moorage.config import DASHBOARD_PATH, Config, comma_separated
from moorage.core.clock import AdjustableClock, Clock, SystemClock, is_real_time
from moorage.core.errors import StartError
from moorage.core.ids import Ids, RandomIds
from moorage.identity.authentication.keystone import KeystoneTokens
from moorage.jobs.background_tasks import Wakeups
from moorage.jobs.wakeups import Hints, open_hints
from moorage.jobs.worker_watch import UNKNOWN, Worker, this_process
from moorage.rehearsal import open_clock
from moorage.telemetry import tracing
from moorage.wire.app import WsgiApp, mount_apps
from moorage.wire.client import TokenSource
from moorage.wire.forwarded import TrustedProxies
from moorage.wire.http import Authenticator
from moorage.wire.middleware import CrossOrigin, metrics_app
from moorage.wire.transports import SocketTransport, Transport
from moorage.wiring.auth import AGENTS, authenticator_of, credentials_of, host_credentials_of, open_identity
from moorage.wiring.components import HOST_ANSWER_S, Components, Plane, open_database
from moorage.wiring.services import (
    build_accelerator,
    build_accelerator_agent,
    build_agent,
    build_compute,
    build_dashboard,
    build_identity,
    build_image,
    build_network,
    build_placement,
    build_reservation,
)
from moorage.wiring.telemetry import open_tracer, open_trail

SERVICES: Mapping[str, Callable[[Components], None]] = {
    "identity": build_identity,
    "placement": build_placement,
    "image": build_image,
    "network": build_network,
    "compute": build_compute,
    "accelerator": build_accelerator,
    "reservation": build_reservation,
    "agent": build_agent,
    "accelerator-agent": build_accelerator_agent,
    "dashboard": build_dashboard,
}


def build_plane(
    config: Config,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    reach: Callable[[str], Transport] | None = None,
    hints: Callable[[Wakeups], Hints] | None = None,
    wakeups: Wakeups | None = None,
    authenticator: Authenticator | None = None,
    credentials: TokenSource | None = None,
    host_credentials: Callable[[str], TokenSource] | None = None,
    through: Callable[[str, Transport], Transport] | None = None,
    has_sockets: bool = True,
    on_step: Callable[[str, int, int], object] = lambda _step, _done, _total: None,
) -> Plane:
    """The plane for `config`; nothing runs yet. Raises `StartError` for invalid options.

    `on_step` is called before each service is built, with its name, the number that are done, and their total. The
    other arguments after `ids` are for tests and simulations, which run several processes of a cloud in one process:

    * `reach` creates transports to the URLs in [endpoints], and `hints` replaces [plane] hints.
    * `wakeups` is shared by planes that wake each other's tasks.
    * `authenticator` replaces [identity]: no users are read, and the identity service is not built.
    * `credentials` are for calls between the services of this process; required with `authenticator`.
    * `host_credentials` returns the credentials of a host's agent; without it, agents use `credentials`.
    * `through` wraps every client transport of this process; its first argument is the service, or ``os_acc``.
    * `has_sockets`: whether this process listens: a host on Unix sockets, for local commands, and compute for consoles.
    """
    parts = _parts(config, clock or _clock(config), ids or RandomIds(), wakeups or Wakeups(), hints, authenticator)
    parts.reach, parts.has_sockets = reach or partial(SocketTransport, ca_file=config.ca_file), has_sockets
    parts.reach_from_host = reach or partial(SocketTransport, ca_file=config.ca_file, answer_s=HOST_ANSWER_S)
    if through is not None:
        parts.through = through
    parts.credentials = credentials or credentials_of(parts)
    if host_credentials is not None:
        parts.host_credentials = host_credentials
    elif credentials is not None:
        parts.host_credentials = lambda _host: credentials
    elif config.runs & AGENTS:
        parts.host_credentials = host_credentials_of(parts)
    plane = parts.plane
    if isinstance(parts.clock, AdjustableClock):
        parts.clock.on_advance.append(plane.catch_up)
        parts.serve("moorage", rehearsal_routes.API, parts.clock, rehearsal_routes.RULES)
    if config.server.metrics != "off":
        everywhere = config.server.metrics == "everywhere"
        parts.apps["/metrics"] = metrics_app(plane.metrics, beyond_loopback=everywhere)
    wanted = [name for name in SERVICES if name in config.runs]
    for done, name in enumerate(wanted):
        on_step(name, done, len(wanted))
        SERVICES[name](parts)
    if plane.engines.keys() & {"compute", "accelerator"}:
        # Only with a table of jobs: the import loads the clients of all services.
        from moorage.wiring.audit import build_audit

        build_audit(parts)
    plane.stops.append(parts.hints.close)
    plane.app = _across_origins(config, plane.app)
    return plane


def _this_worker(config: Config, clock: Clock) -> Worker:
    process = this_process() if is_real_time(clock) else UNKNOWN
    # A random id also where tests determine all others: two processes of a test must not have the same.
    return Worker(RandomIds().uuid(), f"{socket.gethostname()}:{config.state}", process)


def _parts(
    config: Config,
    clock: Clock,
    ids: Ids,
    wakeups: Wakeups,
    hints: Callable[[Wakeups], Hints] | None,
    authenticator: Authenticator | None,
) -> Components:
    apps: dict[str, WsgiApp] = {}
    plane = Plane(mount_apps(apps, home=DASHBOARD_PATH), clock, wakeups, apps=apps)
    tracer = open_tracer(config)
    if tracer is not None:
        tracing.set_tracer(tracer)
        plane.stops += [tracer.close, lambda: tracing.set_tracer(None)]
    own = None if authenticator else open_identity(config, clock, ids, partial(open_database, config, plane, tracer))
    authenticator = authenticator or authenticator_of(config, clock, own, _proxies(config))
    identify = None
    if isinstance(authenticator, KeystoneTokens):
        plane.app = authenticator.wrap(plane.app)
        identify = authenticator.identify
    plane.metrics.threads.set(config.server.threads)
    if hints is None:
        carrier = open_hints(
            config.plane.hints or None, wakeups, interrupted=lambda role: plane.metrics.hint_losses.labels(role).inc()
        )
    else:
        carrier = hints(wakeups)
    trail = open_trail(config, clock, plane.metrics)
    if trail is not None:
        plane.starts.append(trail.start)
        plane.stops.append(trail.close)
    return Components(
        config,
        clock,
        ids,
        _this_worker(config, clock),
        wakeups,
        carrier,
        apps,
        plane,
        authenticator,
        own,
        identify=identify,
        proxies=_proxies(config),
        tracer=tracer,
        trail=trail,
    )


def _proxies(config: Config) -> TrustedProxies:
    try:
        return TrustedProxies(comma_separated(config.server.proxies))
    except ValueError as error:
        raise StartError(
            f"{config.source}: [server] proxies: {error}; use addresses or networks such as 10.0.0.0/8"
        ) from error


def _clock(config: Config) -> Clock:
    return open_clock(config.state) if config.plane.clock == "adjustable" else SystemClock()


def _across_origins(config: Config, app: WsgiApp) -> WsgiApp:
    headers = frozenset(comma_separated(config.server.cors_headers.lower()))
    return CrossOrigin(config.cors_origins, headers).wrap(app) if config.cors_origins else app
