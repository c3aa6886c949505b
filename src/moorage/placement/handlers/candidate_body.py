"""The body of GET /allocation_candidates, put together from parts that are the same in one answer after the other.

Candidates that use their providers in the same pattern differ in uuids and nothing else: their requests are rows of
one array of bytes, all written at once. What a summary says of a provider is remembered with the provider.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from moorage.placement.candidates import Found
from moorage.placement.chunks import CHUNK_BITS
from moorage.placement.columns import Slots
from moorage.placement.demand import Decision
from moorage.placement.forest import Forest
from moorage.placement.model import Provider
from moorage.placement.request import Request
from moorage.placement.service_providers import kept
from moorage.wire.body import encode_json
from moorage.wire.microversion import Version

#: Length of a uuid in quotes. A shorter one is followed by spaces, which mean nothing between the words of JSON.
_QUOTED = 38

Bytes = NDArray[np.uint8]


def body(version: Version, forest: Forest, request: Request, found: Found) -> bytes:
    requests = b"".join(_requests(version, forest, found))[:-1]
    summaries = b",".join(_summaries(version, forest, request, found))
    return b'{"allocation_requests":[%s],"provider_summaries":{%s}}' % (requests, summaries)


# --- requests ---------------------------------------------------------------------------------------------------


def _requests(version: Version, forest: Forest, found: Found) -> Iterator[bytes]:
    """Each with a comma behind it."""
    if not len(found):
        return
    quoted = _quoted_uuids(forest)
    for same, chosen in _patterns(found.chosen):
        template, holes = _template(version, found.decisions, same)
        rows: Bytes = np.empty((len(chosen), len(template)), dtype=np.uint8)
        rows[:] = np.frombuffer(template, dtype=np.uint8)
        for start, decision in holes:
            rows[:, start : start + _QUOTED] = quoted[chosen[:, decision]]
        yield rows.tobytes()


def _patterns(chosen: NDArray[np.int32]) -> Iterator[tuple[list[int], NDArray[np.int32]]]:
    """(by decision: the first one that has the same provider, the candidates of which that is true)"""
    count = chosen.shape[1]
    same = np.tile(np.arange(count, dtype=np.int32), (len(chosen), 1))
    for later in range(count - 1, 0, -1):
        for earlier in range(later - 1, -1, -1):
            same[chosen[:, later] == chosen[:, earlier], later] = earlier
    while len(chosen):
        like = (same == same[0]).all(axis=1)
        yield same[0].tolist(), chosen[like]
        same, chosen = same[~like], chosen[~like]


def _template(
    version: Version, decisions: Sequence[Decision], same: Sequence[int]
) -> tuple[bytes, list[tuple[int, int]]]:
    """An allocation request with blanks for uuids, and where they are: (start, number of a decision)."""
    parts: list[bytes | int] = []
    shares: dict[int, dict[str, int]] = {}
    groups: dict[str, dict[int, None]] = {}
    for number, decision in zip(same, decisions, strict=True):
        groups.setdefault(decision.suffix, {})[number] = None
        for name, amount in decision.resources.items():
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
    return _laid_out(parts)


def _laid_out(parts: Sequence[bytes | int]) -> tuple[bytes, list[tuple[int, int]]]:
    template, holes = bytearray(), []
    for part in parts:
        if isinstance(part, int):
            holes.append((len(template), part))
            template += b" " * _QUOTED
        else:
            template += part
    return bytes(template), holes


def _quoted_uuids(forest: Forest) -> Bytes:
    """By slot: the uuid in quotes, filled up with spaces."""

    def make() -> Bytes:
        text = "".join(f'"{uuid}"'.ljust(_QUOTED) for uuid in forest.slot_of_uuid)
        quoted: Bytes = np.zeros((len(forest.roots), _QUOTED), dtype=np.uint8)
        slots = np.fromiter(forest.slot_of_uuid.values(), dtype=np.int32, count=len(forest.slot_of_uuid))
        quoted[slots] = np.frombuffer(text.encode(), dtype=np.uint8).reshape(-1, _QUOTED)
        return quoted

    return forest.derived.get("quoted uuids", (forest.slot_of_uuid,), make)


# --- summaries --------------------------------------------------------------------------------------------------


def _summaries(version: Version, forest: Forest, request: Request, found: Found) -> list[bytes]:
    """All providers of the trees that the candidates use; before 1.29, only those that they use."""
    slots = _summarised(forest, request, found)
    if version >= (1, 29):
        return _remembered(forest, slots)
    classes = None if version >= (1, 27) else request.class_names()
    providers = [forest.at(slot) for slot in slots.tolist()]
    return [_encoded(version, forest, provider, classes) for provider in providers]


def _remembered(forest: Forest, slots: Slots) -> list[bytes]:
    """Summaries as they are since 1.29, a chunk of providers at a time."""
    numbers = slots >> CHUNK_BITS
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    places = np.split(slots & (1 << CHUNK_BITS) - 1, starts[1:]) if len(slots) else []
    found: list[bytes] = []
    for number, mine in zip(numbers[starts].tolist(), places, strict=True):
        memo = forest.providers.memos[number]
        parts = memo.get(_SUMMARY)
        if parts is None:
            parts = memo[_SUMMARY] = [_summary_of(forest, provider) for provider in forest.providers.chunks[number]]
        found += [parts[place] for place in mine.tolist()]
    return found


#: In the memos of a provider and of a chunk: its summary as it is since 1.29. The uuids of its parent and of its root are part of its
#: state, for the ids are, and no id gets another uuid.
_SUMMARY = "summary"


def _summary_of(forest: Forest, provider: Provider | None) -> bytes:
    if provider is None:
        return b""  # a free slot, which nobody asks for
    encoded = provider.memo.get(_SUMMARY)
    if encoded is None:
        encoded = provider.memo[_SUMMARY] = _encoded(Version(1, 29), forest, provider, None)
    return encoded


def _encoded(version: Version, forest: Forest, provider: Provider, classes: set[str] | None) -> bytes:
    return encode_json({provider.uuid: summary(version, forest, provider, classes)})[1:-1]


def _summarised(forest: Forest, request: Request, found: Found) -> Slots:
    """Slots, in order."""
    used = np.zeros(len(forest.roots), dtype=np.bool_)
    with_resources = [number for number, decision in enumerate(found.decisions) if decision.resources]
    used[found.chosen[:, with_resources]] = True
    if request.nested and forest.is_nested:
        trees = np.zeros(len(forest.roots), dtype=np.bool_)
        trees[forest.roots[used]] = True
        used = trees[forest.roots] & (forest.roots >= 0)
    return np.flatnonzero(used).astype(np.int32)


def summary(version: Version, forest: Forest, provider: Provider, classes: set[str] | None) -> dict[str, object]:
    """`classes`: only these, unless None."""
    encoded: dict[str, object] = {"resources": _resources(provider, classes)}
    if version >= (1, 17):
        encoded["traits"] = sorted(provider.traits, key=forest.names.traits.__getitem__)
    if version >= (1, 29):
        shown = kept(forest, provider)
        encoded["parent_provider_uuid"] = shown.parent_uuid
        encoded["root_provider_uuid"] = shown.root_uuid
    return encoded


def _resources(provider: Provider, only: set[str] | None) -> dict[str, dict[str, int]]:
    return {
        name: {"capacity": inventory.capacity, "used": provider.used.get(name, 0)}
        for name, inventory in provider.inventories.items()
        if only is None or name in only
    }
