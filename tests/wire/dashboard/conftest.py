import pytest

from moorage.core.ids import SeededIds
from moorage.wiring import build_plane
from tests.conftest import START
from tests.system.planes import VirtualPlane, write_config
from tests.wire.dashboard.site import Site, password_of


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """All services, a simulated host and the dashboard; nothing moves by itself."""
    with VirtualPlane(tmp_path_factory.mktemp("plane") / "state", START) as plane:
        yield plane


@pytest.fixture
def site(plane) -> Site:
    """A browser that nobody has signed in with."""
    return Site(plane.plane.app)


@pytest.fixture
def sign_in(plane):
    """Another browser, with somebody signed in."""

    def browser(name: str) -> Site:
        site = Site(plane.plane.app)
        assert site.sign_in(name, plane.password(name)).status_code == 303
        return site

    return browser


@pytest.fixture
def open_site(tmp_path):
    """The dashboard of a plane with `sections` for a configuration, which runs no duties."""
    planes = []

    def opened(url: str = "http://127.0.0.1:8778", **sections) -> Site:
        config = write_config(tmp_path / f"state{len(planes)}", **sections)
        plane = build_plane(config, ids=SeededIds(1))
        planes.append(plane)
        plane.prepare()
        site = Site(plane.app, url)
        site.password = lambda name: password_of(config.state, name)
        return site

    yield opened
    for plane in planes:
        plane.stop()
