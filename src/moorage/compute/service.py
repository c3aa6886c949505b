"""The compute service: its use cases, grouped by what they are about."""

from sqlalchemy import Engine

from moorage.compute.agent_service import JOB_LEASE_S, AgentService
from moorage.compute.flavor_service import FlavorService
from moorage.compute.host_service import UP_WINDOW_S, HostService
from moorage.compute.server_request import Image, ImageLookup
from moorage.compute.server_service import ServerService
from moorage.core.clock import Clock
from moorage.core.ids import Ids
from moorage.jobs.hints import Hints

__all__ = ["ComputeService", "Image", "ImageLookup"]


class ComputeService:
    """`images` None: image ids are taken as they come. Seconds: see the services that they are passed to."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        hints: Hints,
        *,
        images: ImageLookup | None = None,
        up_window_s: float = UP_WINDOW_S,
        job_lease_s: float = JOB_LEASE_S,
    ) -> None:
        self.clock = clock
        self.flavors = FlavorService(engine, clock, ids)
        self.hosts = HostService(engine, clock, ids, hints, up_window_s=up_window_s)
        self.servers = ServerService(engine, clock, ids, hints, images=images)
        self.agents = AgentService(engine, clock, ids, hints, job_lease_s=job_lease_s)
