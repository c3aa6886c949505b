"""Compute, Placement and images, complete and on real SQLite, in this process; and a host agent that tests control."""

import functools
import shutil
import tempfile
from pathlib import Path

import pytest

from moorage.agent.virt.driver import Capability
from moorage.compute.client.compute_client import ComputeClient
from moorage.jobs.wakeups import InProcessHints
from moorage.placement.client.placement_client import Inventory, PlacementClient
from tests import counted
from tests.images import put_image
from tests.plane import InProcessPlane, Killed

IMAGE = "37531581-53b1-408a-b6d0-8218e054ce19"
SECRET_IMAGE = "37531581-53b1-408a-b6d0-8218e054ce20"

#: Options for tests that are not about limits of projects.
NO_LIMITS = {"quota_instances": -1, "quota_cores": -1, "quota_ram_mb": -1}


@functools.cache
def images():
    """The state directory of an image service with one image that everybody sees, and one of blue's that is shared with
    friends.
    """
    directory = Path(tempfile.mkdtemp(prefix="moorage-images-"))
    with InProcessPlane(directory, "image") as plane:
        for image_id, name, owner, visibility in (
            (IMAGE, "tiny", "red", "public"),
            (SECRET_IMAGE, "secret", "blue", "shared"),
        ):
            put_image(plane.client("image"), image_id, name, owner=owner, visibility=visibility, data=b"1")
        path = f"/image/v2/images/{SECRET_IMAGE}/members"
        assert plane.send("POST", path, {"member": "friends"}, who="bob:blue", roles="member").status == 200
    return directory / "images"


class DyingHints(InProcessHints):
    """With `is_deadly`, the sender dies when it should send: after the commit that the hint is about."""

    is_deadly = False

    def send(self, queue):
        if self.is_deadly:
            raise Killed
        super().send(queue)


class Host:
    """A host agent that uses the agents' API. If `fails` names a kind of job, the next such job fails with that
    message.
    """

    def __init__(self, plane, name, *, provider_uuid=None):
        self.plane = plane
        self.name = name
        self.fails = {}
        self.built = []
        self.provider = plane.placement.create_provider(name, uuid=provider_uuid)
        self.register()

    def register(self):
        self.plane.agent.register_host(
            self.name,
            provider_uuid=self.provider.uuid,
            hypervisor_type="simulated",
            hypervisor_version=1,
            host_ip="127.0.0.1",
            vcpus=16,
            memory_mb=32768,
            local_gb=500,
            devices=0,
            capabilities=[capability.value for capability in Capability],
        )

    def offer(self, **totals):
        generation, _ = self.plane.placement.inventories(self.provider.uuid)
        for name in totals:
            if name.startswith("CUSTOM_"):
                self.plane.placement.ensure_class(name)
        inventories = {name: Inventory(total=total, max_unit=total) for name, total in totals.items()}
        self.plane.placement.set_inventories(self.provider.uuid, generation, inventories)

    def claim(self, worker=1):
        return self.plane.agent.claim_jobs(self.name, f"{self.name}/{worker}", limit=10)

    def work(self):
        """Does all waiting jobs, and reports them."""
        while jobs := self.claim():
            for job in jobs:
                self.report(job)

    def report(self, job):
        if sentence := self.fails.pop(job.kind, None):
            self.plane.agent.report_job(job.id, job.epoch, "failed", {"error": sentence, "code": "agent.failed"})
            return
        result = {"console": f"{job.payload['server']['name']}: {job.kind}\n"}
        if job.kind == "build":
            self.built.append(job.payload)
            result["devices"] = [{"pci_id": "0000:3b:00.1"}]
        self.plane.agent.report_job(job.id, job.epoch, "done", result)


class Plane:
    """One process with all three services. `builds` is the process with the active builder; another one after a
    death.
    """

    services = "placement,image,compute"
    builders = "compute"  #: the services of a process with another builder

    def __init__(self, directory, clock, *, network=None, endpoints=None, reach=None, **compute):
        """`compute`, `network`, `endpoints`: options of these sections, for all processes. `reach`: see
        `InProcessPlane`.
        """
        shutil.copytree(images(), directory / "images")
        self.hints = None
        sections = {"network": network, "endpoints": endpoints}
        self.sections = {name: options for name, options in sections.items() if options is not None}
        self.process = self.builds = InProcessPlane(
            directory,
            self.services,
            clock=clock,
            hints=self._hints,
            reach=reach,
            compute=NO_LIMITS | compute,
            **self.sections,
        )
        self.clock, self.ids, self.wakeups = clock, self.process.ids, self.process.wakeups
        self.placement = PlacementClient(self.process.client("placement"))
        self.agent = ComputeClient(self.process.client("compute"))

    def _hints(self, wakeups):
        self.hints = self.hints or DyingHints(wakeups)
        return self.hints

    @property
    def service(self):
        return self.process.service("compute")

    @property
    def engine(self):
        return self.process.engine("compute")

    @property
    def builder(self):
        return self.builds.task("compute.build")

    @property
    def mover(self):
        return self.process.task("compute.moving")

    @property
    def to_placement(self):
        """The interceptor of the requests to Placement of the process with the active builder."""
        return self.builds.ways["placement"]

    def another(self, name="another", **sections):
        """Starts another process with compute, and so another builder."""
        return self.process.beside(name, self.builders, compute=NO_LIMITS, **self.sections | sections)

    def succeed(self, name="successor", **sections):
        """Makes the builder of another process the active one."""
        self.builds = self.another(name, **sections)

    def restart(self, **sections):
        """Restarts the process with other options."""
        self.process.restart(**sections)

    def send(self, method, path, body=None, *, who="alice:red", roles="member", version="2.96", **headers):
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        roles = None if who is None else roles
        return self.process.send(method, f"/compute{path}", body, who=who, roles=roles, version=version, headers=sent)

    def admin(self, method, path, body=None, **options):
        return self.send(method, path, body, **({"who": "root:admin", "roles": "admin"} | options))

    def flavor(self, name, specs=None, *, vcpus=1, ram=512, disk=1, **more):
        body = {"flavor": {"name": name, "id": name, "vcpus": vcpus, "ram": ram, "disk": disk, **more}}
        status, _, document = self.admin("POST", "/v2.1/flavors", body)
        assert status == 200, document
        if specs:
            status, _, document = self.admin("POST", f"/v2.1/flavors/{name}/os-extra_specs", {"extra_specs": specs})
            assert status == 200, document
        return name

    def boot(self, flavor, name="vm", **more):
        options = {key: more.pop(key) for key in ("who", "roles", "version") if key in more}
        body = {"server": {"name": name, "imageRef": IMAGE, "flavorRef": flavor, "networks": "none", **more}}
        status, _, document = self.send("POST", "/v2.1/servers", body, **options)
        assert status == 202, document
        return document["server"]["id"]

    def show(self, server_id, **options):
        status, _, document = self.admin("GET", f"/v2.1/servers/{server_id}", **options)
        return document["server"] if status == 200 else None

    def act(self, server_id, action, argument=None, **options):
        return self.send("POST", f"/v2.1/servers/{server_id}/action", {action: argument}, **options)

    def settle(self, *hosts):
        """Runs builder, mover and hosts in turn until nothing is left to do."""
        for _ in range(4):
            self.builder.run_once()
            self.mover.run_once()
            for host in hosts:
                host.work()


@pytest.fixture
def compute_options():
    """Options of [compute]; test modules override this."""
    return {}


@pytest.fixture
def plane(tmp_path, clock, compute_options):
    plane = Plane(tmp_path / "plane", clock, **compute_options)
    yield plane
    counted.check(plane.engine)


@pytest.fixture
def host(plane):
    """`compute-1` with 16 VCPU, 32 GB and 500 GB."""
    host = Host(plane, "compute-1")
    host.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    return host
