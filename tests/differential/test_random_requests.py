"""Upstream Placement and ours give the same answers to the same random requests, and end in the same state."""

import pytest

from tests.differential.scripts import script
from tests.differential.twins import to_text

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

#: `make differential` tries other seeds.
SEEDS = range(24)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_requests_get_the_same_answers_from_both(twins, seed):
    requests = script(seed)
    found = twins.first(requests)
    if found is not None:
        shortest = twins.shortest(requests, found)
        pytest.fail(
            f"{found.difference}\n\nThe shortest script that shows it; "
            f"make differential ARGS='--replay FILE' sends it again:\n{to_text(shortest)}",
            pytrace=False,
        )
