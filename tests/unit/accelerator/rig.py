"""A host with simulated devices, a directory of images and an accelerator agent, all real, in one directory.

`Rig.restart` creates a new agent on the same files, as a new process would. `Watch` records each call of a driver and
each write of the checkpoint, and can end the "process" (raise `Killed`) before or after any of them.
"""

import hashlib
import threading
import uuid
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import msgspec

from moorage.accelerator.drivers import simulated
from moorage.accelerator.drivers.base import AcceleratorDriver
from moorage.accelerator.drivers.simulated import FaultControl, FaultKind, SimulatedAccelerators, SimulatedFault
from moorage.accelerator.host.agent import AcceleratorAgent, AcceleratorListener
from moorage.accelerator.host.checkpoint import Checkpoint
from moorage.accelerator.host.programming import BitstreamSource
from moorage.accelerator.host.signatures import SignatureVerifier
from moorage.accelerator.model import attach_state as h
from moorage.accelerator.model.devices import HandleState, RegionState
from moorage.core.clock import VirtualClock
from moorage.core.ids import SeededIds
from moorage.images.cache import DigestCache
from moorage.images.directory import ImageDirectory
from moorage.images.model import Image, Visibility

HOST = "compute-1"
PROJECT = "11111111111111111111111111111111"
AES = "9aff21a8-3f5b-4a3c-9d0e-0f1c7d1f0a01"
SHA = "0b3ddd11-8f2c-4d0a-a3aa-77c2b8f0f202"

R1 = "0000:3b:00.0_R1"  # two handles
R2 = "0000:3b:00.0_R2"
R3 = "0000:af:00.0_R1"  # the card that cannot be partly reconfigured
GPU = "0000:17:00.0"
TYPE_R1 = simulated.REGION_TYPE_CARD_0
TYPE_R2 = simulated.REGION_TYPE_CARD_0_SMALL
TYPE_R3 = simulated.REGION_TYPE_CARD_1


class Killed(BaseException):
    """The process is killed here. A BaseException, so that no code for a normal failure runs."""


class Watch:
    """Records events, and kills the process at one point before or after one of them.

    Points 0 and 1 are before and after the first event. Each has a name with a number that counts the points of its
    kind, as ``before checkpoint 1`` or ``after simulated program 0000:3b:00.0_R1 2``.
    """

    def __init__(self) -> None:
        self.events: list[tuple] = []
        #: Names of the points that were passed.
        self.points: list[str] = []
        self.kill_at: int | str | None = None

    def arm(self, kill_at: int | str | None) -> None:
        self.events.clear()
        self.points.clear()
        self.kill_at = kill_at

    @contextmanager
    def event(self, *what):
        self.point(f"before {' '.join(what)}")
        yield
        self.events.append(what)
        self.point(f"after {' '.join(what)}")

    def point(self, kind: str) -> None:
        nth = 1 + sum(one.rpartition(" ")[0] == kind for one in self.points)
        self.points.append(f"{kind} {nth}")
        if self.kill_at in (len(self.points) - 1, self.points[-1]):
            self.die()

    def die(self) -> None:
        raise Killed


class WatchedDriver:
    def __init__(self, driver: AcceleratorDriver, watch: Watch) -> None:
        self._driver, self._watch, self.name = driver, watch, driver.name

    def __getattr__(self, verb):
        method = getattr(self._driver, verb)
        if verb not in ("program", "prepare", "release", "clean"):
            return method

        def call(target, *arguments):
            if verb == "program":
                _check_verified(*arguments)
            with self._watch.event(self.name, verb, target):
                return method(target, *arguments)

        return call


def _check_verified(bitstream, data) -> None:
    """A driver gets only data that matches the bitstream's digest; the blank has none."""
    if bitstream is not None:
        assert hashlib.sha512(data.read()).hexdigest() == bitstream.digest, "programmed without verification"
        data.seek(0)


class WatchedCheckpoint(Checkpoint):
    def __init__(self, path, host, watch: Watch, clock) -> None:
        self._watch = watch
        super().__init__(path, host, clock)

    def _write(self, holdings):
        with self._watch.event("checkpoint"):
            super()._write(holdings)


class WatchedImages:
    """The image directory, with a list of its calls.

    Before the first and after each fetched piece of data is a point of the watch.
    """

    def __init__(self, images: ImageDirectory, watch: Watch) -> None:
        self._images, self._watch = images, watch
        self.asked: list[tuple] = []

    def find(self, view, properties):
        self.asked.append(("find", dict(properties)))
        return self._images.find(view, properties)

    def get(self, view, image_id):
        self.asked.append(("get", image_id))
        return self._images.get(view, image_id)

    def open(self, view, image_id):
        self.asked.append(("open", image_id))
        return self._opened(view, image_id)

    @contextmanager
    def _opened(self, view, image_id):
        with self._images.open(view, image_id) as pieces:
            yield self._fetched(pieces)

    def _fetched(self, pieces):
        self._watch.point("before fetch")
        for piece in pieces:
            yield piece
            self._watch.point("after fetch")


class Rig:
    def __init__(self, directory, *, devices=None, clock=None, watch=None, host=HOST, images=None) -> None:
        self.directory, self.host = directory, host
        self.clock = clock or VirtualClock(datetime(2026, 3, 1, tzinfo=UTC))
        self.ids = SeededIds(7)
        self.devices = devices or simulated.default_simulated_host()
        self.watch = watch or Watch()
        self.directory_of_images = ImageDirectory(directory / "images", clock=self.clock, ids=self.ids)
        self.images = images or WatchedImages(self.directory_of_images, self.watch)
        #: How often the resource tracker, the agent's own task and the history's task were woken.
        self.changes = self.reports = self.records = 0
        self.restart()

    def restart(self) -> None:
        """Starts a new agent on the files of the old one, and publishes its providers."""
        self.driver = self.new_driver()
        self.agent = self.new_agent()
        self.publish()

    def new_driver(self) -> AcceleratorDriver:
        self.simulated = SimulatedAccelerators(self.devices, self.directory / "sim", self.clock)
        return self.simulated

    def new_agent(self) -> AcceleratorAgent:
        cache = DigestCache(self.directory / "cache", max_bytes=1 << 24, clock=self.clock)
        checkpoint = WatchedCheckpoint(self.directory / "agent" / "checkpoint.json", self.host, self.watch, self.clock)
        driver = WatchedDriver(self.driver, self.watch)
        bitstreams = BitstreamSource(self.images, cache, SignatureVerifier(None, self.clock))
        listener = AcceleratorListener(self._changed, self._to_report, self._recorded)
        return AcceleratorAgent(self.host, [driver], checkpoint, bitstreams, self.clock, listener=listener)

    def _changed(self) -> None:
        self.changes += 1

    def _to_report(self) -> None:
        self.reports += 1

    def _recorded(self) -> None:
        self.records += 1

    def publish(self) -> None:
        self.agent.published({node.name: rp(node.name.removeprefix(f"{HOST}_")) for node in self.agent.nodes()})

    def image(self, name="aes", *, data=None, visibility="public", owner=PROJECT, **properties) -> str:
        """Uploads a bitstream; returns the id. Property names may have ``__`` for ``:``."""
        image_id = self.ids.uuid()
        now = self.clock.now()
        named = {key.replace("__", ":"): value for key, value in properties.items()}
        self.directory_of_images.create(
            Image(image_id, now, now, name, owner, visibility=Visibility(visibility), properties=named)
        )
        self.directory_of_images.upload(image_id, iter([data or name.encode() * 1000]), size_bytes=None)
        return image_id

    def order(self, *faults: SimulatedFault, **latency_s: float) -> None:
        self.simulated.order(FaultControl(latency_s, faults))

    def plug(self, instance, specs: Mapping[str, str], *regions: str) -> list[str]:
        """Plugs with all of `regions` selected for the group without a suffix."""
        return self.plug_groups(instance, specs, {"": [rp(region) for region in regions]})

    def plug_groups(self, instance, specs, selected) -> list[str]:
        info = {"uuid": instance, "name": f"vm-{instance[:4]}", "project_id": PROJECT, "image_id": None}
        return [device["pci_id"] for device in self.agent.plug(info, selected, specs)]

    def unplug(self, instance) -> int:
        return self.agent.unplug({"uuid": instance, "name": "vm"})

    @property
    def held(self) -> h.AttachState:
        return self.agent.attach_state

    def node(self, deployable: str):
        return next(node for node in self.agent.nodes() if node.name == f"{self.host}_{deployable}")

    def carries(self, deployable: str) -> str:
        """The id of the image that the device itself reports."""
        found = self.simulated.identify(deployable)
        assert found.state is RegionState.IDLE
        return found.bitstream.image_id if found.bitstream else ""

    def programs(self) -> list[str]:
        """Regions in the order of their programming since the watch was armed."""
        return [event[2] for event in self.watch.events if event[1:2] == ("program",)]

    def check(self) -> None:
        """Invariants that hold whenever no call is in progress."""
        held = self.held
        owned = [handle.pci_id for one in held.attachments.values() for handle in one.handles]
        assert len(owned) == len(set(owned)), "a handle is given out twice"
        for attachment in held.attachments.values():
            assert attachment.step is h.AttachStep.ATTACHED
            for handle in attachment.handles:
                record = held.handles[handle.pci_id]
                assert (record.state, record.instance_uuid) == (HandleState.ATTACHED, attachment.instance_uuid)
        for pci_id, record in held.handles.items():
            assert pci_id in owned or record.state is HandleState.QUARANTINED
        for deployable, region in held.regions.items():
            assert region.state is not RegionState.PROGRAMMING
            if region.state is RegionState.IDLE:
                found = self.driver.identify(deployable)
                assert found.state is RegionState.IDLE
                assert (found.bitstream and found.bitstream.digest) == (region.bitstream and region.bitstream.digest)
        for device in self.devices:
            for part in device.deployables:
                for pci_id in part.handles:
                    assert pci_id in held.handles or not self.is_dirty(pci_id), f"{pci_id} is free and dirty"

    def is_dirty(self, pci_id: str) -> bool:
        return self.simulated.is_dirty(pci_id)


def rp(deployable: str) -> str:
    """The uuid under which this rig publishes a deployable."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, deployable))


def fpga(amount=1, **more: str) -> dict[str, str]:
    """Extra specs for FPGAs; the keyword ``function`` or ``bitstream`` names what to program."""
    specs = {"resources:CUSTOM_ACCELERATOR_FPGA": str(amount)}
    return specs | {f"{kind}:{value}": "required" for kind, value in more.items()}


def gpu(amount=1) -> dict[str, str]:
    return {"resources:CUSTOM_ACCELERATOR_GPU": str(amount)}


def fault(verb: str, kind: str = "fails", at: str = "*", times: int = 0) -> SimulatedFault:
    return SimulatedFault(verb, FaultKind(kind), at, times)


def new_instance() -> str:
    return str(uuid.uuid4())


def in_threads(calls) -> list:
    """The result or the exception of each of `calls`, all started at the same moment."""
    gate = threading.Barrier(len(calls))
    results: list = [None] * len(calls)

    def run(index, call):
        gate.wait()
        try:
            results[index] = call()
        except Exception as error:  # noqa: BLE001 - an exception is a result too
            results[index] = error

    threads = [threading.Thread(target=run, args=item) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def many_gpus(count: int):
    """A host with only `count` GPUs."""
    gpu_device = simulated.default_simulated_host()[2]
    return tuple(_gpu_at(gpu_device, f"0000:{index:02x}:00.0") for index in range(1, count + 1))


def _gpu_at(device, pci_id):
    part = replace(device.deployables[0], name=pci_id, handles=(pci_id,))
    return replace(device, pci_id=pci_id, deployables=(part,))


def as_json(value) -> object:
    return msgspec.to_builtins(value)
