"""Flavors, their extra specs and access lists; and the manual migration of bare-metal servers."""

from collections.abc import Mapping

from moorage.compute.api.handlers.views import (
    ComputeRequest,
    next_link,
    page_of_rows,
    parse_amount,
    parse_flag,
    parse_whole_number,
    resource_links,
)
from moorage.compute.model.servers import Flavor
from moorage.core.errors import Invalid, NotBuilt, NotFound
from moorage.core.json import Json
from moorage.wire.http import Response

#: From here on, Nova refuses unknown extra specs in its own namespaces.
KNOWN_ONLY_SINCE = (2, 86)


def index(request: ComputeRequest) -> Response:
    return _list(request, [_brief(request, flavor) for flavor in _wanted(request)])


def detail(request: ComputeRequest) -> Response:
    return _list(request, [_view(request, flavor) for flavor in _wanted(request)])


def show(request: ComputeRequest, flavor_id: str) -> Response:
    return Response(body={"flavor": _view(request, request.service.flavors.get_flavor(request.caller, flavor_id))})


def create(request: ComputeRequest) -> Response:
    body = request.json["flavor"]
    wanted_id = body.get("id")
    flavor = Flavor(
        id="" if wanted_id in (None, "auto") else str(wanted_id),
        name=body["name"],
        vcpus=parse_amount(body["vcpus"], "vcpus"),
        ram_mb=parse_amount(body["ram"], "ram"),
        disk_gb=parse_amount(body["disk"], "disk"),
        ephemeral_gb=parse_amount(body.get("OS-FLV-EXT-DATA:ephemeral", 0), "OS-FLV-EXT-DATA:ephemeral"),
        swap_mb=parse_amount(body.get("swap") or 0, "swap"),
        rxtx_factor=float(body.get("rxtx_factor", 1.0)),
        is_public=parse_flag(body.get("os-flavor-access:is_public", True)),
        description=body.get("description"),
    )
    return Response(body={"flavor": _view(request, request.service.flavors.create_flavor(flavor))})


def update(request: ComputeRequest, flavor_id: str) -> Response:
    flavor = request.service.flavors.set_description(flavor_id, request.json["flavor"]["description"])
    return Response(body={"flavor": _view(request, flavor)})


def delete(request: ComputeRequest, flavor_id: str) -> Response:
    request.service.flavors.delete_flavor(flavor_id)
    return Response(202)


def index_specs(request: ComputeRequest, flavor_id: str) -> Response:
    flavor = request.service.flavors.get_flavor(request.caller, flavor_id)
    return Response(body={"extra_specs": dict(flavor.extra_specs)})


def create_specs(request: ComputeRequest, flavor_id: str) -> Response:
    specs = _texts(request.json["extra_specs"])
    request.service.flavors.add_extra_specs(flavor_id, specs, known_only=request.version >= KNOWN_ONLY_SINCE)
    return Response(body={"extra_specs": specs})


def show_spec(request: ComputeRequest, flavor_id: str, key: str) -> Response:
    specs = request.service.flavors.get_flavor(request.caller, flavor_id).extra_specs
    if key not in specs:
        raise NotFound(f"Flavor {flavor_id} has no extra specs with key {key}.")
    return Response(body={key: specs[key]})


def update_spec(request: ComputeRequest, flavor_id: str, key: str) -> Response:
    if key not in request.json:
        raise Invalid("Request body and URI mismatch")
    specs = _texts(request.json)
    request.service.flavors.add_extra_specs(flavor_id, specs, known_only=request.version >= KNOWN_ONLY_SINCE)
    return Response(body=specs)


def delete_spec(request: ComputeRequest, flavor_id: str, key: str) -> Response:
    request.service.flavors.remove_extra_spec(flavor_id, key)
    return Response(200)


def index_access(request: ComputeRequest, flavor_id: str) -> Response:
    return _access(flavor_id, request.service.flavors.access(flavor_id))


def act(request: ComputeRequest, flavor_id: str) -> Response:
    if (added := request.json.get("addTenantAccess")) is not None:
        return _access(flavor_id, request.service.flavors.add_access(flavor_id, added["tenant"]))
    removed = request.json["removeTenantAccess"]
    return _access(flavor_id, request.service.flavors.remove_access(flavor_id, removed["tenant"]))


def _wanted(request: ComputeRequest) -> list[Flavor]:
    found = request.service.flavors.list_flavors(request.caller, _is_public(request))
    least_ram, least_disk = (_number(request, name) for name in ("minRam", "minDisk"))
    return [flavor for flavor in found if flavor.ram_mb >= least_ram and flavor.disk_gb >= least_disk]


def _is_public(request: ComputeRequest) -> bool | None:
    """Default: flavors that the project may use. The text ``None`` is a value of its own: all flavors."""
    given = request.query.every("is_public") or ["true"]
    return None if given[-1].lower() == "none" else parse_flag(given[-1])


def _number(request: ComputeRequest, name: str) -> int:
    text = request.query.first(name) or "0"
    return parse_whole_number(text, f"Invalid {name} filter [{text[:255]}]")


def _list(request: ComputeRequest, rows: list[dict[str, Json]]) -> Response:
    shown, more = page_of_rows(rows, request)
    body: dict[str, Json] = {"flavors": shown}
    if more and shown:
        body["flavors_links"] = next_link(request, shown[-1]["id"])
    return Response(body=body)


def _brief(request: ComputeRequest, flavor: Flavor) -> dict[str, Json]:
    view: dict[str, Json] = {
        "id": flavor.id,
        "name": flavor.name,
        "links": resource_links(request, "flavors", flavor.id),
    }
    if request.version >= (2, 55):
        view["description"] = flavor.description
    return view


def _view(request: ComputeRequest, flavor: Flavor) -> dict[str, Json]:
    view = _brief(request, flavor)
    view |= {
        "vcpus": flavor.vcpus,
        "ram": flavor.ram_mb,
        "disk": flavor.disk_gb,
        "OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral_gb,
        "swap": flavor.swap_mb or ("" if request.version < (2, 75) else 0),
        "OS-FLV-DISABLED:disabled": False,
        "os-flavor-access:is_public": flavor.is_public,
        "rxtx_factor": flavor.rxtx_factor,
    }
    if request.version >= (2, 61) and request.allowed("os_compute_api:os-flavor-extra-specs:index"):
        view["extra_specs"] = dict(flavor.extra_specs)
    return view


def _access(flavor_id: str, projects: list[str]) -> Response:
    return Response(body={"flavor_access": [{"flavor_id": flavor_id, "tenant_id": project} for project in projects]})


def _texts(specs: Mapping[str, Json]) -> dict[str, str]:
    """Numbers become text, because Placement and drivers read text."""
    return {key: str(value) for key, value in specs.items()}


def migrate_bare_metal_flavors(request: ComputeRequest) -> Response:
    bare_metal = request.service.bare_metal
    if bare_metal is None:
        raise NotBuilt("This compute service is not connected to Placement.")
    steps, last = bare_metal.migrate_servers(dry_run=request.json["dry_run"], after=request.json.get("after", ""))
    rows = [
        {
            "node": step.node,
            "server": step.server_id,
            "outcome": step.outcome.value,
            "resource_class": step.resource_class,
            "note": step.note,
        }
        for step in steps
    ]
    return Response(body={"steps": rows, "after": last})
