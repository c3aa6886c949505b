"""The clients of our own network service for the ports of servers, see `moorage.network.client.server_ports`."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from moorage.core.errors import NotFound, RemoteError, Unavailable
from moorage.network.client.server_ports import (
    BoundAddress,
    BoundPort,
    ExistingPort,
    LearnedPort,
    PortOfServer,
    PortsRefused,
    UsableNetwork,
    WantedPort,
)
from moorage.wire.client import ServiceClient

#: A route that no Neutron has.
_OWN_DOCUMENT = "/moorage/v1/openapi.json"

#: Maximum number of ports of a request.
_MAX_PORTS = 500


class MoorageNetworkLookup:
    """`http` uses the endpoint of our network service, without ``/v2.0``. `credentials`: `Caller.credentials`."""

    def __init__(self, http: ServiceClient) -> None:
        self._http = http

    def networks(self, credentials: Mapping[str, str]) -> list[UsableNetwork]:
        rows = self._rows(credentials, "networks", [])
        return [msgspec.convert(row, UsableNetwork) for row in rows]

    def ports(self, credentials: Mapping[str, str], ids: Collection[str]) -> dict[str, ExistingPort]:
        rows = self._rows(credentials, "ports", [("id", each) for each in sorted(ids)])
        return {row["id"]: msgspec.convert(row, ExistingPort) for row in rows}

    def free_ports(self, credentials: Mapping[str, str], project_id: str) -> int | None:
        path = f"/v2.0/quotas/{project_id}/details.json"
        quota = self._http.on_behalf_of(credentials).get(path)["quota"]["port"]
        limit, used = int(quota["limit"]), int(quota["used"])
        return None if limit < 0 else max(0, limit - used)

    def _rows(self, credentials: Mapping[str, str], resource: str, filters: Sequence[tuple[str, str]]) -> Sequence[Any]:
        answer: Mapping[str, Sequence[Any]] = self._http.on_behalf_of(credentials).get(
            f"/v2.0/{resource}", params=filters
        )
        return answer[resource]


class MoorageServerPorts:
    """`http`: as for `MoorageNetworkLookup`, with the service's credentials."""

    def __init__(self, http: ServiceClient) -> None:
        self._http = http

    def bind(self, wanted: Sequence[WantedPort]) -> list[BoundPort]:
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
        learned: list[tuple[BoundAddress, ...]] = []
        for first in range(0, len(reports), _MAX_PORTS):
            body = {"ports": msgspec.to_builtins(reports[first : first + _MAX_PORTS])}
            answer = self._http.request("PUT", "/moorage/v1/learned-addresses", json=body)
            learned += [msgspec.convert(row["addresses"], tuple[BoundAddress, ...]) for row in answer["ports"]]
        return learned

    def plugged(self, server_id: str) -> Mapping[str, bool]:
        """Empty: a host alone attaches a guest to our networks."""
        return {}

    def release(self, server_id: str, project_id: str | None) -> None:
        self._http.request("DELETE", f"/moorage/v1/server-ports/{server_id}")

    def release_port(self, server_id: str, port_id: str) -> None:
        self._http.request("DELETE", f"/moorage/v1/server-ports/{server_id}/{port_id}")


class AuditablePorts(MoorageServerPorts):
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
