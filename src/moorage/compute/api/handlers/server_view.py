"""A server as the Compute API shows it, by microversion."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from moorage.compute.api.handlers.views import ComputeRequest, format_microseconds, format_seconds, resource_links
from moorage.compute.hosts import HostStatus
from moorage.compute.model import lifecycle
from moorage.compute.model.servers import Fault, Flavor, Server, VmState
from moorage.core.json import Json

_SEES_HOSTS = "os_compute_api:os-extended-server-attributes"


@dataclass(frozen=True)
class ServerViewContext:
    """Other rows that the views of some servers need: their hosts by name."""

    hosts: Mapping[str, HostStatus]

    @staticmethod
    def of(request: ComputeRequest, servers: Sequence[Server]) -> "ServerViewContext":
        names = {server.host for server in servers if server.host is not None}
        return ServerViewContext(request.service.hosts.statuses(names))

    @staticmethod
    def of_one(request: ComputeRequest, server: Server) -> "ServerViewContext":
        status = None if server.host is None else request.service.hosts.status(server.host)
        return ServerViewContext({} if status is None else {status.host.name: status})


def brief_view(request: ComputeRequest, server: Server) -> dict[str, Json]:
    return {"id": server.id, "name": server.name, "links": resource_links(request, "servers", server.id)}


def full_view(request: ComputeRequest, server: Server, shown: ServerViewContext) -> dict[str, Json]:
    status = None if server.host is None else shown.hosts.get(server.host)
    view = {
        **brief_view(request, server),
        "status": lifecycle.status(server.vm_state, server.task_state),
        "tenant_id": server.project_id,
        "user_id": server.user_id,
        "metadata": dict(server.metadata),
        "hostId": host_id(server.project_id, server.host),
        "image": _image(request, server),
        "flavor": _flavor(request, server.flavor),
        "created": format_seconds(server.created_at),
        "updated": format_seconds(server.updated_at),
        "addresses": addresses_by_network(server, are_detailed=True),
        "accessIPv4": server.access_ipv4 or "",
        "accessIPv6": server.access_ipv6 or "",
        "OS-DCF:diskConfig": server.disk_config or "MANUAL",
        "OS-EXT-AZ:availability_zone": "" if status is None else status.zone,
        "config_drive": "True" if server.config_drive else "",
        "key_name": server.key_name,
        "OS-SRV-USG:launched_at": format_microseconds(server.launched_at),
        "OS-SRV-USG:terminated_at": format_microseconds(server.deleted_at),
        "OS-EXT-STS:task_state": server.task_state,
        "OS-EXT-STS:vm_state": server.vm_state,
        "OS-EXT-STS:power_state": server.power_state,
        "os-extended-volumes:volumes_attached": [],
    }
    if server.vm_state in (VmState.ACTIVE, VmState.BUILDING):
        view["progress"] = 0
    if server.vm_state in (VmState.ERROR, VmState.DELETED) and server.fault is not None:
        view["fault"] = _fault(request, server.fault)
    if request.allowed(_SEES_HOSTS):
        view |= _host_attributes(request, server)
    return view | _added(request, server, status)


def single_view(request: ComputeRequest, server: Server) -> dict[str, Json]:
    """A single server; lists do not show groups."""
    view = full_view(request, server, ServerViewContext.of_one(request, server))
    if request.version >= (2, 71):
        view["server_groups"] = request.service.groups.ids_of(server.id)
    return view


def changed_view(request: ComputeRequest, server: Server) -> dict[str, Json]:
    """The answer to a change: below 2.75 without the former extensions."""
    view = single_view(request, server)
    if request.version < (2, 75):
        view["addresses"] = addresses_by_network(server, are_detailed=False)
        for name in [name for name in view if name in _NOT_IN_CHANGES or name.startswith(_EXTENDED)]:
            del view[name]
    return view


def rebuilt_view(request: ComputeRequest, server: Server) -> dict[str, Json]:
    """The answer to a rebuild, in which the user data have another name."""
    view = changed_view(request, server)
    if request.version >= (2, 54):
        view["key_name"] = server.key_name
    if request.version >= (2, 57):
        view.pop("OS-EXT-SRV-ATTR:user_data", None)
        view["user_data"] = server.user_data
    return view


_EXTENDED = ("OS-EXT-", "OS-SRV-USG:")
_NOT_IN_CHANGES = frozenset({"config_drive", "key_name", "host_status", "os-extended-volumes:volumes_attached"})


def addresses_by_network(server: Server, *, are_detailed: bool) -> dict[str, Json]:
    """``{"lab": [{"version": 4, "addr": "192.0.2.10"}]}``; in details also the MAC address and the type."""
    found: dict[str, list[Json]] = {}
    for interface in server.interfaces:
        for one in interface.shown_addresses:
            row: dict[str, Json] = {"version": ip_address(one.address).version, "addr": one.address}
            if are_detailed:
                row |= {"OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": interface.mac}
            found.setdefault(interface.network_name, []).append(row)
    return dict(found)


def host_id(project_id: str, host: str | None) -> str:
    """The same for servers of one project on one host, without revealing the host."""
    return "" if host is None else hashlib.sha224(f"{project_id}{host}".encode()).hexdigest()


def _added(request: ComputeRequest, server: Server, status: HostStatus | None) -> dict[str, Json]:
    """Values that later microversions add."""
    rows: list[tuple[int, str, Any]] = [
        (9, "locked", server.locked_by is not None),
        (19, "description", server.description),
        (26, "tags", list(server.tags)),
        (63, "trusted_image_certificates", None),
        (73, "locked_reason", server.locked_reason),
        (96, "pinned_availability_zone", server.wanted_zone),
        (100, "scheduler_hints", dict(server.scheduler_hints)),
    ]
    view = {name: value for minor, name, value in rows if request.version >= (2, minor)}
    if request.version >= (2, 16) and request.allowed("os_compute_api:servers:show:host_status"):
        view["host_status"] = _host_status(status)
    return view


def _host_attributes(request: ComputeRequest, server: Server) -> dict[str, Json]:
    prefix = "OS-EXT-SRV-ATTR"
    view: dict[str, Json] = {
        f"{prefix}:host": server.host,
        f"{prefix}:hypervisor_hostname": server.host,
        f"{prefix}:instance_name": server.instance_name,
    }
    if request.version >= (2, 3):
        view |= {
            f"{prefix}:hostname": server.hostname,
            f"{prefix}:kernel_id": "",
            f"{prefix}:launch_index": server.launch_index,
            f"{prefix}:ramdisk_id": "",
            f"{prefix}:reservation_id": server.reservation_id,
            f"{prefix}:root_device_name": None if server.host is None else "/dev/vda",
            f"{prefix}:user_data": server.user_data,
        }
    return view


def _host_status(status: HostStatus | None) -> str:
    if status is None:
        return ""
    if not status.host.is_enabled:
        return "MAINTENANCE"
    if status.is_up:
        return "UP"
    return "DOWN" if status.host.forced_down else "UNKNOWN"


def _image(request: ComputeRequest, server: Server) -> dict[str, Json] | str:
    if server.image_id is None:
        return ""
    return {
        "id": server.image_id,
        "links": [{"rel": "bookmark", "href": f"{request.base_url}/images/{server.image_id}"}],
        **({"properties": dict(server.image_properties or {})} if request.version >= (2, 98) else {}),
    }


def _flavor(request: ComputeRequest, flavor: Flavor) -> dict[str, Json]:
    if request.version < (2, 47):
        return {
            "id": flavor.id,
            "links": [{"rel": "bookmark", "href": f"{request.base_url}/flavors/{flavor.id}"}],
        }
    view: dict[str, Json] = {
        "vcpus": flavor.vcpus,
        "ram": flavor.ram_mb,
        "disk": flavor.disk_gb,
        "ephemeral": flavor.ephemeral_gb,
        "swap": flavor.swap_mb,
        "original_name": flavor.name,
    }
    if request.allowed("os_compute_api:os-flavor-extra-specs:index"):
        view["extra_specs"] = dict(flavor.extra_specs)
    return view


def _fault(request: ComputeRequest, fault: Fault) -> dict[str, Json]:
    """Details name hosts, so only administrators get them."""
    view: dict[str, Json] = {"code": fault.code, "created": format_seconds(fault.created_at), "message": fault.message}
    if fault.details and request.caller.is_admin:
        view["details"] = fault.details
    return view
