"""A body that is joined from cached fragments equals one that is encoded from scratch."""

import json
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.placement.api.handlers.candidates import candidates_body, provider_summary
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import SHARING_TRAIT, Name, NameTable
from moorage.placement.search.candidates import find_candidates, list_candidates
from moorage.wire.microversion import Version
from tests.property.placement.test_candidates import TRAITS, searches, spreads

NAMES = NameTable(
    {},
    {
        name: Name(number, name, False, datetime(2026, 1, 1, tzinfo=UTC))
        for number, name in enumerate([*reversed(TRAITS), SHARING_TRAIT])
    },
)
versions = st.sampled_from([10, 12, 17, 26, 27, 29, 34, 39]).map(lambda minor: Version(1, minor))


def encoded_from_scratch(version, forest, request):
    """The document of the body, encoded without cached fragments."""
    found = list_candidates(forest, request)
    used = {slot for candidate in found for slot in candidate.allocations}
    if request.nested:
        used = {slot for root in {forest.root_of(slot) for slot in used} for slot in forest.trees[root]}
    classes = None if version >= (1, 27) else request.class_names()
    return {
        "allocation_requests": [allocation_request(version, forest, one) for one in found],
        "provider_summaries": {
            forest.at(slot).uuid: provider_summary(version, forest, forest.at(slot), classes) for slot in used
        },
    }


def allocation_request(version, forest, candidate):
    allocations = {forest.at(slot).uuid: {"resources": held} for slot, held in candidate.allocations.items()}
    if version < (1, 12):
        return {"allocations": [{"resource_provider": {"uuid": one}, **held} for one, held in allocations.items()]}
    if version < (1, 34):
        return {"allocations": allocations}
    mappings = {suffix: [forest.at(slot).uuid for slot in slots] for suffix, slots in candidate.mappings.items()}
    return {"allocations": allocations, "mappings": mappings}


def encoded_from_fragments(version, forest, request):
    return in_one_order(json.loads(candidates_body(version, forest, request, find_candidates(forest, request))))


def in_one_order(answer):
    """`answer` with its candidates sorted: only their order may differ between two bodies."""
    return {**answer, "allocation_requests": sorted(answer["allocation_requests"], key=json.dumps)}


@settings(max_examples=400, deadline=None)
@given(searches | spreads | spreads, versions, st.none() | st.integers(1, 4), st.integers(0, 9))
def test_a_body_joined_from_cached_fragments_equals_one_encoded_from_scratch(case, version, limit, changed):
    providers, request = case
    request = replace(request, limit=limit, nested=version >= (1, 29))
    forest = Forest.build(providers, NAMES, 0)
    for _ in range(2):  # the second time from cached fragments
        assert encoded_from_fragments(version, forest, request) == in_one_order(
            encoded_from_scratch(version, forest, request)
        )
    old = providers[changed % len(providers)]
    more = {name: units + 1 for name, units in old.used.items()}
    forest = forest.with_changes({old.id: replace(old, used=more, revision=old.revision + 1)})
    assert encoded_from_fragments(version, forest, request) == in_one_order(
        encoded_from_scratch(version, forest, request)
    )
