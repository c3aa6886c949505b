"""Searches: allocation candidates, filtered provider lists, and explanations."""

from collections.abc import Iterable
from dataclasses import dataclass

from moorage.core.errors import Invalid
from moorage.placement.explain.explanation import Explanation, explain
from moorage.placement.forest.forest import Forest
from moorage.placement.search import candidates
from moorage.placement.search.candidates import SearchResult
from moorage.placement.search.provider_filters import ProviderFilter, matching_slots
from moorage.placement.search.request import CandidateRequest
from moorage.placement.service.deps import PlacementDeps, PlacementSettings


@dataclass(frozen=True)
class CandidateService:
    deps: PlacementDeps
    settings: PlacementSettings

    def find_candidates(self, request: CandidateRequest, sample: str | None = None) -> tuple[Forest, SearchResult]:
        """(the forest, the candidates as slots in it). `sample`: a seed, see `search.single_choice`."""
        forest = self.deps.snapshot.current()
        _check_names(forest, request.class_names(), request.trait_names())
        try:
            found = candidates.find_candidates(forest, request, max_steps=self.settings.max_search_steps, sample=sample)
        except Invalid:
            self._count("over_limit")
            raise
        self._count("found" if found else "empty")
        return forest, found

    def _count(self, outcome: str) -> None:
        self.deps.meters.searches.labels(outcome).inc()

    def explain_candidates(self, request: CandidateRequest) -> Explanation:
        forest = self.deps.snapshot.current()
        _check_names(forest, request.class_names(), request.trait_names())
        return explain(forest, request, max_steps=self.settings.max_search_steps)

    def matching_providers(self, wanted: ProviderFilter) -> tuple[Forest, list[int]]:
        """(the forest, the slots in it of the providers that match)."""
        forest = self.deps.snapshot.current()
        traits = wanted.traits.forbidden.union(*wanted.traits.required)
        if missing := sorted(traits - forest.names.traits.keys()):
            raise Invalid(f'Invalid trait(s) in "required" parameter: {_no_traits(missing)}')
        _check_names(forest, wanted.resources or {}, ())
        return forest, matching_slots(forest, wanted)


def _check_names(forest: Forest, classes: Iterable[str], traits: Iterable[str]) -> None:
    for name in classes:
        if name not in forest.names.classes:
            raise Invalid(f"Invalid resource class in resources parameter: No such resource class {name}.")
    if missing := sorted(set(traits) - forest.names.traits.keys()):
        raise Invalid(_no_traits(missing))


def _no_traits(names: Iterable[str]) -> str:
    return f"No such trait(s): {', '.join(names)}."
