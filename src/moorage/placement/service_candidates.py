"""Searching: allocation candidates, the list of providers by filters, and the explanation of a search."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from moorage.core.errors import Invalid
from moorage.placement import candidates
from moorage.placement.candidates import Found
from moorage.placement.explain import Explanation, explain
from moorage.placement.forest import Forest
from moorage.placement.model import Provider
from moorage.placement.only_ways import Mask, members_of_any, with_any
from moorage.placement.query import NO_AGGREGATES, NO_TRAITS, AggregateFilter, TraitFilter
from moorage.placement.request import Request
from moorage.placement.snapshot import Snapshot
from moorage.placement.tree_search import MAX_STEPS


@dataclass(frozen=True, slots=True)
class ProviderFilter:
    """What GET /resource_providers may ask for; all of it must hold."""

    name: str | None = None
    uuid: str | None = None
    in_tree: str | None = None
    resources: Mapping[str, int] | None = None
    traits: TraitFilter = NO_TRAITS
    aggregates: AggregateFilter = NO_AGGREGATES


class CandidateService:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.max_steps = MAX_STEPS  #: bound on the work of one search

    def find(self, request: Request) -> tuple[Forest, Found]:
        """The candidates, and the forest that their slots are of."""
        forest = self._snapshot.current()
        _check_names(forest, request.class_names(), request.trait_names())
        return forest, candidates.find(forest, request, max_steps=self.max_steps)

    def explain(self, request: Request) -> Explanation:
        forest = self._snapshot.current()
        _check_names(forest, request.class_names(), request.trait_names())
        return explain(forest, request)

    def providers(self, wanted: ProviderFilter) -> tuple[Forest, list[Provider]]:
        forest = self._snapshot.current()
        traits = wanted.traits.forbidden.union(*wanted.traits.required)
        if missing := sorted(traits - forest.names.traits.keys()):
            raise Invalid(f'Invalid trait(s) in "required" parameter: {_no_traits(missing)}')
        _check_names(forest, wanted.resources or {}, ())
        return forest, listed(forest, wanted)


def listed(forest: Forest, wanted: ProviderFilter) -> list[Provider]:
    """In the order of slots."""
    passes = _offering(forest, wanted)
    if wanted.in_tree is not None:
        tree = forest.slot_of_uuid.get(wanted.in_tree)
        if tree is None:
            return []
        passes &= forest.roots == forest.root_of(tree)
    if wanted.uuid is not None:
        slot = forest.slot_of_uuid.get(wanted.uuid)
        found = [] if slot is None or not passes[slot] else [forest.at(slot)]
    else:
        found = [forest.at(slot) for slot in np.flatnonzero(passes).tolist()]
    return found if wanted.name is None else [provider for provider in found if provider.name == wanted.name]


def _offering(forest: Forest, wanted: ProviderFilter) -> Mask:
    """By slot: does it have the resources, traits and aggregates?"""
    passes: Mask = np.asarray(forest.roots >= 0, dtype=np.bool_)
    for name, amount in (wanted.resources or {}).items():
        fits = np.zeros(len(passes), dtype=np.bool_)
        if (column := forest.columns.get(name)) is not None:
            fits[column.fitting(amount)] = True
        passes &= fits
    for any_of in wanted.traits.required:
        passes &= with_any(forest, any_of)
    if wanted.traits.forbidden:
        passes &= ~with_any(forest, wanted.traits.forbidden)
    for any_of in wanted.aggregates.required:
        passes &= members_of_any(forest, any_of)
    if wanted.aggregates.forbidden:
        passes &= ~members_of_any(forest, wanted.aggregates.forbidden)
    return passes


def _check_names(forest: Forest, classes: Iterable[str], traits: Iterable[str]) -> None:
    for name in classes:
        if name not in forest.names.classes:
            raise Invalid(f"Invalid resource class in resources parameter: No such resource class {name}.")
    if missing := sorted(set(traits) - forest.names.traits.keys()):
        raise Invalid(_no_traits(missing))


def _no_traits(names: Iterable[str]) -> str:
    return f"No such trait(s): {', '.join(names)}."
