"""The single conditions of a request group: their texts, the providers that meet them, and why others do not."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Provider
from moorage.placement.search import masks
from moorage.placement.search.equivalence_classes import MemberBlock
from moorage.placement.search.masks import Mask
from moorage.placement.search.query import NO_AGGREGATES, NO_TRAITS, AggregateFilter, TraitFilter
from moorage.placement.search.request import CandidateRequest, RequestGroup
from moorage.placement.search.requirements import UNSATISFIABLE_AMOUNT, Spec


class ConstraintKind(Enum):
    UNITS = "resources"
    TREE = "in_tree"
    MEMBER = "member_of"
    NOT_MEMBER = "not member_of"
    TRAIT = "required"
    NO_TRAIT = "forbidden"


@dataclass(frozen=True, slots=True)
class Constraint:
    kind: ConstraintKind
    suffix: str
    name: str = ""  #: resource class, or the uuid of ``in_tree``
    amount: int = 0
    names: frozenset[str] = frozenset()  #: traits or aggregates: at least one required, or all forbidden

    def __str__(self) -> str:
        """The condition, worded almost as in a query; for example ``resources_NET:VCPU=2``."""
        match self.kind:
            case ConstraintKind.UNITS:
                return f"resources{self.suffix}:{self.name}={self.amount}"
            case ConstraintKind.TREE:
                return f"in_tree{self.suffix}={self.name}"
            case ConstraintKind.MEMBER:
                return f"member_of{self.suffix}={alternatives(self.names)}"
            case ConstraintKind.NOT_MEMBER:
                return f"member_of{self.suffix}=!{alternatives(self.names)}"
            case ConstraintKind.TRAIT:
                return f"required{self.suffix}={alternatives(self.names)}"
        return f"required{self.suffix}={','.join(f'!{trait}' for trait in sorted(self.names))}"

    def why_not(self, providers: Sequence[Provider]) -> str:
        """The reason why none of `providers` meets the condition. The first one must be the root of their tree."""
        first = providers[0].name
        match self.kind:
            case ConstraintKind.UNITS:
                return _lacks(self.name, self.amount, providers)
            case ConstraintKind.TREE:
                return f"{first} is the root of another tree"
            case ConstraintKind.MEMBER:
                return f"{first} is not in {alternatives(self.names)}"
            case ConstraintKind.NOT_MEMBER:
                return f"{first} is in a forbidden aggregate"
            case ConstraintKind.NO_TRAIT:
                return _has_forbidden(self.names, providers)
        return f"{first} has no {alternatives(self.names)} where the resources are"

    def spec(self, *, granular: bool) -> Spec:
        """A spec that has only this condition. Not for units."""
        traits, aggregates = NO_TRAITS, NO_AGGREGATES
        match self.kind:
            case ConstraintKind.TRAIT:
                traits = TraitFilter((self.names,))
            case ConstraintKind.NO_TRAIT:
                traits = TraitFilter((), self.names)
            case ConstraintKind.MEMBER:
                aggregates = AggregateFilter((self.names,))
            case ConstraintKind.NOT_MEMBER:
                aggregates = AggregateFilter((), self.names)
        return Spec(granular, (), traits, aggregates, self.name if self.kind is ConstraintKind.TREE else None)


def constraints_of(group: RequestGroup) -> list[Constraint]:
    """The conditions of `group`, in the order of an explanation: resources, tree, aggregates, traits."""
    suffix = group.suffix
    found = [Constraint(ConstraintKind.UNITS, suffix, name, amount) for name, amount in group.resources.items()]
    if group.in_tree is not None:
        found.append(Constraint(ConstraintKind.TREE, suffix, group.in_tree))
    required = dict.fromkeys(group.aggregates.required)
    found += [Constraint(ConstraintKind.MEMBER, suffix, names=any_of) for any_of in required]
    if group.aggregates.forbidden:
        found.append(Constraint(ConstraintKind.NOT_MEMBER, suffix, names=group.aggregates.forbidden))
    found += [Constraint(ConstraintKind.TRAIT, suffix, names=any_of) for any_of in dict.fromkeys(group.traits.required)]
    if group.traits.forbidden:
        found.append(Constraint(ConstraintKind.NO_TRAIT, suffix, names=group.traits.forbidden))
    return found


def alternatives(names: frozenset[str]) -> str:
    return next(iter(names)) if len(names) == 1 else f"in:{','.join(sorted(names))}"


def _lacks(name: str, amount: int, providers: Sequence[Provider]) -> str:
    with_class = [provider for provider in providers if name in provider.inventories]
    if not with_class:
        return f"{providers[0].name} has no {name}"
    fitting = [provider for provider in with_class if provider.fits(name, amount)]
    if fitting:
        return f"{fitting[0].name} has {name} but not the rest of the group"
    best = max(with_class, key=lambda provider: provider.inventories[name].capacity - provider.used.get(name, 0))
    inventory, used = best.inventories[name], best.used.get(name, 0)
    if used + amount > inventory.capacity:
        return f"{best.name} has {used} of {inventory.capacity} in use"
    return (
        f"{best.name} gives one consumer {inventory.min_unit} to {inventory.max_unit} units in steps of "
        f"{inventory.step_size}"
    )


def _has_forbidden(traits: frozenset[str], providers: Sequence[Provider]) -> str:
    for provider in providers:
        if present := sorted(traits & provider.traits):
            return f"{provider.name} has {', '.join(present)}"
    return f"{providers[0].name} has a forbidden trait"


def constraints_by_group(request: CandidateRequest) -> Sequence[Sequence[Constraint]]:
    """The conditions of each group, in the order of `request.groups`. Computed once for each request object."""
    constraints = request.memo.get("constraints")
    if not isinstance(constraints, tuple):
        constraints = request.memo["constraints"] = tuple(constraints_of(group) for group in request.groups)
    return constraints


class GroupMasks:
    """One group's constraints applied to the members of a block."""

    def __init__(
        self, forest: Forest, block: MemberBlock, group: RequestGroup, constraints: Sequence[Constraint]
    ) -> None:
        self._forest = forest
        self._block = block
        self.group = group
        self.constraints = constraints
        self._masks: list[Mask] = []

    def mask(self, number: int) -> Mask:
        """By member of the block: True if it meets `constraints[number]`, regardless of the others."""
        while len(self._masks) <= number:
            constraint = self.constraints[len(self._masks)]
            if constraint.kind is ConstraintKind.UNITS:
                self._masks.append(self._block.fits(constraint.name, min(constraint.amount, UNSATISFIABLE_AMOUNT)))
            else:
                self._masks.append(self._block.eligible(constraint.spec(granular=self.group.is_granular)))
        return self._masks[number]

    def served(self) -> Iterator[Mask]:
        """Yields a mask by anchor for each constraint: True if the anchor meets it and all constraints before it."""
        if self.group.is_granular or (self._block.has_one_each and self.group.resources):
            return self._served_by_one()
        return self._served_by_several()

    def _served_by_one(self) -> Iterator[Mask]:
        serving = np.ones(len(self._block.slots), dtype=np.bool_)
        has_positive = False
        for number, constraint in enumerate(self.constraints):
            serving &= self.mask(number)
            has_positive = has_positive or constraint.kind in (
                ConstraintKind.UNITS,
                ConstraintKind.MEMBER,
                ConstraintKind.TRAIT,
            )
            # No anchor can serve a group with negative conditions only; the check of all groups together reports that.
            served = self._block.by_anchor(serving)
            yield served if has_positive else np.ones(len(served), dtype=np.bool_)

    def _served_by_several(self) -> Iterator[Mask]:
        block, forest = self._block, self._forest
        eligible = np.ones(len(block.slots), dtype=np.bool_)
        own, roots = eligible.copy(), eligible.copy()  # whether the member, or its anchor, is in all aggregates so far
        classes: list[Mask] = []
        traits: list[Mask] = []
        served = np.ones(len(block.anchors), dtype=np.bool_)
        for number, constraint in enumerate(self.constraints):
            if constraint.kind is ConstraintKind.TRAIT:
                traits.append(self.mask(number))
                served = served & block.by_anchor(_any_of(classes, eligible) & traits[-1])
                yield served
                continue
            if constraint.kind is ConstraintKind.UNITS:
                classes.append(self.mask(number))
            elif constraint.kind is ConstraintKind.MEMBER:
                inside = masks.members_of_any(forest, constraint.names)
                own &= inside[block.slots]
                roots &= inside[block.roots]
                eligible = eligible & (own | roots & block.is_local)
            else:
                eligible = eligible & self.mask(number)
            served = np.ones(len(block.anchors), dtype=np.bool_)
            for units in classes:
                served &= block.by_anchor(units & eligible)
            for trait in traits:
                served &= block.by_anchor(_any_of(classes, eligible) & trait)
            yield served


def _any_of(classes: Sequence[Mask], eligible: Mask) -> Mask:
    found = np.zeros(len(eligible), dtype=np.bool_)
    for units in classes:
        found |= units
    return found & eligible


def group_masks(forest: Forest, request: CandidateRequest, block: MemberBlock) -> list[GroupMasks]:
    pairs = zip(request.groups, constraints_by_group(request), strict=True)
    return [GroupMasks(forest, block, group, constraints) for group, constraints in pairs]
