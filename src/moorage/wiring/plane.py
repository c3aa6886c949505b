"""A plane, part after part."""

import dataclasses
from collections.abc import Callable, Mapping

from moorage.config import Config
from moorage.core.clock import AdjustableClock, Clock, SystemClock
from moorage.core.ids import Ids, RandomIds
from moorage.identity.keystone import KeystoneTokens
from moorage.jobs.duties import Wakeups
from moorage.jobs.hints import open_hints
from moorage.rehearsal import routes as rehearsal_routes
from moorage.rehearsal.clock import open_clock
from moorage.wire.app import WsgiApp, mount
from moorage.wire.cors import CrossOrigin
from moorage.wire.scrape import scrape_app
from moorage.wiring.callers import authenticator_of, credentials_of, open_identity
from moorage.wiring.parts import Parts, Plane
from moorage.wiring.services import (
    build_accelerator,
    build_accelerator_agent,
    build_agent,
    build_compute,
    build_identity,
    build_image,
    build_placement,
    build_reservation,
)

SERVICES: Mapping[str, Callable[[Parts], None]] = {
    "identity": build_identity,
    "placement": build_placement,
    "image": build_image,
    "compute": build_compute,
    "accelerator": build_accelerator,
    "reservation": build_reservation,
    "agent": build_agent,
    "accelerator-agent": build_accelerator_agent,
}


def build_plane(config: Config, *, clock: Clock | None = None, ids: Ids | None = None) -> Plane:
    """The plane that `config` describes; nothing runs yet. Raises `StartError` for what cannot be used."""
    parts = _parts(config, clock or _clock(config), ids or RandomIds())
    plane = parts.plane
    if isinstance(parts.clock, AdjustableClock):
        parts.clock.on_advance.append(parts.wakeups.wake_all)
        parts.serve("moorage", rehearsal_routes.API, parts.clock, rehearsal_routes.RULES)
    if config.server.metrics != "off":
        everywhere = config.server.metrics == "everywhere"
        parts.apps["/metrics"] = scrape_app(plane.metrics, beyond_loopback=everywhere)
    for name, build_part in SERVICES.items():
        if name in config.runs:
            build_part(parts)
    plane.stops.append(parts.hints.close)
    plane.app = _across_origins(config, plane.app)
    return plane


def _parts(config: Config, clock: Clock, ids: Ids) -> Parts:
    wakeups = Wakeups()
    apps: dict[str, WsgiApp] = {}
    plane = Plane(mount(apps), clock, wakeups)
    own = open_identity(config, clock, ids)
    authenticator = authenticator_of(config, clock, own)
    if isinstance(authenticator, KeystoneTokens):
        plane.app = authenticator.around(plane.app)
    hints = open_hints(config.plane.hints or None, wakeups)
    parts = Parts(config, clock, ids, wakeups, hints, apps, plane, authenticator, own)
    return dataclasses.replace(parts, credentials=credentials_of(parts))


def _clock(config: Config) -> Clock:
    return open_clock(config.state) if config.plane.clock == "adjustable" else SystemClock()


def _across_origins(config: Config, app: WsgiApp) -> WsgiApp:
    origins, headers = (
        frozenset(word.strip() for word in text.split(",") if word.strip())
        for text in (config.server.cors_origins, config.server.cors_headers.lower())
    )
    return CrossOrigin(origins, headers).around(app) if origins else app
