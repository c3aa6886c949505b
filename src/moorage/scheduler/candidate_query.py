"""A request, and where it may go, as query parameters of ``GET /allocation_candidates``.

``[("resources", "MEMORY_MB:512,VCPU:2"), ("required", "CUSTOM_A,!CUSTOM_B"), ("resources_N", "CUSTOM_X:1"),
("root_required", "!CUSTOM_RESERVATION_HOST,!COMPUTE_STATUS_DISABLED")]``
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from moorage.core.names import (
    DISABLED_HOST_TRAIT,
    RESERVED_HOST_TRAIT,
    RESERVED_REGION_TRAIT,
    is_accelerator_class,
    is_reservation_class,
)
from moorage.scheduler.flavor_resources import RequestGroup, ResourceRequest

Query = list[tuple[str, str]]


@dataclass(frozen=True)
class SearchScope:
    """Which trees come into question at all; what Placement can tell by itself."""

    in_tree: str | None = None  #: the root of the only one
    member_of: tuple[str, ...] = ()  #: each one more condition: ``in:A,B``, ``!in:C``
    is_for_reserved: bool = False  #: reserved hosts are open to it though no class of its flavor says so


def candidate_query(request: ResourceRequest, scope: SearchScope = SearchScope()) -> Query:
    """In a stable order; without a limit."""
    query: Query = []
    # Being in an aggregate is the host's matter: one group that asks for it is enough, but it must ask for something.
    asks_for_members = "" if "" in request.groups else min(_with_resources(request))
    for suffix, group in sorted(request.groups.items()):
        if group.resources:
            amounts = ",".join(f"{name}:{amount}" for name, amount in sorted(group.resources.items()))
            query.append((f"resources{suffix}", amounts))
        query.extend((f"required{suffix}", text) for text in _trait_terms(_avoiding_reserved_regions(request, group)))
        if scope.in_tree is not None and group.resources:
            query.append((f"in_tree{suffix}", scope.in_tree))
        if suffix == asks_for_members:
            query.extend((f"member_of{suffix}", aggregates) for aggregates in scope.member_of)
    if request.group_policy is not None and sum(1 for suffix in _with_resources(request) if suffix) > 1:
        query.append(("group_policy", request.group_policy))
    query.extend(("same_subtree", ",".join(together)) for together in request.same_subtree)
    is_for_reserved = request.is_for_reserved or scope.is_for_reserved
    forbidden_always = [DISABLED_HOST_TRAIT] if is_for_reserved else [RESERVED_HOST_TRAIT, DISABLED_HOST_TRAIT]
    forbidden = dict.fromkeys((*request.root_forbidden, *forbidden_always))
    query.append(("root_required", ",".join([*request.root_required, *(f"!{trait}" for trait in forbidden)])))
    return query


def _with_resources(request: ResourceRequest) -> list[str]:
    return [suffix for suffix, group in request.groups.items() if group.resources]


def _avoiding_reserved_regions(request: ResourceRequest, group: RequestGroup) -> RequestGroup:
    """`group`, kept off regions that were loaded for other reservations than that which `request` takes from.

    Other requests come to no host of reservations at all. A trait of another reservation opens nothing: an image can
    require any.
    """
    if not any(is_accelerator_class(name) for name in group.resources) or not request.is_for_reserved:
        return group
    own = {name for one in request.groups.values() for name in one.resources if is_reservation_class(name)}
    if not own.isdisjoint(group.required):  # a reservation's trait has the name of its class
        return group
    return replace(group, forbidden=tuple(dict.fromkeys((*group.forbidden, RESERVED_REGION_TRAIT))))


def _trait_terms(group: RequestGroup) -> Sequence[str]:
    """``A,!B`` in one parameter; each ``in:A,B`` in one of its own, as Placement wants it."""
    single = [trait for trait in group.required if not trait.startswith("in:")]
    plain = ",".join([*single, *(f"!{trait}" for trait in group.forbidden)])
    return [*([plain] if plain else []), *(trait for trait in group.required if trait.startswith("in:"))]
