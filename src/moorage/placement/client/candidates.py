"""The answer to ``GET /allocation_candidates``: decoded at once; each candidate is built when it is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import msgspec

from moorage.core.errors import Unavailable
from moorage.placement.client.values import Resources

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
