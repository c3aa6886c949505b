"""The ports of servers, as the compute service needs them: what each network service provides.

A request in progress looks networks and ports up with the caller's credentials (`NetworkLookup`): the network service
decides what the caller may see. Background work binds and releases ports with the service's credentials
(`ServerPorts`): each port names its project, which gets only networks that it may use, and only its own ports.

`moorage.network.client.moorage_ports` has the clients of our own network service,
`moorage.network.client.neutron_ports` those of a Neutron.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from moorage.core.errors import Conflict
from moorage.jobs.contract import PortDevice


class PortsRefused(Conflict):
    """The network service refuses the ports of a server. The message is its own, for the server's owner; `status` is
    that of its answer.
    """

    code = "network.refused"

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class UsableNetwork(msgspec.Struct, frozen=True):
    """A network that the caller may see. Fields have the names of the Networking API."""

    id: str
    name: str
    project_id: str
    shared: bool
    subnets: tuple[str, ...]


class ExistingPort(msgspec.Struct, frozen=True):
    """Fields have the names of the Networking API."""

    id: str
    network_id: str
    project_id: str
    device_id: str
    vnic_type: str = msgspec.field(name="binding:vnic_type", default="normal")
    device_profile: str | None = None


class WantedPort(msgspec.Struct, frozen=True, omit_defaults=True):
    """A port of a server. `network_id` None: the port exists and is the project's; else it is made if there is none.

    `device`: the port is the server's already, and is bound to this device of the host.
    """

    id: str
    project_id: str
    server_id: str
    host: str  #: empty: the server is on no host, or the host has not chosen the port's device
    network_id: str | None = None
    address: str | None = None
    device: PortDevice | None = None


class BoundAddress(msgspec.Struct, frozen=True):
    address: str
    subnet_id: str
    cidr: str
    gateway: str | None = None
    dns: tuple[str, ...] = ()


class BoundPort(msgspec.Struct, frozen=True):
    """The data with which a host attaches the server, and the server configures its interface.

    `kind`, `physical_network`, `segmentation_id`: see `moorage.jobs.contract.InterfacePayload`.
    """

    id: str  #: a Neutron chooses it itself, so it may differ from that of the `WantedPort`
    mac: str
    network_id: str
    network_name: str
    kind: str
    physical_network: str
    segmentation_id: int | None
    is_dhcp: bool  #: a DHCP server that is not ours gives the address
    addresses: tuple[BoundAddress, ...]
    mtu: int | None = None
    is_plugged: bool = True  #: False: the network service still has to connect what the host attaches


class PortOfServer(msgspec.Struct, frozen=True):
    """A port as the audit reads it. Fields have the names of the Networking API, if they are the same.

    `addresses`: without those that a DHCP server gave, which nobody can give the port again.
    """

    id: str
    project_id: str
    network_id: str
    device_id: str
    mac_address: str
    host: str
    addresses: tuple[str, ...]  #: that the network service gave
    has_address: bool  #: also one that the service has learned from a host
    updated_at: datetime


class LearnedPort(msgspec.Struct, frozen=True):
    """The addresses that a host reports of a port of one of its servers: all that it knows."""

    port_id: str
    server_id: str
    host: str
    mac: str
    addresses: tuple[str, ...]


class NetworkLookup(Protocol):
    """`credentials`: `Caller.credentials`."""

    def networks(self, credentials: Mapping[str, str]) -> list[UsableNetwork]: ...

    def ports(self, credentials: Mapping[str, str], ids: Collection[str]) -> dict[str, ExistingPort]:
        """{id: port} for those that the caller may see."""
        ...

    def free_ports(self, credentials: Mapping[str, str], project_id: str) -> int | None:
        """Number of ports that the project may still create; None: no limit."""
        ...


class ServerPorts(Protocol):
    def bind(self, wanted: Sequence[WantedPort]) -> list[BoundPort]:
        """Binds the ports to their servers and hosts, in the order of `wanted`, and makes those that are missing.

        May be repeated. Raises `PortsRefused`; some of the ports may then be bound, until `release`.
        """
        ...

    def learn(self, reports: Sequence[LearnedPort]) -> list[tuple[BoundAddress, ...]]:
        """Replaces the learned addresses of the ports; returns those that each port may have, in the same order."""
        ...

    def plugged(self, server_id: str) -> Mapping[str, bool]:
        """{port id: whether the network service has connected what its host attached}, of the server's ports."""
        ...

    def release(self, server_id: str, project_id: str | None) -> None:
        """Deletes the ports that were made for the server, and frees its others. May be repeated.

        `project_id`: the server's, if it is known; ports of other projects are none of its ports, whatever they name.
        """
        ...

    def release_port(self, server_id: str, port_id: str) -> None:
        """The same for one port, by its id or that of its `WantedPort`. Does nothing for a port of another server."""
        ...
