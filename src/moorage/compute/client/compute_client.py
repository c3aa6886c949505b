"""The client of the compute service for other services and host agents.

All methods but the agents' use the public Compute API only, so that a real Nova can be at the other end. `http`
addresses the root of the service: paths begin with ``/v2.1``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict
from urllib.parse import quote

import msgspec

from moorage.compute.client.values import (
    Aggregate,
    ComputeNode,
    Explanation,
    Flavor,
    Hypervisor,
    Migration,
    Server,
    ServerGroup,
    ServerHere,
    ServerState,
    aggregate_of,
    flavor_of,
    hypervisor_of,
    migration_of,
    server_of,
    server_state_of,
)
from moorage.core.errors import Conflict, NotFound, RemoteError
from moorage.core.json import JsonObject
from moorage.jobs.contract import InterfacePayload, PortDevice
from moorage.jobs.job_api import HostJobsClient
from moorage.wire.client import ServiceClient, decode_body

#: With capacity fields (below 2.88), and with cpu_info as an object (from 2.28 on).
_WITH_CAPACITY = "2.87"
#: Servers show the id of their flavor only below 2.47.
_WITH_FLAVOR_ID = "2.46"
_AGGREGATES = "2.81"
#: From here on, lists include servers of cells that do not answer, and hypervisors and migrations have uuids.
_EVERYWHERE = "2.69"
_FLAVORS = "2.61"
#: From here on, events of accelerators exist.
_EVENTS = "2.82"
#: From here on, a group has one policy.
_GROUPS = "2.64"
_PAGE = 500


class HostFactsDocument(TypedDict):
    """The arguments of `ComputeClient.register_host`."""

    provider_uuid: str
    hypervisor_type: str
    hypervisor_version: int
    host_ip: str
    vcpus: int
    memory_mb: int
    local_gb: int
    devices: int
    capabilities: Sequence[str]


class ComputeClient(HostJobsClient):
    """Needs the credentials of an administrator or a service. Deleting something that does not exist succeeds."""

    # ----------------------------------------------------------------------------------- hypervisors

    def hypervisor(self, name: str) -> Hypervisor | None:
        """The hypervisor of exactly this name."""
        params = {"hypervisor_hostname_pattern": name, "with_servers": "true"}
        try:
            found = self._http.get("/v2.1/os-hypervisors/detail", params=params, version=_WITH_CAPACITY)["hypervisors"]
        except NotFound:  # Nova's answer if no name matches
            return None
        except RemoteError as error:
            if error.status == 400:  # Nova's answer if the text cannot be a name
                return None
            raise
        return next((hypervisor_of(row) for row in found if row["hypervisor_hostname"] == name), None)

    def nodes(self) -> dict[str, ComputeNode]:
        """{hypervisor hostname: node} for all hypervisors."""
        rows = self._rows("/v2.1/os-hypervisors", "hypervisors")
        return {row["hypervisor_hostname"]: ComputeNode(str(row["id"]), row["state"] == "up") for row in rows}

    def hosts_up(self) -> dict[str, bool]:
        """{host of a compute service: whether it is up and enabled}"""
        params = {"binary": "nova-compute"}
        rows = self._http.get("/v2.1/os-services", params=params, version=_EVERYWHERE)["services"]
        return {row["host"]: (row["state"], row["status"]) == ("up", "enabled") for row in rows}

    # --------------------------------------------------------------------------------------- flavors

    def flavor(self, name_or_id: str) -> Flavor | None:
        """The flavor with this id, or else with exactly this name."""
        answer = self._http.request_raw("GET", f"/v2.1/flavors/{_quoted(name_or_id)}", version=_FLAVORS, accept=(404,))
        if answer.status == 200:
            return flavor_of(decode_body(answer)["flavor"])
        return next((one for one in self.flavors() if one.name == name_or_id), None)

    def flavors(self) -> Iterator[Flavor]:
        """All flavors, including those that are not public."""
        rows = self._rows("/v2.1/flavors/detail", "flavors", {"is_public": "None"}, version=_FLAVORS)
        return map(flavor_of, rows)

    def create_flavor(
        self,
        flavor_id: str,
        name: str,
        vcpus: int,
        ram_mb: int,
        disk_gb: int,
        *,
        ephemeral_gb: int = 0,
        swap_mb: int = 0,
        public: bool = False,
    ) -> None:
        """Creates a flavor; does nothing if one with this id exists.

        So the call may be repeated after a crash or a lost answer, and a request that takes effect late does no harm.
        """
        flavor = {
            "id": flavor_id,
            "name": name,
            "vcpus": vcpus,
            "ram": ram_mb,
            "disk": disk_gb,
            "os-flavor-access:is_public": public,
            **({"OS-FLV-EXT-DATA:ephemeral": ephemeral_gb} if ephemeral_gb else {}),
            **({"swap": swap_mb} if swap_mb else {}),
        }
        try:
            self._http.request("POST", "/v2.1/flavors", json={"flavor": flavor}, version=_FLAVORS, repeatable=True)
        except RemoteError as error:
            if error.status != 409 or not self.has_flavor(flavor_id):
                raise

    def set_extra_specs(self, flavor_id: str, specs: Mapping[str, str]) -> None:
        self._http.request(
            "POST", f"/v2.1/flavors/{_quoted(flavor_id)}/os-extra_specs", json={"extra_specs": dict(specs)},
            version=_FLAVORS, repeatable=True,
        )  # fmt: skip

    def delete_flavor(self, flavor_id: str) -> None:
        self._delete(f"/v2.1/flavors/{_quoted(flavor_id)}")

    def flavor_access(self, flavor_id: str) -> set[str]:
        """Projects that may use a private flavor; empty if there is no such flavor."""
        path = f"/v2.1/flavors/{_quoted(flavor_id)}/os-flavor-access"
        answer = self._http.request_raw("GET", path, accept=(404,))
        return set() if answer.status == 404 else {row["tenant_id"] for row in decode_body(answer)["flavor_access"]}

    def add_flavor_access(self, flavor_id: str, project_id: str) -> None:
        """Succeeds if the project has access already."""
        self._flavor_action(flavor_id, {"addTenantAccess": {"tenant": project_id}}, harmless=409)

    def remove_flavor_access(self, flavor_id: str, project_id: str) -> None:
        self._flavor_action(flavor_id, {"removeTenantAccess": {"tenant": project_id}}, harmless=404)

    def _flavor_action(self, flavor_id: str, action: JsonObject, *, harmless: int) -> None:
        path = f"/v2.1/flavors/{_quoted(flavor_id)}/action"
        self._http.request_raw("POST", path, json=action, repeatable=True, accept=(harmless,))

    def has_flavor(self, flavor_id: str) -> bool:
        path = f"/v2.1/flavors/{_quoted(flavor_id)}"
        return self._http.request_raw("GET", path, version=_FLAVORS, accept=(404,)).status == 200

    # --------------------------------------------------------------------------------------- servers

    def servers_of_flavor(self, flavor_id: str) -> list[Server]:
        """The servers of all projects that have this flavor."""
        wanted = {"flavor": flavor_id, "all_tenants": "true"}
        return [
            server_of(row) for row in self._rows("/v2.1/servers/detail", "servers", wanted, version=_WITH_FLAVOR_ID)
        ]

    def servers_of_host(self, host: str) -> list[Server]:
        """The servers of all projects on the compute service of this name."""
        wanted = {"host": host, "all_tenants": "true"}
        return [
            server_of(row) for row in self._rows("/v2.1/servers/detail", "servers", wanted, version=_WITH_FLAVOR_ID)
        ]

    def server_states(self) -> dict[str, ServerState | None]:
        """{server id: its state} for all projects. None if its cell does not answer, or if host or flavor are not
        visible to us.
        """
        rows = self._rows("/v2.1/servers/detail", "servers", {"all_tenants": "true"})
        return {row["id"]: server_state_of(row) for row in rows}

    def server(self, server_id: str) -> Server | None:
        """None if there is no such server."""
        row = self._server_row(server_id, _WITH_FLAVOR_ID)
        return None if row is None else server_of(row)

    def server_state(self, server_id: str) -> ServerState | None:
        """The state as `server_states` returns it; None also if there is no such server."""
        row = self._server_row(server_id)
        return None if row is None else server_state_of(row)

    def server_owner(self, server_id: str) -> tuple[str, str] | None:
        """(project, user); None if there is no such server."""
        row = self._server_row(server_id)
        return None if row is None else (row["tenant_id"], row["user_id"])

    def interface_ports(self, server_id: str) -> frozenset[str] | None:
        """IDs of the ports that the server lists; None if there is no such server."""
        path = f"/v2.1/servers/{_quoted(server_id)}/os-interface"
        answer = self._http.request_raw("GET", path, version=_EVERYWHERE, accept=(404,))
        if answer.status == 404:
            return None
        return frozenset(row["port_id"] for row in decode_body(answer)["interfaceAttachments"])

    def server_name(self, server_id: str) -> str | None:
        """None if there is no such server."""
        row = self._server_row(server_id)
        return None if row is None else str(row["name"])

    def _server_row(self, server_id: str, version: str = _EVERYWHERE) -> Mapping[str, Any] | None:
        answer = self._http.request_raw("GET", f"/v2.1/servers/{_quoted(server_id)}", version=version, accept=(404,))
        return None if answer.status == 404 else decode_body(answer)["server"]

    def migrations(self, wanted: Mapping[str, str] | None = None) -> list[Migration]:
        """Migrations in progress are consumers in Placement; the list is empty if the compute service has no
        migrations.

        `wanted`: filters of the API, such as ``status``.
        """
        try:
            return [migration_of(row) for row in self._rows("/v2.1/os-migrations", "migrations", wanted)]
        except NotFound:
            return []

    def _rows(
        self, path: str, key: str, wanted: Mapping[str, str] | None = None, version: str = _EVERYWHERE
    ) -> Iterator[Any]:
        params = [*(wanted or {}).items(), ("limit", _PAGE)]
        return self._http.paged_rows(path, key, params, more=f"{key}_links", version=version)

    def create_image(self, server_id: str, name: str, metadata: Mapping[str, str]) -> None:
        """Begins an image of the server's disk. Raises `RemoteError` if another operation is in progress."""
        body = {"createImage": {"name": name, "metadata": dict(metadata)}}
        self._http.request("POST", f"/v2.1/servers/{_quoted(server_id)}/action", json=body)

    def confirm_resize(self, server_id: str) -> None:
        """Confirms; the old host cleans up after the answer.

        Raises `RemoteError`, 400 or 409, if there is nothing to confirm, or not now.
        """
        self._http.request("POST", f"/v2.1/servers/{_quoted(server_id)}/action", json={"confirmResize": None})

    def delete_server(self, server_id: str) -> None:
        """Begins the deletion; it is complete when the server is not found any more."""
        self._delete(f"/v2.1/servers/{_quoted(server_id)}")

    # ------------------------------------------------------------------------------------ aggregates

    def aggregates(self) -> list[Aggregate]:
        rows = self._http.get("/v2.1/os-aggregates", version=_AGGREGATES)["aggregates"]
        return [aggregate_of(row) for row in rows]

    def aggregate_by_name(self, name: str) -> Aggregate | None:
        return next((each for each in self.aggregates() if each.name == name), None)

    def create_aggregate(self, name: str, zone: str | None = None) -> Aggregate:
        body = {"aggregate": {"name": name, "availability_zone": zone}}
        created = self._http.request("POST", "/v2.1/os-aggregates", json=body, version=_AGGREGATES)["aggregate"]
        return Aggregate(created["id"], created["name"], (), {} if zone is None else {"availability_zone": zone})

    def add_host(self, aggregate_id: int, host: str) -> None:
        """Succeeds if the host is in the aggregate already."""
        aggregate = self._http.get(f"/v2.1/os-aggregates/{aggregate_id}", version=_AGGREGATES)["aggregate"]
        if host not in aggregate["hosts"]:
            self._aggregate_action(aggregate_id, {"add_host": {"host": host}})

    def remove_host(self, aggregate_id: int, host: str) -> None:
        try:
            self._aggregate_action(aggregate_id, {"remove_host": {"host": host}})
        except NotFound:
            return

    def set_aggregate_metadata(self, aggregate_id: int, values: Mapping[str, str | None]) -> None:
        """None as a value removes the key; other keys stay."""
        self._aggregate_action(aggregate_id, {"set_metadata": {"metadata": dict(values)}})

    def delete_aggregate(self, aggregate_id: int) -> None:
        """Removes its hosts first, because Nova refuses to delete an aggregate with hosts."""
        answer = self._http.request_raw(
            "GET", f"/v2.1/os-aggregates/{aggregate_id}", version=_AGGREGATES, accept=(404,)
        )
        if answer.status == 404:
            return
        for host in decode_body(answer)["aggregate"]["hosts"]:
            self.remove_host(aggregate_id, host)
        self._delete(f"/v2.1/os-aggregates/{aggregate_id}")

    def server_groups(self) -> list[ServerGroup]:
        """The server groups of this client's own project."""
        found: list[ServerGroup] = []
        while True:
            params = {"limit": _PAGE, "offset": len(found)}
            rows = self._http.get("/v2.1/os-server-groups", params=params, version=_GROUPS)["server_groups"]
            found += [ServerGroup(row["id"], row["name"], row["policy"]) for row in rows]
            if len(rows) < _PAGE:
                return found

    def create_server_group(self, name: str, policy: str) -> str:
        """Returns its id. Names need not be unique."""
        body = {"server_group": {"name": name, "policy": policy}}
        made = self._http.request("POST", "/v2.1/os-server-groups", json=body, version=_GROUPS)
        return str(made["server_group"]["id"])

    def delete_server_group(self, group_id: str) -> None:
        self._delete(f"/v2.1/os-server-groups/{_quoted(group_id)}")

    def _aggregate_action(self, aggregate_id: int, action: JsonObject) -> None:
        self._http.request("POST", f"/v2.1/os-aggregates/{aggregate_id}/action", json=action, version=_AGGREGATES)

    # ------------------------------------------------------------------------------- the agent's side

    def register_host(
        self,
        host: str,
        *,
        provider_uuid: str,
        hypervisor_type: str,
        hypervisor_version: int,
        host_ip: str,
        vcpus: int,
        memory_mb: int,
        local_gb: int,
        devices: int,
        capabilities: Sequence[str] = (),
    ) -> None:
        """Registers the host; also its heartbeat, after which its service counts as up for some time."""
        body = {
            "provider_uuid": provider_uuid,
            "hypervisor_type": hypervisor_type,
            "hypervisor_version": hypervisor_version,
            "host_ip": host_ip,
            "vcpus": vcpus,
            "memory_mb": memory_mb,
            "local_gb": local_gb,
            "devices": devices,
            "capabilities": list(capabilities),
        }
        self._http.request("PUT", f"/agent/v1/hosts/{_quoted(host)}", json=body)

    def send_events(self, events: Sequence[Mapping[str, str]]) -> None:
        """Sends events to servers: ``{"name", "server_uuid", "tag", "status"}`` each. Raises `NotFound` if no server is
        known.
        """
        body = {"events": [dict(event) for event in events]}
        self._http.request("POST", "/v2.1/os-server-external-events", json=body, version=_EVENTS)

    def server_here(self, host: str, server_id: str, *, refresh: bool = False) -> ServerHere | None:
        """None if the host has no such server. `refresh`: compute asks Neutron which ports are plugged."""
        path = f"/agent/v1/hosts/{_quoted(host)}/servers/{_quoted(server_id)}"
        answer = self._http.request_raw("GET", path + "?refresh=true" * refresh, accept=(404,))
        if answer.status == 404:
            return None
        row = decode_body(answer)["server"]
        return ServerHere(row["name"], row["status"], tuple(row.get("unplugged_ports", ())))

    def bind_device(self, host: str, server_id: str, port_id: str, device: PortDevice) -> InterfacePayload | None:
        """Has a port of a server bound to a device of the host that works on it. None: the port is gone.

        Raises `Conflict` if the network service refuses it, and `NotFound`.
        """
        path = f"/agent/v1/hosts/{_quoted(host)}/servers/{_quoted(server_id)}/ports/{_quoted(port_id)}"
        with _conflicts():
            answer = self._http.request("PUT", path, json=msgspec.to_builtins(device), repeatable=False)
        return msgspec.convert(answer["interface"], InterfacePayload | None)

    def reboot_here(self, host: str, server_id: str) -> None:
        """Raises `Conflict` if another operation is in progress, and `NotFound`."""
        path = f"/agent/v1/hosts/{_quoted(host)}/servers/{_quoted(server_id)}/reboot"
        with _conflicts():
            self._http.request("POST", path)

    def expected_servers(self, host: str) -> dict[str, str | None]:
        """{server id: a mark that changes with the server}; None while an operation is in progress."""
        rows = self._http.get(f"/agent/v1/hosts/{_quoted(host)}/servers")["servers"]
        return {row["id"]: row["mark"] for row in rows}

    def report_domains(
        self,
        host: str,
        observations: Mapping[str, tuple[str, str]],
        consoles: Mapping[str, str],
        addresses: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
    ) -> None:
        """`observations`: {server id: (its mark at the observation, its power state or ``gone``)}; `consoles`: {server
        id: text}; `addresses`: {server id: {MAC address: addresses from DHCP servers}}.
        """
        domains = {server: {"mark": mark, "power": power} for server, (mark, power) in observations.items()}
        body: dict[str, object] = {"domains": domains, "consoles": dict(consoles)}
        if addresses:
            body["addresses"] = addresses
        self._http.request("PUT", f"/agent/v1/hosts/{_quoted(host)}/domains", json=body)

    def report_device_faults(self, host: str, failed: Mapping[str, Sequence[str]]) -> None:
        """`failed`: {server id: descriptions of its failed devices}, of all servers of the host."""
        body = {"servers": {server: list(devices) for server, devices in failed.items()}}
        self._http.request("PUT", f"/agent/v1/hosts/{_quoted(host)}/device-faults", json=body)

    def _delete(self, path: str) -> None:
        self._http.request_raw("DELETE", path, accept=(404,))


class ExplainClient:
    """Explanations of scheduling. `http` addresses the root of the compute service."""

    def __init__(self, http: ServiceClient) -> None:
        self._http = http

    def explain_new_server(self, server: JsonObject, hints: Mapping[str, str]) -> Explanation:
        """`server`: as in the body of ``POST /servers``, with at least ``flavorRef``; `hints` may have ``group``.

        The answer: see `moorage.compute.api.handlers.explanations`.
        """
        body = {"server": dict(server), "os:scheduler_hints": dict(hints)}
        found: Explanation = self._http.request("POST", "/moorage/v1/explain-server", json=body)["explanation"]
        return found

    def explain_server(self, server_id: str) -> Explanation:
        path = f"/moorage/v1/servers/{quote(server_id, safe='')}/explanation"
        found: Explanation = self._http.get(path)["explanation"]
        return found


@contextmanager
def _conflicts() -> Iterator[None]:
    """Raises `Conflict` for an answer that the server's owner may read."""
    try:
        yield
    except RemoteError as error:
        if error.status == 409:
            raise Conflict(error.message) from error
        raise


def _quoted(text: str) -> str:
    return quote(text, safe="")
