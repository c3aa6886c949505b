"""GET /allocation_candidates, and GET /moorage/v1/explain, which explains the result

The body of GET /allocation_candidates is assembled from cached parts. Candidates with the same pattern (which
requirements share a provider) differ only in uuids. Their allocation requests are rows of one byte array, written at
once. The summary of a provider is cached with the provider.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlencode

import numpy as np
from numpy.typing import NDArray

from moorage.placement.api.handlers.answers import VERSIONS, PlacementApiRequest, answer
from moorage.placement.api.schemas import candidate as schemas
from moorage.placement.explain.explanation import Explanation
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Provider
from moorage.placement.forest.persistent_list import CHUNK_BITS
from moorage.placement.search.candidates import SearchResult
from moorage.placement.search.request import CandidateRequest, parse_request, to_query
from moorage.placement.search.requirements import Requirement
from moorage.placement.service.provider_service import provider_view
from moorage.wire.body import encode_json
from moorage.wire.http import Response
from moorage.wire.microversion import Version

Bytes = NDArray[np.uint8]

#: Header with a seed; with a limit, it selects a sample of all candidates instead of the first ones. It is a header
#: because OpenStack Placement ignores unknown headers but refuses unknown parameters.
SAMPLE = "x-moorage-sample"


def list_candidates(request: PlacementApiRequest) -> Response:
    wanted = _parse_query(request.query.pairs, request.version)
    forest, found = request.service.candidates.find_candidates(wanted, request.headers.get(SAMPLE) or None)
    return answer(request, candidates_body(request.version, forest, wanted, found))


def explain_candidates(request: PlacementApiRequest) -> Response:
    """Interprets the query in the microversion of the request, without one in the newest."""
    version = request.version if "openstack-api-version" in request.headers else VERSIONS.maximum
    return answer(
        request,
        encode_explanation(request.service.candidates.explain_candidates(_parse_query(request.query.pairs, version))),
    )


#: Limits of the cache of parsed queries: their number, and the length of each. Schedulers repeat the same queries.
MAX_CACHED_QUERIES = 512
MAX_CACHED_QUERY_LENGTH = 2000


def _parse_query(pairs: Sequence[tuple[str, str]], version: Version) -> CandidateRequest:
    """Raises `Invalid` with the peer's message."""
    if sum(len(key) + len(value) for key, value in pairs) > MAX_CACHED_QUERY_LENGTH:
        return _parse(tuple(pairs), version)
    return _parse_cached(tuple(pairs), version)


def _parse(pairs: tuple[tuple[str, str], ...], version: Version) -> CandidateRequest:
    schema = schemas.LIST.for_version(version)
    if schema is not None:
        schema.validate(dict(pairs), lambda error: f"Invalid query string parameters: {error}")
    return parse_request(pairs, version)


_parse_cached = lru_cache(MAX_CACHED_QUERIES)(_parse)


def encode_explanation(explanation: Explanation) -> dict[str, object]:
    steps = [
        {
            "constraint": step.constraint,
            "before": step.before,
            "after": step.after,
            "removed": [{"provider": removed.provider, "reason": removed.reason} for removed in step.removed],
        }
        for step in explanation.steps
    ]
    change = explanation.change
    return {
        "text": explanation.text,
        "candidates": explanation.candidates,
        "steps": steps,
        "closest": [{"provider": host.provider, "lacks": host.lacks} for host in explanation.closest],
        "change": None
        if change is None
        else {
            "provider": change.provider,
            "parts": change.parts,
            "query": urlencode(to_query(change.request), safe=":,!"),
        },
    }


# --- the body of GET /allocation_candidates ---------------------------------------------------------------------

_IN_CHUNK = (1 << CHUNK_BITS) - 1


def candidates_body(version: Version, forest: Forest, request: CandidateRequest, found: SearchResult) -> bytes:
    """Joined once: copying a megabyte costs more than finding it."""
    requests = _requests(version, forest, found)
    summaries = _summaries(version, forest, request, found)
    if requests:
        requests[-1], summaries[-1] = requests[-1][:-1], summaries[-1][:-1]  # the last commas
    return b"".join((b'{"allocation_requests":[', *requests, b'],"provider_summaries":{', *summaries, b"}}"))


# --- requests ---------------------------------------------------------------------------------------------------


def _requests(version: Version, forest: Forest, found: SearchResult) -> list[memoryview]:
    """The allocation requests, each followed by a comma; adjacent ones may be in one view."""
    if not len(found):
        return []
    quoted = _quoted_uuids(forest)
    parts = []
    for pattern, chosen in _patterns(found.chosen):
        template, holes = _template(version, found.requirements, pattern, quoted.shape[1])
        rows: Bytes = np.empty((len(chosen), len(template)), dtype=np.uint8)
        rows[:] = np.frombuffer(template, dtype=np.uint8)
        for start, requirement in holes:
            rows[:, start : start + quoted.shape[1]] = quoted[chosen[:, requirement]]
        parts.append(rows.reshape(-1).data)
    return parts


def _patterns(chosen: NDArray[np.int32]) -> list[tuple[tuple[int, ...], NDArray[np.int32]]]:
    """[(pattern, its candidates)]. A pattern has, for each requirement, the first one with the same provider."""
    first = _pattern(chosen[0].tolist())
    distinct = np.sort(chosen[:, sorted(set(first))], axis=1)
    if (chosen == chosen[:, first]).all() and (distinct[:, 1:] != distinct[:, :-1]).all():
        return [(first, chosen)]
    places: dict[tuple[int, ...], list[int]] = {}
    for place, slots in enumerate(chosen.tolist()):
        places.setdefault(_pattern(slots), []).append(place)
    return [(pattern, chosen[mine]) for pattern, mine in places.items()]


def _pattern(slots: list[int]) -> tuple[int, ...]:
    return tuple(map(slots.index, slots))


def _template(
    version: Version, requirements: Sequence[Requirement], pattern: Sequence[int], width: int
) -> tuple[bytes, list[tuple[int, int]]]:
    """An allocation request with `width` spaces for each uuid, and [(their start, number of the requirement)]."""
    parts: list[bytes | int] = []
    amounts: dict[int, dict[str, int]] = {}
    groups: dict[str, dict[int, None]] = {}
    for number, requirement in zip(pattern, requirements, strict=True):
        groups.setdefault(requirement.suffix, {})[number] = None
        for name, amount in requirement.resources.items():
            held = amounts.setdefault(number, {})
            held[name] = held.get(name, 0) + amount
    if version < (1, 12):
        parts += [b'{"allocations":[']
        for number, held in amounts.items():
            parts += [b'{"resource_provider":{"uuid":', number, b'},"resources":', encode_json(held), b"}", b","]
        parts[-1:] = [b"]"]
    else:
        parts += [b'{"allocations":{']
        for number, held in amounts.items():
            parts += [number, b':{"resources":', encode_json(held), b"}", b","]
        parts[-1:] = [b"}"]
    if version >= (1, 34):
        parts += [b',"mappings":{']
        for suffix, numbers in groups.items():
            parts += [encode_json(suffix), b":["]
            for number in numbers:
                parts += [number, b","]
            parts[-1:] = [b"]", b","]
        parts[-1:] = [b"}"]
    parts += [b"},"]
    return _join_with_holes(parts, width)


def _join_with_holes(parts: Sequence[bytes | int], width: int) -> tuple[bytes, list[tuple[int, int]]]:
    template, holes = bytearray(), []
    for part in parts:
        if isinstance(part, int):
            holes.append((len(template), part))
            template += b" " * width
        else:
            template += part
    return bytes(template), holes


def _quoted_uuids(forest: Forest) -> Bytes:
    """By slot: the uuid in quotes, padded with spaces, which JSON allows between tokens."""

    def make() -> Bytes:
        encoded = [encode_json(uuid) for uuid in forest.slot_of_uuid]
        width = max(map(len, encoded))
        quoted: Bytes = np.zeros((len(forest.roots), width), dtype=np.uint8)
        slots = np.fromiter(forest.slot_of_uuid.values(), dtype=np.int32, count=len(encoded))
        text = b"".join(one.ljust(width) for one in encoded)
        quoted[slots] = np.frombuffer(text, dtype=np.uint8).reshape(-1, width)
        return quoted

    return forest.memo.get("quoted uuids", (forest.slot_of_uuid,), make)


# --- summaries --------------------------------------------------------------------------------------------------


def _summaries(version: Version, forest: Forest, request: CandidateRequest, found: SearchResult) -> list[bytes]:
    """Summaries of all providers of the candidates' trees; before 1.29, only of used ones. Each ends with a comma."""
    slots = _slots_with_summary(forest, request, found)
    if version >= (1, 29):
        return _cached_summaries(forest, slots)
    classes = None if version >= (1, 27) else request.class_names()
    return [_encoded(version, forest, forest.at(slot), classes) for slot in slots]


def _cached_summaries(forest: Forest, slots: list[int]) -> list[bytes]:
    """The summaries of 1.29 and later; cached ones are looked up by chunk."""
    found: list[bytes] = []
    start = 0
    while start < len(slots):
        number = slots[start] >> CHUNK_BITS
        end = bisect_left(slots, (number + 1) << CHUNK_BITS, start)
        memo, chunk = forest.providers.memos[number], forest.providers.chunks[number]
        parts = memo.get(_SUMMARY)
        if parts is None:
            parts = memo[_SUMMARY] = [None if one is None else one.memo.get(_SUMMARY) for one in chunk]
        for slot in slots[start:end]:
            place = slot & _IN_CHUNK
            found.append(parts[place] or _cache_summary(forest, parts, place, slot))
        start = end
    return found


#: Key of the summaries of 1.29 and later, in the memos of a provider and of a chunk. They contain the uuids of parent
#: and root; these cannot change while the provider does not, because its state has their ids, and ids are never reused.
_SUMMARY = "summary"


def _cache_summary(forest: Forest, parts: list[bytes | None], place: int, slot: int) -> bytes:
    provider = forest.at(slot)
    encoded = provider.memo[_SUMMARY] = parts[place] = _encoded(Version(1, 29), forest, provider, None)
    return encoded


def _encoded(version: Version, forest: Forest, provider: Provider, classes: set[str] | None) -> bytes:
    return encode_json({provider.uuid: provider_summary(version, forest, provider, classes)})[1:-1] + b","


def _slots_with_summary(forest: Forest, request: CandidateRequest, found: SearchResult) -> list[int]:
    """Slots of the providers with a summary, ascending."""
    used = np.zeros(len(forest.roots), dtype=np.bool_)
    with_resources = [number for number, requirement in enumerate(found.requirements) if requirement.resources]
    used[found.chosen[:, with_resources]] = True
    if request.nested and forest.is_nested:
        trees = np.zeros(len(forest.roots), dtype=np.bool_)
        trees[forest.roots[used]] = True
        used = trees[forest.roots] & (forest.roots >= 0)
    slots: list[int] = np.flatnonzero(used).tolist()
    return slots


def provider_summary(
    version: Version, forest: Forest, provider: Provider, classes: set[str] | None
) -> dict[str, object]:
    """`classes`: the resource classes to include; None: all."""
    encoded: dict[str, object] = {"resources": _resources(provider, classes)}
    if version >= (1, 17):
        encoded["traits"] = [trait.name for trait in forest.names.sorted_traits(provider.traits)]
    if version >= (1, 29):
        shown = provider_view(forest, provider)
        encoded["parent_provider_uuid"] = shown.parent_uuid
        encoded["root_provider_uuid"] = shown.root_uuid
    return encoded


def _resources(provider: Provider, only: set[str] | None) -> dict[str, dict[str, int]]:
    return {
        name: {"capacity": inventory.capacity, "used": provider.used.get(name, 0)}
        for name, inventory in provider.inventories.items()
        if only is None or name in only
    }
