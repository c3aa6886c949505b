"""Placement and compute in this process, behind their APIs; a host with real files; every request counted."""

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

import os_acc
from moorage.accelerator import agent_api
from moorage.accelerator.agent import AcceleratorAgent
from moorage.accelerator.drivers.description import built_in_host
from moorage.accelerator.drivers.simulated import SimulatedDriver as SimulatedAccelerators
from moorage.agent.grafts import NoGrafts
from moorage.agent.host import AgentSettings, HostAgent
from moorage.agent.provider_config.load import ProviderFiles
from moorage.agent.published import PublishedFile
from moorage.agent.resource_tracker import ResourceTracker, resources_topic
from moorage.agent.virt.host_description import HostDescription
from moorage.agent.virt.script import Script
from moorage.agent.virt.simulated import SimulatedDriver
from moorage.compute.build import BuildDuty
from moorage.compute.client import ComputeClient
from moorage.compute.routes import API as COMPUTE_API
from moorage.compute.routes import RULES as COMPUTE_RULES
from moorage.compute.service import ComputeService
from moorage.core.ids import SeededIds
from moorage.identity.authenticators import NoAuth
from moorage.images.cache import DigestCache
from moorage.images.directory import ImageDirectory
from moorage.jobs.duties import DutiesInTurn, Wakeups
from moorage.jobs.hints import InProcessHints
from moorage.placement.client import PlacementClient
from moorage.placement.routes import API, RULES
from moorage.placement.service import PlacementService
from moorage.wire.app import Surroundings, build, mount
from moorage.wire.client import ServiceClient
from moorage.wire.transports import InProcessTransport
from tests.migrated import open_migrated

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


@pytest.fixture
def placement_app(tmp_path, clock):
    engine = open_migrated("placement", tmp_path)
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


class HostPlane:
    """Placement, compute with its builder, and one host with its accelerator agent, in virtual time.

    `start_agent` may be called again: everything in memory is new then, everything on disk is found.
    """

    def __init__(self, tmp_path, clock, placement_app, files):
        self.state, self.clock, self.files = tmp_path / "host", clock, files
        self.wakeups = Wakeups()
        self.engine = open_migrated("compute", tmp_path)
        hints = InProcessHints(self.wakeups)
        service = ComputeService(self.engine, clock, SeededIds(11), hints)
        compute_app = build(COMPUTE_API, service, Surroundings(NoAuth(), COMPUTE_RULES, SeededIds(12)))
        app = mount({"/placement": placement_app, "/compute": compute_app})
        self.placement_transport = Counted(InProcessTransport(app, f"{BASE}/placement"))
        self.compute_transport = Counted(InProcessTransport(app, f"{BASE}/compute"))
        self.placement = PlacementClient(ServiceClient(self.placement_transport, service_type="placement", clock=clock))
        self.http = ServiceClient(self.compute_transport, service_type="compute", version="2.96", clock=clock)
        self.compute = ComputeClient(self.http)
        self.builder = BuildDuty(self.engine, clock, SeededIds(13), self.placement, service.hosts, hints)
        self.images = ImageDirectory(tmp_path / "images", clock=clock, ids=SeededIds(14))
        self.settings = AgentSettings(workers=2, poll_period_s=3600, heartbeat_period_s=20, update_period_s=3600)
        self.script = Script()
        self.description = HostDescription()
        self.generation = 0

    def start_agent(self):
        self.generation += 1
        accelerators = AcceleratorAgent(
            "compute-1",
            [SimulatedAccelerators(built_in_host(), self.state / "accelerators", self.clock)],
            self.state / "accelerators",
            self.images,
            DigestCache(self.state / "bitstreams", max_bytes=1 << 20, clock=self.clock),
            self.clock,
            changed=lambda: self.wakeups.wake(resources_topic("compute-1")),
        )
        accelerators.start()
        self.driver = SimulatedDriver(self.description, self.state, self.clock, self.script)
        self.tracker = ResourceTracker(
            driver=self.driver,
            grafts=accelerators,
            placement=self.placement,
            files=ProviderFiles(self.files),
            published=PublishedFile(self.state / "published.json"),
            clock=self.clock,
            ids=SeededIds(100 + self.generation),
        )
        self.acceleration = os_acc.Client(
            InProcessTransport(agent_api.wsgi_app(accelerators, SeededIds(15)), BASE), clock=self.clock
        )
        self.agent = HostAgent(
            host="compute-1",
            driver=self.driver,
            tracker=self.tracker,
            acceleration=self.acceleration,
            refers_to_accelerators=os_acc.refers_to_accelerators,
            compute=self.compute,
            clock=self.clock,
            wakeups=self.wakeups,
            settings=self.settings,
        )
        self.agent.start()
        self.duties = DutiesInTurn(self.clock, self.wakeups, [self.builder, *self.agent.duties])

    def create(self, name, flavor="small", **extra_specs):
        """Its id; `settle` builds it."""
        specs = {key.replace("__", ":"): value for key, value in extra_specs.items()}
        self.compute.create_flavor(flavor, flavor, 2, 1024, 10, public=True)
        if specs:
            self.compute.set_extra_specs(flavor, specs)
        image = "0b7d8e4c-0000-4000-8000-000000000000"
        body = {"name": name, "flavorRef": flavor, "imageRef": image, "networks": "none"}
        return self.http.request("POST", "/v2.1/servers", json={"server": body})["server"]["id"]

    def server(self, server_id):
        return self.http.get(f"/v2.1/servers/{server_id}")["server"]

    def act(self, server_id, **action):
        self.http.request("POST", f"/v2.1/servers/{server_id}/action", json=action)
        self.duties.settle()

    def run_for(self, seconds):
        self.duties.run_until(self.clock.now() + timedelta(seconds=seconds))


@pytest.fixture
def plane(tmp_path, clock, placement_app, files):
    plane = HostPlane(tmp_path, clock, placement_app, files)
    yield plane
    plane.engine.dispose()
