"""Bodies are joined from remembered fragments: they say what encoding everything anew says."""

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.placement.candidates import find, search
from moorage.placement.forest import Forest
from moorage.placement.handlers import candidates as handler
from moorage.placement.model import SHARING, Names
from moorage.wire.microversion import Version
from tests.property.placement.test_candidates import TRAITS, searches, spreads

NAMES = Names({}, {name: number for number, name in enumerate([*reversed(TRAITS), SHARING])})
versions = st.sampled_from([10, 12, 17, 26, 27, 29, 34, 39]).map(lambda minor: Version(1, minor))


def anew(version, forest, request):
    """The body without any fragment."""
    found = search(forest, request)
    used = {slot for candidate in found for slot in candidate.allocations}
    if request.nested:
        used = {slot for root in {forest.root_of(slot) for slot in used} for slot in forest.trees[root]}
    classes = None if version >= (1, 27) else request.class_names()
    return {
        "allocation_requests": [handler.encode(version, lambda slot: forest.at(slot).uuid, one) for one in found],
        "provider_summaries": {
            forest.at(slot).uuid: handler.summary(version, forest, forest.at(slot), classes) for slot in used
        },
    }


@settings(max_examples=400, deadline=None)
@given(searches | spreads | spreads, versions, st.none() | st.integers(1, 4), st.integers(0, 9))
def test_fragments_say_what_encoding_anew_says(case, version, limit, changed):
    providers, request = case
    request = replace(request, limit=limit, nested=version >= (1, 29))
    forest = Forest.build(providers, NAMES, 0)
    for _ in range(2):  # the second time from what the first one remembered
        assert json.loads(handler.body(version, forest, request, find(forest, request))) == anew(
            version, forest, request
        )
    old = providers[changed % len(providers)]
    more = {name: units + 1 for name, units in old.used.items()}
    forest = forest.with_changes({old.id: replace(old, used=more, revision=old.revision + 1)})
    assert json.loads(handler.body(version, forest, request, find(forest, request))) == anew(version, forest, request)
