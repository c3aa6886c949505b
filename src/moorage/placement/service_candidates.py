"""Searching: allocation candidates, the list of providers by filters, and the explanation of a search."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moorage.core.errors import Invalid
from moorage.placement import candidates
from moorage.placement.candidates import Found
from moorage.placement.explain import Explanation, explain
from moorage.placement.forest import Forest
from moorage.placement.model import Provider
from moorage.placement.query import NO_AGGREGATES, NO_TRAITS, AggregateFilter, TraitFilter, in_aggregates, meets
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
        return forest, [provider for provider in _pool(forest, wanted) if _passes(provider, wanted)]


def _pool(forest: Forest, wanted: ProviderFilter) -> Iterable[Provider]:
    """The smallest set that an index gives."""
    if wanted.uuid is not None:
        found = forest.by_uuid(wanted.uuid)
        pool: Iterable[Provider] = () if found is None else (found,)
    elif wanted.in_tree is not None:
        slot = forest.slot_of_uuid.get(wanted.in_tree)
        return () if slot is None else [forest.at(member) for member in forest.tree(slot)]
    elif wanted.resources:
        name, amount = next(iter(wanted.resources.items()))
        column = forest.columns.get(name)
        pool = () if column is None else (forest.at(slot) for slot in column.fitting(amount).tolist())
    else:
        pool = forest.all()
    if wanted.in_tree is None:
        return pool
    tree = forest.by_uuid(wanted.in_tree)
    return () if tree is None else [provider for provider in pool if provider.root_id == tree.root_id]


def _passes(provider: Provider, wanted: ProviderFilter) -> bool:
    return (
        (wanted.name is None or provider.name == wanted.name)
        and all(provider.fits(name, amount) for name, amount in (wanted.resources or {}).items())
        and meets(wanted.traits.required, provider.traits)
        and wanted.traits.forbidden.isdisjoint(provider.traits)
        and in_aggregates(provider.aggregates, wanted.aggregates)
    )


def _check_names(forest: Forest, classes: Iterable[str], traits: Iterable[str]) -> None:
    for name in classes:
        if name not in forest.names.classes:
            raise Invalid(f"Invalid resource class in resources parameter: No such resource class {name}.")
    if missing := sorted(set(traits) - forest.names.traits.keys()):
        raise Invalid(_no_traits(missing))


def _no_traits(names: Iterable[str]) -> str:
    return f"No such trait(s): {', '.join(names)}."
