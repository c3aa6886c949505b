"""The network service: its use cases, constructed and connected."""

from dataclasses import dataclass
from functools import cached_property

from moorage.network.deps import NetworkDeps
from moorage.network.network_service import NetworkService
from moorage.network.port_service import PortService


@dataclass(frozen=True)
class Networking:
    deps: NetworkDeps

    @cached_property
    def networks(self) -> NetworkService:
        return NetworkService(self.deps)

    @cached_property
    def ports(self) -> PortService:
        return PortService(self.deps)
