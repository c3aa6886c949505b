"""Servers: create, list, show, rename, delete; and their metadata. Other subresources: `server_subresources`.

`wanted_servers` reads the query of ``GET /servers``: conditions, order and page.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Required, TypedDict

from moorage.compute.api.handlers.server_view import ServerViewContext, brief_view, changed_view, full_view, single_view
from moorage.compute.api.handlers.views import (
    ComputeRequest,
    changes_period,
    next_link,
    page_size,
    parse_amount,
    parse_flag,
    require_rule,
    resource_links,
)
from moorage.compute.model import lifecycle
from moorage.compute.model.servers import Server, VmState
from moorage.compute.requests.server_request import NewServer, WantedInterface
from moorage.compute.store.server_store import SORT_COLUMNS, ServerQuery
from moorage.core.errors import Invalid, NotBuilt, NotFound
from moorage.core.ids import is_uuid
from moorage.core.json import Json
from moorage.wire.http import Response

#: A pattern with groups, or with more repetitions than this, could take a regular expression engine years; it is
#: matched as plain text instead.
_MAX_REPETITIONS = 2
_REPETITIONS = re.compile(r"[*+{]")


@dataclass(frozen=True)
class ServerListing:
    query: ServerQuery
    passes: Callable[[Server], bool]


def wanted_servers(request: ComputeRequest, list_rule: str) -> ServerListing:
    """`list_rule`: ``os_compute_api:servers:index`` or ``:detail``; servers of others need its ``:get_all_tenants``."""
    first = request.query.first
    sees_all = "all_tenants" in _bare(request) or parse_flag(first("all_tenants") or False)
    if sees_all:
        require_rule(request, f"{list_rule}:get_all_tenants")
    is_admin = request.caller.is_admin or request.caller.is_service
    project_id = first("project_id") or first("tenant_id")
    since, before = changes_period(request, before_since=(2, 66))
    query = ServerQuery(
        project_id=project_id if sees_all else request.caller.project_id,
        user_id=first("user_id"),
        host=first("host") or first("node") if is_admin else None,
        flavor_id=first("flavor"),
        image_id=first("image"),
        uuids=request.query.every("uuid") or None,
        vm_states=_vm_states(request),
        deleted=is_admin and parse_flag(first("deleted") or False),
        softly_deleted="SOFT_DELETED" in _statuses(request) or first("vm_state") == VmState.SOFT_DELETED,
        changed_since=since,
        changed_before=before,
        sort=_sort(request),
    )
    return ServerListing(query, _predicate(request))


def name_matches(pattern: str) -> Callable[[str], bool]:
    """Matches anywhere as a regular expression; as plain text if it is not a valid one, or a dangerous one."""
    if "(" in pattern or len(_REPETITIONS.findall(pattern)) > _MAX_REPETITIONS:
        return lambda name: pattern in name
    try:
        search = re.compile(pattern).search
    except re.error:
        return lambda name: pattern in name
    return lambda name: pattern == name or search(name) is not None


def _bare(request: ComputeRequest) -> set[str]:
    """Parameters without a value: ``?all_tenants`` and ``?all_tenants=``."""
    return {name for name in request.query.names() if "" in request.query.every(name)}


def _vm_states(request: ComputeRequest) -> list[VmState] | None:
    named = request.query.first("vm_state")
    if named is None:
        return None
    return [state for state in VmState if state == named]


def _sort(request: ComputeRequest) -> list[tuple[str, bool]]:
    keys, directions = request.query.every("sort_key"), request.query.every("sort_dir")
    for key in keys:
        if key not in SORT_COLUMNS:
            raise Invalid(
                f"Invalid input for query parameters sort_key. Value: {key}; valid keys: {', '.join(SORT_COLUMNS)}"
            )
    for direction in directions:
        if direction not in ("asc", "desc"):
            raise Invalid(f"Invalid input for query parameters sort_dir. Value: {direction}")
    order: dict[str, bool] = {}
    for at, key in enumerate(keys):  # only the first occurrence of a key counts
        order.setdefault(key, (directions[at] if at < len(directions) else "desc") == "desc")
    return list(order.items())


def _statuses(request: ComputeRequest) -> set[str]:
    return {status.upper() for status in request.query.every("status") if status != "None"}


def _predicate(request: ComputeRequest) -> Callable[[Server], bool]:
    """The conditions that SQL does not evaluate."""
    first = request.query.first
    tests: list[Callable[[Server], bool]] = []
    if statuses := _statuses(request):
        tests.append(lambda server: lifecycle.status(server.vm_state, server.task_state) in statuses)
    if (pattern := first("name")) is not None:
        matches = name_matches(pattern)
        tests.append(lambda server: matches(server.name))
    if (task := first("task_state")) is not None:
        tests.append(lambda server: server.task_state == task)
    if (reservation := first("reservation_id")) is not None:
        tests.append(lambda server: server.reservation_id == reservation)
    if (zone := first("availability_zone")) is not None:
        tests.append(lambda server: server.wanted_zone == zone)
    for parameter, version in (("ip", 4), ("ip6", 6)):
        if (pattern := first(parameter)) is not None:
            tests.append(_address_test(pattern, version))
    if (locked := first("locked")) is not None and request.version >= (2, 73):
        is_wanted = parse_flag(locked)
        tests.append(lambda server: (server.locked_by is not None) == is_wanted)
    if request.version >= (2, 26):
        tests += _tag_tests(request)
    return lambda server: all(test(server) for test in tests)


def _address_test(pattern: str, version: int) -> Callable[[Server], bool]:
    matches = name_matches(pattern)
    return lambda server: any(
        matches(one.address)
        for interface in server.interfaces
        for one in interface.shown_addresses
        if ip_address(one.address).version == version
    )


def _tag_tests(request: ComputeRequest) -> list[Callable[[Server], bool]]:
    def named(parameter: str) -> frozenset[str] | None:
        text = request.query.first(parameter)
        return None if text is None else frozenset(text.split(","))

    tests: list[Callable[[Server], bool]] = []
    if (every := named("tags")) is not None:
        tests.append(lambda server: every <= set(server.tags))
    if (some := named("tags-any")) is not None:
        tests.append(lambda server: not some.isdisjoint(server.tags))
    if (not_all := named("not-tags")) is not None:
        tests.append(lambda server: not not_all <= set(server.tags))
    if (none := named("not-tags-any")) is not None:
        tests.append(lambda server: none.isdisjoint(server.tags))
    return tests


#: Hints that Nova's filters use and this service does not; other hints have no effect in Nova either.
_HINTS_NOT_BUILT = frozenset({"query", "target_cell", "different_cell", "build_near_host_ip"})
#: {attribute in an update request: column}
_DESCRIBED = {
    "name": "name",
    "description": "description",
    "hostname": "hostname",
    "accessIPv4": "access_ipv4",
    "accessIPv6": "access_ipv6",
    "OS-DCF:diskConfig": "disk_config",
}
_HINT_KEYS = ("os:scheduler_hints", "OS-SCH-HNT:scheduler_hints")


def index(request: ComputeRequest) -> Response:
    servers, more = _page(request, "os_compute_api:servers:index")
    return _list(request, [brief_view(request, server) for server in servers], more=more)


def detail(request: ComputeRequest) -> Response:
    servers, more = _page(request, "os_compute_api:servers:detail")
    shown = ServerViewContext.of(request, servers)
    return _list(request, [full_view(request, server, shown) for server in servers], more=more)


def show(request: ComputeRequest, server_id: str) -> Response:
    server = request.service.servers.get_server(request.caller, server_id)
    return Response(body={"server": single_view(request, server)})


def create(request: ComputeRequest) -> Response:
    body = request.json["server"]
    servers = request.service.creation.create_servers(
        request.caller,
        request.request_id,
        new_server(request, body),
        may_force_host=request.allowed("os_compute_api:servers:create:forced_host"),
    )
    if parse_flag(body.get("return_reservation_id", False)):
        return Response(202, {"reservation_id": servers[0].reservation_id})
    first = servers[0]
    view = {
        "id": first.id,
        "links": resource_links(request, "servers", first.id),
        "OS-DCF:diskConfig": body.get("OS-DCF:diskConfig", "MANUAL"),
        "security_groups": [{"name": "default"}],
        "adminPass": body.get("adminPass") or request.service.operations.new_password(),
    }
    return Response(202, {"server": view}, {"location": f"{request.base_url}/v2.1/servers/{first.id}"})


def update(request: ComputeRequest, server_id: str) -> Response:
    body = request.json["server"]
    values = {column: body[name] for name, column in _DESCRIBED.items() if name in body}
    if values.get("access_ipv6"):
        values["access_ipv6"] = ip_address(values["access_ipv6"]).compressed
    server = request.service.servers.update_server(request.caller, server_id, **values)
    return Response(body={"server": changed_view(request, server)})


def delete(request: ComputeRequest, server_id: str) -> Response:
    request.service.deletion.delete_server(request.caller, request.request_id, server_id)
    return Response(204)


def index_metadata(request: ComputeRequest, server_id: str) -> Response:
    return Response(body={"metadata": dict(request.service.servers.get_server(request.caller, server_id).metadata)})


def add_metadata(request: ComputeRequest, server_id: str) -> Response:
    after = request.service.servers.set_metadata(request.caller, server_id, request.json["metadata"])
    return Response(body={"metadata": after})


def replace_metadata(request: ComputeRequest, server_id: str) -> Response:
    after = request.service.servers.set_metadata(request.caller, server_id, request.json["metadata"], instead=True)
    return Response(body={"metadata": after})


def show_metadata_item(request: ComputeRequest, server_id: str, key: str) -> Response:
    metadata = request.service.servers.get_server(request.caller, server_id).metadata
    if key not in metadata:
        raise NotFound("Metadata item was not found")
    return Response(body={"meta": {key: metadata[key]}})


def set_metadata_item(request: ComputeRequest, server_id: str, key: str) -> Response:
    if key not in request.json["meta"]:
        raise Invalid("Request body and URI mismatch")
    request.service.servers.set_metadata(request.caller, server_id, request.json["meta"])
    return Response(body={"meta": request.json["meta"]})


def delete_metadata_item(request: ComputeRequest, server_id: str, key: str) -> Response:
    request.service.servers.remove_metadata(request.caller, server_id, key)
    return Response(204)


def _page(request: ComputeRequest, rule: str) -> tuple[list[Server], bool]:
    wanted = wanted_servers(request, rule)
    return request.service.servers.list_servers(
        wanted.query, wanted.passes, limit=page_size(request), marker=request.query.first("marker")
    )


def _list(request: ComputeRequest, rows: list[dict[str, Json]], *, more: bool) -> Response:
    body: dict[str, Json] = {"servers": rows}
    if more and rows:
        body["servers_links"] = next_link(request, rows[-1]["id"])
    return Response(body=body)


class BlockDevice(TypedDict, total=False):
    source_type: str
    destination_type: str
    boot_index: int | str | None
    uuid: str


class NetworkBody(TypedDict, total=False):
    uuid: str
    port: str | None
    fixed_ip: str
    tag: str


#: The server of a create request, which the schema of its microversion has validated.
ServerBody = TypedDict(
    "ServerBody",
    {
        "name": Required[str],
        "flavorRef": Required[str | int],
        "imageRef": str,
        "availability_zone": str,
        "host": str,
        "hypervisor_hostname": str,
        "metadata": dict[str, str],
        "tags": list[str],
        "description": str | None,
        "hostname": str,
        "key_name": str,
        "user_data": str | None,
        "config_drive": bool | str | None,
        "accessIPv4": str,
        "accessIPv6": str,
        "min_count": int | str,
        "max_count": int | str,
        "networks": list[NetworkBody] | str,
        "block_device_mapping_v2": list[BlockDevice],
        "OS-DCF:diskConfig": str,
        "security_groups": list[dict[str, str]],
    },
    total=False,
)


def new_server(request: ComputeRequest, body: ServerBody) -> NewServer:
    _check_host_name(body)
    if named := sorted({one["name"] for one in body.get("security_groups", ()) if "name" in one} - {"default"}):
        # Ignoring it would leave a server open that its owner believes to be protected.
        raise Invalid(f"Security group {named[0]} not found: there are no security groups here. Name none, or default.")
    least, most = _counts(body)
    hints: dict[str, Json] = next((request.json[key] for key in _HINT_KEYS if key in request.json), {})
    if unread := sorted(_HINTS_NOT_BUILT & hints.keys()):
        raise NotBuilt(f"The scheduler hint {unread[0]} is not offered here.")
    return NewServer(
        name=body["name"].strip(),
        flavor_id=str(body["flavorRef"]).rpartition("/")[2],
        image_id=_image_id(body),
        count=most,
        least=least,
        zone=body.get("availability_zone"),
        host=body.get("host") or body.get("hypervisor_hostname"),
        metadata=body.get("metadata", {}),
        tags=tuple(body.get("tags", ())),
        description=body.get("description"),
        hostname=body.get("hostname"),
        key_name=body.get("key_name"),
        user_data=body.get("user_data"),
        config_drive=parse_flag(body.get("config_drive") or False),
        scheduler_hints=hints,
        access_ipv4=body.get("accessIPv4") or None,
        access_ipv6=ip_address(body["accessIPv6"]).compressed if body.get("accessIPv6") else None,
        disk_config=body.get("OS-DCF:diskConfig"),
        interfaces=_wanted_interfaces(body.get("networks")),
    )


def _counts(body: ServerBody) -> tuple[int, int]:
    """Number of servers to create: (minimum, maximum)."""
    least = parse_amount(body.get("min_count", 1), "min_count")
    most = parse_amount(body.get("max_count", least), "max_count")
    if least > most:
        raise Invalid("min_count must be <= max_count")
    return least, most


def _image_id(body: ServerBody) -> str | None:
    """The image in ``imageRef``, which the CLI names again in a block device."""
    image_id: str | None = str(body.get("imageRef") or "").rpartition("/")[2] or None
    for device in body.get("block_device_mapping_v2", ()):
        kind = (device.get("source_type"), device.get("destination_type", "local"))
        if kind != ("image", "local") or parse_amount(device.get("boot_index") or 0, "boot_index") != 0:
            raise NotBuilt("The only block device offered is the local disk of the image: there is no volume service.")
        if image_id not in (None, device.get("uuid")):
            raise Invalid("Block Device Mapping is Invalid: imageRef and the boot disk name different images.")
        image_id = device.get("uuid")
    return image_id


def _wanted_interfaces(networks: list[NetworkBody] | str | None) -> tuple[WantedInterface, ...] | None:
    """None: the project's only network. As in Nova, an empty list means the same as ``auto``, and so does nothing."""
    if networks == "none":
        return ()
    if not networks or isinstance(networks, str):
        return None
    return tuple(map(_wanted_interface, networks))


def _wanted_interface(body: NetworkBody) -> WantedInterface:
    port_id, address, tag = body.get("port"), body.get("fixed_ip"), body.get("tag")
    if port_id is not None:
        if address is not None:
            raise Invalid(
                f"Specified Fixed IP '{address}' cannot be used with port '{port_id}': the two cannot be specified "
                "together."
            )
        return WantedInterface(port_id=port_id, tag=tag)
    if "uuid" not in body:
        raise Invalid("Bad network format: missing 'uuid'")
    if not is_uuid(body["uuid"]):
        raise Invalid(f"Bad networks format: network uuid is not in proper format ({body['uuid']})")
    return WantedInterface(network_id=body["uuid"], address=address, tag=tag)


def _check_host_name(body: ServerBody) -> None:
    """A host and its hypervisor have the same name here."""
    host, hypervisor = body.get("host"), body.get("hypervisor_hostname")
    if host and hypervisor and host != hypervisor:
        raise Invalid(f"No compute host {host} has a hypervisor {hypervisor}.")
