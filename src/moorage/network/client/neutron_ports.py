"""The clients of a Neutron for the ports of servers, see `moorage.network.client.server_ports`.

Neutron chooses the id of a port, so a port that is made here carries the id of its `WantedPort` in ``binding:profile``,
which only administrators read and write: whoever repeats a request finds the port that a lost answer was about.

An administrator's request may create a port in any network, so a network is used only if the port's project may use it.
Anybody may write the id of any server into his own port, so a port counts only with the server's project, and is
released only as long as it names the server. Answers of a Neutron are checked before they reach the database or a host.
"""

import ipaddress
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Annotated, Any, NoReturn, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Meta, field

from moorage.core.errors import MoorageError, NotFound, RemoteError, Unavailable
from moorage.jobs.contract import DEVICE, OVS, PortDevice
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

#: Key in ``binding:profile`` of the PCI address of the device that is the port; and of the network that it is on.
_ADDRESS = "pci_slot"
_NETWORK = "physical_network"

#: Neutron's VIF type of a port that is a virtual function of a network card.
_VIRTUAL_FUNCTION = "hw_veb"

#: Neutron's owner of ports of servers.
_OWNER = "compute:nova"
_OWNERS = "compute:"

#: Maximum ids per request: the length of a URL is limited.
_MAX_IDS = 50
#: Times that a port is read again because somebody else changed it at the same moment.
_MAX_CHANGES = 5

_DEFAULT_OVS_BRIDGE = "br-int"
_MAX_VLAN = 4094
#: Statuses with which Neutron refuses a port, so that a repetition does not help. With others it refuses Moorage
#: itself, or cannot answer now.
_REFUSALS = (400, 409, 412)
#: Maximum characters of a refusal that its owner is shown.
_SHOWN_LENGTH = 500

T = TypeVar("T")
log = logging.getLogger(__name__)


class _FixedIp(msgspec.Struct, frozen=True):
    subnet_id: str
    ip_address: str


class _VifDetails(msgspec.Struct, frozen=True):
    #: the name of a network interface on Linux
    bridge_name: Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]{0,15}$")] | None = None
    ovs_hybrid_plug: bool = False
    vlan: str | int | None = None  #: of a virtual function; ``0``: untagged


class _Port(msgspec.Struct, frozen=True):
    """Fields have the names of the Networking API."""

    id: str
    network_id: str
    project_id: str
    device_id: str
    device_owner: str
    mac_address: Annotated[str, Meta(pattern="^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$")]
    status: str
    fixed_ips: tuple[_FixedIp, ...]
    revision_number: int
    host: str = field(name="binding:host_id", default="")
    vif_type: str = field(name="binding:vif_type", default="unbound")
    vif_details: _VifDetails | None = field(name="binding:vif_details", default=None)
    profile: dict[str, Any] | None = field(name="binding:profile", default=None)
    trunk_details: dict[str, Any] | None = None

    @property
    def made_for(self) -> str:
        """The id of the `WantedPort` that the port was made for; empty: its project made it."""
        made_for = (self.profile or {}).get(MADE_FOR, "")
        return made_for if isinstance(made_for, str) else ""

    def profile_with(self, device: PortDevice | None) -> dict[str, Any]:
        kept = {key: value for key, value in (self.profile or {}).items() if key not in (_ADDRESS, _NETWORK)}
        return kept if device is None else kept | {_ADDRESS: device.address, _NETWORK: device.physical_network}


class _PortStatus(msgspec.Struct, frozen=True):
    id: str
    status: str


class _Network(msgspec.Struct, frozen=True):
    id: str
    name: str
    project_id: str
    mtu: Annotated[int, Meta(ge=0, le=65535)] | None = None  #: 0: unknown
    #: None: a network with several segments, or not a physical one.
    physical_network: str | None = field(name="provider:physical_network", default=None)


class _Subnet(msgspec.Struct, frozen=True):
    id: str
    cidr: str
    gateway_ip: str | None = None
    dns_nameservers: tuple[str, ...] | None = None


class _Policy(msgspec.Struct, frozen=True):
    target_tenant: str


class NeutronLookup:
    """`http` uses the network endpoint of the catalogue, without ``/v2.0``. `credentials`: `Caller.credentials`."""

    def __init__(self, http: ServiceClient) -> None:
        self._http = http

    def networks(self, credentials: Mapping[str, str]) -> list[UsableNetwork]:
        return list(_rows(self._http.on_behalf_of(credentials), "networks", UsableNetwork, []))

    def ports(self, credentials: Mapping[str, str], ids: Collection[str]) -> dict[str, ExistingPort]:
        http = self._http.on_behalf_of(credentials)
        return {port.id: port for port in _rows_of(http, "ports", ExistingPort, "id", ids)}

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
        return {port.id: port.status == "ACTIVE" for port in _rows(self._http, "ports", _PortStatus, filters)}

    def release(self, server_id: str, project_id: str | None) -> None:
        self._release_all(server_id, [one for one in self._ports_of(server_id) if project_id in (None, one.project_id)])

    def release_port(self, server_id: str, port_id: str) -> None:
        self._release_all(server_id, [one for one in self._ports_of(server_id) if port_id in (one.id, one.made_for)])

    def _ports_of(self, server_id: str) -> list[_Port]:
        return list(_rows(self._http, "ports", _Port, [("device_id", server_id)]))

    def _release_all(self, server_id: str, ports: Sequence[_Port]) -> None:
        """One that cannot be released now does not keep the others. Raises the last error."""
        failed: MoorageError | None = None
        for port in ports:
            try:
                self._release(server_id, port)
            except MoorageError as error:
                failed = error
        if failed is not None:
            raise failed

    def _release(self, server_id: str, port: _Port) -> None:
        """If Neutron refuses the deletion, the port is freed. If it refuses that, too, the port stays."""
        if port.device_id != server_id or not port.device_owner.startswith(_OWNERS):
            return
        try:
            if port.made_for and self._delete(server_id, port):
                return
            self._free(server_id, port)
        except NotFound:
            return
        except RemoteError as error:
            if not _is_refusal(error):
                raise
            extra = {"server": server_id, "port": port.id, "reason": error.message}
            log.warning("the network service keeps a port of a server", extra=extra)

    def _delete(self, server_id: str, port: _Port) -> bool:
        """False if Neutron refuses it, for example because a trunk uses the port."""
        try:
            self._http.request_raw("DELETE", _port_path(port.id), accept=(404,))
        except RemoteError as error:
            if not _is_refusal(error):
                raise
            extra = {"server": server_id, "port": port.id, "reason": error.message}
            log.warning("a port of a server cannot be deleted, so it is only freed", extra=extra)
            return False
        return True

    def _free(self, server_id: str, port: _Port) -> None:
        freed = {"device_id": "", "device_owner": "", "binding:host_id": "", "binding:profile": {}}
        for _ in range(_MAX_CHANGES):
            if _changed(self._http, port, freed) is not None:
                return
            port = _port(self._http, port.id)
            if port.device_id != server_id:  # another server has it meanwhile
                return
        raise Unavailable(f"Port {port.id} is being changed by others.", peer="network")


class _Binding:
    """One call of `NeutronPorts.bind`. It reads each network once."""

    def __init__(self, http: ServiceClient, server_ids: Collection[str]) -> None:
        self._http = http
        self._server_ids = server_ids
        self._networks: dict[str, _Network] = {}
        self._subnets: dict[str, dict[str, _Subnet]] = {}
        self._usable: dict[tuple[str, str], bool] = {}

    def bind(self, wanted: WantedPort) -> BoundPort:
        with _refusing():
            if wanted.network_id is None:
                port = self._take(wanted)
            else:
                port = self._made(wanted) or self._make(wanted, wanted.network_id)
                if port.host != wanted.host:
                    answer = self._http.request(
                        "PUT", _port_path(port.id), json={"port": {"binding:host_id": wanted.host}}
                    )
                    port = _one(answer, "port", _Port)
            return self._bound(port, wanted)

    @cached_property
    def _of_servers(self) -> list[_Port]:
        return list(_rows_of(self._http, "ports", _Port, "device_id", self._server_ids))

    def _made(self, wanted: WantedPort) -> _Port | None:
        for port in self._of_servers:
            is_its_own = port.device_id == wanted.server_id and port.project_id == wanted.project_id
            if is_its_own and port.made_for and wanted.id in (port.id, port.made_for):
                return port
        return None

    def _make(self, wanted: WantedPort, network_id: str) -> _Port:
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
        return _one(self._http.request("POST", "/v2.0/ports", json={"port": new}, repeatable=False), "port", _Port)

    def _check_usable(self, network_id: str, project_id: str) -> None:
        key = (network_id, project_id)
        if key not in self._usable:
            is_own = project_id == self._network(network_id).project_id
            self._usable[key] = is_own or self._is_shared_with(network_id, project_id)
        if not self._usable[key]:
            raise PortsRefused(f"Network {network_id} could not be found.", status=404)

    def _is_shared_with(self, network_id: str, project_id: str) -> bool:
        """Whether a policy shares the network with this project, or with all. (The network's own field `shared` tells
        whether it is shared with the project of the service.)
        """
        filters = [("object_type", "network"), ("object_id", network_id), ("action", "access_as_shared")]
        policies = _rows(self._http, "rbac-policies", _Policy, filters, key="rbac_policies")
        return any(one.target_tenant in (project_id, "*") for one in policies)

    def _take(self, wanted: WantedPort) -> _Port:
        """Binds a port that exists, unless another server has it. (The request names the port's revision, so that of
        two servers one gets it.) One that was made for another server is the project's from now on.
        """
        for _ in range(_MAX_CHANGES):
            port = _port(self._http, wanted.id)
            if port.id != wanted.id:
                raise _unusable("port", f"it has the id {port.id} instead of {wanted.id}")
            if port.project_id != wanted.project_id:
                raise PortsRefused(f"Port {wanted.id} could not be found.", status=404)
            if wanted.device is not None:
                self._check_device(port, wanted.server_id, wanted.device)
            elif port.device_id not in ("", wanted.server_id):
                raise PortsRefused(f"Port {wanted.id} is still in use.", status=409)
            profile = port.profile_with(wanted.device)
            if not port.device_id:
                profile.pop(MADE_FOR, None)
            is_same = profile == (port.profile or {})
            if port.device_id and port.host == wanted.host and is_same:
                return port
            after: dict[str, Any] = {
                "device_id": wanted.server_id, "device_owner": _OWNER, "binding:host_id": wanted.host
            }  # fmt: skip
            if not is_same:
                after["binding:profile"] = profile
            taken = _changed(self._http, port, after)
            if taken is not None:
                return _one(taken, "port", _Port)
        raise PortsRefused(f"Port {wanted.id} is being changed by others; try again.", status=409)

    def _check_device(self, port: _Port, server_id: str, device: PortDevice) -> None:
        """Neutron itself does not compare the physical networks of port and device."""
        if port.device_id != server_id:
            raise PortsRefused(f"Port {port.id} is no longer a port of the server.", status=404)
        network = self._network(port.network_id)
        if network.physical_network != device.physical_network:
            raise PortsRefused(
                f"Port {port.id} is on the physical network {network.physical_network or '(none)'}, but the network "
                f"card that was selected for it is on {device.physical_network}; have the device profile require a "
                "trait of the right cards.",
                status=409,
            )

    def _bound(self, port: _Port, wanted: WantedPort) -> BoundPort:
        network = self._network(port.network_id)
        kind, bridge, vlan = _attachment(port, wanted.device) if wanted.host else ("", "", None)
        return BoundPort(
            id=port.id,
            mac=port.mac_address,
            network_id=network.id,
            network_name=network.name,
            kind=kind,
            physical_network=bridge,
            segmentation_id=vlan,
            is_dhcp=False,
            addresses=tuple(self._address(network.id, one) for one in port.fixed_ips),
            mtu=network.mtu or None,
            is_plugged=port.status == "ACTIVE",
        )

    def _address(self, network_id: str, fixed: _FixedIp) -> BoundAddress:
        if network_id not in self._subnets:
            rows = _rows(self._http, "subnets", _Subnet, [("network_id", network_id)])
            self._subnets[network_id] = {subnet.id: subnet for subnet in rows}
        subnet = self._subnets[network_id].get(fixed.subnet_id)
        if subnet is None:
            raise PortsRefused(f"Subnet {fixed.subnet_id} could not be found.", status=404)
        dns = subnet.dns_nameservers or ()
        try:
            ipaddress.ip_network(subnet.cidr)
            for address in (fixed.ip_address, *filter(None, [subnet.gateway_ip]), *dns):
                ipaddress.ip_address(address)
        except ValueError as error:
            raise _unusable("subnet", f"{subnet.id}: {error}") from error
        return BoundAddress(fixed.ip_address, subnet.id, subnet.cidr, subnet.gateway_ip or None, dns)

    def _network(self, network_id: str) -> _Network:
        if network_id not in self._networks:
            answer = self._http.get(f"/v2.0/networks/{quote(network_id, safe='')}")
            self._networks[network_id] = _one(answer, "network", _Network)
        return self._networks[network_id]


def _attachment(port: _Port, device: PortDevice | None) -> tuple[str, str, int | None]:
    """(kind, bridge, VLAN) of a port that is bound to a host, and to `device` if it is one."""
    details = port.vif_details or _VifDetails()
    if port.trunk_details:
        raise PortsRefused(f"Port {port.id} is the parent of a trunk, which hosts cannot plug.", status=409)
    if port.vif_type == OVS and not details.ovs_hybrid_plug and device is None:
        return OVS, details.bridge_name or _DEFAULT_OVS_BRIDGE, None
    if port.vif_type == _VIRTUAL_FUNCTION and device is not None:
        return DEVICE, "", _vlan(port, details)
    if port.vif_type in ("binding_failed", "unbound"):
        raise PortsRefused(
            f"Binding failed for port {port.id}: Neutron has no mechanism driver or agent for its network on host "
            f"{port.host}.",
            status=409,
        )
    hybrid = " with ovs_hybrid_plug (set firewall_driver = openvswitch there)" if details.ovs_hybrid_plug else ""
    what = "which hosts cannot plug" if device is None else f"so it cannot be the device {device.address}"
    raise PortsRefused(f"Port {port.id} has the VIF type {port.vif_type}{hybrid}, {what}.", status=409)


def _vlan(port: _Port, details: _VifDetails) -> int | None:
    text = str(details.vlan or 0)
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_VLAN)) and int(text) <= _MAX_VLAN):
        raise _unusable("port", f"{port.id} has the VLAN {text[:_SHOWN_LENGTH]}")
    return int(text) or None


# --- requests ------------------------------------------------------------------------------------------------------


def _port_path(port_id: str) -> str:
    return f"/v2.0/ports/{quote(port_id, safe='')}"


def _port(http: ServiceClient, port_id: str) -> _Port:
    return _one(http.get(_port_path(port_id)), "port", _Port)


def _changed(http: ServiceClient, port: _Port, values: Mapping[str, object]) -> Any:
    """The answer to a change of the port; None if the port was changed since it was read."""
    path = _port_path(port.id)
    answer = http.request_raw(
        "PUT", path, json={"port": values}, accept=(412,), repeatable=False,
        headers={"if-match": f"revision_number={port.revision_number}"},
    )  # fmt: skip
    return None if answer.status == 412 else http.decoded(path, answer)


def _rows_of(http: ServiceClient, resource: str, row_type: type[T], name: str, values: Collection[str]) -> Iterator[T]:
    """The rows whose field `name` has one of the values."""
    wanted = sorted(values)
    for first in range(0, len(wanted), _MAX_IDS):
        yield from _rows(http, resource, row_type, [(name, each) for each in wanted[first : first + _MAX_IDS]])


def _rows(
    http: ServiceClient, resource: str, row_type: type[T], filters: Sequence[tuple[str, str]], key: str = ""
) -> Iterator[T]:
    key = key or resource
    for row in http.paged_rows(f"/v2.0/{resource}", key, filters, more=f"{key}_links"):
        yield _checked(row, key, row_type)


def _one(answer: object, key: str, row_type: type[T]) -> T:
    return _checked(answer.get(key) if isinstance(answer, dict) else None, key, row_type)


def _checked(row: object, what: str, row_type: type[T]) -> T:
    try:
        return msgspec.convert(row, row_type)
    except msgspec.ValidationError as error:
        raise _unusable(what, str(error)) from error


def _unusable(what: str, why: str) -> RemoteError:
    return RemoteError(f"the network service sent a {what!r} that cannot be used: {why}", status=502, peer="network")


@contextmanager
def _refusing() -> Iterator[None]:
    """Raises `PortsRefused` for an answer that the server's owner can act on."""
    try:
        yield
    except NotFound as error:
        _refuse(error, 404)
    except RemoteError as error:
        if not _is_refusal(error):
            raise
        _refuse(error, error.status)


def _is_refusal(error: RemoteError) -> bool:
    return error.status in _REFUSALS


def _refuse(error: NotFound | RemoteError, status: int) -> NoReturn:
    raise PortsRefused(str(error.fields.get("detail") or error.message)[:_SHOWN_LENGTH], status=status) from error
