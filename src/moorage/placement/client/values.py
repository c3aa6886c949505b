"""Values of the placement client, decoded from the wire: providers, consumers, explanations and candidates.

The answer to ``GET /allocation_candidates`` is decoded at once, but each candidate is built when it is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NotRequired, TypedDict, overload

import msgspec

from moorage.core.errors import Unavailable
from moorage.core.inventories import Inventory

Resources = Mapping[str, int]


@dataclass(frozen=True)
class Provider:
    uuid: str
    name: str
    generation: int
    parent_uuid: str | None
    root_uuid: str


@dataclass(frozen=True)
class ProviderState:
    """Everything about a provider, as `PlacementClient.tree_states` returns it.

    `held` ({consumer: {class: units}}) was read after the rest. If its sums differ from `usages`, a write happened in
    between.
    """

    provider: Provider
    inventories: Mapping[str, Inventory]
    traits: frozenset[str]
    aggregates: frozenset[str]
    usages: Resources
    held: Mapping[str, Resources]


@dataclass(frozen=True)
class Consumer:
    """A consumer and its allocations. `generation` is None if it has none."""

    uuid: str
    generation: int | None
    project_id: str
    user_id: str
    type: str
    allocations: Mapping[str, Resources]  # {provider uuid: {class: amount}}
    written_at: datetime  #: when the newest of them was written
    #: Distinguishes successive consumers with this uuid; None from OpenStack Placement, which does not have it.
    incarnation: str | None = None


class ProviderDocument(TypedDict):
    uuid: str
    name: str
    generation: int
    parent_provider_uuid: str | None
    root_provider_uuid: str


class InventoryDocument(TypedDict):
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float


class ProviderStateDocument(ProviderDocument):
    inventories: Mapping[str, InventoryDocument]
    traits: list[str]
    aggregates: list[str]
    usages: Resources


class HolderDocument(TypedDict):
    consumer: str
    allocations: Mapping[str, Resources]


class TreeDocument(TypedDict):
    is_cut: bool
    holders: list[HolderDocument]
    providers: list[ProviderStateDocument]


def decode_provider(document: ProviderDocument) -> Provider:
    return Provider(
        uuid=document["uuid"],
        name=document["name"],
        generation=document["generation"],
        parent_uuid=document["parent_provider_uuid"],
        root_uuid=document["root_provider_uuid"],
    )


def decode_tree_states(document: TreeDocument) -> list[ProviderState]:
    """Decodes the answer about one tree. If it was cut, `held` is empty everywhere and so differs from `usages`."""
    held: dict[str, dict[str, Resources]] = {}
    for holder in () if document["is_cut"] else document["holders"]:
        for uuid, units in holder["allocations"].items():
            held.setdefault(uuid, {})[holder["consumer"]] = units
    return [
        ProviderState(
            decode_provider(one),
            {name: Inventory(**record) for name, record in one["inventories"].items()},
            frozenset(one["traits"]),
            frozenset(one["aggregates"]),
            one["usages"],
            held.get(one["uuid"], {}),
        )
        for one in document["providers"]
    ]


@dataclass(frozen=True)
class FunnelStep:
    constraint: str
    before: int
    after: int
    removed: tuple[str, ...]  #: reasons why hosts were removed


@dataclass(frozen=True)
class Closest:
    """A host that nearly fits."""

    provider: str
    lacks: tuple[str, ...]


@dataclass(frozen=True)
class Relaxation:
    """The smallest change of a query after which `provider` could serve it."""

    provider: str
    parts: tuple[str, ...]  #: descriptions of the changes
    query: str  #: the changed query


@dataclass(frozen=True)
class Explanation:
    """`closest` and `change` are set if there is no candidate."""

    text: str
    candidates: int = 0
    steps: tuple[FunnelStep, ...] = ()
    closest: tuple[Closest, ...] = ()
    change: Relaxation | None = None


class RemovedDocument(TypedDict):
    reason: str


class FunnelStepDocument(TypedDict):
    constraint: str
    before: int
    after: int
    removed: list[RemovedDocument]


class ClosestDocument(TypedDict):
    provider: str
    lacks: list[str]


class RelaxationDocument(TypedDict):
    provider: str
    parts: list[str]
    query: str


class ExplanationDocument(TypedDict):
    text: str
    candidates: NotRequired[int]
    steps: list[FunnelStepDocument]
    closest: NotRequired[list[ClosestDocument]]
    change: NotRequired[RelaxationDocument | None]


def decode_explanation(document: ExplanationDocument) -> Explanation:
    steps = tuple(
        FunnelStep(
            step["constraint"],
            step["before"],
            step["after"],
            tuple(removed["reason"] for removed in step["removed"]),
        )
        for step in document["steps"]
    )
    closest = tuple(Closest(host["provider"], tuple(host["lacks"])) for host in document.get("closest", ()))
    change = document.get("change")
    return Explanation(
        document["text"],
        document.get("candidates", 0),
        steps,
        closest,
        change and Relaxation(change["provider"], tuple(change["parts"]), change["query"]),
    )


#: Trait of a provider that shares its inventory through aggregates; it is the root of its own tree, and not a host.
SHARING_TRAIT = "MISC_SHARES_VIA_AGGREGATE"
_SHARING = f'"{SHARING_TRAIT}"'.encode()


@dataclass(frozen=True)
class Candidate:
    """One way to serve a query; pass it to `claim` unchanged."""

    allocations: Mapping[str, Resources]  # {provider uuid: {class: amount}}
    mappings: Mapping[str, tuple[str, ...]]  # {group suffix, '' for the unsuffixed group: provider uuids}
    #: The host: root of the tree with the candidate's providers. Trees of sharing providers do not count.
    root_uuid: str


@dataclass(frozen=True)
class Claim:
    """A candidate for a consumer without allocations, and the owner of that consumer."""

    candidate: Candidate
    project_id: str
    user_id: str


class Amounts(msgspec.Struct, frozen=True, gc=False):
    """Amounts of one class on one provider."""

    capacity: int
    used: int


class Summary(msgspec.Struct, frozen=True, gc=False):
    """One provider in the trees of the candidates, as on the wire. Traits stay text until they are read: a host has
    dozens, an answer has a thousand hosts, and most traits are never read.
    """

    resources: dict[str, Amounts]
    trait_list: msgspec.Raw = msgspec.field(name="traits")
    root_provider_uuid: str
    parent_provider_uuid: str | None = None

    @property
    def traits(self) -> list[str]:
        return msgspec.json.decode(self.trait_list, type=list[str])

    @property
    def is_sharing(self) -> bool:
        return _SHARING in bytes(self.trait_list)


class Candidates(Sequence[Candidate]):
    """Builds each candidate when it is read: callers take one of a thousand."""

    def __init__(self, requests: "Sequence[_AllocationRequest]", summaries: Mapping[str, Summary]) -> None:
        self._requests = requests
        self._summaries = summaries

    def __len__(self) -> int:
        return len(self._requests)

    @overload
    def __getitem__(self, at: int) -> Candidate: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Candidate]: ...
    def __getitem__(self, at: int | slice) -> Candidate | Sequence[Candidate]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        request = self._requests[at]
        allocations = {uuid: amounts.resources for uuid, amounts in request.allocations.items()}
        mappings = {suffix: tuple(uuids) for suffix, uuids in request.mappings.items()}
        return Candidate(allocations, mappings, self.root_uuid(at))

    def root_uuid(self, at: int) -> str:
        """`Candidate.root_uuid` of the candidate at this index; quicker than building the candidate."""
        request = self._requests[at]
        for uuid in request.allocations:
            summary = self._summaries.get(uuid)
            if summary is not None and not summary.is_sharing:
                return summary.root_provider_uuid
        return _root(
            [*request.allocations, *(uuid for uuids in request.mappings.values() for uuid in uuids)], self._summaries
        )


def _root(uuids: Sequence[str], summaries: Mapping[str, Summary]) -> str:
    """The root of these providers' tree. Sharing providers count only if all of them are sharing."""
    own = [uuid for uuid in uuids if uuid in summaries and not summaries[uuid].is_sharing]
    chosen = (own or list(uuids))[0]
    return summaries[chosen].root_provider_uuid if chosen in summaries else chosen


class _ProviderAmounts(msgspec.Struct, frozen=True, gc=False):
    resources: dict[str, int]


class _AllocationRequest(msgspec.Struct, frozen=True, gc=False):
    allocations: dict[str, _ProviderAmounts]
    mappings: dict[str, list[str]]


class _CandidatesBody(msgspec.Struct, frozen=True):
    """The body of ``GET /allocation_candidates``."""

    allocation_requests: list[_AllocationRequest]
    provider_summaries: dict[str, Summary]


_CANDIDATES_BODY: msgspec.json.Decoder[_CandidatesBody] = msgspec.json.Decoder(_CandidatesBody)


def decode_candidates(body: bytes) -> tuple[Candidates, Mapping[str, Summary]]:
    """The candidates, and {provider uuid: summary}. Raises `Unavailable` if the body is malformed."""
    try:
        document = _CANDIDATES_BODY.decode(body)
    except msgspec.DecodeError as error:
        raise Unavailable(f"Placement's answer is not a list of allocation candidates: {error}") from error
    return Candidates(document.allocation_requests, document.provider_summaries), document.provider_summaries
