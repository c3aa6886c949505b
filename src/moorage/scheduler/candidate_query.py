"""A resource request and its search scope as query parameters of ``GET /allocation_candidates``.

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
from moorage.scheduler.flavor_resources import FlavorGroup, ResourceRequest

Query = list[tuple[str, str]]


@dataclass(frozen=True)
class SearchScope:
    """The provider trees to consider, as far as Placement can decide that."""

    in_tree: str | None = None  #: root uuid of the only tree allowed
    member_of: tuple[str, ...] = ()  #: conditions that must all hold: ``in:A,B``, ``!in:C``
    is_for_reserved: bool = False  #: allow reserved hosts although the flavor has no reservation's resource class


def candidate_query(request: ResourceRequest, scope: SearchScope = SearchScope()) -> Query:
    """The query, in a stable order and without a limit."""
    query: Query = []
    # Aggregates contain whole hosts, so one group with the condition is enough, but that group must have resources.
    with_resources = [suffix for suffix, group in request.groups.items() if group.resources]
    suffix_of_member_of = "" if "" in request.groups else min(with_resources)
    uses_reservation = request.is_for_reserved
    for suffix, group in sorted(request.groups.items()):
        if group.resources:
            amounts = ",".join(f"{name}:{amount}" for name, amount in sorted(group.resources.items()))
            query.append((f"resources{suffix}", amounts))
        narrowed = _avoiding_reserved_regions(request, group) if uses_reservation else group
        query.extend((f"required{suffix}", text) for text in _trait_terms(narrowed))
        if scope.in_tree is not None and group.resources:
            query.append((f"in_tree{suffix}", scope.in_tree))
        if suffix == suffix_of_member_of:
            query.extend((f"member_of{suffix}", aggregates) for aggregates in scope.member_of)
    if request.group_policy is not None and sum(1 for suffix in with_resources if suffix) > 1:
        query.append(("group_policy", request.group_policy))
    query.extend(("same_subtree", ",".join(together)) for together in request.same_subtree)
    is_for_reserved = uses_reservation or scope.is_for_reserved
    forbidden_always = [DISABLED_HOST_TRAIT] if is_for_reserved else [RESERVED_HOST_TRAIT, DISABLED_HOST_TRAIT]
    forbidden = dict.fromkeys((*request.root_forbidden, *forbidden_always))
    query.append(("root_required", ",".join([*request.root_required, *(f"!{trait}" for trait in forbidden)])))
    return query


def _avoiding_reserved_regions(request: ResourceRequest, group: FlavorGroup) -> FlavorGroup:
    """`group`, with regions forbidden that were loaded for reservations other than that which `request` uses.

    Requests without a reservation never get hosts of reservations. Requiring the trait of another reservation gives no
    access, because an image can require any trait.
    """
    if not any(is_accelerator_class(name) for name in group.resources):
        return group
    own = {name for one in request.groups.values() for name in one.resources if is_reservation_class(name)}
    if not own.isdisjoint(group.required):  # a reservation's trait has the name of its class
        return group
    return replace(group, forbidden=tuple(dict.fromkeys((*group.forbidden, RESERVED_REGION_TRAIT))))


def _trait_terms(group: FlavorGroup) -> Sequence[str]:
    """``A,!B`` as one value; each ``in:A,B`` as a value of its own, as Placement requires."""
    single = [trait for trait in group.required if not trait.startswith("in:")]
    plain = ",".join([*single, *(f"!{trait}" for trait in group.forbidden)])
    return [*([plain] if plain else []), *(trait for trait in group.required if trait.startswith("in:"))]
