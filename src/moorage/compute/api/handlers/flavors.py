"""Flavors, their extra specs and access lists."""

from collections.abc import Mapping
from typing import Any

from moorage.compute.api.handlers.views import ComputeCall, amount, flag, links, next_link, page, whole
from moorage.compute.model.servers import Flavor
from moorage.core.errors import Invalid, NotFound
from moorage.wire.http import Reply

#: From here on Nova refuses extra specs of its own namespaces that it does not know.
KNOWN_ONLY_SINCE = (2, 86)


def index(call: ComputeCall) -> Reply:
    return _list(call, [_brief(call, flavor) for flavor in _wanted(call)])


def detail(call: ComputeCall) -> Reply:
    return _list(call, [_view(call, flavor) for flavor in _wanted(call)])


def show(call: ComputeCall, flavor_id: str) -> Reply:
    return Reply(body={"flavor": _view(call, call.service.flavors.get(call.caller, flavor_id))})


def create(call: ComputeCall) -> Reply:
    body = call.json["flavor"]
    wanted_id = body.get("id")
    flavor = Flavor(
        id="" if wanted_id in (None, "auto") else str(wanted_id),
        name=body["name"],
        vcpus=amount(body["vcpus"], "vcpus"),
        ram_mb=amount(body["ram"], "ram"),
        disk_gb=amount(body["disk"], "disk"),
        ephemeral_gb=amount(body.get("OS-FLV-EXT-DATA:ephemeral", 0), "OS-FLV-EXT-DATA:ephemeral"),
        swap_mb=amount(body.get("swap") or 0, "swap"),
        rxtx_factor=float(body.get("rxtx_factor", 1.0)),
        is_public=flag(body.get("os-flavor-access:is_public", True)),
        description=body.get("description"),
    )
    return Reply(body={"flavor": _view(call, call.service.flavors.create(flavor))})


def update(call: ComputeCall, flavor_id: str) -> Reply:
    flavor = call.service.flavors.describe(flavor_id, call.json["flavor"]["description"])
    return Reply(body={"flavor": _view(call, flavor)})


def delete(call: ComputeCall, flavor_id: str) -> Reply:
    call.service.flavors.delete(flavor_id)
    return Reply(202)


def index_specs(call: ComputeCall, flavor_id: str) -> Reply:
    flavor = call.service.flavors.get(call.caller, flavor_id)
    return Reply(body={"extra_specs": dict(flavor.extra_specs)})


def create_specs(call: ComputeCall, flavor_id: str) -> Reply:
    specs = _texts(call.json["extra_specs"])
    call.service.flavors.add_extra_specs(flavor_id, specs, known_only=call.version >= KNOWN_ONLY_SINCE)
    return Reply(body={"extra_specs": specs})


def show_spec(call: ComputeCall, flavor_id: str, key: str) -> Reply:
    specs = call.service.flavors.get(call.caller, flavor_id).extra_specs
    if key not in specs:
        raise NotFound(f"Flavor {flavor_id} has no extra specs with key {key}.")
    return Reply(body={key: specs[key]})


def update_spec(call: ComputeCall, flavor_id: str, key: str) -> Reply:
    if key not in call.json:
        raise Invalid("Request body and URI mismatch")
    specs = _texts(call.json)
    call.service.flavors.add_extra_specs(flavor_id, specs, known_only=call.version >= KNOWN_ONLY_SINCE)
    return Reply(body=specs)


def delete_spec(call: ComputeCall, flavor_id: str, key: str) -> Reply:
    call.service.flavors.remove_extra_spec(flavor_id, key)
    return Reply(200)


def index_access(call: ComputeCall, flavor_id: str) -> Reply:
    return _access(flavor_id, call.service.flavors.access(flavor_id))


def act(call: ComputeCall, flavor_id: str) -> Reply:
    if (added := call.json.get("addTenantAccess")) is not None:
        return _access(flavor_id, call.service.flavors.add_access(flavor_id, added["tenant"]))
    removed = call.json["removeTenantAccess"]
    return _access(flavor_id, call.service.flavors.remove_access(flavor_id, removed["tenant"]))


def _wanted(call: ComputeCall) -> list[Flavor]:
    found = call.service.flavors.find(call.caller, _is_public(call))
    least_ram, least_disk = (_number(call, name) for name in ("minRam", "minDisk"))
    return [flavor for flavor in found if flavor.ram_mb >= least_ram and flavor.disk_gb >= least_disk]


def _is_public(call: ComputeCall) -> bool | None:
    """Without the parameter: what the project may use. The text ``None`` is a value of its own here: all."""
    given = call.query.every("is_public") or ["true"]
    return None if given[-1].lower() == "none" else flag(given[-1])


def _number(call: ComputeCall, name: str) -> int:
    text = call.query.first(name) or "0"
    return whole(text, f"Invalid {name} filter [{text[:255]}]")


def _list(call: ComputeCall, rows: list[dict[str, Any]]) -> Reply:
    shown, more = page(rows, call)
    body: dict[str, Any] = {"flavors": shown}
    if more and shown:
        body["flavors_links"] = next_link(call, shown[-1]["id"])
    return Reply(body=body)


def _brief(call: ComputeCall, flavor: Flavor) -> dict[str, Any]:
    view: dict[str, Any] = {"id": flavor.id, "name": flavor.name, "links": links(call, "flavors", flavor.id)}
    if call.version >= (2, 55):
        view["description"] = flavor.description
    return view


def _view(call: ComputeCall, flavor: Flavor) -> dict[str, Any]:
    view = _brief(call, flavor)
    view |= {
        "vcpus": flavor.vcpus,
        "ram": flavor.ram_mb,
        "disk": flavor.disk_gb,
        "OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral_gb,
        "swap": flavor.swap_mb or ("" if call.version < (2, 75) else 0),
        "OS-FLV-DISABLED:disabled": False,
        "os-flavor-access:is_public": flavor.is_public,
        "rxtx_factor": flavor.rxtx_factor,
    }
    if call.version >= (2, 61) and call.allowed("os_compute_api:os-flavor-extra-specs:index"):
        view["extra_specs"] = dict(flavor.extra_specs)
    return view


def _access(flavor_id: str, projects: list[str]) -> Reply:
    return Reply(body={"flavor_access": [{"flavor_id": flavor_id, "tenant_id": project} for project in projects]})


def _texts(specs: Mapping[str, Any]) -> dict[str, str]:
    """Numbers are kept as text: Placement and drivers read text."""
    return {key: str(value) for key, value in specs.items()}
