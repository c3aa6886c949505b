"""Placement and compute in this process, behind their APIs; a host with real files; records the host's requests."""

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from moorage.agent.provider_config.load import ProviderFiles
from moorage.agent.tracker.published_state import PublishedFile
from moorage.agent.tracker.resource_tracker import ResourceTracker
from moorage.agent.tree.provider_tree import NoAcceleratorProviders
from moorage.agent.virt.fault_injection import FaultInjection
from moorage.agent.virt.host_description import HostDescription
from moorage.agent.virt.simulated import SimulatedDriver
from moorage.compute.client.compute_client import ComputeClient
from moorage.core.ids import SeededIds
from moorage.placement.client.placement_client import PlacementClient
from moorage.wire.client import ServiceClient
from tests.images import put_image
from tests.plane import HostBearer, InProcessPlane, Way


@pytest.fixture
def placement_plane(tmp_path, clock):
    with InProcessPlane(tmp_path / "placement", "placement", clock=clock) as plane:
        yield plane


@pytest.fixture
def transport():
    """The interceptor of the requests of a host's tracker to Placement."""
    return Way()


@pytest.fixture
def placement(placement_plane):
    """A client of Placement whose requests are not recorded."""
    return PlacementClient(placement_plane.client("placement"))


@pytest.fixture
def to_placement(placement_plane, transport, clock):
    """A client of Placement as the tracker uses it; its requests are recorded."""
    below, credentials = transport.over(placement_plane.transport("/placement")), HostBearer("compute-1")
    return PlacementClient(ServiceClient(below, service_type="placement", credentials=credentials, clock=clock))


@pytest.fixture
def files(tmp_path):
    path = tmp_path / "provider_config"
    path.mkdir(mode=0o755)
    return path


@pytest.fixture
def host(tmp_path, to_placement, clock, files):
    """A host whose agent can be started repeatedly."""
    state = tmp_path / "host"
    here = SimpleNamespace(
        description=HostDescription(),
        driver=None,  # of `description`
        accelerators=NoAcceleratorProviders(),
        files=files,
        state=state,
        clock=clock,
        ids=SeededIds(3),
    )

    def tracker():
        return ResourceTracker(
            driver=here.driver or SimulatedDriver(here.description, Path(state), clock),
            accelerators=here.accelerators,
            placement=to_placement,
            files=ProviderFiles(files),
            published=PublishedFile(state / "published.json"),
            clock=clock,
            ids=here.ids,
        )

    here.tracker = tracker
    return here


class HostPlane:
    """Placement, images and compute, and one host with its accelerator agent, in virtual time.

    `start_agent` may be called again; it then starts with empty memory and the existing files.
    """

    def __init__(self, directory, clock, files):
        self.clock, self.files = clock, files
        self.control = InProcessPlane(directory, "placement,image,compute", clock=clock)
        self.faults = FaultInjection()
        self.process = self.control.beside(
            "host",
            "agent",
            starts=False,
            built=self._scripted,
            agent={"workers": 2},
            compute={"provider_config_location": str(files)},
            endpoints={"accelerator": "http://nowhere"},
            resting=("accelerator", "device history"),
        )
        self.state = self.process.directory / "host"
        self.settle, self.run_for = self.control.settle, self.control.run_for
        self.to_placement, self.to_compute = self.process.ways["placement"], self.process.ways["compute"]
        self.placement = PlacementClient(self.control.client("placement"))
        self.http = self.control.client("compute", version="2.96")
        self.compute = ComputeClient(self.http)
        self._image = put_image(self.control.client("image"), self.control.ids.uuid())

    def start_agent(self, description=None):
        if description is not None:
            path = self.process.directory / "description.yaml"
            path.write_bytes(msgspec.yaml.encode(description))
            self.process.restart(agent={"host_description": str(path)})
        else:
            self.process.restart()

    def _scripted(self, plane):
        plane.built["hypervisor"].faults = self.faults

    @property
    def driver(self):
        return self.process.service("hypervisor")

    @property
    def acceleration(self):
        return self.process.service("os_acc")

    @property
    def own_compute(self):
        """A client of compute as the host uses it; its requests are recorded."""
        below = self.to_compute.over(self.control.transport("/compute"))
        credentials = HostBearer("compute-1")
        return ComputeClient(ServiceClient(below, service_type="compute", credentials=credentials, clock=self.clock))

    def create(self, name, flavor="small", **extra_specs):
        """Creates a server and returns its id; `settle` builds it."""
        specs = {key.replace("__", ":"): value for key, value in extra_specs.items()}
        self.compute.create_flavor(flavor, flavor, 2, 1024, 10, public=True)
        if specs:
            self.compute.set_extra_specs(flavor, specs)
        body = {"name": name, "flavorRef": flavor, "imageRef": self._image, "networks": "none"}
        return self.http.request("POST", "/v2.1/servers", json={"server": body})["server"]["id"]

    def server(self, server_id):
        return self.http.get(f"/v2.1/servers/{server_id}")["server"]

    def act(self, server_id, **action):
        self.http.request("POST", f"/v2.1/servers/{server_id}/action", json=action)
        self.settle()


@pytest.fixture
def plane(tmp_path, clock, files):
    plane = HostPlane(tmp_path / "plane", clock, files)
    with plane.control:
        yield plane
