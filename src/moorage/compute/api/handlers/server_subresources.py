"""What hangs on a server and is small here: tags, addresses, attachments, topology, diagnostics, the guest's password.

There is no network and no volume service, so their lists are empty; to change them is refused (`absent`).
"""

from typing import Any
from urllib.parse import quote

from moorage.compute.api.handlers.views import ComputeCall
from moorage.compute.api.schemas.servers import TAG
from moorage.compute.model.servers import PowerState, Server
from moorage.core.errors import Conflict, NotBuilt, NotFound
from moorage.wire.http import Reply

_POWER_STATES = {
    PowerState.NONE: "pending",
    PowerState.RUNNING: "running",
    PowerState.PAUSED: "paused",
    PowerState.SHUTDOWN: "shutdown",
}


def _server(call: ComputeCall, server_id: str) -> Server:
    return call.service.servers.get(call.caller, server_id)


# ------------------------------------------------------------------------------------------------- tags


def index_tags(call: ComputeCall, server_id: str) -> Reply:
    return Reply(body={"tags": list(_server(call, server_id).tags)})


def show_tag(call: ComputeCall, server_id: str, tag: str) -> Reply:
    if tag not in _server(call, server_id).tags:
        raise NotFound(f"Server {server_id} has no tag '{tag}'")
    return Reply(204)


def add_tag(call: ComputeCall, server_id: str, tag: str) -> Reply:
    TAG.check(
        tag,
        lambda failure: (
            f"Tag '{tag}' is invalid. It must be a non empty string without characters '/' and ','. "
            f"Validation error message: {failure.message}"
        ),
    )
    if not call.service.tags.add(call.caller, server_id, tag):
        return Reply(204)
    # Any character may be in a tag: a line break would begin a header of the tenant's own.
    return Reply(201, headers={"location": f"{call.base_url}/v2.1/servers/{server_id}/tags/{quote(tag, safe='')}"})


def replace_tags(call: ComputeCall, server_id: str) -> Reply:
    return Reply(body={"tags": list(call.service.tags.replace(call.caller, server_id, call.json["tags"]))})


def remove_tag(call: ComputeCall, server_id: str, tag: str) -> Reply:
    call.service.tags.remove(call.caller, server_id, tag)
    return Reply(204)


def remove_tags(call: ComputeCall, server_id: str) -> Reply:
    call.service.tags.clear(call.caller, server_id)
    return Reply(204)


# ------------------------------------------------------------------------------------------ empty lists


def index_addresses(call: ComputeCall, server_id: str) -> Reply:
    _server(call, server_id)
    return Reply(body={"addresses": {}})


def show_addresses(call: ComputeCall, server_id: str, label: str) -> Reply:
    _server(call, server_id)
    raise NotFound("Instance is not a member of specified network")


def index_interfaces(call: ComputeCall, server_id: str) -> Reply:
    _server(call, server_id)
    return Reply(body={"interfaceAttachments": []})


def show_interface(call: ComputeCall, server_id: str, key: str) -> Reply:
    _server(call, server_id)
    raise NotFound(f"Instance {server_id} does not have a port with id {key}")


def index_volumes(call: ComputeCall, server_id: str) -> Reply:
    _server(call, server_id)
    return Reply(body={"volumeAttachments": []})


def show_volume(call: ComputeCall, server_id: str, key: str) -> Reply:
    _server(call, server_id)
    raise NotFound(f"Instance {server_id} is not attached to volume {key}")


def index_security_groups(call: ComputeCall, server_id: str) -> Reply:
    _server(call, server_id)
    return Reply(body={"security_groups": []})


def index_shares(call: ComputeCall, server_id: str) -> Reply:
    _server(call, server_id)
    return Reply(body={"shares": []})


def show_share(call: ComputeCall, server_id: str, key: str) -> Reply:
    _server(call, server_id)
    raise NotFound(f"Share {key} is not attached to instance {server_id}")


# -------------------------------------------------------------------------------- what is known of a guest


def topology(call: ComputeCall, server_id: str) -> Reply:
    """No guest has NUMA nodes of its own."""
    _server(call, server_id)
    return Reply(body={"nodes": [], "pagesize_kb": None})


#: Of the peer's names for what runs a guest, by what a host says of its hypervisor.
_DRIVERS = {"QEMU": "libvirt"}


def diagnostics(call: ComputeCall, server_id: str) -> Reply:
    """What is known without asking the hypervisor; the rest is null."""
    server = _server(call, server_id)
    if call.version < (2, 48):
        raise NotBuilt("Below 2.48 diagnostics are in the hypervisor's own words: ask with 2.48.")
    details = next((one for one in call.service.hosts.hosts() if one.host.name == server.host), None)
    if details is None:
        raise Conflict(f"Instance {server_id} is not ready: it is on no host")
    report = details.host.report
    body: dict[str, Any] = {
        "state": _POWER_STATES.get(server.power_state, "crashed"),
        "driver": _DRIVERS.get(report.hypervisor_type, report.hypervisor_type),
        "hypervisor": report.hypervisor_type.lower(),
        "hypervisor_os": None,
        "uptime": None,
        "config_drive": server.config_drive,
        "num_cpus": server.flavor.vcpus,
        "num_nics": 0,
        "num_disks": 1,
        "disk_details": [],
        "cpu_details": [],
        "nic_details": [],
        "memory_details": {"maximum": server.flavor.ram_mb, "used": None},
    }
    return Reply(body=body)


def show_password(call: ComputeCall, server_id: str) -> Reply:
    """The one that a guest encrypts with its key and posts; there is nowhere to post it."""
    _server(call, server_id)
    return Reply(body={"password": ""})


def clear_password(call: ComputeCall, server_id: str) -> Reply:
    _server(call, server_id)
    return Reply(204)
