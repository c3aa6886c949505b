"""Searches of the forest: allocation candidates, filtered provider lists, explanations, and views of the whole cloud.

The views are a summary, pages of trees, and one tree with its allocations, now or at a past time.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

import orjson

from moorage.core.errors import Invalid, NotFound
from moorage.core.json import Json
from moorage.placement.explain import cloud_summary
from moorage.placement.explain.cloud_summary import CloudSummary, TreeFilter, TreePage
from moorage.placement.explain.explanation import Explanation, explain
from moorage.placement.forest import change_entries
from moorage.placement.forest.forest import Forest
from moorage.placement.search import candidates
from moorage.placement.search.candidates import SearchResult
from moorage.placement.search.masks import ProviderFilter, matching_slots
from moorage.placement.search.request import CandidateRequest
from moorage.placement.service.deps import PlacementDeps, PlacementSettings
from moorage.placement.service.history_service import ChangeHistoryService
from moorage.placement.service.provider_service import provider_view
from moorage.placement.store.holding_store import AllocationRow


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


#: Allocations returned for one tree, at most.
MAX_TREE_ALLOCATIONS = 2_000


@dataclass(frozen=True, slots=True)
class TreeState:
    """A tree. `providers`: documents as in the change log, the root first, parents before children.

    `held`: at most `MAX_TREE_ALLOCATIONS` allocations, `is_cut` if there are more; None for a past time, because the
    change log has only sums.
    """

    at: datetime | None
    providers: list[dict[str, Json]]
    held: list[AllocationRow] | None
    is_cut: bool


@dataclass(frozen=True)
class CloudSummaryService:
    deps: PlacementDeps
    history: ChangeHistoryService

    def summary(self, classes: Collection[str]) -> CloudSummary:
        return cloud_summary.summarise_cloud(self.deps.snapshot.current(), classes)

    def trees(self, wanted: TreeFilter, after: str | None, limit: int) -> TreePage:
        return cloud_summary.tree_page(self.deps.snapshot.current(), wanted, after, limit)

    def tree(self, uuid: str) -> TreeState:
        """The tree that contains the provider. Raises `NotFound`."""
        forest = self.deps.snapshot.current()
        slot = forest.slot_of_uuid.get(uuid)
        if slot is None:
            raise NotFound(f"No resource provider with uuid {uuid} found")
        members = [provider_view(forest, forest.at(one)) for one in forest.tree(slot)]
        entries = [change_entries.provider_document(one.provider, one.parent_uuid, one.root_uuid) for one in members]
        held = self.deps.allocations.tree_allocations(members[0].provider.id, MAX_TREE_ALLOCATIONS + 1)
        return TreeState(
            None,
            [orjson.loads(one.document or "") for one in entries],
            held[:MAX_TREE_ALLOCATIONS],
            len(held) > MAX_TREE_ALLOCATIONS,
        )

    def tree_at(self, uuid: str, at: datetime) -> TreeState:
        """The states at `at` of the providers that are in the tree now; only this provider if it no longer exists.

        Raises `NotFound` if none of them existed then, `Gone` for a time before the retained history.
        """
        forest = self.deps.snapshot.current()
        slot = forest.slot_of_uuid.get(uuid)
        uuids = [uuid] if slot is None else [forest.at(one).uuid for one in forest.tree(slot)]
        states = self.history.provider_states(uuids, at)
        if not states:
            raise NotFound(f"There was no provider {uuid} at that time")
        return TreeState(states[0].at, [state.document for state in states], None, is_cut=False)
