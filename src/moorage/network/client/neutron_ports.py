"""The clients of a Neutron for the ports of servers, see `moorage.network.client.server_ports`.

Neutron chooses the id of a port, so a port that is made here carries the id of its `WantedPort` in ``binding:profile``,
which only administrators read and write: whoever repeats a request finds the port that a lost answer was about.

An administrator's request may create a port in any network, so a network is used only if the port's project may use it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn
from urllib.parse import quote

import msgspec

from moorage.core.errors import NotFound, RemoteError
from moorage.jobs.contract import OVS
from moorage.network.client.server_ports import (
    BoundAddress,
    BoundPort,
    ExistingPort,
    LearnedPort,
    PortsRefused,
    UsableNetwork,
    WantedPort,
)
from moorage.wire.client import ServiceClient

#: Key in ``binding:profile`` of the id of the `WantedPort` for which a port was made.
MADE_FOR = "moorage_port"

#: Neutron's owner of ports of servers.
_OWNER = "compute:nova"
_OWNERS = "compute:"

#: Maximum ids per request: the length of a URL is limited.
_MAX_IDS = 50
#: Times that a port is read again because somebody else changed it at the same moment.
_MAX_CHANGES = 5

_DEFAULT_OVS_BRIDGE = "br-int"
#: Statuses with which Neutron refuses Moorage itself, and not the server's owner.
_REFUSED_SERVICE = (401, 403)


class NeutronLookup:
    """`http` uses the network endpoint of the catalogue, without ``/v2.0``. `credentials`: `Caller.credentials`."""

    def __init__(self, http: ServiceClient) -> None:
        self._http = http

    def networks(self, credentials: Mapping[str, str]) -> list[UsableNetwork]:
        rows = _rows(self._http.on_behalf_of(credentials), "networks", [])
        return [msgspec.convert(row, UsableNetwork) for row in rows]

    def ports(self, credentials: Mapping[str, str], ids: Collection[str]) -> dict[str, ExistingPort]:
        http = self._http.on_behalf_of(credentials)
        return {row["id"]: msgspec.convert(row, ExistingPort) for row in _rows_of(http, "ports", "id", ids)}

    def free_ports(self, credentials: Mapping[str, str], project_id: str) -> int | None:
        path = f"/v2.0/quotas/{quote(project_id, safe='')}/details"
        quota = self._http.on_behalf_of(credentials).get(path)["quota"]["port"]
        limit, used = int(quota["limit"]), int(quota["used"]) + int(quota.get("reserved", 0))
        return None if limit < 0 else max(0, limit - used)


class NeutronPorts:
    """`http`: as for `NeutronLookup`, with an administrator's credentials."""

    def __init__(self, http: ServiceClient) -> None:
        self._http = http

    def bind(self, wanted: Sequence[WantedPort]) -> list[BoundPort]:
        """One request for the ports of all servers, one or two for each network, and one for each port that is made or
        changed.
        """
        binding = _Binding(self._http, {one.server_id for one in wanted})
        return [binding.bind(one) for one in wanted]

    def learn(self, reports: Sequence[LearnedPort]) -> list[tuple[BoundAddress, ...]]:
        """Empty: Neutron itself gives all addresses."""
        return [() for _ in reports]

    def plugged(self, server_id: str) -> Mapping[str, bool]:
        filters = [("device_id", server_id), ("fields", "id"), ("fields", "status")]
        return {row["id"]: row["status"] == "ACTIVE" for row in _rows(self._http, "ports", filters)}

    def release(self, server_id: str) -> None:
        for row in _rows(self._http, "ports", [("device_id", server_id)]):
            self._release(row)

    def release_port(self, server_id: str, port_id: str) -> None:
        for row in _rows(self._http, "ports", [("device_id", server_id)]):
            if port_id in (row["id"], _made_for(row)):
                self._release(row)

    def _release(self, row: Mapping[str, Any]) -> None:
        if not row["device_owner"].startswith(_OWNERS):  # not ours: anybody may write a server's id into his port
            return
        path = _port_path(row["id"])
        if _made_for(row):
            self._http.request_raw("DELETE", path, accept=(404,))
        else:
            freed = {"device_id": "", "device_owner": "", "binding:host_id": "", "binding:profile": {}}
            self._http.request_raw("PUT", path, json={"port": freed}, accept=(404,))


class _Binding:
    """One call of `NeutronPorts.bind`. It reads each network once."""

    def __init__(self, http: ServiceClient, server_ids: Collection[str]) -> None:
        self._http = http
        self._of_servers = list(_rows_of(http, "ports", "device_id", server_ids))
        self._networks: dict[str, Mapping[str, Any]] = {}
        self._subnets: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._usable: dict[tuple[str, str], bool] = {}

    def bind(self, wanted: WantedPort) -> BoundPort:
        with _refusing():
            if wanted.network_id is None:
                row = self._take(wanted)
            else:
                row = self._made(wanted) or self._make(wanted, wanted.network_id)
                if row["binding:host_id"] != wanted.host:
                    row = self._change(row["id"], {"binding:host_id": wanted.host})
            return self._bound(row, wanted)

    def _made(self, wanted: WantedPort) -> Mapping[str, Any] | None:
        for row in self._of_servers:
            is_its_own = row["device_id"] == wanted.server_id and row["project_id"] == wanted.project_id
            if is_its_own and (made_for := _made_for(row)) and wanted.id in (row["id"], made_for):
                return row
        return None

    def _make(self, wanted: WantedPort, network_id: str) -> Mapping[str, Any]:
        self._check_usable(network_id, wanted.project_id)
        new: dict[str, Any] = {
            "network_id": network_id,
            "project_id": wanted.project_id,
            "device_id": wanted.server_id,
            "device_owner": _OWNER,
            "binding:host_id": wanted.host,
            "binding:profile": {MADE_FOR: wanted.id},
        }
        if wanted.address is not None:
            new["fixed_ips"] = [{"ip_address": wanted.address}]
        answer = self._http.request("POST", "/v2.0/ports", json={"port": new}, repeatable=False)
        made: Mapping[str, Any] = answer["port"]
        return made

    def _check_usable(self, network_id: str, project_id: str) -> None:
        key = (network_id, project_id)
        if key not in self._usable:
            network = self._network(network_id)
            self._usable[key] = (
                project_id == network["project_id"] or network["shared"] or self._is_shared_with(network_id, project_id)
            )
        if not self._usable[key]:
            raise PortsRefused(f"Network {network_id} could not be found.", status=404)

    def _is_shared_with(self, network_id: str, project_id: str) -> bool:
        """Whether a policy shares the network with this project, or with all."""
        filters = [("object_type", "network"), ("object_id", network_id), ("action", "access_as_shared")]
        policies = _rows(self._http, "rbac-policies", filters, key="rbac_policies")
        return any(one["target_tenant"] in (project_id, "*") for one in policies)

    def _take(self, wanted: WantedPort) -> Mapping[str, Any]:
        """Binds a port that the project made, unless another server has it. (The request names the port's revision, so
        that of two servers one gets it.)
        """
        path = _port_path(wanted.id)
        for _ in range(_MAX_CHANGES):
            row: Mapping[str, Any] = self._http.get(path)["port"]
            if row["project_id"] != wanted.project_id:
                raise PortsRefused(f"Port {wanted.id} could not be found.", status=404)
            if row["device_id"] not in ("", wanted.server_id):
                raise PortsRefused(f"Port {wanted.id} is still in use.", status=409)
            if row["device_id"] and row["binding:host_id"] == wanted.host:
                return row
            after = {"device_id": wanted.server_id, "device_owner": _OWNER, "binding:host_id": wanted.host}
            changed = self._http.request_raw(
                "PUT", path, json={"port": after}, accept=(412,), repeatable=False,
                headers={"if-match": f"revision_number={row['revision_number']}"},
            )  # fmt: skip
            if changed.status != 412:
                answer: Mapping[str, Mapping[str, Any]] = msgspec.json.decode(changed.body)
                return answer["port"]
        raise PortsRefused(f"Port {wanted.id} is being changed by others; try again.", status=409)

    def _change(self, port_id: str, values: Mapping[str, object]) -> Mapping[str, Any]:
        answer = self._http.request("PUT", _port_path(port_id), json={"port": values})
        changed: Mapping[str, Any] = answer["port"]
        return changed

    def _bound(self, row: Mapping[str, Any], wanted: WantedPort) -> BoundPort:
        network = self._network(row["network_id"])
        kind, bridge = _attachment(row) if wanted.host else ("", "")
        return BoundPort(
            id=row["id"],
            mac=row["mac_address"],
            network_id=network["id"],
            network_name=network["name"],
            kind=kind,
            physical_network=bridge,
            segmentation_id=None,
            is_dhcp=False,
            addresses=tuple(self._address(network["id"], one) for one in row["fixed_ips"]),
            mtu=network.get("mtu"),
            is_plugged=row["status"] == "ACTIVE",
        )

    def _address(self, network_id: str, fixed: Mapping[str, str]) -> BoundAddress:
        if network_id not in self._subnets:
            rows = _rows(self._http, "subnets", [("network_id", network_id)])
            self._subnets[network_id] = {row["id"]: row for row in rows}
        subnet = self._subnets[network_id].get(fixed["subnet_id"])
        if subnet is None:
            raise PortsRefused(f"Subnet {fixed['subnet_id']} could not be found.", status=404)
        return BoundAddress(
            fixed["ip_address"], subnet["id"], subnet["cidr"], subnet.get("gateway_ip"),
            tuple(subnet.get("dns_nameservers") or ()),
        )  # fmt: skip

    def _network(self, network_id: str) -> Mapping[str, Any]:
        if network_id not in self._networks:
            self._networks[network_id] = self._http.get(f"/v2.0/networks/{quote(network_id, safe='')}")["network"]
        return self._networks[network_id]


def _attachment(row: Mapping[str, Any]) -> tuple[str, str]:
    """(kind, bridge) of a port that is bound to a host."""
    port_id, vif_type, details = row["id"], row["binding:vif_type"], row.get("binding:vif_details") or {}
    if vif_type == OVS and not details.get("ovs_hybrid_plug"):
        return OVS, details.get("bridge_name") or _DEFAULT_OVS_BRIDGE
    if vif_type in ("binding_failed", "unbound"):
        raise PortsRefused(
            f"Binding failed for port {port_id}: Neutron has no mechanism driver or agent for its network on host "
            f"{row['binding:host_id']}.",
            status=409,
        )
    hybrid = " with ovs_hybrid_plug (set firewall_driver = openvswitch there)" if vif_type == OVS else ""
    raise PortsRefused(f"Port {port_id} has the VIF type {vif_type}{hybrid}, which hosts cannot plug.", status=409)


def _made_for(row: Mapping[str, Any]) -> str:
    """The id of the `WantedPort` that the port was made for; empty: its project made it."""
    made_for = (row.get("binding:profile") or {}).get(MADE_FOR, "")
    return made_for if isinstance(made_for, str) else ""


def _port_path(port_id: str) -> str:
    return f"/v2.0/ports/{quote(port_id, safe='')}"


def _rows_of(http: ServiceClient, resource: str, name: str, values: Collection[str]) -> Iterator[Mapping[str, Any]]:
    """The rows whose field `name` has one of the values."""
    wanted = sorted(values)
    for first in range(0, len(wanted), _MAX_IDS):
        yield from _rows(http, resource, [(name, each) for each in wanted[first : first + _MAX_IDS]])


def _rows(
    http: ServiceClient, resource: str, filters: Sequence[tuple[str, str]], key: str = ""
) -> Iterator[Mapping[str, Any]]:
    key = key or resource
    return http.paged_rows(f"/v2.0/{resource}", key, filters, more=f"{key}_links")


@contextmanager
def _refusing() -> Iterator[None]:
    """Raises `PortsRefused` for an answer that the server's owner can act on."""
    try:
        yield
    except NotFound as error:
        _refuse(error, 404)
    except RemoteError as error:
        if error.status >= 500 or error.status in _REFUSED_SERVICE:
            raise
        _refuse(error, error.status)


def _refuse(error: NotFound | RemoteError, status: int) -> NoReturn:
    raise PortsRefused(str(error.fields.get("detail") or error.message), status=status) from error
