import pytest

from tests.wire.reservation.accelerated import Cloud
from tests.wire.reservation.plane import Plane


@pytest.fixture
def plane(tmp_path) -> Plane:
    """One host `compute-1` with 8 CPUs, 16 GiB and 100 GB, not yet registered."""
    plane = Plane(tmp_path)
    plane.add_host()
    return plane


@pytest.fixture
def reserved(plane) -> Plane:
    """The same, registered."""
    plane.register()
    return plane


@pytest.fixture
def cloud(tmp_path) -> Cloud:
    """A plane with a registered host that has accelerators."""
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.close()
