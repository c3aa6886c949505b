"""osc-placement's own functional tests against our Placement. Their fixture starts an OpenStack Placement for each test;
in its place the tests get ours, emptied.
"""

import contextlib

import pytest

from tests.conformance.conform import our_servers
from tests.system.suites import suite

pytestmark = [pytest.mark.slow, pytest.mark.tempest]

WORKERS = 2


def test_every_functional_test_of_osc_placement_passes_except_the_listed_ones(tmp_path):
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(our_servers("sqlite", "server", ["default"]))["default"] for _ in range(WORKERS)]
        suite.run_and_check(
            "osc-placement",
            suite.modules("osc_placement.tests.functional"),
            tmp_path / "suite",
            workers=WORKERS,
            stand_in="tests.system.suites.placement_stand_in",
            variables={"SUITE_PLACEMENT": " ".join(urls)},
        )
