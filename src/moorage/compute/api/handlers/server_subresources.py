"""Small subresources of a server: tags, addresses, attachments, topology, diagnostics, the guest's password.

There is no volume service, so its lists are empty; changes are refused (`unsupported_routes`).
"""

from typing import TypedDict
from urllib.parse import quote

from moorage.compute.api.handlers.server_view import addresses_by_network
from moorage.compute.api.handlers.views import ComputeRequest
from moorage.compute.api.schemas.servers import TAG
from moorage.compute.model.servers import InterfaceState, NetworkInterface, PowerState, Server
from moorage.compute.requests.server_request import WantedInterface
from moorage.core.errors import Conflict, Invalid, NotBuilt, NotFound
from moorage.core.json import Json
from moorage.wire.http import Response

_POWER_STATES = {
    PowerState.NONE: "pending",
    PowerState.RUNNING: "running",
    PowerState.PAUSED: "paused",
    PowerState.SHUTDOWN: "shutdown",
}


class InterfaceBody(TypedDict, total=False):
    """A request to attach an interface; `fixed_ips` has one item, ``{"ip_address": TEXT}``."""

    net_id: str
    port_id: str
    fixed_ips: list[dict[str, str]]
    tag: str


def _server(request: ComputeRequest, server_id: str) -> Server:
    return request.service.servers.get_server(request.caller, server_id)


# ------------------------------------------------------------------------------------------------- tags


def index_tags(request: ComputeRequest, server_id: str) -> Response:
    return Response(body={"tags": list(_server(request, server_id).tags)})


def show_tag(request: ComputeRequest, server_id: str, tag: str) -> Response:
    if tag not in _server(request, server_id).tags:
        raise NotFound(f"Server {server_id} has no tag '{tag}'")
    return Response(204)


def add_tag(request: ComputeRequest, server_id: str, tag: str) -> Response:
    TAG.validate(
        tag,
        lambda failure: (
            f"Tag '{tag}' is invalid. It must be a non empty string without characters '/' and ','. "
            f"Validation error message: {failure.message}"
        ),
    )
    if not request.service.tags.add(request.caller, server_id, tag):
        return Response(204)
    # A tag may contain any character; an unquoted line break would let a tenant add a header.
    return Response(
        201, headers={"location": f"{request.base_url}/v2.1/servers/{server_id}/tags/{quote(tag, safe='')}"}
    )


def replace_tags(request: ComputeRequest, server_id: str) -> Response:
    return Response(body={"tags": list(request.service.tags.replace(request.caller, server_id, request.json["tags"]))})


def remove_tag(request: ComputeRequest, server_id: str, tag: str) -> Response:
    request.service.tags.remove(request.caller, server_id, tag)
    return Response(204)


def remove_tags(request: ComputeRequest, server_id: str) -> Response:
    request.service.tags.clear(request.caller, server_id)
    return Response(204)


# ---------------------------------------------------------------------------------------------- networks


def index_addresses(request: ComputeRequest, server_id: str) -> Response:
    return Response(body={"addresses": addresses_by_network(_server(request, server_id), are_detailed=False)})


def show_addresses(request: ComputeRequest, server_id: str, label: str) -> Response:
    addresses = addresses_by_network(_server(request, server_id), are_detailed=False)
    if label not in addresses:
        raise NotFound("Instance is not a member of specified network")
    return Response(body={label: addresses[label]})


def index_interfaces(request: ComputeRequest, server_id: str) -> Response:
    interfaces = _server(request, server_id).interfaces
    return Response(body={"interfaceAttachments": [_interface(request, one) for one in interfaces]})


def show_interface(request: ComputeRequest, server_id: str, key: str) -> Response:
    for interface in _server(request, server_id).interfaces:
        if interface.port_id == key:
            return Response(body={"interfaceAttachment": _interface(request, interface)})
    raise NotFound(f"Instance {server_id} does not have a port with id {key}")


def attach_interface(request: ComputeRequest, server_id: str) -> Response:
    body: InterfaceBody = request.json.get("interfaceAttachment", {})
    network_id, port_id, fixed_ips = body.get("net_id"), body.get("port_id"), body.get("fixed_ips")
    if network_id and port_id:
        raise Invalid("Must not input both network_id and port_id")
    if fixed_ips and not network_id:
        raise Invalid("Must input network_id when request IP address")
    address = fixed_ips[0]["ip_address"] if fixed_ips else None
    wanted = WantedInterface(network_id=network_id, port_id=port_id, address=address, tag=body.get("tag"))
    made = request.service.interfaces.attach(request.caller, request.request_id, server_id, wanted)
    return Response(body={"interfaceAttachment": _interface(request, made)})


def detach_interface(request: ComputeRequest, server_id: str, key: str) -> Response:
    request.service.interfaces.detach(request.caller, request.request_id, server_id, key)
    return Response(202)


def _interface(request: ComputeRequest, interface: NetworkInterface) -> dict[str, Json]:
    return {
        "net_id": interface.network_id,
        "port_id": interface.port_id,
        "mac_addr": interface.mac,
        "port_state": "ACTIVE" if interface.mac and interface.state is not InterfaceState.ATTACHING else "DOWN",
        "fixed_ips": [{"subnet_id": one.subnet_id, "ip_address": one.address} for one in interface.shown_addresses],
        **({"tag": interface.tag} if request.version >= (2, 70) else {}),
    }


# ------------------------------------------------------------------------------------------ empty lists


def index_volumes(request: ComputeRequest, server_id: str) -> Response:
    _server(request, server_id)
    return Response(body={"volumeAttachments": []})


def show_volume(request: ComputeRequest, server_id: str, key: str) -> Response:
    _server(request, server_id)
    raise NotFound(f"Instance {server_id} is not attached to volume {key}")


def index_security_groups(request: ComputeRequest, server_id: str) -> Response:
    _server(request, server_id)
    return Response(body={"security_groups": []})


def index_shares(request: ComputeRequest, server_id: str) -> Response:
    _server(request, server_id)
    return Response(body={"shares": []})


def show_share(request: ComputeRequest, server_id: str, key: str) -> Response:
    _server(request, server_id)
    raise NotFound(f"Share {key} is not attached to instance {server_id}")


# -------------------------------------------------------------------------------- facts about a guest


def topology(request: ComputeRequest, server_id: str) -> Response:
    """Guests have no NUMA nodes."""
    _server(request, server_id)
    return Response(body={"nodes": [], "pagesize_kb": None})


#: {hypervisor type that a host reports: Nova's name of the driver}
_DRIVERS = {"QEMU": "libvirt"}


def diagnostics(request: ComputeRequest, server_id: str) -> Response:
    """The values known without asking the hypervisor; the rest is null."""
    server = _server(request, server_id)
    if request.version < (2, 48):
        raise NotBuilt(
            "Below microversion 2.48, diagnostics have the format of the hypervisor, which is not supported. Use 2.48 "
            "or later."
        )
    status = None if server.host is None else request.service.hosts.status(server.host)
    if status is None:
        raise Conflict(f"Instance {server_id} is not ready: it is on no host")
    report = status.host.report
    body: dict[str, Json] = {
        "state": _POWER_STATES.get(server.power_state, "crashed"),
        "driver": _DRIVERS.get(report.hypervisor_type, report.hypervisor_type),
        "hypervisor": report.hypervisor_type.lower(),
        "hypervisor_os": None,
        "uptime": None,
        "config_drive": server.config_drive,
        "num_cpus": server.flavor.vcpus,
        "num_nics": len(server.interfaces),
        "num_disks": 1,
        "disk_details": [],
        "cpu_details": [],
        "nic_details": [{"mac_address": one.mac or None} for one in server.interfaces],
        "memory_details": {"maximum": server.flavor.ram_mb, "used": None},
    }
    return Response(body=body)


def show_password(request: ComputeRequest, server_id: str) -> Response:
    """Always empty: a guest would post its encrypted password to a metadata service, which does not exist here."""
    _server(request, server_id)
    return Response(body={"password": ""})


def clear_password(request: ComputeRequest, server_id: str) -> Response:
    _server(request, server_id)
    return Response(204)
