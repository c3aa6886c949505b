"""Compiles a request into requirements. A candidate chooses one provider for each requirement.

The unsuffixed group is one requirement per resource class; a granular group is one requirement for all its classes.
Requirements with the same conditions share a `Spec`, so the providers of eight groups of one GPU are filtered once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from moorage.core.inventories import MAX_INT
from moorage.placement.search.query import AggregateFilter, AllOfAny, TraitFilter
from moorage.placement.search.request import CandidateRequest, RequestGroup

#: More than any provider can give to one consumer. Larger amounts are reduced to this one, because they fit nowhere.
UNSATISFIABLE_AMOUNT = MAX_INT + 1


@dataclass(frozen=True, slots=True)
class Spec:
    """The conditions that one provider must meet to be chosen."""

    granular: bool
    resources: tuple[tuple[str, int], ...]
    #: Without the required traits of the unsuffixed group, because its providers must have them only together.
    traits: TraitFilter
    aggregates: AggregateFilter
    in_tree: str | None

    @property
    def is_empty(self) -> bool:
        """True if there are only negative conditions. The peer finds no candidates for such a group."""
        return not self.resources and not self.traits.required and not self.aggregates.required


@dataclass(frozen=True, slots=True)
class Requirement:
    suffix: str
    resources: Mapping[str, int]
    spec: int  #: index of its spec in `Requirements.specs`


@dataclass(frozen=True, slots=True)
class CompiledRequirement:
    """A requirement for the tree search, with numbers instead of names."""

    spec: int
    granular: bool
    has_resources: bool
    units: tuple[tuple[int, int], ...]  #: (number of a contested class, units)
    #: Equal for interchangeable requirements: a provider chosen for one could serve the other.
    label: int


@dataclass(frozen=True, slots=True)
class SearchKey:
    """The part of a request that `tree_search` depends on. Two requests with the same key have the same solutions."""

    requirements: tuple[CompiledRequirement, ...]
    specs: int
    isolate: bool
    subtrees: tuple[frozenset[int], ...]  #: by subtree: indexes of its requirements
    traits: int  #: number of trait sets that the providers of the unsuffixed group must meet together
    contested: int  #: number of classes that several requirements could take from one provider
    one_per_tree: bool


@dataclass(frozen=True, slots=True)
class Requirements:
    """A compiled request. It does not depend on the forest."""

    specs: tuple[Spec, ...]
    requirements: tuple[Requirement, ...]
    spread_traits: AllOfAny
    #: {contested class: most units that the request could take from one provider}, in the order of their numbers
    contested: Mapping[str, int]
    search_key: SearchKey

    @property
    def size(self) -> int:
        """Number of conditions with which each provider is compared; determines the cost of a comparison."""
        filters = len(self.spread_traits) + sum(
            1 + len(one.resources) + len(one.traits.required) + len(one.aggregates.required) for one in self.specs
        )
        return filters + sum(map(len, self.search_key.subtrees))


def requirements_of(request: CandidateRequest) -> Requirements:
    """The requirements of `request`, in the order of its groups. Computed once for each request object."""
    requirements = request.memo.get("requirements")
    if not isinstance(requirements, Requirements):
        requirements = request.memo["requirements"] = _compiled(request)
    return requirements


def _compiled(request: CandidateRequest) -> Requirements:
    specs: dict[Spec, int] = {}
    requirements = [
        Requirement(group.suffix, resources, specs.setdefault(spec, len(specs)))
        for group in request.groups
        for resources, spec in _specs(group)
    ]
    isolate = request.group_policy == "isolate"
    contested = _contested(requirements, isolate=isolate)
    numbers = {name: number for number, name in enumerate(contested)}
    traits: AllOfAny = next((group.traits.required for group in request.groups if not group.is_granular), ())
    in_subtrees = frozenset().union(*request.same_subtrees)
    labels: dict[object, int] = {}
    compiled = []
    for requirement in requirements:
        units = tuple(
            (numbers[name], min(amount, UNSATISFIABLE_AMOUNT))
            for name, amount in requirement.resources.items()
            if name in numbers
        )
        interchangeable = (requirement.suffix if requirement.suffix in in_subtrees else requirement.suffix != "", units)
        label = labels.setdefault(interchangeable, len(labels))
        compiled.append(
            CompiledRequirement(requirement.spec, requirement.suffix != "", bool(requirement.resources), units, label)
        )
    subtrees = tuple(
        frozenset(number for number, requirement in enumerate(requirements) if requirement.suffix in suffixes)
        for suffixes in dict.fromkeys(request.same_subtrees)
        if len(suffixes) > 1
    )
    search_key = SearchKey(
        tuple(compiled), len(specs), isolate, subtrees, len(traits), len(contested), one_per_tree=not request.nested
    )
    return Requirements(tuple(specs), tuple(requirements), traits, contested, search_key)


def _specs(group: RequestGroup) -> Iterator[tuple[Mapping[str, int], Spec]]:
    """(resources, spec) of each requirement of a group."""
    if group.is_granular:
        amounts = tuple(sorted(_limited(group.resources)))
        yield group.resources, Spec(True, amounts, group.traits, group.aggregates, group.in_tree)
        return
    spread_filter = replace(group.traits, required=())
    for name, amount in group.resources.items():
        amounts = tuple(_limited({name: amount}))
        yield {name: amount}, Spec(False, amounts, spread_filter, group.aggregates, group.in_tree)


def _limited(resources: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    return ((name, min(amount, UNSATISFIABLE_AMOUNT)) for name, amount in resources.items())


def _contested(requirements: list[Requirement], *, isolate: bool) -> dict[str, int]:
    """{class: most units that the request could take from one provider}, for classes of several requirements.

    With ``isolate``, a provider serves at most one granular group (and the unsuffixed group).
    """
    spread: dict[str, int] = {}
    granular: dict[str, list[int]] = {}
    for requirement in requirements:
        for name, amount in requirement.resources.items():
            if requirement.suffix:
                granular.setdefault(name, []).append(min(amount, UNSATISFIABLE_AMOUNT))
            else:
                spread[name] = min(amount, UNSATISFIABLE_AMOUNT)
    found: dict[str, int] = {}
    for name, amounts in granular.items():
        competing = [max(amounts)] if isolate else amounts
        if name in spread:
            competing = [*competing, spread[name]]
        if len(competing) > 1:
            found[name] = sum(competing)
    return found
