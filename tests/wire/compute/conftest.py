"""Compute and Placement, whole and on real SQLite, in this process; and a host agent that does what a test says."""

import json

import pytest

from moorage.agent.virt.driver import Capability
from moorage.compute.build import BuildDuty
from moorage.compute.client import ComputeClient
from moorage.compute.moving import MovingDuty
from moorage.compute.placing import Placer
from moorage.compute.quota import DEFAULTS
from moorage.compute.routes import API, RULES
from moorage.compute.service import ComputeService
from moorage.core.ids import SeededIds
from moorage.identity.authenticators import TestTokens
from moorage.images.base import ImageRecord
from moorage.jobs.duties import Wakeups
from moorage.jobs.hints import InProcessHints
from moorage.placement import routes as placement_routes
from moorage.placement.client import Inventory, PlacementClient
from moorage.placement.service import PlacementService
from moorage.wire.app import Surroundings, build, mount
from moorage.wire.client import ServiceClient
from moorage.wire.transports import InProcessTransport
from tests import counted
from tests.migrated import open_migrated

BASE = "http://cloud.example:8778"
IMAGE = "37531581-53b1-408a-b6d0-8218e054ce19"
SECRET_IMAGE = "37531581-53b1-408a-b6d0-8218e054ce20"


#: For tests that are not about limits of projects.
NO_LIMITS = DEFAULTS | {"instances": -1, "cores": -1, "ram": -1}


class Killed(BaseException):
    """The builder's process dies: nothing catches it."""


class WatchedTransport:
    """Notes every request, and dies before or after the one that a test names."""

    def __init__(self, inner):
        self._inner = inner
        self.seen = []
        self.die_at = None  # (index of the request, "before" or "after")

    def send(self, method, path, headers, body=None):
        index = len(self.seen)
        self.seen.append((method, path.partition("?")[0]))
        if self.die_at == (index, "before"):
            raise Killed
        answer = self._inner.send(method, path, headers, body)
        if self.die_at == (index, "after"):
            raise Killed
        return answer

    def stream(self, method, path, headers):
        return self._inner.stream(method, path, headers)


class Token:
    def __init__(self, who, roles):
        self._headers = {"x-auth-token": who, "x-roles": roles}

    def headers(self, *, renew=False):
        return self._headers


class Images:
    """An image source with two images."""

    def get(self, image_id):
        if image_id not in (IMAGE, SECRET_IMAGE):
            return None
        is_secret = image_id == SECRET_IMAGE
        return ImageRecord(
            id=image_id,
            name="secret" if is_secret else "tiny",
            visibility="shared" if is_secret else "public",
            owner="blue" if is_secret else "red",
            status="active",
            size_bytes=1,
            hash_algo="sha512",
            hash_value="0",
            properties={},
            tags=frozenset(),
        )

    def is_shared_with(self, image_id, project_id):
        return (image_id, project_id) == (SECRET_IMAGE, "friends")


class Later:
    """The plane's client of Placement, for a service that is made before it."""

    def __init__(self, plane):
        self._plane = plane

    def __getattr__(self, name):
        return getattr(self._plane.placement, name)


class Host:
    """A host agent over the agents' API. `fails` makes it refuse the next job of a kind with that sentence."""

    def __init__(self, plane, name):
        self.plane = plane
        self.name = name
        self.fails = {}
        self.built = []
        self.provider = plane.placement.create_provider(name)
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
        """Do all jobs there are, and report."""
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
    def __init__(self, directory, clock, seed=1):
        self.clock = clock
        self.ids = SeededIds(seed)
        self.wakeups = Wakeups()
        hints = InProcessHints(self.wakeups)
        self.engine = open_migrated("compute", directory)
        placement_service = PlacementService(open_migrated("placement", directory), clock, self.ids)
        placement_service.start()
        self.service = ComputeService(
            self.engine, clock, self.ids, hints, quotas=NO_LIMITS, images=Images(), placement=Later(self)
        )

        def app(api, service, rules):
            return build(api, service, Surroundings(TestTokens(), rules, self.ids))

        self.app = mount(
            {
                "/compute": app(API, self.service, RULES),
                "/placement": app(placement_routes.API, placement_service, placement_routes.RULES),
            }
        )
        self.to_placement = WatchedTransport(InProcessTransport(self.app, BASE + "/placement"))
        self._hints = hints
        self.placement = PlacementClient(self._client("placement", self.to_placement))
        self.agent = ComputeClient(self._client("compute", InProcessTransport(self.app, BASE + "/compute")))
        self.builder = self.new_builder()
        placer = Placer(self.engine, self.placement, self.service.hosts)
        self.mover = MovingDuty(
            self.engine, clock, self.ids, self.placement, placer, hints, worker="mover", poll_s=None
        )
        self._wire = InProcessTransport(self.app, BASE)

    def _client(self, service, transport):
        return ServiceClient(
            transport, service_type=service, credentials=Token("nova:service", "admin,service"), clock=self.clock
        )

    def new_builder(self, worker="builder", options=None):
        return BuildDuty(
            self.engine,
            self.clock,
            self.ids,
            self.placement,
            self.service.hosts,
            self._hints,
            worker=worker,
            poll_s=None,
            options=options,
        )

    def send(self, method, path, body=None, *, who="alice:red", roles="member", version="2.96", **headers):
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if who is not None:
            sent |= {"x-auth-token": who, "x-roles": roles}
        if version is not None:
            sent["openstack-api-version"] = f"compute {version}"
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            sent["content-type"] = "application/json"
        answer = self._wire.send(method, f"/compute{path}", sent, data)
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return answer.status, answer.headers, json.loads(answer.body) if is_json else answer.body

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
        """Builder, mover and hosts in turn until all is quiet."""
        for _ in range(4):
            self.builder.tick()
            self.mover.tick()
            for host in hosts:
                host.work()


@pytest.fixture
def plane(tmp_path, clock):
    plane = Plane(tmp_path, clock)
    yield plane
    counted.check(plane.engine)


@pytest.fixture
def host(plane):
    """`compute-1` with 16 VCPU, 32 GB and 500 GB."""
    host = Host(plane, "compute-1")
    host.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    return host
