"""A small cloud in this process and in virtual time: placement, compute, images, and hosts with accelerators.

Everything is the real thing behind its API; of the hosts only the hypervisor and the devices are simulated. Whatever
API, builder or agents do to the outside (requests, hints, calls to a hypervisor) is a point at which they can be killed.
"""

import json
from datetime import UTC, datetime, timedelta

import pytest

import os_acc
from moorage.accelerator import agent_api
from moorage.accelerator import routes as accelerator_routes
from moorage.accelerator.agent import AcceleratorAgent
from moorage.accelerator.client import AcceleratorClient
from moorage.accelerator.drivers.description import built_in_host
from moorage.accelerator.drivers.simulated import SimulatedDriver as SimulatedAccelerators
from moorage.accelerator.service import AcceleratorService
from moorage.agent.host import AgentSettings, HostAgent
from moorage.agent.provider_config.load import ProviderFiles
from moorage.agent.published import PublishedFile
from moorage.agent.resource_tracker import ResourceTracker, resources_topic
from moorage.agent.snapshots import ImageSnapshots
from moorage.agent.virt.host_description import HostDescription
from moorage.agent.virt.script import Script
from moorage.agent.virt.simulated import SimulatedDriver
from moorage.compute.build import BuildDuty
from moorage.compute.client import ComputeClient
from moorage.compute.dead_hosts import DeadHostsDuty
from moorage.compute.moving import MovingDuty
from moorage.compute.placing import Placer
from moorage.compute.reclaim import ReclaimDuty
from moorage.compute.routes import API as COMPUTE_API
from moorage.compute.routes import RULES as COMPUTE_RULES
from moorage.compute.service import ComputeService
from moorage.core.clock import VirtualClock
from moorage.core.ids import SeededIds
from moorage.identity.authenticators import TestTokens
from moorage.images import routes as image_routes
from moorage.images.cache import DigestCache
from moorage.images.client import ImageLookup, ImageWriter
from moorage.images.directory import ImageDirectory
from moorage.images.service import ImageService
from moorage.jobs.duties import DutiesInTurn, Wakeups
from moorage.jobs.hints import InProcessHints
from moorage.placement import routes as placement_routes
from moorage.placement.client import PlacementClient
from moorage.placement.service import PlacementService
from moorage.wire.app import Surroundings, build, mount
from moorage.wire.client import ServiceClient
from moorage.wire.transports import InProcessTransport
from tests import counted
from tests.crash.effects import DRIVER_CALLS
from tests.migrated import open_migrated

BASE = "http://127.0.0.1:8778"
GPU = "CUSTOM_ACCELERATOR_GPU"


class Killed(BaseException):
    """A process dies here: nothing catches it, nothing is undone."""


class Points:
    """Counts what builder and agents do to the outside; at the point that a test names, the doer dies."""

    def __init__(self):
        self.passed = []
        self.die_at = None

    def around(self, label, call):
        self._pass(f"before {label}")
        result = call()
        self._pass(f"after {label}")
        return result

    def _pass(self, label):
        self.passed.append(label)
        if self.die_at is not None and len(self.passed) > self.die_at:
            self.die_at = None
            raise Killed(label)


class Watched:
    """A transport of a builder or an agent."""

    def __init__(self, inner, points):
        self._inner, self._points = inner, points

    def send(self, method, path, headers, body=None):
        if method == "GET":
            return self._inner.send(method, path, headers, body)
        label = f"{method} {path.partition('?')[0]}"
        return self._points.around(label, lambda: self._inner.send(method, path, headers, body))

    def stream(self, method, path, headers):
        return self._inner.stream(method, path, headers)


class WatchedHints:
    """Of the API and the builder: what is to be sent after a commit."""

    def __init__(self, inner, points):
        self._inner, self._points = inner, points

    def send(self, queue):
        self._points.around(f"hint to {queue}", lambda: self._inner.send(queue))

    def close(self):
        self._inner.close()


class Token:
    def headers(self, *, renew=False):
        return {"x-auth-token": "moorage:service", "x-roles": "admin,service"}


class SimulatedHost:
    """`start` may be called again: everything in memory is new then, everything on disk is found."""

    def __init__(self, cloud, name):
        self.cloud, self.name = cloud, name
        self.state = cloud.directory / name
        (self.state / "provider_config").mkdir(parents=True)
        self.script = Script()
        self.settings = AgentSettings(workers=1, poll_period_s=3600, heartbeat_period_s=20, update_period_s=3600)
        self.accelerators = None
        self.agent = None

    def start(self):
        if self.accelerators is not None:
            self.accelerators.close()
        cloud, clock = self.cloud, self.cloud.clock
        self.accelerators = AcceleratorAgent(
            self.name,
            [SimulatedAccelerators(built_in_host(), self.state / "accelerators", clock)],
            self.state / "accelerators",
            cloud.images,
            DigestCache(self.state / "bitstreams", max_bytes=1 << 20, clock=clock),
            clock,
            reports=cloud.profiles,
            changed=lambda: self.cloud.wakeups.wake(resources_topic(self.name)),
            to_report=lambda: self.cloud.wakeups.wake(f"accelerator-agent@{self.name}"),
        )
        self.accelerators.start()
        self.driver = SimulatedDriver(HostDescription(name=self.name), self.state, clock, self.script)
        for call in DRIVER_CALLS:
            setattr(self.driver, call, self._watched(call, getattr(self.driver, call)))
        local = InProcessTransport(agent_api.wsgi_app(self.accelerators, cloud.ids), BASE)
        self.acceleration = os_acc.Client(Watched(local, cloud.points), clock=clock)
        self.agent = HostAgent(
            host=self.name,
            driver=self.driver,
            tracker=ResourceTracker(
                driver=self.driver,
                grafts=self.accelerators,
                placement=cloud.placement,
                files=ProviderFiles(self.state / "provider_config"),
                published=PublishedFile(self.state / "published.json"),
                clock=clock,
                ids=cloud.ids,
            ),
            acceleration=self.acceleration,
            refers_to_accelerators=os_acc.refers_to_accelerators,
            compute=ComputeClient(cloud.client("compute", watched=True)),
            clock=clock,
            wakeups=cloud.wakeups,
            settings=self.settings,
            snapshots=ImageSnapshots(self.driver, ImageWriter(cloud.client("image", watched=True))),
        )
        self.agent.start()

    def stop(self):
        """The machine is off: no agent, and to everybody else it is silent."""
        self.accelerators.close()
        self.agent = self.accelerators = None

    def _watched(self, name, call):
        return lambda *arguments, **named: self.cloud.points.around(name, lambda: call(*arguments, **named))

    @property
    def servers(self):
        """{server id: power}"""
        return {uuid: domain.power.value for uuid, domain in self.driver.domains().items()}

    @property
    def plugged(self):
        """{server id: PCI addresses}, as the accelerator agent has them."""
        held = self.accelerators.holdings.attachments
        return {uuid: [handle.pci_id for handle in attachment.handles] for uuid, attachment in held.items()}

    def write(self, server_id, text):
        """As the guest does."""
        with (self.state / "disks" / f"{server_id}.raw").open("a") as disk:
            disk.write(text)

    def disk(self, server_id):
        return (self.state / "disks" / f"{server_id}.raw").read_text()


class Cloud:
    """With `accelerators` the accelerator service is there too: hosts report to it, and `profiles` is its client."""

    def __init__(self, directory, *, accelerators=False, **options):
        self.directory = directory
        self.clock = VirtualClock(datetime(2026, 3, 1, tzinfo=UTC))
        self.ids = SeededIds(1)
        self.points = Points()
        self.wakeups = Wakeups()
        self._hints = WatchedHints(InProcessHints(self.wakeups), self.points)
        self.hosts = {}
        self._options = options
        engine = open_migrated("placement", self.directory)
        self.engine = open_migrated("compute", self.directory)
        placement = PlacementService(engine, self.clock, self.ids, watchers=0)
        placement.start()
        self.images = ImageDirectory(directory / "images", clock=self.clock, ids=self.ids)
        apps = {
            "/placement": (placement_routes.API, placement, placement_routes.RULES),
            "/image": (image_routes.API, ImageService(self.images, clock=self.clock, ids=self.ids), image_routes.RULES),
        }
        if accelerators:
            service = AcceleratorService(
                open_migrated("accelerator", self.directory), self.clock, self.ids, self._hints
            )
            apps["/accelerator"] = (accelerator_routes.API, service, accelerator_routes.RULES)
        self._apps = {path: self._app(*parts) for path, parts in apps.items()}
        self.profiles = AcceleratorClient(self.client("accelerator")) if accelerators else None
        self._wire = InProcessTransport(mount(self._apps), BASE)
        self.placement = PlacementClient(self.client("placement"))
        self.start_compute()

    def start_compute(self):
        """The API and the builder; again after a death of either."""
        self.service = ComputeService(
            self.engine,
            self.clock,
            self.ids,
            self._hints,
            images=ImageLookup(self.client("image")),
            image_writer=ImageWriter(self.client("image")),
            placement=self.placement,
            profiles=self.profiles,
            **self._options,
        )
        self._apps["/compute"] = self._app(COMPUTE_API, self.service, COMPUTE_RULES)
        self.builder = BuildDuty(
            self.engine,
            self.clock,
            self.ids,
            PlacementClient(self.client("placement", watched=True)),
            self.service.hosts,
            self._hints,
            worker="builder",
            poll_s=None,
        )
        self.mover = self.new_mover("mover")
        self.reclaim = ReclaimDuty(
            self.engine,
            self.clock,
            self.service.deletion,
            self.service.operations,
            after_s=self._options.get("reclaim_after_s", 0),
            offload_after_s=self._options.get("offload_after_s", 0),
        )
        self.dead_hosts = DeadHostsDuty(
            self.engine, self.clock, self.ids, self._hints, self.service.hosts, self.service.agents
        )

    def new_mover(self, worker):
        placement = PlacementClient(self.client("placement", watched=True))
        return MovingDuty(
            self.engine,
            self.clock,
            self.ids,
            placement,
            Placer(self.engine, placement, self.service.hosts),
            self._hints,
            images=ImageWriter(self.client("image", watched=True)),
            worker=worker,
            poll_s=None,
        )

    def _app(self, api, service, rules):
        return build(api, service, Surroundings(TestTokens(), rules, self.ids))

    def client(self, service, *, watched=False):
        transport = InProcessTransport(mount(self._apps), f"{BASE}/{service}")
        transport = Watched(transport, self.points) if watched else transport
        return ServiceClient(transport, service_type=service, credentials=Token(), clock=self.clock)

    # ------------------------------------------------------------------------------------ its hosts

    def add_host(self, name):
        self.hosts[name] = SimulatedHost(self, name)
        self.hosts[name].start()
        self.forget_waits()
        return self.hosts[name]

    def forget_waits(self):
        """After a process was started or stopped: who is there, and nobody waits for anything."""
        running = [host.agent for host in self.hosts.values() if host.agent is not None]
        duties = [
            self.builder,
            self.mover,
            self.reclaim,
            self.dead_hosts,
            *(duty for agent in running for duty in agent.duties),
        ]
        if self.profiles is not None:
            duties += [host.accelerators for host in self.hosts.values() if host.accelerators is not None]
        self.duties = DutiesInTurn(self.clock, self.wakeups, duties)

    def settle(self):
        self.duties.settle()

    def run_for(self, seconds):
        self.duties.run_until(self.clock.now() + timedelta(seconds=seconds))

    def dies(self, host):
        """Silent until it counts as down, and no longer."""
        host.stop()
        self.forget_waits()
        self.run_for(120)

    def comes_back(self, host):
        host.start()
        self.forget_waits()

    def step_by_step(self, count):
        """So many of the jobs of a move, one after another: builder's and hosts', whoever has one."""
        for _ in range(count):
            with self.engine.connect() as connection:
                query = "SELECT open_queue FROM jobs WHERE open_queue IS NOT NULL ORDER BY position LIMIT 1"
                queue = connection.exec_driver_sql(query).scalar()
            if queue is None:
                return
            host = self.hosts.get(queue.partition("/")[0])
            duty = self.mover if host is None else next(one for one in host.agent.duties if hasattr(one, "_runner"))
            duty.tick()

    def restart(self):
        """All processes, as after a death of any of them; their leases run out."""
        self.points.die_at = None
        self.start_compute()
        for host in self.hosts.values():
            if host.agent is not None:
                host.start()
        self.forget_waits()
        self.run_for(130)
        self.settle()

    def killed_at(self, point, work):
        """Run `work` and what follows from it; whether somebody died at that point of it."""
        self.points.passed.clear()
        self.points.die_at = point
        try:
            work()
            self.settle()
        except Killed:
            self.restart()
            return True
        self.points.die_at = None
        return False

    # ----------------------------------------------------------------------------------- its users

    def send(self, method, path, body=None, *, who="alice:red", roles="member", version="2.96"):
        headers = {"x-auth-token": who, "x-roles": roles, "openstack-api-version": f"compute {version}"}
        return self._send(method, f"/compute{path}", body, headers)

    def accelerator(self, method, path, body=None):
        """As an administrator."""
        return self._send(method, f"/accelerator{path}", body, {"x-auth-token": "root:admin", "x-roles": "admin"})

    def _send(self, method, path, body, headers):
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["content-type"] = "application/json"
        answer = self._wire.send(method, path, headers, data)
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return answer.status, json.loads(answer.body) if is_json else answer.body, answer.headers

    def admin(self, method, path, body=None, **options):
        return self.send(method, path, body, **({"who": "root:admin", "roles": "admin"} | options))

    def act(self, server_id, action, argument=None, **options):
        """(status, body) of an action."""
        status, body, _ = self.send("POST", f"/v2.1/servers/{server_id}/action", {action: argument}, **options)
        return status, body

    def admin_act(self, server_id, action, argument=None, **options):
        return self.act(server_id, action, argument, who="root:admin", roles="admin", **options)

    def do(self, server_id, action, argument=None, **options):
        """An action that is taken, and all that follows."""
        status, body = self.act(server_id, action, argument, **options)
        assert status in (200, 202, 204), body
        self.settle()
        return body

    def admin_do(self, server_id, action, argument=None, **options):
        return self.do(server_id, action, argument, who="root:admin", roles="admin", **options)

    def show(self, server_id):
        status, body, _ = self.admin("GET", f"/v2.1/servers/{server_id}")
        return body["server"] if status == 200 else None

    def status(self, server_id):
        """(status, task, host)"""
        server = self.show(server_id)
        return server and (server["status"], server["OS-EXT-STS:task_state"], server["OS-EXT-SRV-ATTR:host"])

    def flavor(self, name, specs=None, *, vcpus=2, ram=1024, disk=10):
        body = {"name": name, "id": name, "vcpus": vcpus, "ram": ram, "disk": disk}
        assert self.admin("POST", "/v2.1/flavors", {"flavor": body})[0] == 200
        if specs:
            assert self.admin("POST", f"/v2.1/flavors/{name}/os-extra_specs", {"extra_specs": specs})[0] == 200
        return name

    def boot(self, flavor="small", name="vm", **more):
        """The id of a server that is there."""
        body = {"name": name, "imageRef": self.image, "flavorRef": flavor, "networks": "none", **more}
        status, answer, _ = self.send("POST", "/v2.1/servers", {"server": body})
        assert status == 202, answer
        self.settle()
        return answer["server"]["id"]

    def make_image(self, name="tiny", **properties):
        image_id = self.ids.uuid()
        writer = ImageWriter(self.client("image"))
        writer.upload(image_id, name, "red", properties, disk_format="raw", size_bytes=4, chunks=iter((b"tiny",)))
        return image_id

    def image_record(self, image_id):
        return self.images.get(image_id)

    def image_data(self, image_id):
        with self.images.data(image_id) as file:
            return file.read().decode()

    def migrations(self):
        """[(type, status, from, to)], newest first."""
        rows = self.admin("GET", "/v2.1/os-migrations")[1]["migrations"]
        names = ("migration_type", "status", "source_compute", "dest_compute")
        return [tuple(row[name] for name in names) for row in rows]

    def actions(self, server_id):
        """[(action, {event: result})], newest first."""
        path = f"/v2.1/servers/{server_id}/os-instance-actions"
        answer = []
        for action in self.admin("GET", path)[1]["instanceActions"]:
            detail = self.admin("GET", f"{path}/{action['request_id']}")[1]["instanceAction"]
            answer.append((action["action"], {event["event"]: event["result"] for event in detail["events"]}))
        return answer

    def held(self, consumer):
        """{host: {class: units}}: what a consumer holds, by the host that it is below."""
        answer = {}
        for provider, units in self.placement.allocations(consumer).items():
            root = self.placement.provider(self.placement.provider(provider).root_uuid)
            entry = answer.setdefault(root.name, {})
            for name, amount in units.items():
                entry[name] = entry.get(name, 0) + amount
        return answer

    def used(self, host):
        """{class: units} of all that is held of a host, without what is 0."""
        root = self.placement.provider_by_name(host)
        total = {}
        for provider in self.placement.tree(root.uuid):
            for name, amount in self.placement.usages(provider.uuid).items():
                total[name] = total.get(name, 0) + amount
        return {name: amount for name, amount in total.items() if amount}


@pytest.fixture
def make_cloud(tmp_path):
    """A cloud with `hosts` hosts, an image, and flavors small and gpu; options are those of `ComputeService` and `Cloud`.

    At the end what is kept of what projects use is held against all their servers.
    """
    made = []

    def make(hosts=1, *, accelerators=False, **options):
        cloud = Cloud(tmp_path, accelerators=accelerators, **options)
        cloud.image = cloud.make_image()
        for number in range(1, hosts + 1):
            cloud.add_host(f"compute-{number}")
        cloud.flavor("small")
        cloud.flavor("gpu", {f"resources:{GPU}": "1"})
        made.append(cloud)
        return cloud

    yield make
    for cloud in made:
        counted.check(cloud.engine)


@pytest.fixture
def cloud(make_cloud):
    return make_cloud()
