"""The client of our own network service, for the compute service.

A request in progress looks networks and ports up with the caller's credentials (`NetworkLookup`): the network service
decides what the caller may see. Background work binds and releases ports with the service's credentials
(`ServerPorts`): each port names its project, and the network service gives that project only networks that it may use,
and only its own ports.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from moorage.core.errors import Conflict, NotFound, RemoteError, Unavailable
from moorage.wire.client import ServiceClient

#: A route that no Neutron has.
_OWN_DOCUMENT = "/moorage/v1/openapi.json"

#: Maximum number of ports of a request.
_MAX_PORTS = 500


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
    id: str
    network_id: str
    project_id: str
    device_id: str


class WantedPort(msgspec.Struct, frozen=True):
    """A port of a server. `network_id` None: the port exists and is the project's; else it is made if there is none."""

    id: str
    project_id: str
    server_id: str
    host: str  #: empty: the server is on no host
    network_id: str | None = None
    address: str | None = None


class BoundAddress(msgspec.Struct, frozen=True):
    address: str
    subnet_id: str
    cidr: str
    gateway: str | None = None
    dns: tuple[str, ...] = ()


class BoundPort(msgspec.Struct, frozen=True):
    """The data with which a host attaches the server, and the server configures its interface.

    `kind`, `physical_network`, `segmentation_id`: see `moorage.network.model.Segment`.
    """

    id: str
    mac: str
    network_id: str
    network_name: str
    kind: str
    physical_network: str
    segmentation_id: int | None
    is_dhcp: bool  #: a DHCP server that is not ours gives the address
    addresses: tuple[BoundAddress, ...]


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


class NetworkLookup:
    """`http` uses the endpoint of our network service, without ``/v2.0``. `credentials`: `Caller.credentials`."""

    def __init__(self, http: ServiceClient) -> None:
        self._http = http

    def networks(self, credentials: Mapping[str, str]) -> list[UsableNetwork]:
        rows = self._rows(credentials, "networks", [])
        return [msgspec.convert(row, UsableNetwork) for row in rows]

    def ports(self, credentials: Mapping[str, str], ids: Collection[str]) -> dict[str, ExistingPort]:
        """{id: port} for those that the caller may see."""
        rows = self._rows(credentials, "ports", [("id", each) for each in sorted(ids)])
        return {row["id"]: msgspec.convert(row, ExistingPort) for row in rows}

    def free_ports(self, credentials: Mapping[str, str], project_id: str) -> int | None:
        """Number of ports that the project may still create; None: no limit."""
        path = f"/v2.0/quotas/{project_id}/details.json"
        quota = self._http.on_behalf_of(credentials).get(path)["quota"]["port"]
        limit, used = int(quota["limit"]), int(quota["used"])
        return None if limit < 0 else max(0, limit - used)

    def _rows(self, credentials: Mapping[str, str], resource: str, filters: Sequence[tuple[str, str]]) -> Sequence[Any]:
        answer: Mapping[str, Sequence[Any]] = self._http.on_behalf_of(credentials).get(
            f"/v2.0/{resource}", params=filters
        )
        return answer[resource]


class ServerPorts:
    """`http`: as for `NetworkLookup`, with the service's credentials."""

    def __init__(self, http: ServiceClient) -> None:
        self._http = http

    def bind(self, wanted: Sequence[WantedPort]) -> list[BoundPort]:
        """Binds the ports to their servers and hosts, in the order of `wanted`, and makes those that are missing.

        May be repeated. Raises `PortsRefused`; some of the ports may then be bound, until `release`.
        """
        bound: list[BoundPort] = []
        for first in range(0, len(wanted), _MAX_PORTS):
            body = {"ports": msgspec.to_builtins(wanted[first : first + _MAX_PORTS])}
            try:
                answer = self._http.request("PUT", "/moorage/v1/server-ports", json=body)
            except (NotFound, RemoteError) as error:
                if isinstance(error, RemoteError) and error.status >= 500:
                    raise
                status = error.status if isinstance(error, RemoteError) else 404
                raise PortsRefused(str(error.fields.get("detail") or error.message), status=status) from error
            bound += msgspec.convert(answer["ports"], list[BoundPort])
        return bound

    def learn(self, reports: Sequence[LearnedPort]) -> list[tuple[BoundAddress, ...]]:
        """Replaces the learned addresses of the ports; returns those that each port may have, in the same order."""
        learned: list[tuple[BoundAddress, ...]] = []
        for first in range(0, len(reports), _MAX_PORTS):
            body = {"ports": msgspec.to_builtins(reports[first : first + _MAX_PORTS])}
            answer = self._http.request("PUT", "/moorage/v1/learned-addresses", json=body)
            learned += [msgspec.convert(row["addresses"], tuple[BoundAddress, ...]) for row in answer["ports"]]
        return learned

    def release(self, server_id: str) -> None:
        """Deletes the ports that were made for the server, and frees its others. May be repeated."""
        self._http.request("DELETE", f"/moorage/v1/server-ports/{server_id}")

    def release_port(self, server_id: str, port_id: str) -> None:
        """The same for one port. Does nothing for a port of another server."""
        self._http.request("DELETE", f"/moorage/v1/server-ports/{server_id}/{port_id}")


class AuditablePorts(ServerPorts):
    """For `moorage.audit`, with an administrator's credentials: reads the ports of all servers, and may release one."""

    def __init__(self, http: ServiceClient) -> None:
        super().__init__(http)
        self._reading = http

    def bound_ports(self) -> list[PortOfServer] | None:
        """The ports of all servers; None if the service does not answer, or is a Neutron, whose ports Moorage's compute
        does not make.
        """
        try:
            probe = self._reading.request_raw("GET", _OWN_DOCUMENT, accept=(401, 404))
        except Unavailable:
            return None
        if probe.status != 200:
            return None
        rows = self._reading.get("/v2.0/ports")["ports"]
        return [_port_of_server(row) for row in rows if row["device_id"]]

    def port(self, port_id: str) -> PortOfServer | None:
        """None if there is no such port."""
        rows = self._reading.get("/v2.0/ports", params=[("id", port_id)])["ports"]
        return _port_of_server(rows[0]) if rows else None


def _port_of_server(row: Mapping[str, Any]) -> PortOfServer:
    learned = row["binding:vif_details"].get("learned_addresses", ())
    given = tuple(one["ip_address"] for one in row["fixed_ips"] if one["ip_address"] not in learned)
    return PortOfServer(
        row["id"], row["project_id"], row["network_id"], row["device_id"], row["mac_address"], row["binding:host_id"],
        given, bool(row["fixed_ips"]), datetime.fromisoformat(row["updated_at"]),
    )  # fmt: skip
