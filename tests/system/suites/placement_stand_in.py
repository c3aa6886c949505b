"""In place of the fixture that starts OpenStack Placement for each test of osc-placement: ours, emptied over its API.

SUITE_PLACEMENT: the URLs of our servers, one for each worker, separated by spaces. Imported in .venv-tempest.
"""

import os
import sys

import fixtures

from tests.conformance.reset import empty
from tests.conformance.wire import Api


class PlacementFixture(fixtures.Fixture):
    """`endpoint` and `token` are what the suite reads."""

    token = "admin"

    def _setUp(self) -> None:
        self.endpoint = os.environ["SUITE_PLACEMENT"].split()[int(os.environ["SUITE_WORKER"])]
        empty(Api(self.endpoint))


sys.modules["placement.tests.functional.fixtures.placement"] = sys.modules[__name__]
