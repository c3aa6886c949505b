"""/resource_providers and /resource_providers/{uuid}"""

import uuid as uuids
from collections.abc import Sequence
from datetime import datetime

from moorage.placement.api.handlers.answers import PlacementApiRequest, answer, checked_query, done, path
from moorage.placement.api.handlers.provider_json import Shape, shape
from moorage.placement.api.schemas import provider as schemas
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Provider
from moorage.placement.forest.persistent_list import CHUNK_BITS, CHUNK_MASK, Memo
from moorage.placement.search.provider_filters import ProviderFilter
from moorage.placement.search.query import NO_AGGREGATES, NO_TRAITS, parse_member_of, parse_resources, parse_traits
from moorage.placement.service.provider_service import ProviderView, kept
from moorage.wire.http import Response


def index(request: PlacementApiRequest) -> Response:
    values = checked_query(request, schemas.LIST)
    every = request.query.every
    wanted = ProviderFilter(
        name=values.get("name") or None,
        uuid=values.get("uuid") or None,
        in_tree=values.get("in_tree") or None,
        resources=parse_resources(values["resources"]) if "resources" in values else None,
        traits=parse_traits(every("required"), request.version) if "required" in values else NO_TRAITS,
        aggregates=parse_member_of(every("member_of"), request.version) if "member_of" in values else NO_AGGREGATES,
    )
    forest, found = request.service.candidates.providers(wanted)
    texts, modified = _every(request, forest) if len(found) == len(forest) else _some(request, forest, found)
    return answer(request, _list(texts), modified)


def create(request: PlacementApiRequest) -> Response:
    document = request.json
    uuid = document.get("uuid")
    made = request.service.providers.create(
        document["name"], str(uuids.UUID(uuid)) if uuid else None, document.get("parent_provider_uuid")
    )
    location = f"/resource_providers/{made.provider.uuid}"
    if request.version >= (1, 20):
        return answer(request, _shape(request).text(made).encode(), made.provider.updated_at, location=location)
    return done(request, 201, location=location)


def show(request: PlacementApiRequest, uuid: str) -> Response:
    return _answer(request, request.service.providers.show(uuid))


def update(request: PlacementApiRequest, uuid: str) -> Response:
    updated = request.service.providers.update(
        uuid,
        request.json["name"],
        request.json.get("parent_provider_uuid"),
        parent_given="parent_provider_uuid" in request.json,
        may_move=request.version >= (1, 37),
    )
    return _answer(request, updated)


def exists(request: PlacementApiRequest, uuid: str, **_: str) -> None:
    request.service.providers.check_exists(uuid)


def delete(request: PlacementApiRequest, uuid: str) -> Response:
    request.service.providers.delete(uuid)
    return done(request)


def _answer(request: PlacementApiRequest, shown: ProviderView) -> Response:
    return answer(request, _shape(request).text(shown).encode(), shown.provider.updated_at)


def _shape(request: PlacementApiRequest) -> Shape:
    return shape(path(request, ""), request.version.minor)


def _list(texts: list[bytes]) -> bytes:
    """Joined in one go: a megabyte is not copied twice."""
    first, *rest = texts or [b""]
    last = rest.pop() if rest else None
    start = b'{"resource_providers":[' + first
    return start + b"]}" if last is None else b",".join([start, *rest, last + b"]}"])


def _some(request: PlacementApiRequest, forest: Forest, found: list[int]) -> tuple[list[bytes], datetime | None]:
    """Their texts, and when the last one of them was changed."""
    wanted, chunks = _shape(request), forest.providers
    providers = [provider for provider in chunks.some(found) if provider is not None]
    if len(found) < _FEW:
        texts = [wanted.text(kept(forest, provider)).encode() for provider in providers]
    else:
        by_chunk = {number: _texts(wanted, forest, number) for number in {slot >> CHUNK_BITS for slot in found}}
        texts = [by_chunk[slot >> CHUNK_BITS][slot & CHUNK_MASK] for slot in found]
    return texts, max([moment for one in providers if (moment := one.updated_at)], default=None)


#: So many are not worth the texts of a whole chunk.
_FEW = 4


def _every(request: PlacementApiRequest, forest: Forest) -> tuple[list[bytes], datetime | None]:
    """As `_some` of all."""
    wanted = _shape(request)
    texts: list[bytes] = []
    for number in range(len(forest.providers.chunks)):
        texts += _texts(wanted, forest, number)
    moments = (_newest(chunk, memo) for chunk, memo in forest.providers.with_memos())
    return [text for text in texts if text], max((one for one in moments if one), default=None)


def _texts(wanted: Shape, forest: Forest, number: int) -> list[bytes]:
    """By place in the chunk; empty where nobody is. Kept in the form asked for last: a claim makes one chunk anew."""
    memo = forest.providers.memos[number]
    texts: list[bytes]
    shape_then, texts = memo.get(_LISTED, (None, []))
    if shape_then != wanted:
        chunk = forest.providers.chunks[number]
        texts = [b"" if provider is None else wanted.text(kept(forest, provider)).encode() for provider in chunk]
        memo[_LISTED] = wanted, texts
    return texts


def _newest(chunk: Sequence[Provider | None], memo: Memo) -> datetime | None:
    """When the last one of a chunk was changed."""
    if _NEWEST not in memo:
        memo[_NEWEST] = max([moment for one in chunk if one and (moment := one.updated_at)], default=None)
    newest: datetime | None = memo[_NEWEST]
    return newest


#: In the memo of a chunk.
_LISTED, _NEWEST = "listed", "newest"
