"""One function per service: its database, its use cases, its routes, and its duty where it has one.

Each imports what it builds: a process that serves placement alone starts in half the time.
"""

import dataclasses
from datetime import timedelta

from moorage.config import ENDPOINT_PATHS, Config
from moorage.core.errors import StartError
from moorage.wiring.parts import Parts

#: Shorter than this a process that is busy for a while would read everything again and again.
LEAST_HISTORY_S = 60


def build_identity(parts: Parts) -> None:
    from moorage.identity import routes as identity_routes
    from moorage.identity.service import IdentityService

    if parts.identity is None:
        return  # Keystone serves it, or nobody needs it
    endpoints = {name: _public_endpoint(parts, name) for name in ENDPOINT_PATHS}
    service = IdentityService(parts.identity, endpoints, region=parts.config.plane.region)
    parts.serve("identity", identity_routes.API, service, identity_routes.RULES)


def _public_endpoint(parts: Parts, service: str) -> str:
    """For the catalogue: below this process, or the URL of [endpoints] with the version that clients expect."""
    elsewhere: str = getattr(parts.config.endpoints, service)
    _, _, version = ENDPOINT_PATHS[service][1:].partition("/")
    return f"{elsewhere.rstrip('/')}/{version}".rstrip("/") if elsewhere else ENDPOINT_PATHS[service]


def build_placement(parts: Parts) -> None:
    from moorage.placement import routes as placement_routes
    from moorage.placement.retention import RetentionDuty
    from moorage.placement.service import PlacementService

    engine = parts.engine("placement")
    options = parts.config.placement
    history = _history(parts.config)
    service = PlacementService(
        engine,
        parts.clock,
        parts.ids,
        watchers=max(0, min(options.watchers, parts.config.server.threads - 1)),  # one is for everybody else
        memory_s=options.memory_s,
        registry=parts.plane.metrics.registry,
    )
    service.candidates.max_steps = options.max_search_steps
    parts.plane.starts.append(service.start)
    parts.plane.drains.append(service.events.close)
    parts.plane.duties.append(RetentionDuty(engine, parts.clock, history=history))
    rules = placement_routes.POLICIES[options.policy]
    parts.serve("placement", placement_routes.API, service, rules, engine)


def _history(config: Config) -> timedelta:
    """How long changes are kept. Raises `StartError`."""
    history_s = config.placement.history_s
    if history_s < LEAST_HISTORY_S:
        raise StartError(
            f"{config.source}: [placement] history_s is {history_s}; it must be {LEAST_HISTORY_S} at least, for "
            "other processes learn of writes from the same log"
        )
    return timedelta(seconds=history_s)


def build_image(parts: Parts) -> None:
    from moorage.images import routes as image_routes
    from moorage.images.directory import ImageDirectory
    from moorage.images.service import ImageService

    service = ImageService(
        ImageDirectory(parts.config.state / "images", clock=parts.clock, ids=parts.ids),
        clock=parts.clock,
        ids=parts.ids,
    )
    parts.serve("image", image_routes.API, service, image_routes.RULES)


def build_compute(parts: Parts) -> None:
    from moorage.compute import routes as compute_routes
    from moorage.compute.build import BuildDuty
    from moorage.compute.service import ComputeService
    from moorage.images.client import ImageLookup
    from moorage.placement.client import PlacementClient

    engine = parts.engine("compute")
    options = parts.config.compute
    service = ComputeService(
        engine,
        parts.clock,
        parts.ids,
        parts.hints,
        images=ImageLookup(parts.client("image")),
        up_window_s=options.host_down_after_s,
        job_lease_s=parts.config.agent.job_lease_s,
    )
    parts.serve("compute", compute_routes.API, service, compute_routes.RULES, engine)
    placement = PlacementClient(parts.client("placement"))
    parts.plane.duties.append(
        BuildDuty(
            engine,
            parts.clock,
            parts.ids,
            placement,
            service.hosts,
            parts.hints,
            worker=parts.worker("builder"),
            poll_s=options.poll_period_s,
        )
    )


def build_accelerator(parts: Parts) -> None:
    from moorage.accelerator import routes as accelerator_routes
    from moorage.accelerator.service import AcceleratorService

    engine = parts.engine("accelerator")
    service = AcceleratorService(engine, parts.clock, parts.ids)
    parts.serve("accelerator", accelerator_routes.API, service, accelerator_routes.RULES, engine)


def build_reservation(parts: Parts) -> None:
    from moorage.compute.client import ComputeClient
    from moorage.placement.client import PlacementClient
    from moorage.reservation import routes as reservation_routes
    from moorage.reservation.service import ReservationService, ReservationSettings

    engine = parts.engine("reservation")
    options = dataclasses.asdict(parts.config.reservation)
    poll_s: float = options.pop("poll_period_s")
    service = ReservationService(
        engine,
        parts.clock,
        parts.ids,
        PlacementClient(parts.client("placement")),
        ComputeClient(parts.client("compute")),
        parts.wakeups,
        settings=ReservationSettings(**options),
    )
    parts.plane.duties.append(service.runner(poll_s=poll_s))
    parts.serve("reservation", reservation_routes.API, service, reservation_routes.RULES, engine)


def build_agent(parts: Parts) -> None:
    from moorage.wiring import host

    host.build_agent(parts)
