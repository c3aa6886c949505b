"""A query for allocation candidates as request groups.

``?resources=VCPU:2&required=HW_CPU_X86_VMX&resources_NET=SRIOV_NET_VF:1&group_policy=none`` is

    CandidateRequest(
        groups=(
            RequestGroup("", {"VCPU": 2}, traits=TraitFilter(required=(frozenset({"HW_CPU_X86_VMX"}),))),
            RequestGroup("_NET", {"SRIOV_NET_VF": 1}),
        ),
        group_policy="none",
    )

The unsuffixed group may be spread over one tree and the providers that share with it; a suffixed (granular) group
comes from one provider.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from moorage.core.errors import Invalid
from moorage.placement.search.query import (
    NO_AGGREGATES,
    NO_TRAITS,
    AggregateFilter,
    Microversion,
    TraitFilter,
    parse_in_tree,
    parse_member_of,
    parse_resources,
    parse_traits,
    trait_list,
)

DUPLICATE_KEY = "placement.query.duplicate_key"
BAD_VALUE = "placement.query.bad_value"
MISSING_VALUE = "placement.query.missing_value"

_KEYS = "resources|required|member_of|in_tree"
_NUMBERED = re.compile(rf"({_KEYS})([1-9][0-9]*)?\Z")
_NAMED = re.compile(rf"({_KEYS})([a-zA-Z0-9_-]{{1,64}})?\Z")


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """One request group. A group without resources only selects a provider, for ``same_subtree``."""

    suffix: str
    resources: Mapping[str, int] = field(default_factory=dict)
    traits: TraitFilter = NO_TRAITS
    aggregates: AggregateFilter = NO_AGGREGATES
    in_tree: str | None = None

    @property
    def is_granular(self) -> bool:
        return self.suffix != ""


@dataclass(frozen=True, slots=True)
class CandidateRequest:
    """All groups, and the conditions that hold for them together."""

    groups: tuple[RequestGroup, ...]
    limit: int | None = None
    group_policy: str | None = None  #: ``isolate``: granular groups on different providers
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    #: Each set contains suffixes of groups; one of their providers must be an ancestor of the others.
    same_subtrees: tuple[frozenset[str], ...] = ()
    #: False before 1.29: a candidate may use at most one provider of each tree.
    nested: bool = True
    #: Results computed from this request alone. {name: result}
    memo: dict[str, object] = field(default_factory=dict, init=False, compare=False, repr=False)

    def trait_names(self) -> set[str]:
        names = set(self.root_required | self.root_forbidden)
        for group in self.groups:
            names |= group.traits.forbidden.union(*group.traits.required)
        return names

    def class_names(self) -> set[str]:
        return {name for group in self.groups for name in group.resources}


def parse_request(pairs: Sequence[tuple[str, str]], version: Microversion) -> CandidateRequest:
    """Parses the query of ``GET /allocation_candidates``, which must have passed its JSON schema.

    `pairs`: (parameter, value), in the order of the query. Raises `Invalid` with the peer's message.
    """
    limits = [value for key, value in pairs if key == "limit"]
    policies = [value for key, value in pairs if key == "group_policy"]
    root_required, root_forbidden = _root_traits([value for key, value in pairs if key == "root_required"])
    same_subtrees = _same_subtrees([value for key, value in pairs if key == "same_subtree"])
    groups = _groups(pairs, version)
    if version >= (1, 36):
        _check_subtrees(groups, same_subtrees)
    else:
        _check_orphans(groups)
    if version >= (1, 22):
        _check_conflicts(groups)
    if not policies and sum(group.is_granular for group in groups) > 1:
        raise Invalid(
            'The "group_policy" parameter is required when specifying more than one "resources{N}" parameter.'
        )
    return CandidateRequest(
        groups=tuple(groups),
        limit=_limit(limits[0]) if limits else None,
        group_policy=policies[0] if policies else None,
        root_required=frozenset(root_required),
        root_forbidden=frozenset(root_forbidden),
        same_subtrees=tuple(same_subtrees),
        nested=version >= (1, 29),
    )


def _limit(digits: str) -> int | None:
    """None from 19 digits on: there are never that many candidates, and Python refuses to parse 5,000 digits."""
    return int(digits) if len(digits) < 19 else None


def _groups(pairs: Sequence[tuple[str, str]], version: Microversion) -> list[RequestGroup]:
    pattern = _NAMED if version >= (1, 33) else _NUMBERED
    values: dict[str, dict[str, list[str]]] = {}
    for key, value in pairs:
        if match := pattern.match(key):
            values.setdefault(match[2] or "", {}).setdefault(match[1], []).append(value)
    return [_group(suffix, given, version) for suffix, given in values.items()]


def _group(suffix: str, given: Mapping[str, list[str]], version: Microversion) -> RequestGroup:
    """One group. Of repeated ``resources`` or ``in_tree``, the last value counts; `parse_traits` and `parse_member_of`
    have other rules.
    """
    return RequestGroup(
        suffix=suffix,
        resources=[parse_resources(value) for value in given["resources"]][-1] if "resources" in given else {},
        traits=parse_traits(given.get("required", ()), version),
        aggregates=parse_member_of(given.get("member_of", ()), version, suffix),
        in_tree=[parse_in_tree(value) for value in given["in_tree"]][-1] if "in_tree" in given else None,
    )


def _root_traits(values: Sequence[str]) -> tuple[set[str], set[str]]:
    if not values:
        return set(), set()
    if len(values) > 1:
        raise Invalid("Query parameter 'root_required' may be specified only once.", code=DUPLICATE_KEY)
    if values[0].startswith("in:"):
        parse_traits(values, (1, 38))  # raises the peer's error: ``in:`` is not allowed here
    required, forbidden = trait_list(values[0], forbidden_allowed=True)
    if conflicts := sorted(required & forbidden):
        raise Invalid(
            f"Conflicting required and forbidden traits found in root_required: {', '.join(conflicts)}", code=BAD_VALUE
        )
    return required, forbidden


def _same_subtrees(values: Iterable[str]) -> list[frozenset[str]]:
    subtrees = [frozenset(part.strip() for part in value.split(",")) for value in values]
    if any("" in suffixes for suffixes in subtrees):
        raise Invalid("Empty string (unsuffixed group) can not be specified in `same_subtree` ", code=BAD_VALUE)
    return subtrees


def _check_subtrees(groups: Sequence[RequestGroup], same_subtrees: Sequence[frozenset[str]]) -> None:
    resourceless = [group.suffix for group in groups if not group.resources]
    named = frozenset().union(*same_subtrees)
    if len(resourceless) == len(groups):
        raise Invalid("There must be at least one resources or resources[$S] parameter.", code=MISSING_VALUE)
    if lost := [suffix for suffix in resourceless if suffix not in named]:
        raise Invalid(
            "Resourceless suffixed group request should be specified in `same_subtree` query param: "
            f"bad group(s) - {lost}.",
            code=BAD_VALUE,
        )
    suffixes = [group.suffix for group in groups]
    if unknown := sorted(named.difference(suffixes)):
        raise Invalid(
            f"Real suffixes should be specified in `same_subtree`: {unknown} not found in {suffixes}.", code=BAD_VALUE
        )


def _check_orphans(groups: Sequence[RequestGroup]) -> None:
    """Raises `Invalid` for a group without resources; before 1.36 every group must have some."""
    poor = [group for group in groups if not group.resources]
    if orphans := [f"required{group.suffix}" for group in poor if group.traits.required]:
        raise Invalid(
            "All traits parameters must be associated with resources.  Found the following orphaned traits keys: "
            + ", ".join(orphans)
        )
    if orphans := [f"member_of{group.suffix}" for group in poor if group.aggregates != AggregateFilter()]:
        raise Invalid(
            "All member_of parameters must be associated with resources. Found the following orphaned member_of "
            f"keys: {', '.join(orphans)}"
        )
    if poor:
        raise Invalid("All request groups must specify resources.")
    if not groups:
        raise Invalid("At least one request group (`resources` or `resources{$S}`) is required.")


def _check_conflicts(groups: Sequence[RequestGroup]) -> None:
    """Raises `Invalid` for a required set whose traits are all forbidden, because no provider can meet it."""
    conflicts = [
        f"required{group.suffix}: ({', '.join(sorted(any_of))})"
        for group in groups
        for any_of in group.traits.required
        if any_of <= group.traits.forbidden
    ]
    if conflicts:
        raise Invalid(
            "Conflicting required and forbidden traits found in the following traits keys: "
            f"{', '.join(sorted(conflicts))}"
        )


def to_query(request: CandidateRequest) -> list[tuple[str, str]]:
    """The request as query parameters of microversion 1.39."""
    pairs: list[tuple[str, str]] = []
    for group in request.groups:
        suffix = group.suffix
        if group.resources:
            listed = ",".join(f"{name}:{amount}" for name, amount in group.resources.items())
            pairs.append((f"resources{suffix}", listed))
        pairs += [(f"required{suffix}", _any_of(any_of)) for any_of in group.traits.required]
        if group.traits.forbidden:
            pairs.append((f"required{suffix}", _none_of(group.traits.forbidden)))
        pairs += [(f"member_of{suffix}", _any_of(any_of)) for any_of in group.aggregates.required]
        if group.aggregates.forbidden:
            pairs.append((f"member_of{suffix}", "!" + _any_of(group.aggregates.forbidden)))
        if group.in_tree is not None:
            pairs.append((f"in_tree{suffix}", group.in_tree))
    if request.group_policy is not None:
        pairs.append(("group_policy", request.group_policy))
    pairs += [("same_subtree", ",".join(sorted(suffixes))) for suffixes in request.same_subtrees]
    if request.root_required or request.root_forbidden:
        root = [*sorted(request.root_required), *(f"!{trait}" for trait in sorted(request.root_forbidden))]
        pairs.append(("root_required", ",".join(root)))
    if request.limit is not None:
        pairs.append(("limit", str(request.limit)))
    return pairs


def _any_of(names: frozenset[str]) -> str:
    return next(iter(names)) if len(names) == 1 else f"in:{','.join(sorted(names))}"


def _none_of(traits: frozenset[str]) -> str:
    return ",".join(f"!{trait}" for trait in sorted(traits))
