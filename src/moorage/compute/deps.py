"""The dependencies of compute's use cases: database, clock, ids, hints, clients of other services, and settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sqlalchemy import Engine

from moorage.compute.model.outages import Outages
from moorage.compute.model.quota import DEFAULTS
from moorage.core.caller import Caller
from moorage.core.clock import Clock
from moorage.core.ids import Ids
from moorage.images.base import ImageSource
from moorage.images.client import CallerImages, ImageLookup, ImageWriter
from moorage.jobs.host_jobs import JOB_LEASE_S
from moorage.jobs.wakeups import Hints
from moorage.network.client.server_ports import NetworkLookup, ServerPorts
from moorage.placement.client.placement_client import PlacementClient
from moorage.scheduler.options import SchedulerSettings
from moorage.scheduler.spec_rules import NO_RULES, SpecRules


class ProfileLookup(Protocol):
    def profile_groups(self, name: str) -> Sequence[Mapping[str, str]] | None:
        """``[{"resources:CUSTOM_ACCELERATOR_FPGA": "1", "trait:CUSTOM_X": "required", "accel:function_id": ...}]``.

        None if there is no such profile.
        """
        ...


@dataclass(frozen=True)
class ComputeDeps:
    """`placement` None: names in flavors, providers of hosts and usages in Placement are not looked at, and nothing is
    scheduled. `images`, `caller_images`, `image_writer`, `image_source` None: no image service is configured; image ids
    are not checked, and no image can be made. `networks`, `server_ports` None: servers have no networks. `profiles`
    None: the cloud has no accelerators.
    """

    engine: Engine
    clock: Clock
    ids: Ids
    hints: Hints
    placement: PlacementClient | None = None
    images: ImageLookup | None = None
    caller_images: CallerImages | None = None  #: for the proxy to images
    image_writer: ImageWriter | None = None
    image_source: ImageSource | None = None  #: for hosts
    networks: NetworkLookup | None = None  #: for requests of callers
    server_ports: ServerPorts | None = None  #: for servers
    profiles: ProfileLookup | None = None
    port_device_profiles: frozenset[str] = frozenset()  #: names of those that ports may have
    outages: Outages = field(default_factory=Outages)
    spec_rules: SpecRules = NO_RULES
    #: Returns the URL of the proxy of serial consoles, for people; None: there is no proxy.
    console_url: Callable[[], str] | None = None
    #: (user id, project id) -> the user with the present roles; None if these do not allow a console.
    console_caller: Callable[[str, str], Caller | None] = lambda _user_id, _project_id: None


@dataclass(frozen=True)
class ComputeSettings:
    quotas: dict[str, int] = field(default_factory=lambda: dict(DEFAULTS))  #: a value for every limit
    up_window_s: float = 60.0  #: a host that is silent for longer is down
    job_lease_s: float = JOB_LEASE_S  #: see `moorage.jobs.host_jobs`
    reclaim_after_s: float = 0  #: servers are deleted this long after the request; 0: at once
    offload_after_s: float = 0  #: shelved servers are offloaded after this time; 0: at once, negative: never
    quota_consoles: int = 20  #: serial consoles of a project, open or asked for; negative: no limit
    allow_resize_to_same_host: bool = False  #: whether a resize may end on the host where it began
    scheduler: SchedulerSettings | None = None
