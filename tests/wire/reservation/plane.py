"""Real placement, compute and reservation services in one process, on SQLite, under a virtual clock.

The host is a few lines (`Host`): it registers, and does its jobs when told. Everything speaks HTTP in process.
"""

from datetime import UTC, datetime, timedelta

from moorage.compute import routes as compute_routes
from moorage.compute.build import BuildDuty
from moorage.compute.client import ComputeClient
from moorage.compute.moving import MovingDuty
from moorage.compute.placing import Placer
from moorage.compute.service import ComputeService
from moorage.core.clock import VirtualClock
from moorage.core.ids import SeededIds
from moorage.db import migrations
from moorage.db.engine import open_engine
from moorage.identity.authenticators import TestTokens
from moorage.images import routes as image_routes
from moorage.images.client import ImageLookup, ImageWriter
from moorage.images.directory import ImageDirectory
from moorage.images.service import ImageService
from moorage.jobs.duties import DutiesInTurn, Wakeups
from moorage.jobs.hints import InProcessHints
from moorage.placement import routes as placement_routes
from moorage.placement.client import VERSION as NEWEST_PLACEMENT
from moorage.placement.client import Inventory, PlacementClient
from moorage.placement.service import PlacementService
from moorage.reservation import routes
from moorage.reservation.runner import ReservationRunner
from moorage.reservation.service import PLACEMENT_VERSION, ReservationService, ReservationSettings
from moorage.wire.app import Surroundings, build, mount
from moorage.wire.client import ServiceClient, decode
from moorage.wire.transports import InProcessTransport
from tests.migrated import open_migrated

NOW = datetime(2026, 3, 1, 9, 30, 20, tzinfo=UTC)


class Token:
    """Credentials by the convention of the peers' tests."""

    def __init__(self, user, project, *roles):
        self._headers = {"x-auth-token": f"{user}:{project}", "x-roles": ",".join(roles)}

    def headers(self, *, renew=False):
        return self._headers


class Host:
    """A compute host with a provider of its own; `work` does what compute asks of it."""

    def __init__(self, plane, name, *, vcpus=8, memory_mb=16384, disk_gb=100):
        self.name = name
        self.compute = plane.compute
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

    def heartbeat(self):
        self.compute.register_host(self.name, **self.report)

    def work(self):
        while jobs := self.compute.claim_jobs(self.name, "agent", 10):
            for job in jobs:
                self.compute.report_job(job.id, job.epoch, "done", {})


A_YEAR_S = 365 * 86400.0


class Plane:
    def __init__(
        self, folder, *, now=NOW, settings=None, url=None, up_window_s=A_YEAR_S, rules=None, external=None, neutron=None
    ):
        """`url` is the reservation service's database; the others are SQLite files. `neutron`: a `Neutron`.

        Hosts live for `up_window_s` after they were heard of: the days of a test pass in one go.
        """
        self.clock = VirtualClock(now)
        self.ids = SeededIds(7)
        self.wakeups = Wakeups()
        self.hints = InProcessHints(self.wakeups)
        self.folder = folder
        self.settings = settings or ReservationSettings()
        self.rules, self.external, self.neutron = rules, external, neutron
        self.apps = {}
        self.engines = []
        self.app = mount(self.apps)
        self.placement = PlacementClient(self.client("placement"))
        self.compute = ComputeClient(self.client("compute"))
        self._serve_placement()
        self._compute_duties = self._serve_compute(up_window_s)
        self.engine = self.database("reservation", url)
        self.service = self.new_service(PlacementClient(self.client("placement"), str(PLACEMENT_VERSION)))
        self.runner = self.service.runner()
        self._mount("reservation", routes, self.service)
        self.duties = DutiesInTurn(self.clock, self.wakeups, [self.runner, *self._compute_duties])
        self.hosts = []

    def new_service(self, placement=None, compute=None, worker=None, accelerators=None) -> ReservationService:
        """Another process of the reservation service, or one whose clients are wrapped."""
        return ReservationService(
            self.engine,
            self.clock,
            self.ids,
            placement or self.placement,
            compute or self.compute,
            self.wakeups,
            settings=self.settings,
            rules=self.rules,
            external=self.external,
            worker=worker,
            accelerators=accelerators or self.accelerator_service(),
            images=ImageLookup(self.client("image")),
            network=None if self.neutron is None else self.neutron.client(self.clock),
        )

    def accelerator_service(self):
        """Its client, for the other services; None: this cloud has none."""
        return

    def use(self, service) -> ReservationRunner:
        """From now on requests go to this service; its runner."""
        self._mount("reservation", routes, service)
        return service.runner()

    def stop_runner(self):
        """Leases start and end only when a test ticks a runner."""
        self.duties = DutiesInTurn(self.clock, self.wakeups, self._compute_duties)

    def add_host(self, name="compute-1", **sizes) -> Host:
        host = Host(self, name, **sizes)
        self.hosts.append(host)
        return host

    def register(self, name="compute-1", **extra):
        return self.ask("POST", "/v1/os-hosts", {"name": name, **extra}, status=201)["host"]

    def client(
        self,
        service,
        user="admin",
        project="service",
        roles=("admin", "service"),
        *,
        through=lambda transport: transport,
    ) -> ServiceClient:
        """`through` may put something around the transport."""
        return ServiceClient(
            through(InProcessTransport(self.app, f"http://127.0.0.1/{service}")),
            service_type=service,
            credentials=Token(user, project, *roles),
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
        """(status, document) whatever the status; a text where it is no JSON."""
        every = tuple(range(200, 600))
        client = self.client(service, user, project, roles)
        version = NEWEST_PLACEMENT if service == "placement" else version
        answer = client.answer(method, path, json=body, accept=every, repeatable=False, version=version)
        text = answer.headers.get("content-type", "").startswith("text/")
        return answer.status, answer.body.decode() if text else decode(answer)

    def ask(self, method, path, body=None, *, status=200, **who):
        got, document = self.answer(method, path, body, **who)
        assert got == status, document
        return document

    def run_until(self, moment):
        """Time passes; the hosts are only heard of at the end of it."""
        self.settle()
        self.duties.run_until(moment)
        self.settle()

    def run_for(self, seconds):
        """Time passes in small steps, between which the hosts work."""
        for _ in range(0, seconds, 5):
            self.run_until(self.clock.now() + timedelta(seconds=5))

    def settle(self):
        for _ in range(4):
            self.duties.settle()
            for host in self.hosts:
                host.heartbeat()
                host.work()

    # What is there

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

    def boot(self, name, flavor_id, project="demo"):
        """A server of a project's member; its id."""
        body = {"server": {"name": name, "flavorRef": flavor_id, "imageRef": IMAGE}}
        who = {"user": "user", "project": project, "roles": ("member",)}
        status, document = self.answer("POST", "/v2.1/servers", body, service="compute", **who)
        assert status == 202, document
        self.settle()
        return document["server"]["id"]

    def resize(self, server_id, flavor_id):
        """To a flavor that everybody has; the server waits to be confirmed then."""
        self.act(server_id, "resize", {"flavorRef": flavor_id})
        self.settle()

    def act(self, server_id, action, arguments=None):
        path = f"/v2.1/servers/{server_id}/action"
        status, document = self.answer("POST", path, {action: arguments}, service="compute")
        assert status in (202, 204), document

    def stop_hosts(self):
        """They do nothing any more, and count as up."""
        self._stopped, self.hosts = self.hosts, []

    def start_hosts(self):
        self.hosts = self._stopped
        self.settle()

    def server(self, server_id):
        status, document = self.answer("GET", f"/v2.1/servers/{server_id}", service="compute")
        return document["server"] if status == 200 else None

    def _serve_placement(self):
        service = PlacementService(self.database("placement"), self.clock, self.ids)
        service.start()
        self._placement_service = service
        self.serve_placement(placement_routes.API)

    def serve_placement(self, api):
        """From now on Placement is served as `api`, with what it holds."""
        around = Surroundings(TestTokens(), placement_routes.RULES, self.ids)
        self.apps["/placement"] = build(api, self._placement_service, around)

    def _serve_compute(self, up_window_s):
        engine = self.database("compute")
        images = ImageDirectory(self.folder / "images", clock=self.clock, ids=self.ids)
        self._mount("image", image_routes, ImageService(images, clock=self.clock, ids=self.ids))
        writer = ImageWriter(self.client("image"))
        service = ComputeService(
            engine,
            self.clock,
            self.ids,
            self.hints,
            image_writer=writer,
            up_window_s=up_window_s,
            profiles=self.accelerator_service(),
        )
        self._mount("compute", compute_routes, service)
        around = (engine, self.clock, self.ids, self.placement)
        placer = Placer(engine, self.placement, service.hosts)
        return [
            BuildDuty(*around, service.hosts, self.hints, poll_s=None),
            MovingDuty(*around, placer, self.hints, images=writer, poll_s=None),
        ]

    def _mount(self, name, module, service):
        around = Surroundings(TestTokens(), module.RULES, self.ids)
        self.apps[f"/{name}"] = build(module.API, service, around)

    def database(self, feature, url=None):
        if url is None:
            engine = open_migrated(feature, self.folder)
        else:
            engine = open_engine(url)
            migrations.upgrade(engine, feature)
        self.engines.append(engine)
        return engine


IMAGE = "0a0a0a0a-1b1b-4c4c-8d8d-0e0e0e0e0e0e"


def instance(amount=1, *, vcpus=1, memory_mb=1024, disk_gb=10, **more):
    """A reservation as stock clients send it."""
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
