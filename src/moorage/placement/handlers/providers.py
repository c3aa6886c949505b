"""/resource_providers and /resource_providers/{uuid}"""

import uuid as uuids
from datetime import datetime

from moorage.placement.forest import Forest
from moorage.placement.handlers.answers import PlacementCall, answer, checked_query, done, path
from moorage.placement.handlers.provider_json import Shape, shape
from moorage.placement.listing import ProviderFilter
from moorage.placement.model import Provider
from moorage.placement.query import NO_AGGREGATES, NO_TRAITS, parse_member_of, parse_resources, parse_traits
from moorage.placement.schemas import provider as schemas
from moorage.placement.service_providers import Kept
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
    texts, modified = _every(call, forest) if len(found) == len(forest) else _some(call, forest, found)
    return answer(call, b'{"resource_providers":[%s]}' % texts, modified)


def create(call: PlacementCall) -> Reply:
    document = call.json
    uuid = document.get("uuid")
    made = call.service.providers.create(
        document["name"], str(uuids.UUID(uuid)) if uuid else None, document.get("parent_provider_uuid")
    )
    location = f"/resource_providers/{made.provider.uuid}"
    if call.version >= (1, 20):
        return answer(call, _shape(call).text(made).encode(), made.provider.updated_at, location=location)
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
    call.service.providers.check_exists(uuid)


def delete(call: PlacementCall, uuid: str) -> Reply:
    call.service.providers.delete(uuid)
    return done(call)


def _answer(call: PlacementCall, shown: Kept) -> Reply:
    return answer(call, _shape(call).text(shown).encode(), shown.provider.updated_at)


def _shape(call: PlacementCall) -> Shape:
    return shape(path(call, ""), call.version.minor)


def _some(call: PlacementCall, forest: Forest, found: list[int]) -> tuple[bytes, datetime | None]:
    """Their texts, and when the last one of them was changed."""
    providers = [provider for provider in forest.providers.some(found) if provider is not None]
    return _shape(call).texts(forest, providers), _newest(providers)


def _every(call: PlacementCall, forest: Forest) -> tuple[bytes, datetime | None]:
    """As `_some` of all. Kept by chunk in the form that was asked for last: after a claim one chunk is made anew."""
    wanted = _shape(call)
    texts: list[bytes] = []
    moments: list[datetime] = []
    for chunk, memo in zip(forest.providers.chunks, forest.providers.memos, strict=True):
        kept_shape, text, moment = memo.get(_LISTED, (None, b"", None))
        if kept_shape != wanted:
            providers = [provider for provider in chunk if provider is not None]
            text, moment = wanted.texts(forest, providers), _newest(providers)
            memo[_LISTED] = wanted, text, moment
        if text:
            texts.append(text)
        if moment is not None:
            moments.append(moment)
    return b",".join(texts), max(moments, default=None)


#: In the memo of a chunk: (shape, texts, when the last one was changed).
_LISTED = "listed"


def _newest(providers: list[Provider]) -> datetime | None:
    return max([moment for provider in providers if (moment := provider.updated_at)], default=None)
