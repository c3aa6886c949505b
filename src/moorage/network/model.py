"""[pure] Networks, subnets and ports, and how a network reaches the hosts."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from moorage.network.addressing import AddressPool

#: The owner that Neutron records for ports of servers.
SERVER_OWNER = "compute:nova"


class NetworkKind(StrEnum):
    """``provider:network_type`` of the Networking API. `physical_network` is what a host attaches its guests to."""

    FLAT = "flat"  #: a bridge
    VLAN = "vlan"  #: a VLAN of a bridge, whose number is the segmentation id
    LOCAL = "local"  #: a network of libvirt


@dataclass(frozen=True, slots=True)
class Segment:
    """The bridge, VLAN or network of libvirt to which hosts attach guests. No two networks have the same."""

    kind: NetworkKind
    physical_network: str
    segmentation_id: int | None = None  #: of a VLAN: 1 to 4094

    def __str__(self) -> str:
        if self.kind is NetworkKind.VLAN:
            return f"vlan {self.segmentation_id} on {self.physical_network}"
        return f"{'bridge' if self.kind is NetworkKind.FLAT else 'libvirt'} {self.physical_network}"


@dataclass(frozen=True, slots=True)
class Network:
    id: str
    name: str
    project_id: str
    segment: Segment
    is_shared: bool  #: every project may use it
    is_configured: bool  #: from the configuration file, which alone changes it
    description: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Subnet:
    """`pools` are empty if a DHCP server that we do not run gives the addresses."""

    id: str
    network_id: str
    project_id: str
    name: str
    cidr: str
    gateway: str | None
    dns: tuple[str, ...]
    pools: tuple[AddressPool, ...]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class PortAddress:
    subnet_id: str
    address: str
    is_learned: bool = False  #: a DHCP server that we do not run gave it, and the host of the server reported it


@dataclass(frozen=True, slots=True)
class Port:
    """`device_id`: the server that it belongs to; empty for a port that is free."""

    id: str
    network_id: str
    project_id: str
    name: str
    description: str
    mac: str
    device_id: str
    host: str  #: of the server; empty for a port that is free
    is_for_server: bool  #: made for the server, and deleted with it
    created_at: datetime
    updated_at: datetime
    addresses: tuple[PortAddress, ...] = ()

    @property
    def given(self) -> tuple[PortAddress, ...]:
        """The addresses that we gave the port; without one, a DHCP server gives them."""
        return tuple(one for one in self.addresses if not one.is_learned)
