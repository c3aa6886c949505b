import pytest

from tests.differential.sides import Ours, Upstream
from tests.differential.twins import Twins


@pytest.fixture(scope="package")
def twins(tmp_path_factory):
    with Upstream(tmp_path_factory.mktemp("upstream")) as upstream, Ours(tmp_path_factory.mktemp("ours")) as ours:
        yield Twins(upstream, ours)
