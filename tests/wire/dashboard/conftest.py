import pytest

from moorage.identity.first_start.first_credentials import first_credentials
from moorage.wire.transports import InProcessTransport
from tests.conftest import START
from tests.plane import InProcessPlane
from tests.system.planes import VirtualPlane
from tests.wire.dashboard.site import Site


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """All services, a simulated host and the dashboard; tasks run only when a test runs them."""
    with VirtualPlane(tmp_path_factory.mktemp("plane") / "state", START) as plane:
        yield plane


@pytest.fixture
def site(plane) -> Site:
    """A browser without a signed-in user."""
    return Site(plane.plane.app)


@pytest.fixture
def sign_in(plane):
    """A function that returns another browser with a signed-in user."""

    def browser(name: str) -> Site:
        site = Site(plane.plane.app)
        assert site.sign_in(name, plane.password(name)).status_code == 303
        return site

    return browser


@pytest.fixture
def open_site(tmp_path):
    """A function that opens the dashboard of a plane with these `services` and options; no tasks run."""
    planes = []

    def opened(services: str, url: str = "http://127.0.0.1:8778", **sections) -> Site:
        directory = tmp_path / f"state{len(planes)}"
        plane = InProcessPlane(directory, services, authenticator=None, credentials=None, **sections)
        planes.append(plane)
        site = Site(plane.plane.app, url)
        site.password = lambda name: first_credentials(plane.config.state, name)[0]
        return site

    yield opened
    for plane in planes:
        plane.stop()


@pytest.fixture
def sent(monkeypatch):
    """The paths of all requests that a page causes: the dashboard's, and those of the services that it asks."""
    paths = []
    send = InProcessTransport.send

    def counted(self, method, path, headers, body=None):
        if "cookie" not in headers:
            paths.append(f"{method} {self._prefix}{path.partition('?')[0]}")
        return send(self, method, path, headers, body)

    monkeypatch.setattr(InProcessTransport, "send", counted)
    return paths
