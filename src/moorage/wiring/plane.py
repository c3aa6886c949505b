"""A plane, part after part."""

import dataclasses
from collections.abc import Callable, Mapping

from moorage.config import Config
from moorage.core.clock import AdjustableClock, Clock, SystemClock
from moorage.core.ids import Ids, RandomIds
from moorage.identity.keystone import KeystoneTokens
from moorage.jobs.duties import Wakeups
from moorage.jobs.hints import Hints, open_hints
from moorage.rehearsal import routes as rehearsal_routes
from moorage.rehearsal.clock import open_clock
from moorage.telemetry import tracing
from moorage.wire.app import WsgiApp, mount
from moorage.wire.cors import CrossOrigin
from moorage.wire.scrape import scrape_app
from moorage.wire.transports import SocketTransport, Transport
from moorage.wiring.callers import authenticator_of, credentials_of, open_identity
from moorage.wiring.parts import Parts, Plane
from moorage.wiring.services import (
    build_accelerator,
    build_accelerator_agent,
    build_agent,
    build_compute,
    build_dashboard,
    build_identity,
    build_image,
    build_placement,
    build_reservation,
)
from moorage.wiring.tracing import open_tracer

SERVICES: Mapping[str, Callable[[Parts], None]] = {
    "identity": build_identity,
    "placement": build_placement,
    "image": build_image,
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
    reach: Callable[[str], Transport] = SocketTransport,
    hints: Callable[[Wakeups], Hints] | None = None,
) -> Plane:
    """The plane that `config` describes; nothing runs yet. Raises `StartError` for what cannot be used.

    `reach` leads to the URLs of [endpoints], and `hints` stand for those of [plane] hints, where it all is a simulation.
    """
    parts = _parts(config, clock or _clock(config), ids or RandomIds(), hints)
    parts.reach = reach
    plane = parts.plane
    if isinstance(parts.clock, AdjustableClock):
        parts.clock.on_advance.append(plane.catch_up)
        parts.serve("moorage", rehearsal_routes.API, parts.clock, rehearsal_routes.RULES)
    if config.server.metrics != "off":
        everywhere = config.server.metrics == "everywhere"
        parts.apps["/metrics"] = scrape_app(plane.metrics, beyond_loopback=everywhere)
    for name, build_part in SERVICES.items():
        if name in config.runs:
            build_part(parts)
    if parts.engines.keys() & {"compute", "accelerator"}:
        # Not for who has no table of jobs: it brings the clients of all services with it.
        from moorage.wiring.audit import build_audit

        build_audit(parts)
    plane.stops.append(parts.hints.close)
    plane.app = _across_origins(config, plane.app)
    return plane


def _parts(config: Config, clock: Clock, ids: Ids, hints: Callable[[Wakeups], Hints] | None) -> Parts:
    wakeups = Wakeups()
    apps: dict[str, WsgiApp] = {}
    plane = Plane(mount(apps), clock, wakeups)
    own = open_identity(config, clock, ids)
    authenticator = authenticator_of(config, clock, own)
    if isinstance(authenticator, KeystoneTokens):
        plane.app = authenticator.around(plane.app)
    plane.metrics.threads.set(config.server.threads)
    if hints is None:
        carrier = open_hints(
            config.plane.hints or None, wakeups, interrupted=lambda role: plane.metrics.hint_losses.labels(role).inc()
        )
    else:
        carrier = hints(wakeups)
    tracer = open_tracer(config)
    if tracer is not None:
        tracing.switch(tracer)
        plane.stops += [tracer.close, lambda: tracing.switch(None)]
    parts = Parts(config, clock, ids, wakeups, carrier, apps, plane, authenticator, own, tracer=tracer)
    return dataclasses.replace(parts, credentials=credentials_of(parts))


def _clock(config: Config) -> Clock:
    return open_clock(config.state) if config.plane.clock == "adjustable" else SystemClock()


def _across_origins(config: Config, app: WsgiApp) -> WsgiApp:
    origins, headers = (
        frozenset(word.strip() for word in text.split(",") if word.strip())
        for text in (config.server.cors_origins, config.server.cors_headers.lower())
    )
    return CrossOrigin(origins, headers).around(app) if origins else app
