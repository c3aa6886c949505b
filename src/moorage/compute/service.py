"""The compute service: its use cases, constructed and connected."""

from moorage.compute.agents.agent_service import AgentService, ProviderConfigService
from moorage.compute.agents.disk_image_service import DiskImageService
from moorage.compute.agents.domain_service import DomainService
from moorage.compute.catalogue.baremetal_flavors import BareMetal
from moorage.compute.catalogue.flavor_service import FlavorService
from moorage.compute.catalogue.image_proxy import ImageProxy
from moorage.compute.catalogue.keypair_service import KeypairService
from moorage.compute.deps import ComputeDeps, ComputeSettings
from moorage.compute.hosts import HostService
from moorage.compute.moves.migration_engine import MigrationEngine
from moorage.compute.moves.move_service import MoveService
from moorage.compute.requests.group_service import GroupService
from moorage.compute.requests.host_commands import HostCommands
from moorage.compute.requests.quota_service import QuotaService
from moorage.compute.requests.server_request import PlacementNames
from moorage.compute.requests.server_service import ServerService, TagService
from moorage.compute.scheduling.pipeline import HostSelector
from moorage.compute.servers.console_service import ConsoleService
from moorage.compute.servers.create_service import CreateService
from moorage.compute.servers.delete_service import DeleteService
from moorage.compute.servers.explain_service import ExplainService
from moorage.compute.servers.interface_service import InterfaceService
from moorage.compute.servers.operate_service import OperateService
from moorage.compute.servers.plugging_service import PluggingService
from moorage.images.for_hosts import HostImages


class ComputeService:
    def __init__(self, deps: ComputeDeps, settings: ComputeSettings) -> None:
        self.deps = deps
        self.settings = settings
        commands, migrations = HostCommands(deps), MigrationEngine(deps)
        names = None if deps.placement is None else PlacementNames(deps.placement)
        self.quotas = QuotaService(deps, settings)
        self.keypairs = KeypairService(deps, self.quotas)
        self.flavors = FlavorService(deps)
        self.image_proxy = ImageProxy(deps)
        self.hosts = HostService(deps, settings)
        self.servers = ServerService(deps, self.quotas, commands)
        self.groups = GroupService(deps, self.quotas)
        self.creation = CreateService(deps, self.quotas, self.groups, names)
        self.explanations = ExplainService(deps, self.creation, self._selector())
        self.bare_metal = None if deps.placement is None else BareMetal(deps, deps.placement)
        self.tags = TagService(deps)
        self.operations = OperateService(deps, commands, migrations)
        self.consoles = ConsoleService(deps, settings, self.hosts)
        self.interfaces = InterfaceService(deps, commands)
        self.plugging = PluggingService(deps, self.interfaces)
        self.deletion = DeleteService(deps, settings, self.hosts, commands, migrations)
        self.moves = MoveService(deps, settings, self.hosts, self.quotas, names, commands, migrations)
        self.agents = AgentService(deps, settings, migrations)
        self.domains = DomainService(deps)
        self.disk_images = DiskImageService(deps)
        self.images_for_hosts = HostImages(deps.image_source, self.disk_images.images_named_for)
        self.provider_configs = ProviderConfigService(deps)

    def _selector(self) -> HostSelector | None:
        engine, clock, placement = self.deps.engine, self.deps.clock, self.deps.placement
        if placement is None:
            return None
        return HostSelector(engine, clock, placement, self.hosts, self.settings.scheduler)
