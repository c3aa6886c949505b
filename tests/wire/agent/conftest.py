"""Placement and compute in this process, behind their APIs; a host with real files; every request counted."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from moorage.agent.grafts import NoGrafts
from moorage.agent.published import PublishedFile
from moorage.agent.resource_tracker import ProviderFiles, ResourceTracker
from moorage.agent.virt.host_description import HostDescription
from moorage.agent.virt.simulated import SimulatedDriver
from moorage.core.ids import SeededIds
from moorage.db.engine import open_engine
from moorage.db.migrations import upgrade
from moorage.identity.authenticators import NoAuth
from moorage.placement.client import PlacementClient
from moorage.placement.routes import API, RULES
from moorage.placement.service import PlacementService
from moorage.wire.app import Surroundings, build, mount
from moorage.wire.client import ServiceClient
from moorage.wire.transports import InProcessTransport

BASE = "http://127.0.0.1:8778"


class Counted:
    """A transport that remembers what passed."""

    def __init__(self, inner):
        self.inner = inner
        self.requests = []
        self.before = lambda method, path: None

    def send(self, method, path, headers, body=None):
        self.before(method, path)
        self.requests.append((method, path))
        return self.inner.send(method, path, headers, body)

    def stream(self, method, path, headers):
        return self.inner.stream(method, path, headers)

    @property
    def writes(self):
        return [request for request in self.requests if request[0] != "GET"]

    def forget(self):
        self.requests.clear()


def opened(tmp_path, feature):
    engine = open_engine(f"sqlite:///{tmp_path}/{feature}.db")
    upgrade(engine, feature)
    return engine


@pytest.fixture
def placement_app(tmp_path, clock):
    engine = opened(tmp_path, "placement")
    service = PlacementService(engine, clock, SeededIds(7))
    service.start()
    yield build(API, service, Surroundings(NoAuth(), RULES, SeededIds(8)))
    engine.dispose()


@pytest.fixture
def transport(placement_app, clock):
    return Counted(InProcessTransport(mount({"/placement": placement_app}), f"{BASE}/placement"))


@pytest.fixture
def placement(transport, clock):
    """As others use it; what it asks is not counted."""
    return PlacementClient(ServiceClient(transport.inner, service_type="placement", clock=clock))


@pytest.fixture
def files(tmp_path):
    path = tmp_path / "provider_config"
    path.mkdir(mode=0o755)
    return path


@pytest.fixture
def host(tmp_path, transport, clock, files):
    """A host whose agent can be started again and again."""
    state = tmp_path / "host"
    here = SimpleNamespace(
        description=HostDescription(), grafts=NoGrafts(), files=files, state=state, clock=clock, ids=SeededIds(3)
    )

    def tracker():
        return ResourceTracker(
            driver=SimulatedDriver(here.description, Path(state), clock),
            grafts=here.grafts,
            placement=PlacementClient(ServiceClient(transport, service_type="placement", clock=clock)),
            files=ProviderFiles(files),
            published=PublishedFile(state / "published.json"),
            clock=clock,
            ids=here.ids,
        )

    here.tracker = tracker
    return here
