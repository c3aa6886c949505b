"""The compute service: its use cases, constructed and connected."""

from collections.abc import Mapping

from sqlalchemy import Engine

from moorage.compute.agents.agent_service import AgentService
from moorage.compute.agents.disk_image_service import DiskImageService
from moorage.compute.agents.domain_service import DomainService
from moorage.compute.agents.provider_config_service import ProviderConfigService
from moorage.compute.catalogue.baremetal_flavors import BareMetal
from moorage.compute.catalogue.flavor_service import FlavorService
from moorage.compute.catalogue.keypair_service import KeypairService
from moorage.compute.hosts.host_service import UP_WINDOW_S, HostService
from moorage.compute.model.quota import DEFAULTS
from moorage.compute.moves.move_service import MoveService
from moorage.compute.requests.group_service import GroupService
from moorage.compute.requests.quota_service import QuotaService, UsageLookup
from moorage.compute.requests.server_request import PlacementNames, ProfileLookup
from moorage.compute.requests.server_service import ServerService, TagService
from moorage.compute.scheduling.pipeline import HostSelector
from moorage.compute.servers.create_service import CreateService
from moorage.compute.servers.delete_service import DeleteService
from moorage.compute.servers.explain_service import ExplainService
from moorage.compute.servers.operate_service import OperateService
from moorage.core.clock import Clock
from moorage.core.ids import Ids
from moorage.images.base import ImageSource
from moorage.images.client import ImageLookup, ImageWriter
from moorage.images.for_hosts import HostImages
from moorage.jobs.host_jobs import JOB_LEASE_S
from moorage.jobs.wakeups import Hints
from moorage.placement.client.placement_client import PlacementClient
from moorage.scheduler.options import SchedulerSettings


class ComputeService:
    """`images` None: image ids are not checked. `disk_images`, `image_source`: for hosts. The rest: see the services
    that get them.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        hints: Hints,
        *,
        images: ImageLookup | None = None,
        image_writer: ImageWriter | None = None,
        disk_images: ImageWriter | None = None,
        image_source: ImageSource | None = None,
        reclaim_after_s: float = 0,
        quotas: Mapping[str, int] = DEFAULTS,
        usages: UsageLookup | None = None,
        placement: PlacementClient | None = None,
        scheduler: SchedulerSettings | None = None,
        profiles: ProfileLookup | None = None,
        offload_after_s: float = 0,
        up_window_s: float = UP_WINDOW_S,
        job_lease_s: float = JOB_LEASE_S,
        allow_resize_to_same_host: bool = False,
    ) -> None:
        self.clock = clock
        self.quotas = QuotaService(engine, defaults=quotas, placement=usages)
        self.keypairs = KeypairService(engine, clock, self.quotas)
        self.flavors = FlavorService(engine, clock, ids)
        self.hosts = HostService(engine, clock, ids, hints, up_window_s=up_window_s)
        self.servers = ServerService(engine, clock, ids, self.quotas)
        self.groups = GroupService(engine, clock, ids, self.quotas)
        known = None if placement is None else PlacementNames(placement)
        self.creation = CreateService(
            engine, clock, ids, hints, self.quotas, self.groups, images=images, names=known, profiles=profiles
        )
        selector = None if placement is None else HostSelector(engine, clock, placement, self.hosts, scheduler)
        self.bare_metal = None if placement is None else BareMetal(engine, clock, placement)
        self.explanations = ExplainService(engine, self.creation, selector)
        self.tags = TagService(engine, clock)
        self.operations = OperateService(
            engine, clock, ids, hints, images=images, image_writer=image_writer, placement=placement
        )
        self.deletion = DeleteService(engine, clock, ids, hints, self.hosts, reclaim_after_s=reclaim_after_s)
        self.moves = MoveService(
            engine, clock, ids, hints, self.hosts, self.quotas, names=known, profiles=profiles,
            stays_on_host=allow_resize_to_same_host,
        )  # fmt: skip
        self.agents = AgentService(
            engine, clock, ids, hints, job_lease_s=job_lease_s, offload_after_s=offload_after_s, placement=placement
        )
        self.domains = DomainService(engine, clock)
        self.disk_images = DiskImageService(engine, disk_images)
        self.images_for_hosts = HostImages(image_source, self.disk_images.images_named_for)
        self.provider_configs = ProviderConfigService(engine, clock, ids, hints)
