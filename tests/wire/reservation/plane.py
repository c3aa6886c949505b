"""Placement, images, compute and reservations in one process, on SQLite, under a virtual clock.

Hosts are simulated by `Host`, which registers and does its jobs when it receives a hint. All calls are HTTP requests
within the process.
"""

import functools
import itertools
import shutil
from copy import copy
from datetime import UTC, datetime

from moorage.compute.client.compute_client import ComputeClient
from moorage.core.clock import VirtualClock
from moorage.core.ids import SeededIds
from moorage.jobs.wakeups import InProcessHints
from moorage.placement.client.placement_client import VERSION as NEWEST_PLACEMENT
from moorage.placement.client.placement_client import Inventory, PlacementClient
from moorage.wire.client import ServiceClient, decode_body
from tests.plane import TOKENS, Bearer, InProcessPlane
from tests.wire.reservation.processes import Process, WatchedProcess

NOW = datetime(2026, 3, 1, 9, 30, 20, tzinfo=UTC)
A_YEAR_S = 365 * 86400.0

#: Hosts count as up for a year after a heartbeat, and nothing polls, so that tests can pass days quickly.
SECTIONS = {
    "compute": {
        "host_down_after_s": A_YEAR_S,
        "poll_period_s": A_YEAR_S,
        "bare_metal_period_s": A_YEAR_S,
        "quota_instances": -1,
        "quota_cores": -1,
        "quota_ram_mb": -1,
    },
    "reservation": {"poll_period_s": A_YEAR_S, "watch_period_s": 60.0},
    "accelerator": {"poll_period_s": A_YEAR_S},
}

SERVICES = "placement,image,compute,reservation"

#: Tasks that run only when a test calls them.
RESTING = (
    "compute.reclaim",
    "compute.dead_hosts",
    "compute.baremetal",
    "compute-jobs",
    "placement",
    "reservation.watch",
)

IMAGE = "0a0a0a0a-1b1b-4c4c-8d8d-0e0e0e0e0e0e"


class Host:
    """A compute host with its own resource provider; as a task, it does all its jobs from compute when it runs."""

    def __init__(self, plane, name, *, vcpus=8, memory_mb=16384, disk_gb=100):
        self._set(plane, name)
        self.provider = plane.placement.create_provider(name)
        inventories = {
            "VCPU": Inventory(vcpus, max_unit=vcpus),
            "MEMORY_MB": Inventory(memory_mb + 512, reserved=512, max_unit=memory_mb + 512),
            "DISK_GB": Inventory(disk_gb, max_unit=disk_gb),
        }
        plane.placement.set_inventories(self.provider.uuid, self.provider.generation, inventories)
        self.report = {
            "provider_uuid": self.provider.uuid,
            "hypervisor_type": "QEMU",
            "hypervisor_version": 8000000,
            "host_ip": "127.0.0.1",
            "vcpus": vcpus,
            "memory_mb": memory_mb + 512,
            "local_gb": disk_gb,
            "devices": 0,
            "capabilities": ["snapshot"],
        }
        self.heartbeat()

    def _set(self, plane, name):
        self.host, self.name, self.listens_to = name, f"jobs of {name}", (name,)
        self.is_stopped = False
        self.compute = plane.compute

    def of(self, plane):
        """A copy of this host that belongs to `plane`."""
        host = copy(self)
        host._set(plane, self.host)
        return host

    def heartbeat(self):
        self.compute.register_host(self.host, **self.report)

    def run_once(self):
        while not self.is_stopped and (jobs := self.compute.claim_jobs(self.host, "agent", 10)):
            for job in jobs:
                self.compute.report_job(job.id, job.epoch, "done", {})


class Plane:
    """`cloud` runs all services in process; `process` is its reservation service."""

    def __init__(
        self,
        directory,
        *,
        now=NOW,
        ids=None,
        services=SERVICES,
        neutron=None,
        hosts=(),
        hints=InProcessHints,
        resting=RESTING,
        authenticator=TOKENS,
        **sections,
    ):
        """`neutron` is a `Neutron`; `sections` are options by section: ``reservation={"cleaning_time_s": 600}``.

        `hosts` are those that the databases in `directory` already contain. For the other parameters see
        `InProcessPlane`.
        """
        self.hosts, self._resting = [], resting
        self._sections = {name: SECTIONS.get(name, {}) | sections.get(name, {}) for name in SECTIONS | sections}
        if neutron is not None:
            self._sections["endpoints"] = {"network": "http://network.example"}
        self.cloud = InProcessPlane(
            directory,
            services,
            clock=VirtualClock(now),
            ids=ids or SeededIds(7),
            reach=(lambda _url: neutron) if neutron else None,
            hints=hints,
            authenticator=authenticator,
            resting=resting,
            built=self._built,
            **self._sections,
        )
        self.clock, self.ids = self.cloud.clock, self.cloud.ids
        self.placement = PlacementClient(self.client("placement"))
        self.compute = ComputeClient(self.client("compute"))
        self.process = self.api = Process(self.cloud)
        self._count = 0
        for host in hosts:
            self._add(host.of(self))

    def _built(self, plane):
        """Adds the hosts to the tasks of a restarted plane."""
        if "compute" in plane.built:
            plane.tasks += self.hosts

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()

    def close(self):
        self.cloud.__exit__()

    def copy_to(self, directory):
        """A plane in `directory` that continues from this one's state; this one is closed."""
        shutil.copytree(self.cloud.directory, directory)
        ids = SeededIds(self.ids.uuid())
        plane = Plane(directory, now=self.clock.now(), ids=ids, hosts=self.hosts, **self._sections)
        plane.cloud.resting = self.cloud.resting
        if "image" in vars(self):
            plane.image = self.image
        return plane

    def copies(self, directory):
        """An endless iterator of planes that continue from this one's state; each is closed before the next."""
        self.close()
        for number in itertools.count():
            there = directory / f"{number}"
            with self.copy_to(there) as plane:
                yield plane
            shutil.rmtree(there)

    @property
    def engine(self):
        return self.cloud.engine("reservation")

    @property
    def runner(self):
        return self.process.runner

    def new_process(self, name=None, **around):
        """Another process of the reservation service, with its own database connection.

        `around` are parameters of `WatchedProcess`.
        """
        self._count += 1
        name = name or f"reservation-{self._count}"
        return WatchedProcess(self.cloud.beside(name, "reservation", resting=("",), **self._sections), **around)

    def use(self, process=None):
        """Sends later requests to this process; without an argument, to the first process again."""
        self.api = process or self.process

    def stop_runner(self):
        """From now on, leases start and end only when a test calls a runner."""
        self.cloud.resting = (*self._resting, "reservation")
        self.cloud.forget_waits()

    def start_runner(self):
        self.cloud.resting = self._resting
        self.cloud.forget_waits()

    def add_host(self, name="compute-1", **sizes) -> Host:
        return self._add(Host(self, name, **sizes))

    def _add(self, host) -> Host:
        self.hosts.append(host)
        self.cloud.plane.tasks.append(host)
        self.cloud.forget_waits()
        return host

    def register(self, name="compute-1", **extra):
        return self.ask("POST", "/v1/os-hosts", {"name": name, **extra}, status=201)["host"]

    def client(self, service, user="admin", project="service", roles=("admin", "service")) -> ServiceClient:
        process = self.api.plane if service == "reservation" else self.cloud
        return ServiceClient(
            process.transport(f"/{service}"),
            service_type=service,
            credentials=Bearer(f"{user}:{project}", ",".join(roles)),
            clock=self.clock,
        )

    def answer(
        self,
        method,
        path,
        body=None,
        *,
        user="admin",
        project="demo",
        roles=("admin",),
        service="reservation",
        version=None,
    ):
        """Sends a request; returns (status, document) for any status. The document is a text if it is not JSON."""
        client = self.client(service, user, project, roles)
        version = NEWEST_PLACEMENT if service == "placement" else version
        answer = client.request_raw(method, path, json=body, accept=_EVERY_STATUS, repeatable=False, version=version)
        text = answer.headers.get("content-type", "").startswith("text/")
        return answer.status, answer.body.decode() if text else decode_body(answer)

    def ask(self, method, path, body=None, *, status=200, **who):
        got, document = self.answer(method, path, body, **who)
        assert got == status, document
        return document

    def run_until(self, moment):
        self.cloud.run_until(moment)

    def run_for(self, seconds):
        self.cloud.run_for(seconds)

    def settle(self):
        self.cloud.settle()

    # Existing objects

    def lease(self, lease_id):
        return self.ask("GET", f"/v1/leases/{lease_id}")["lease"]

    def inventory(self, host, resource_class):
        provider = self.placement.provider_by_name(f"blazar_{host}")
        if provider is None:
            return None
        return self.placement.inventories(provider.uuid)[1].get(resource_class)

    def has_class(self, name):
        return self.answer("GET", f"/resource_classes/{name}", service="placement")[0] == 200

    def flavor(self, flavor_id):
        status, document = self.answer("GET", f"/v2.1/flavors/{flavor_id}", service="compute")
        return document["flavor"] if status == 200 else None

    def access(self, flavor_id):
        status, document = self.answer("GET", f"/v2.1/flavors/{flavor_id}/os-flavor-access", service="compute")
        return [row["tenant_id"] for row in document["flavor_access"]] if status == 200 else None

    def extra_specs(self, flavor_id):
        return self.ask("GET", f"/v2.1/flavors/{flavor_id}/os-extra_specs", service="compute")["extra_specs"]

    @functools.cached_property
    def image(self):
        """The id of a public image, which is created on first use."""
        body = {"id": IMAGE, "name": "linux", "disk_format": "raw", "container_format": "bare", "visibility": "public"}
        self.ask("POST", "/v2/images", body, service="image", status=201)
        self.client("image").upload(
            "PUT", f"/v2/images/{IMAGE}/file", [b"linux"], "application/octet-stream", {"content-length": "5"}
        )
        return IMAGE

    def boot(self, name, flavor_id, project="demo"):
        """Creates a server as a member of the project; returns its id."""
        body = {"server": {"name": name, "flavorRef": flavor_id, "imageRef": self.image}}
        who = {"user": "user", "project": project, "roles": ("member",)}
        status, document = self.answer("POST", "/v2.1/servers", body, service="compute", **who)
        assert status == 202, document
        self.settle()
        return document["server"]["id"]

    def resize(self, server_id, flavor_id):
        """Resizes a server to a public flavor; the resize then waits for its confirmation."""
        self.act(server_id, "resize", {"flavorRef": flavor_id})
        self.settle()

    def act(self, server_id, action, arguments=None):
        path = f"/v2.1/servers/{server_id}/action"
        status, document = self.answer("POST", path, {action: arguments}, service="compute")
        assert status in (202, 204), document

    def stop_hosts(self):
        """Hosts do no more jobs, but still count as up."""
        for host in self.hosts:
            host.is_stopped = True

    def start_hosts(self):
        for host in self.hosts:
            host.is_stopped = False
        self.cloud.forget_waits()
        self.settle()

    def server(self, server_id):
        status, document = self.answer("GET", f"/v2.1/servers/{server_id}", service="compute")
        return document["server"] if status == 200 else None


_EVERY_STATUS = tuple(range(200, 600))


def instance(amount=1, *, vcpus=1, memory_mb=1024, disk_gb=10, **more):
    """The body of an instance reservation, as stock clients send it."""
    return {
        "resource_type": "virtual:instance",
        "vcpus": vcpus,
        "memory_mb": memory_mb,
        "disk_gb": disk_gb,
        "amount": amount,
        "affinity": "None",
        "resource_properties": "",
        **more,
    }


def lease(*reservations, start="now", end="2026-03-02 10:00", name="lease", **more):
    return {
        "name": name,
        "start_date": start,
        "end_date": end,
        "reservations": list(reservations) or [instance()],
        "events": [],
        "before_end_date": None,
        **more,
    }


def class_of(reservation):
    return "CUSTOM_RESERVATION_" + reservation["id"].upper().replace("-", "_")
