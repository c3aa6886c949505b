"""The body of GET /allocation_candidates, assembled from cached parts.

Candidates that use their providers in the same pattern differ only in uuids, so their allocation requests are rows of
one byte array, written at once. The summary of a provider is cached with the provider.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Provider
from moorage.placement.forest.persistent_list import CHUNK_BITS
from moorage.placement.search.candidates import SearchResult
from moorage.placement.search.request import CandidateRequest
from moorage.placement.search.requirements import Requirement
from moorage.placement.service.provider_service import provider_view
from moorage.wire.body import encode_json
from moorage.wire.microversion import Version

Bytes = NDArray[np.uint8]

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
    """Each with a comma behind it."""
    if not len(found):
        return []
    quoted = _quoted_uuids(forest)
    parts = []
    for same, chosen in _patterns(found.chosen):
        template, holes = _template(version, found.requirements, same, quoted.shape[1])
        rows: Bytes = np.empty((len(chosen), len(template)), dtype=np.uint8)
        rows[:] = np.frombuffer(template, dtype=np.uint8)
        for start, requirement in holes:
            rows[:, start : start + quoted.shape[1]] = quoted[chosen[:, requirement]]
        parts.append(rows.reshape(-1).data)
    return parts


def _patterns(chosen: NDArray[np.int32]) -> list[tuple[tuple[int, ...], NDArray[np.int32]]]:
    """(by decision: the first one that has the same provider, the candidates of which that is true)"""
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
    version: Version, requirements: Sequence[Requirement], same: Sequence[int], width: int
) -> tuple[bytes, list[tuple[int, int]]]:
    """An allocation request with `width` blanks for each uuid, and where: (start, number of a decision)."""
    parts: list[bytes | int] = []
    shares: dict[int, dict[str, int]] = {}
    groups: dict[str, dict[int, None]] = {}
    for number, requirement in zip(same, requirements, strict=True):
        groups.setdefault(requirement.suffix, {})[number] = None
        for name, amount in requirement.resources.items():
            held = shares.setdefault(number, {})
            held[name] = held.get(name, 0) + amount
    if version < (1, 12):
        parts += [b'{"allocations":[']
        for number, held in shares.items():
            parts += [b'{"resource_provider":{"uuid":', number, b'},"resources":', encode_json(held), b"}", b","]
        parts[-1:] = [b"]"]
    else:
        parts += [b'{"allocations":{']
        for number, held in shares.items():
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
    return _laid_out(parts, width)


def _laid_out(parts: Sequence[bytes | int], width: int) -> tuple[bytes, list[tuple[int, int]]]:
    template, holes = bytearray(), []
    for part in parts:
        if isinstance(part, int):
            holes.append((len(template), part))
            template += b" " * width
        else:
            template += part
    return bytes(template), holes


def _quoted_uuids(forest: Forest) -> Bytes:
    """By slot: the uuid in quotes, filled up with spaces, which mean nothing between the words of JSON."""

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
    """All providers of the trees that the candidates use; before 1.29, only those that they use. With a comma each."""
    slots = _summarised(forest, request, found)
    if version >= (1, 29):
        return _remembered(forest, slots)
    classes = None if version >= (1, 27) else request.class_names()
    return [_encoded(version, forest, forest.at(slot), classes) for slot in slots]


def _remembered(forest: Forest, slots: list[int]) -> list[bytes]:
    """Summaries as they are since 1.29, a chunk of providers at a time."""
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
            found.append(parts[place] or _remember(forest, parts, place, slot))
        start = end
    return found


#: In the memos of a provider and of a chunk: summaries as they are since 1.29. The uuids of a provider's parent and root
#: are part of its state, for the ids are, and no id gets another uuid.
_SUMMARY = "summary"


def _remember(forest: Forest, parts: list[bytes | None], place: int, slot: int) -> bytes:
    provider = forest.at(slot)
    encoded = provider.memo[_SUMMARY] = parts[place] = _encoded(Version(1, 29), forest, provider, None)
    return encoded


def _encoded(version: Version, forest: Forest, provider: Provider, classes: set[str] | None) -> bytes:
    return encode_json({provider.uuid: summary(version, forest, provider, classes)})[1:-1] + b","


def _summarised(forest: Forest, request: CandidateRequest, found: SearchResult) -> list[int]:
    """Slots, in order."""
    used = np.zeros(len(forest.roots), dtype=np.bool_)
    with_resources = [number for number, requirement in enumerate(found.requirements) if requirement.resources]
    used[found.chosen[:, with_resources]] = True
    if request.nested and forest.is_nested:
        trees = np.zeros(len(forest.roots), dtype=np.bool_)
        trees[forest.roots[used]] = True
        used = trees[forest.roots] & (forest.roots >= 0)
    slots: list[int] = np.flatnonzero(used).tolist()
    return slots


def summary(version: Version, forest: Forest, provider: Provider, classes: set[str] | None) -> dict[str, object]:
    """`classes`: only these, unless None."""
    encoded: dict[str, object] = {"resources": _resources(provider, classes)}
    if version >= (1, 17):
        encoded["traits"] = sorted(provider.traits, key=forest.names.traits.__getitem__)
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
