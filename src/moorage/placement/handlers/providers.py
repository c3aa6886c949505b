"""/resource_providers and /resource_providers/{uuid}"""

import uuid as uuids
from datetime import datetime

from moorage.placement.forest import Forest
from moorage.placement.handlers.answers import PlacementCall, answer, checked_query, done, path
from moorage.placement.model import Provider
from moorage.placement.query import NO_AGGREGATES, NO_TRAITS, parse_member_of, parse_resources, parse_traits
from moorage.placement.schemas import provider as schemas
from moorage.placement.service_candidates import ProviderFilter
from moorage.placement.service_providers import Kept, kept
from moorage.wire.call import Reply


def index(call: PlacementCall) -> Reply:
    values = checked_query(call, schemas.LIST)
    every = call.query.every
    wanted = ProviderFilter(
        name=values.get("name") or None,
        uuid=values.get("uuid") or None,
        in_tree=values.get("in_tree") or None,
        resources=parse_resources(values["resources"]) if "resources" in values else None,
        traits=parse_traits(every("required"), call.version) if "required" in values else NO_TRAITS,
        aggregates=parse_member_of(every("member_of"), call.version) if "member_of" in values else NO_AGGREGATES,
    )
    forest, found = call.service.candidates.providers(wanted)
    modified = max((moment for provider in found if (moment := provider.updated_at)), default=None)
    return answer(call, {"resource_providers": _many(call, forest, found)}, modified)


def create(call: PlacementCall) -> Reply:
    document = call.json
    uuid = document.get("uuid")
    made = call.service.providers.create(
        document["name"], str(uuids.UUID(uuid)) if uuid else None, document.get("parent_provider_uuid")
    )
    location = f"/resource_providers/{made.provider.uuid}"
    if call.version >= (1, 20):
        return answer(call, encode(call, made), made.provider.updated_at, location=location)
    return done(call, 201, location=location)


def show(call: PlacementCall, uuid: str) -> Reply:
    return _answer(call, call.service.providers.show(uuid))


def update(call: PlacementCall, uuid: str) -> Reply:
    updated = call.service.providers.update(
        uuid,
        call.json["name"],
        call.json.get("parent_provider_uuid"),
        parent_given="parent_provider_uuid" in call.json,
        may_move=call.version >= (1, 37),
    )
    return _answer(call, updated)


def exists(call: PlacementCall, uuid: str, **_: str) -> None:
    call.service.providers.get(uuid)


def delete(call: PlacementCall, uuid: str) -> Reply:
    call.service.providers.delete(uuid)
    return done(call)


def _answer(call: PlacementCall, shown: Kept) -> Reply:
    modified: datetime | None = shown.provider.updated_at
    return answer(call, encode(call, shown), modified)


def _many(call: PlacementCall, forest: Forest, found: list[Provider]) -> list[dict[str, object]]:
    return [encode(call, kept(forest, provider)) for provider in found]


def encode(call: PlacementCall, shown: Kept) -> dict[str, object]:
    provider = shown.provider
    own = path(call, f"/resource_providers/{provider.uuid}")
    names = ["inventories", "usages"]
    names += [
        name for name, since in (("aggregates", 1), ("traits", 6), ("allocations", 11)) if call.version >= (1, since)
    ]
    encoded: dict[str, object] = {
        "uuid": provider.uuid,
        "name": provider.name,
        "generation": provider.generation,
        "links": [{"rel": "self", "href": own}, *({"rel": name, "href": f"{own}/{name}"} for name in names)],
    }
    if call.version >= (1, 14):
        encoded["parent_provider_uuid"] = shown.parent_uuid
        encoded["root_provider_uuid"] = shown.root_uuid
    return encoded
