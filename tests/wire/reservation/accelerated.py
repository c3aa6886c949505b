"""A plane with an accelerator service and hosts whose agents, engines of plug and (simulated) cards are the real ones."""

from moorage.accelerator import routes as accelerator_routes
from moorage.accelerator.client import AcceleratorClient
from moorage.accelerator.service import AcceleratorService
from moorage.agent.accelerator_jobs import AcceleratorRunner
from moorage.agent.build import Builder
from moorage.agent.job_runner import JobRunner
from moorage.agent.jobs_duty import JobsDuty
from moorage.agent.virt.host_description import HostDescription
from moorage.agent.virt.simulated import SimulatedDriver
from moorage.identity.authenticators import TestTokens
from moorage.scheduler.flavor_resources import ACCELERATORS_TRAIT
from moorage.wire.app import Surroundings, build
from os_acc import refers_to_accelerators
from tests.unit.accelerator.rig import GPU, HOST, R1, R2, R3, Rig, rp
from tests.wire.accelerator.conftest import Told
from tests.wire.reservation.plane import Host, Plane
from tests.wire.reservation.test_flavor_reservations import add_child

FPGA = "CUSTOM_ACCELERATOR_FPGA"
GPUS = "CUSTOM_ACCELERATOR_GPU"

#: {region: its units, and a trait by which a test tells it from the others}
REGIONS = {R1: (2, "CUSTOM_R1"), R2: (1, "CUSTOM_R2"), R3: (1, "CUSTOM_R3")}


class Cloud(Plane):
    """`HOST` has two regions of FPGAs, or those that are named, and a GPU. All bitstreams are in the images of its `rig`."""

    def __init__(self, folder, *, regions=(R1, R2), **options):
        super().__init__(folder, **options)
        self.hints_to_hosts = Told()
        engine = self.database("accelerator")
        self.rig = Rig(folder / "host", clock=self.clock)
        service = AcceleratorService(engine, self.clock, self.ids, self.hints_to_hosts, self.rig.images)
        around = Surroundings(TestTokens(), accelerator_routes.RULES, self.ids)
        self.apps["/accelerator"] = build(accelerator_routes.API, service, around)
        self.accelerators = AcceleratorClient(self.client("accelerator"))
        self.add_accelerated(HOST, self.rig, regions)
        self.hints_to_hosts.heard = self.host_works

    def add_accelerated(self, name, rig, regions):
        host = AcceleratedHost(self, name, rig)
        self.hosts.append(host)
        self.placement.put_trait(host.provider.uuid, ACCELERATORS_TRAIT, wanted=True)
        units = {region: (FPGA, *REGIONS[region]) for region in regions} | {GPU: (GPUS, 1, None)}
        providers = {
            f"{name}_{part}": add_child(self, name, part, *what, uuid=_provider(name, part)).uuid
            for part, what in units.items()
        }
        rig.agent.published(providers)
        rig.agent.tick()
        self.register(name)
        return host

    def host_works(self):
        for host in self.hosts:
            host.accelerators_work()

    def accelerator_service(self):
        return _Late(self)

    def held(self, server_id):
        """The PCI addresses that a host has attached to a server."""
        attached = (host.rig.held.attachments.get(server_id) for host in self.hosts)
        return [handle.pci_id for attachment in attached if attachment for handle in attachment.handles]

    def allocated(self, server_id):
        """{provider's name: {class: amount}}"""
        names = {each.uuid: each.name for each in self.placement.providers([])}
        return {names[uuid]: dict(amounts) for uuid, amounts in self.placement.allocations(server_id).items()}

    def close(self):
        for host in self.hosts:
            host.rig.agent.close()
        for engine in self.engines:
            engine.dispose()


class AcceleratedHost(Host):
    """Servers are built as on a real host: devices plugged by the rig's agent, then a simulated domain."""

    def __init__(self, plane, name, rig, **sizes):
        super().__init__(plane, name, **sizes)
        self.rig = rig
        rig.agent._reports = plane.accelerators
        driver = SimulatedDriver(HostDescription(name=name), plane.folder / f"{name}-hypervisor", plane.clock)
        builder = Builder(driver, rig.agent, refers_to_accelerators, lambda uuids: frozenset())
        runner = AcceleratorRunner(rig.agent, keep_alive_period_s=10)
        self._jobs = self._duty(plane, self.compute, JobRunner(driver, builder, rig.agent.tick))
        self._accelerator_jobs = self._duty(plane, plane.accelerators, runner)

    def _duty(self, plane, service, runner):
        return JobsDuty(host=self.name, number=1, service=service, runner=runner, clock=plane.clock, poll_period_s=1)

    def work(self):
        for _ in range(9):
            self._jobs.tick()

    def accelerators_work(self):
        for _ in range(9):
            self._accelerator_jobs.tick()


def _provider(host, part):
    """Its uuid: on `HOST` that of the rig's own tests."""
    return rp(part) if host == HOST else rp(f"{host}_{part}")


class _Late:
    """Other services are there before the accelerator service."""

    def __init__(self, cloud):
        self._cloud = cloud

    def __getattr__(self, name):
        return getattr(self._cloud.accelerators, name)
