"""/resource_providers/{uuid}/inventories and below"""

import re
from collections.abc import Mapping

from moorage.core.errors import Conflict, Invalid, MethodNotAllowed, NotFound
from moorage.placement.api.handlers.answers import PlacementApiRequest, answer, answer_without_body, body_error_text
from moorage.placement.api.schemas import inventory as schemas
from moorage.placement.api.schemas.common import NAME
from moorage.placement.forest.model import Inventory, Provider
from moorage.placement.rules.inventory_writes import IN_USE
from moorage.wire.http import Response

_FIELDS = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


def list_inventories(request: PlacementApiRequest, uuid: str) -> Response:
    return _inventories_reply(request, _provider(request, uuid))


def show_inventory(request: PlacementApiRequest, uuid: str, resource_class: str) -> Response:
    provider = _provider(request, uuid)
    if resource_class not in provider.inventories:
        raise NotFound(f"No inventory of class {resource_class} for {uuid}")
    return _inventory_reply(request, provider, resource_class)


def create_inventory(request: PlacementApiRequest, uuid: str) -> Response:
    name = request.json["resource_class"]
    inventory = decode_inventory(request.json)
    request.service.providers.check_exists(uuid)
    _check_capacity(request, uuid, {name: inventory}, "create")
    provider = request.service.providers.add_inventory(uuid, name, inventory)
    response = _inventory_reply(request, provider, name, status=201)
    response.headers["location"] = f"{request.base_url}/resource_providers/{uuid}/inventories/{name}"
    return response


def replace_inventories(request: PlacementApiRequest, uuid: str) -> Response:
    wanted = decode_inventories(request.json["inventories"])
    generation = request.json["resource_provider_generation"]
    request.service.providers.check_generation(uuid, generation, "resource provider generation conflict")
    _check_capacity(request, uuid, wanted, "update")
    return _inventories_reply(request, request.service.providers.set_inventories(uuid, generation, wanted))


def update_inventory(request: PlacementApiRequest, uuid: str, resource_class: str) -> Response:
    inventory = decode_inventory(request.json)
    generation = request.json["resource_provider_generation"]
    request.service.providers.check_generation(uuid, generation, "resource provider generation conflict")
    _check_capacity(request, uuid, {resource_class: inventory}, "update")
    provider = request.service.providers.update_inventory(uuid, generation, resource_class, inventory)
    return _inventory_reply(request, provider, resource_class)


def delete_inventory(request: PlacementApiRequest, uuid: str, resource_class: str) -> Response:
    request.service.providers.delete_inventory(uuid, resource_class)
    return answer_without_body(request)


def delete_inventories(request: PlacementApiRequest, uuid: str) -> Response:
    try:
        request.service.providers.set_inventories(uuid, None, {})
    except Conflict as error:
        if error.error_code != IN_USE:
            raise
        raise Conflict(error.message.removeprefix("update conflict: "), code=IN_USE) from error
    return answer_without_body(request)


def refuse_delete_inventories(request: PlacementApiRequest, uuid: str) -> Response:
    """The route before 1.5."""
    raise MethodNotAllowed("The method DELETE is not allowed for this resource.", allowed="GET, POST, PUT")


def decode_inventories(records: Mapping[str, Mapping[str, float]]) -> dict[str, Inventory]:
    """{class: inventory} of PUT inventories and of the reshaper.

    The peer's schema does not check a record whose name cannot be a class: the client gets the error about the class
    only if the rest is valid.
    """
    for name, record in records.items():
        if re.search(NAME, name) is None:
            schemas.RECORD.validate(record, body_error_text)
    return {name: decode_inventory(record) for name, record in records.items()}


def decode_inventory(record: Mapping[str, float]) -> Inventory:
    given = {name: record[name] for name in _FIELDS if name in record}
    ratio = float(given.pop("allocation_ratio", 1.0))
    return Inventory(**{name: int(value) for name, value in given.items()}, allocation_ratio=ratio)


def encode_inventory(inventory: Inventory) -> dict[str, object]:
    return {name: getattr(inventory, name) for name in _FIELDS}


def _provider(request: PlacementApiRequest, uuid: str) -> Provider:
    found = request.service.providers.forest().by_uuid(uuid)
    if found is None:
        raise NotFound(f"No resource provider with uuid {uuid} found : No resource provider with uuid {uuid} found")
    return found


def _inventories_reply(request: PlacementApiRequest, provider: Provider) -> Response:
    body = {
        "resource_provider_generation": provider.generation,
        "inventories": {name: encode_inventory(inventory) for name, inventory in provider.inventories.items()},
    }
    response = answer(request, body, provider.inventories_updated_at)
    if not provider.inventories:
        response.headers.pop("last-modified", None)  # as the peer does
    return response


def _inventory_reply(request: PlacementApiRequest, provider: Provider, name: str, *, status: int = 200) -> Response:
    body = encode_inventory(provider.inventories[name])
    if provider.generation:
        body["resource_provider_generation"] = provider.generation
    return answer(request, body, provider.inventories_updated_at, status=status)


def _check_capacity(request: PlacementApiRequest, uuid: str, inventories: Mapping[str, Inventory], verb: str) -> None:
    """Raises `Invalid` unless something is left to allocate; from 1.26 on all of it may be reserved."""
    min_capacity = 0 if request.version >= (1, 26) else 1
    for name, inventory in inventories.items():
        if inventory.capacity < min_capacity:
            relation = "greater than total" if min_capacity == 0 else "greater than or equal to total"
            raise Invalid(
                f"Unable to {verb} inventory for resource provider {uuid}: Invalid inventory for '{name}' on "
                f"resource provider '{uuid}'. The reserved value is {relation}."
            )
