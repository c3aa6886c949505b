"""A plane with accelerators, and hosts as separate processes: real agents over simulated hypervisors and cards."""

import hashlib
import json
from collections import Counter
from dataclasses import replace
from unittest.mock import patch

from moorage.accelerator.client import AcceleratorClient
from moorage.accelerator.drivers.simulated import SimulatedAccelerators, default_simulated_host
from moorage.accelerator.service.host_jobs import jobs_topic
from moorage.core.errors import Unavailable
from moorage.images.directory import ImageDirectory
from moorage.images.model import Image, Visibility
from moorage.jobs.wakeups import InProcessHints
from moorage.wiring import host as host_wiring
from tests.unit.accelerator.rig import GPU, HOST, PROJECT, R1, R2, TYPE_R1
from tests.wire.reservation.plane import A_YEAR_S, RESTING, Plane
from tests.wire.reservation.processes import TRIES

FPGA = "CUSTOM_ACCELERATOR_FPGA"
GPUS = "CUSTOM_ACCELERATOR_GPU"

#: The trait of `R1`.
IS_R1 = f"CUSTOM_FPGA_INTEL_REGION_{TYPE_R1.replace('-', '_').upper()}"


class Cloud(Plane):
    """A plane whose host `HOST` has a GPU and the given FPGA regions (two by default)."""

    def __init__(self, directory, *, regions=(R1, R2), **options):
        #: Whether hosts do jobs of the accelerator service as soon as they get a hint.
        self.hosts_hear = True
        self.accelerated = {}
        super().__init__(
            directory,
            services="placement,image,compute,accelerator,reservation",
            hints=lambda wakeups: Heard(self, InProcessHints(wakeups)),
            resting=(*RESTING, "accelerator-jobs", "accelerator-history", "accelerator jobs", "heartbeat"),
            **options,
        )
        self.accelerators = AcceleratorClient(self.client("accelerator"))
        self.images = ImageDirectory(self.cloud.directory / "images", clock=self.clock, ids=self.ids)
        self.host = self.add_accelerated(HOST, regions)

    def add_accelerated(self, name, regions):
        host = AcceleratedHost(self, name, regions)
        self.accelerated[name] = host
        self.register(name)
        return host

    def hosts_work(self):
        for host in self.accelerated.values():
            host.do_accelerator_jobs()

    def bitstream(self, name="aes", *, visibility="public", owner=PROJECT, **properties):
        """Uploads an image with these properties; returns its id."""
        image_id, now = self.ids.uuid(), self.clock.now()
        image = Image(image_id, now, now, name, owner, visibility=Visibility(visibility), properties=properties)
        self.images.create(image)
        self.images.upload(image_id, iter([name.encode() * 1000]), size_bytes=None)
        return image_id

    def remove_bitstream(self, image_id):
        self.images.remove(image_id, lambda found: None)

    def held(self, server_id):
        """The PCI addresses that a host has attached to a server."""
        attached = (host.agent.attach_state.attachments.get(server_id) for host in self.accelerated.values())
        return [handle.pci_id for attachment in attached if attachment for handle in attachment.handles]

    def allocated(self, server_id):
        """{provider's name: {class: amount}}"""
        names = {each.uuid: each.name for each in self.placement.providers([])}
        return {names[uuid]: dict(amounts) for uuid, amounts in self.placement.allocations(server_id).items()}

    def lose_answers(self):
        """Loses the first answer to each kind of programming request, and the answers to the client's retries.

        Returns {kind: number of lost answers}.
        """
        lost = Counter()

        def around(request, send):
            answer, kind = send(), _order(request)
            if kind and lost[kind] < TRIES:
                lost[kind] += 1
                raise Unavailable("the answer got lost")
            return answer

        self.cloud.ways["accelerator"].around = around
        return lost

    def program_nothing(self):
        """The accelerator service answers, but creates no orders."""

        def around(request, send):
            if _order(request):
                raise Unavailable("the host has not done it in time")
            return send()

        self.cloud.ways["accelerator"].around = around


def _order(request):
    """The operation of a programming request, ``replace`` or ``remove``; None for other requests."""
    return json.loads(request.body)[0]["op"] if request.resource.endswith("/program") else None


class AcceleratedHost:
    """An agent in a separate process, on a host with these FPGA regions and a GPU."""

    def __init__(self, cloud, name, regions):
        self.name, self._regions = name, regions
        with patch.object(host_wiring, "SimulatedAccelerators", self._cards):
            self.plane = cloud.cloud.beside(
                name,
                "agent",
                agent={"host": name, "update_period_s": A_YEAR_S, "poll_period_s": A_YEAR_S},
                accelerator={"report_period_s": A_YEAR_S},
            )
        self.plane.task("accelerator-agent").run_once()

    def _cards(self, _devices, directory, clock):
        self.cards = Cards(_with_regions(self._regions), directory, clock)
        return self.cards

    @property
    def agent(self):
        return self.plane.service("accelerators")

    def do_accelerator_jobs(self):
        task = self.plane.task("accelerator jobs")
        while task.run_once() == self.plane.clock.now():
            pass

    def programs(self):
        """The programmed regions, in the order in which they were programmed."""
        return list(self.cards.programmed)

    def carries(self, region):
        """The id of the image that the card itself reports."""
        found = self.cards.identify(region)
        return found.bitstream.image_id if found.bitstream else ""

    def plug(self, instance_uuid, specs, region):
        """Attaches the region to a server, as os_acc does."""
        server = {"uuid": instance_uuid, "name": "vm", "project_id": PROJECT, "image_id": None}
        provider = self.agent.attach_state.rp_uuids[region]
        return self.agent.plug(server, {"": [provider]}, specs)


class Cards(SimulatedAccelerators):
    """Simulated cards that record the programmed images, and refuse data that does not match its digest."""

    def __init__(self, devices, directory, clock):
        super().__init__(devices, directory, clock)
        self.programmed = []

    def program(self, deployable, bitstream, data):
        if bitstream is not None:
            assert hashlib.sha512(data.read()).hexdigest() == bitstream.digest, "programmed without verification"
            data.seek(0)
        super().program(deployable, bitstream, data)
        self.programmed.append(deployable)


def _with_regions(regions):
    """The cards of the built-in simulated host, reduced to these regions and one GPU."""
    devices = [replace(device, deployables=_named(device, {*regions, GPU})) for device in default_simulated_host()]
    return [device for device in devices if device.deployables]


def _named(device, names):
    return tuple(part for part in device.deployables if part.name in names)


class Heard:
    """Forwards hints. Hosts do accelerator jobs at once after a hint, because the service waits for the result."""

    def __init__(self, cloud, inner):
        self._cloud, self._inner = cloud, inner

    def send(self, queue):
        self._inner.send(queue)
        for name, host in self._cloud.accelerated.items():
            if self._cloud.hosts_hear and queue == jobs_topic(name):
                host.do_accelerator_jobs()

    def close(self):
        self._inner.close()
