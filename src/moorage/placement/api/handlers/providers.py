"""/resource_providers, /resource_providers/{uuid} and the aggregates of a provider

Providers are formatted as text (`ProviderShape`): for a list of a thousand, that is four times as fast as building
documents and encoding them. Providers differ only in uuid, name, generation and the uuids of parent and root.
"""

import uuid as uuids
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from moorage.placement.api.handlers.answers import (
    PlacementApiRequest,
    answer,
    answer_without_body,
    checked_query,
    link_path,
)
from moorage.placement.api.schemas import provider as schemas
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Provider
from moorage.placement.forest.persistent_list import CHUNK_BITS, CHUNK_MASK, Memo
from moorage.placement.search.masks import ProviderFilter
from moorage.placement.search.query import NO_AGGREGATES, NO_TRAITS, parse_member_of, parse_resources, parse_traits
from moorage.placement.service.provider_service import ProviderView, provider_view
from moorage.wire.body import encode_json
from moorage.wire.http import Response

#: The shape of 1.14 is that of all later microversions.
_LAST_SHAPE_CHANGE = 14


_LINKS = (("inventories", 0), ("usages", 0), ("aggregates", 1), ("traits", 6), ("allocations", 11))


@dataclass(frozen=True, slots=True)
class ProviderShape:
    """The text that all providers have in common, for one microversion and one prefix of links."""

    #: The text of the links between the uuids.
    links: tuple[str, ...]
    shows_tree: bool

    def text(self, shown: ProviderView) -> str:
        provider = shown.provider
        uuid = provider.uuid
        name = encode_json(provider.name).decode()
        plain = f'{{"uuid":"{uuid}","name":{name},"generation":{provider.generation},"links":[{uuid.join(self.links)}]'
        if not self.shows_tree:
            return plain + "}"
        parent = "null" if shown.parent_uuid is None else f'"{shown.parent_uuid}"'
        return f'{plain},"parent_provider_uuid":{parent},"root_provider_uuid":"{shown.root_uuid}"}}'


@lru_cache(maxsize=64)
def _compiled_shape(prefix: str, minor: int) -> ProviderShape:
    """`prefix`: start of the links, without scheme and host. `minor`: at most `_LAST_SHAPE_CHANGE`."""
    start = encode_json(f"{prefix}/resource_providers/").decode()[:-1]
    parts = [f'{{"rel":"self","href":{start}']
    ending = '"}'
    for name, since in _LINKS:
        if minor >= since:
            parts.append(f'{ending},{{"rel":"{name}","href":{start}')
            ending = f'/{name}"}}'
    return ProviderShape((*parts, ending), shows_tree=minor >= _LAST_SHAPE_CHANGE)


def list_providers(request: PlacementApiRequest) -> Response:
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
    forest, found = request.service.candidates.matching_providers(wanted)
    texts, modified = _all_texts(request, forest) if len(found) == len(forest) else _some_texts(request, forest, found)
    return answer(request, _join_list(texts), modified)


def create_provider(request: PlacementApiRequest) -> Response:
    document = request.json
    uuid = document.get("uuid")
    made = request.service.providers.create_provider(
        document["name"], str(uuids.UUID(uuid)) if uuid else None, document.get("parent_provider_uuid")
    )
    location = f"/resource_providers/{made.provider.uuid}"
    if request.version >= (1, 20):
        return answer(request, _shape(request).text(made).encode(), made.provider.updated_at, location=location)
    return answer_without_body(request, 201, location=location)


def show_provider(request: PlacementApiRequest, uuid: str) -> Response:
    return _provider_reply(request, request.service.providers.view(uuid))


def update_provider(request: PlacementApiRequest, uuid: str) -> Response:
    updated = request.service.providers.update_provider(
        uuid,
        request.json["name"],
        request.json.get("parent_provider_uuid"),
        parent_given="parent_provider_uuid" in request.json,
        may_move=request.version >= (1, 37),
    )
    return _provider_reply(request, updated)


def check_provider_exists(request: PlacementApiRequest, uuid: str, **_: str) -> None:
    request.service.providers.check_exists(uuid)


def delete_provider(request: PlacementApiRequest, uuid: str) -> Response:
    request.service.providers.delete_provider(uuid)
    return answer_without_body(request)


def _provider_reply(request: PlacementApiRequest, shown: ProviderView) -> Response:
    return answer(request, _shape(request).text(shown).encode(), shown.provider.updated_at)


def _shape(request: PlacementApiRequest) -> ProviderShape:
    return _compiled_shape(link_path(request, ""), min(request.version.minor, _LAST_SHAPE_CHANGE))


def _join_list(texts: list[bytes]) -> bytes:
    """Joins in one step, so that a megabyte is not copied twice."""
    first, *rest = texts or [b""]
    last = rest.pop() if rest else None
    start = b'{"resource_providers":[' + first
    return start + b"]}" if last is None else b",".join([start, *rest, last + b"]}"])


def _some_texts(request: PlacementApiRequest, forest: Forest, found: list[int]) -> tuple[list[bytes], datetime | None]:
    """The texts of these providers, and the time of the last change to any of them."""
    wanted, chunks = _shape(request), forest.providers
    providers = [provider for provider in chunks.some(found) if provider is not None]
    if len(found) < _MIN_FOR_CHUNKS:
        texts = [wanted.text(provider_view(forest, provider)).encode() for provider in providers]
    else:
        by_chunk = {number: _chunk_texts(wanted, forest, number) for number in {slot >> CHUNK_BITS for slot in found}}
        texts = [by_chunk[slot >> CHUNK_BITS][slot & CHUNK_MASK] for slot in found]
    return texts, max([moment for one in providers if (moment := one.updated_at)], default=None)


#: Minimum number of providers for which the texts of whole chunks are computed.
_MIN_FOR_CHUNKS = 4


def _all_texts(request: PlacementApiRequest, forest: Forest) -> tuple[list[bytes], datetime | None]:
    """`_some_texts` for all providers."""
    wanted = _shape(request)
    texts: list[bytes] = []
    for number in range(len(forest.providers.chunks)):
        texts += _chunk_texts(wanted, forest, number)
    moments = (_newest(chunk, memo) for chunk, memo in forest.providers.with_memos())
    return [text for text in texts if text], max((one for one in moments if one), default=None)


def _chunk_texts(wanted: ProviderShape, forest: Forest, number: int) -> list[bytes]:
    """By place in the chunk; empty for free slots.

    Cached in the last shape: a claim replaces one chunk and its cache.
    """
    memo = forest.providers.memos[number]
    texts: list[bytes]
    cached_shape, texts = memo.get(_LISTED, (None, []))
    if cached_shape != wanted:
        chunk = forest.providers.chunks[number]
        texts = [
            b"" if provider is None else wanted.text(provider_view(forest, provider)).encode() for provider in chunk
        ]
        memo[_LISTED] = wanted, texts
    return texts


def _newest(chunk: Sequence[Provider | None], memo: Memo) -> datetime | None:
    """Time of the last change to a provider of the chunk."""
    if _NEWEST not in memo:
        memo[_NEWEST] = max([moment for one in chunk if one and (moment := one.updated_at)], default=None)
    newest: datetime | None = memo[_NEWEST]
    return newest


#: Keys in the memo of a chunk.
_LISTED, _NEWEST = "listed", "newest"


def show_aggregates(request: PlacementApiRequest, uuid: str) -> Response:
    provider = request.service.providers.provider(uuid)
    return _aggregates_reply(request, provider, sorted(provider.aggregates))


def set_aggregates(request: PlacementApiRequest, uuid: str) -> Response:
    """From 1.19 on, the request contains the provider's generation, which increases."""
    if request.version >= (1, 19):
        aggregates, generation = request.json["aggregates"], request.json["resource_provider_generation"]
    else:
        aggregates, generation = request.json, None
    return _aggregates_reply(
        request, request.service.providers.set_aggregates(uuid, generation, aggregates), aggregates
    )


def _aggregates_reply(request: PlacementApiRequest, provider: Provider, aggregates: list[str]) -> Response:
    body: dict[str, object] = {"aggregates": aggregates}
    if request.version >= (1, 19):
        body["resource_provider_generation"] = provider.generation
    return answer(request, body)
