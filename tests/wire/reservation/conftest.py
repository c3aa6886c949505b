import pytest

from tests.wire.reservation.accelerated import Cloud
from tests.wire.reservation.plane import Plane
from tests.wire.reservation.test_flavor_reservations import with_gold


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Closed planes for tests to copy: `prepared(prepare, options)` is a plane that was passed to `prepare`."""
    made = {}

    def plane(prepare, options) -> Plane:
        key = (prepare, repr(sorted(options.items())))
        if key not in made:
            with Plane(tmp_path_factory.mktemp("prepared") / "plane", **options) as new:
                prepare(new)
            made[key] = new
        return made[key]

    return plane


@pytest.fixture
def new_plane(prepared, tmp_path):
    """Makes planes, with the arguments of `Plane` after the first, that are closed after the test.

    With `prepare` they are copies of one that this function of a module was called with.
    """
    made = []

    def new(prepare=None, **options) -> Plane:
        directory = tmp_path / f"plane-{len(made)}"
        plane = Plane(directory, **options) if prepare is None else prepared(prepare, options).copy_to(directory)
        made.append(plane)
        return plane

    yield new
    for plane in made:
        plane.close()


@pytest.fixture
def plane(new_plane) -> Plane:
    """One host `compute-1` with 8 CPUs, 16 GiB and 100 GB, not yet registered."""
    return new_plane(Plane.add_host)


@pytest.fixture
def reserved(new_plane) -> Plane:
    """A plane with the host `compute-1`, registered."""
    return new_plane(_registered)


@pytest.fixture(scope="module")
def new_shared(prepared, tmp_path_factory):
    """Creates planes for tests that change nothing (they only read or are refused): one per module."""
    made = []

    def new(prepare) -> Plane:
        made.append(prepared(prepare, {}).copy_to(tmp_path_factory.mktemp("shared") / "plane"))
        return made[-1]

    yield new
    for plane in made:
        plane.close()


@pytest.fixture(scope="module")
def shared(new_shared) -> Plane:
    """Like `reserved`; one plane per module, for tests that change nothing."""
    return new_shared(_registered)


@pytest.fixture
def gold(new_plane) -> Plane:
    """compute-1 with two providers of gold, 2 units each, and compute-2 without; both registered."""
    return new_plane(with_gold)


@pytest.fixture(scope="module")
def shared_gold(new_shared) -> Plane:
    """Like `gold`; one plane per module, for tests that change nothing."""
    return new_shared(with_gold)


def _registered(plane):
    plane.add_host()
    plane.register()


@pytest.fixture
def cloud(tmp_path) -> Cloud:
    """A plane with a registered host that has accelerators."""
    with Cloud(tmp_path) as cloud:
        yield cloud
