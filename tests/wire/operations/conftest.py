"""A small cloud in this process and in virtual time: placement, compute, images, and hosts with accelerators.

All services are real and called through their APIs; only hypervisors and devices are simulated. Each effect of API,
builder and agents on the outside (request, hint, call to a hypervisor) is a point at which a test can kill them.
"""

import zlib
from datetime import UTC, datetime

import pytest

from moorage.agent.virt.fault_injection import FaultInjection
from moorage.core.clock import VirtualClock
from moorage.images.directory import ImageDirectory
from moorage.jobs.wakeups import InProcessHints
from moorage.placement.client.placement_client import PlacementClient
from moorage.wire.transports import SocketTransport
from tests import counted
from tests.crash.effects import DRIVER_CALLS
from tests.images import put_image
from tests.plane import URL, InProcessPlane, Killed

#: Tasks that only delete old rows, and the one for bare metal, of which there is none here.
TIDYING = ("placement-retention", "compute-jobs", "accelerator-jobs", "accelerator-history", "compute.baremetal")

GPU = "CUSTOM_ACCELERATOR_GPU"


class Points:
    """Counts the effects of builder and agents on the outside. At a point that a test names, the acting process dies.

    It dies at the point number `die_at`, or at the first later point with a state that differs from that at the
    previous point. If the state is the same, a death has the same result as one at the previous point: processes lose
    their memory, and find the same on disk. `state` returns a value that changes with everything that they would find.
    """

    def __init__(self, state):
        self.passed = []
        self.die_at = self.died_at = None
        self._state = state
        self._before = None

    def around(self, label, call):
        self._pass(f"before {label}")
        result = call()
        self._pass(f"after {label}")
        return result

    def _pass(self, label):
        self.passed.append(label)
        if self.die_at is None or len(self.passed) < self.die_at:
            return
        before, self._before = self._before, self._state()
        if len(self.passed) > self.die_at and self._before != before:
            self.die_at, self.died_at, self._before = None, len(self.passed) - 1, None
            raise Killed(label)


class WatchedHints:
    """Hints of the API and the builder; they are sent after a commit."""

    def __init__(self, inner, points):
        self._inner, self._points = inner, points

    def send(self, queue):
        self._points.around(f"hint to {queue}", lambda: self._inner.send(queue))

    def close(self):
        self._inner.close()


class SimulatedHost:
    """An agent in a process of its own. `start` may be called again; it then starts with empty memory and the existing
    files.
    """

    def __init__(self, cloud, name):
        self.cloud, self.name = cloud, name
        self.faults = FaultInjection()
        self.plane = cloud.control.beside(
            name,
            "agent",
            agent={"host": name},
            accelerator={"simulated_devices": cloud.devices},
            endpoints={} if cloud.has_accelerators else {"accelerator": "http://nowhere"},
            resting=TIDYING if cloud.has_accelerators else (*TIDYING, "accelerator", "device history"),
            built=self._watch,
        )

    def start(self, **options):
        """`options` of [agent] that changed since the last start."""
        self.plane.restart(agent=options)

    def stop(self):
        """Stops the machine: no agent runs, and nothing answers."""
        self.plane.kill()

    def _watch(self, plane):
        self.driver = plane.built["hypervisor"]
        self.driver.faults = self.faults
        for call in DRIVER_CALLS:
            setattr(self.driver, call, self._watched(call, getattr(self.driver, call)))

    @property
    def agent(self):
        """The agent; None while it is stopped."""
        return self.plane.service("agent") if self.plane.is_running else None

    @property
    def accelerators(self):
        return self.plane.service("accelerators")

    def _watched(self, name, call):
        return lambda *arguments, **named: self.cloud.points.around(name, lambda: call(*arguments, **named))

    @property
    def servers(self):
        """{server id: power}"""
        return {uuid: domain.power.value for uuid, domain in self.driver.domains().items()}

    @property
    def plugged(self):
        """{server id: PCI addresses}, according to the accelerator agent."""
        held = self.accelerators.attach_state.attachments
        return {uuid: [handle.pci_id for handle in attachment.handles] for uuid, attachment in held.items()}

    def write(self, server_id, text):
        """Writes to the server's disk, as the guest does."""
        with self._disk(server_id).open("a") as disk:
            disk.write(text)

    def disk(self, server_id):
        return self._disk(server_id).read_text()

    def _disk(self, server_id):
        return self.plane.directory / "host" / "disks" / f"{server_id}.raw"


class Cloud:
    """Three kinds of processes: `control` has placement and images, `compute` has compute and its tasks, and the hosts.

    With `accelerators`, the accelerator service runs too, and hosts report to it. With `networks`, {name: line of the
    configuration}, `control` has the network service; with `neutron`, a URL, `compute` uses that. `devices`: see
    [accelerator] simulated_devices. `options` are those of [compute].
    """

    def __init__(self, directory, *, accelerators=False, networks=None, neutron=None, devices="usual", **options):
        self.has_accelerators, self.devices = accelerators, devices
        self.points = Points(self._on_disk)
        self._is_asked = False
        self.hosts = {}
        self.control = InProcessPlane(
            directory,
            ",".join(
                ["placement", "image", *(["accelerator"] if accelerators else []), *(["network"] if networks else [])]
            ),
            clock=VirtualClock(datetime(2026, 3, 1, tzinfo=UTC)),
            hints=lambda wakeups: WatchedHints(InProcessHints(wakeups), self.points),
            endpoints={"compute": f"{URL}/compute"},
            resting=TIDYING,
            network={"lines": networks or {}},
        )
        self.clock, self.ids = self.control.clock, self.control.ids
        self.settle, self.run_for = self.control.settle, self.control.run_for
        self.forget_waits = self.control.forget_waits
        self.placement = PlacementClient(self.client("placement"))
        self.images = ImageDirectory(directory / "images", clock=self.clock, ids=self.ids)
        # If a server is deleted during a move, its next job has no hint and is found by polling.
        self.compute = self.control.beside(
            "compute",
            "compute",
            compute={"poll_period_s": 60.0, **options},
            endpoints={} if neutron is None else {"network": neutron},
            reach=None if neutron is None else SocketTransport,
        )
        self._watch(self.compute, "placement", "image", "network")

    def _watch(self, plane, *services):
        for service in services:
            plane.ways[service].around = self._around

    def _around(self, request, send):
        """Counts requests of tasks and agents as points; requests that the API sends while it answers another are not
        counted.
        """
        if request.method == "GET" or self._is_asked:
            return send()
        return self.points.around(f"{request.method} {request.resource}", send)

    def client(self, service):
        return (self.compute if service == "compute" else self.control).client(service)

    @property
    def service(self):
        return self.compute.service("compute")

    @property
    def engine(self):
        return self.compute.engine("compute")

    @property
    def builder(self):
        return self.compute.task("compute.build")

    @property
    def mover(self):
        return self.compute.task("compute.moving")

    @property
    def dead_hosts(self):
        return self.compute.task("compute.dead_hosts")

    def new_mover(self, name):
        """The mover of another process of compute."""
        return self.compute.beside(name, "compute", resting=("compute",)).task("compute.moving")

    # ------------------------------------------------------------------------------------ its hosts

    def add_host(self, name):
        self.hosts[name] = SimulatedHost(self, name)
        self._watch(self.hosts[name].plane, "placement", "compute", "image", "os_acc")
        return self.hosts[name]

    def take_down(self, host):
        """Stops the host, and waits until it counts as down."""
        host.stop()
        self.run_for(120)

    def bring_back(self, host):
        host.start()

    def step_by_step(self, count):
        """Runs this many jobs of a move, one after another: the next one of the builder or of a host."""
        for _ in range(count):
            queue = self._next_queue()
            if queue is None:
                return
            host = self.hosts.get(queue.partition("/")[0])
            task = self.mover if host is None else host.plane.task("jobs of")
            task.run_once()

    def _next_queue(self):
        """The queue of the oldest open job; None if no job is open."""
        with self.engine.connect() as connection:
            query = "SELECT open_queue FROM jobs WHERE open_queue IS NOT NULL ORDER BY position LIMIT 1"
            return connection.exec_driver_sql(query).scalar()

    def restart(self):
        """Restarts all processes as after a death; the leases of unfinished jobs expire."""
        self.points.die_at = None
        self.compute.restart()
        for host in self.hosts.values():
            if host.agent is not None:
                host.start()
        self.settle()
        if self._next_queue() is not None:
            self.run_for(130)
            self.settle()

    def _on_disk(self):
        """The present time, and the state that all processes would find after a death now."""
        files = sorted(
            path for path in self.control.directory.rglob("*") if path.is_file() and path.suffix != ".db-shm"
        )
        kept = [(str(path), zlib.crc32(path.read_bytes())) for path in files]
        return self.clock.now(), [host.plane.is_running for host in self.hosts.values()], kept

    def killed_at(self, point, work):
        """Runs `work` and everything that it causes. Returns the point at which a process died, this or a later one
        (see `Points`); None if no process died.
        """
        self.points.passed.clear()
        self.points.die_at = point
        try:
            work()
            self.settle()
        except Killed:
            self.restart()
            return self.points.died_at
        self.points.die_at = None
        return None

    # ----------------------------------------------------------------------------------- its users

    def send(self, method, path, body=None, *, who="alice:red", roles="member", version="2.96"):
        """(status, document, headers) of compute's answer."""
        self._is_asked = True
        try:
            seen = self.compute.send(method, f"/compute{path}", body, who=who, roles=roles, version=version)
        finally:
            self._is_asked = False
        return seen.status, seen.body, seen.headers

    def accelerator(self, method, path, body=None):
        """Sends a request to the accelerator service as an administrator."""
        seen = self.control.send(method, f"/accelerator{path}", body)
        return seen.status, seen.body, seen.headers

    def admin(self, method, path, body=None, **options):
        return self.send(method, path, body, **({"who": "root:admin", "roles": "admin"} | options))

    def act(self, server_id, action, argument=None, **options):
        """(status, body) of an action."""
        status, body, _ = self.send("POST", f"/v2.1/servers/{server_id}/action", {action: argument}, **options)
        return status, body

    def admin_act(self, server_id, action, argument=None, **options):
        return self.act(server_id, action, argument, who="root:admin", roles="admin", **options)

    def do(self, server_id, action, argument=None, **options):
        """Runs an accepted action, and everything that it causes."""
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
        """Creates a server and waits until it runs; returns its id."""
        server_id = self.begin_boot(flavor, name, **more)
        self.settle()
        return server_id

    def begin_boot(self, flavor="small", name="vm", **more):
        """Creates a server; returns its id."""
        body = {"name": name, "imageRef": self.image, "flavorRef": flavor, "networks": "none", **more}
        status, answer, _ = self.send("POST", "/v2.1/servers", {"server": body})
        assert status == 202, answer
        return answer["server"]["id"]

    def make_image(self, name="tiny", **properties):
        return put_image(self.client("image"), self.ids.uuid(), name, properties=properties)

    def image_record(self, image_id):
        image = self.images.image(image_id)
        return None if image is None else image.record()

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
        """{host: {class: units}}: the allocations of a consumer by host."""
        answer = {}
        for provider, units in self.placement.allocations(consumer).items():
            root = self.placement.provider(self.placement.provider(provider).root_uuid)
            entry = answer.setdefault(root.name, {})
            for name, amount in units.items():
                entry[name] = entry.get(name, 0) + amount
        return answer

    def used(self, host):
        """{class: units} of all allocations on a host, without zeros."""
        root = self.placement.provider_by_name(host)
        total = {}
        for provider in self.placement.tree(root.uuid):
            for name, amount in self.placement.usages(provider.uuid).items():
                total[name] = total.get(name, 0) + amount
        return {name: amount for name, amount in total.items() if amount}


@pytest.fixture
def make_cloud(tmp_path):
    """A function that creates a cloud with `hosts` hosts, an image, and flavors small and gpu; options are those of
    `Cloud`.

    After the test it compares the stored usage of projects with all their servers.
    """
    made = []

    def make(hosts=1, *, accelerators=False, networks=None, **options):
        cloud = Cloud(tmp_path, accelerators=accelerators, networks=networks, **options)
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
