"""The agent is killed at any point, with each driver on its simulated machine.

As in `tests.unit.accelerator.test_crash`, and also within a driver's method: before and after each write to the kernel,
each run of a vendor's tool and each file. The machine's sysfs and tools survive the kill. Each run tries a sample of
points and seeds; `EXPLORE=1` tries all of them.
"""

import contextlib
import os
from random import Random

import pytest

from moorage.accelerator.drivers import fpga
from moorage.accelerator.drivers.device_spec import VFIO
from moorage.accelerator.drivers.vendor_cli import VendorTool
from moorage.accelerator.model.attach_state import unknown_regions
from moorage.accelerator.model.devices import HandleState, mdev_of
from moorage.accelerator.model.errors import AlreadyPlugged, ChecksumMismatch, ConflictingBitstreams, NoCapacity
from moorage.jobs.contract import ProgramJob
from tests.unit.accelerator.drivers import benches
from tests.unit.accelerator.drivers.test_conformance import BENCHES
from tests.unit.accelerator.rig import AES, PROJECT, SHA, Killed, Rig, new_instance, rp

EXPLORE = bool(os.environ.get("EXPLORE"))
#: These drivers start a process for each step.
SLOW = (benches.opae, benches.xrt)


class Machine(Rig):
    """A host with an agent and one driver's bench."""

    def __init__(self, directory, clock, make) -> None:
        self.bench = make(directory, clock)
        super().__init__(directory, devices=self.bench.driver.discover(), clock=clock)
        if self.bench.tree is not None:
            self.bench.tree.around = self.watch.event
        self.card = next(device for device in self.devices if device.pci_id == self.bench.card)
        region_types = {part.name: part.region_type for part in self.card.deployables}
        self.region_type = region_types[self.bench.deployable]
        #: Functions with a guest's data until the kernel resets them. A mediated device is deleted with its data.
        self.left = self.bench.tree.left_by_guests if self.bench.tree is not None else set()
        self.parts = [part for part, region_type in region_types.items() if region_type == self.region_type]
        self.programmable = bool(self.bench.bitstreams)
        #: {function: image id}; `tampered` is the id of an image whose data does not match its record.
        self.good = {
            function: self.image(function, data=data, region_uuid=self.region_type, function_uuid=function)
            for function, (_, data) in zip((AES, SHA), self.bench.bitstreams, strict=False)
        }
        self.tampered = ""
        if self.programmable:
            (_, one), (_, other) = self.bench.bitstreams
            self.tampered = self.image("tampered", data=one + b"!", region_uuid=self.region_type)
            (self.directory / "images" / f"{self.tampered}.data").write_bytes(other + b"?")

    def new_driver(self):
        return self.bench.again()

    def is_dirty(self, pci_id):
        if self.bench.tree is None:
            return self.driver.is_dirty(pci_id)
        return pci_id in self.left or self.is_attachable(pci_id)

    def is_attachable(self, handle):
        """Whether a guest could use the handle, according to the kernel's files."""
        tree = self.bench.tree
        if (mdev := mdev_of(handle)) is not None:
            return (tree.mdev_bus / mdev.parent / mdev.uuid).exists()
        return tree.sysfs().pci_function(handle).driver == VFIO

    def plug_and_use(self, instance, part, wish=""):
        """Plugs one accelerator, with the function `wish` or any; then its guest has written data into it."""
        specs = {f"resources:CUSTOM_ACCELERATOR_{self.card.type}": "1"} | ({wish: "required"} if wish else {})
        info = {"uuid": instance, "name": "vm", "project_id": PROJECT}
        had = instance in self.held.attachments
        self.agent.plug(info, {"": [rp(part)]}, specs)
        (handle,) = [one.pci_id for one in self.held.attachments[instance].handles]
        if self.bench.tree is not None and mdev_of(handle) is None:
            assert had or handle not in self.left, "attached while dirty"
            self.left.add(handle)
        return handle

    def wishes(self):
        return ["", *(f"function:{function}" for function in self.good)] if self.programmable else [""]

    def restart_until_up(self, kills=()):
        """Kills each start at one of `kills`, until one succeeds."""
        for point in kills:
            self.watch.arm(point)
            try:
                self.restart()
            except Killed:
                continue
        self.watch.arm(None)
        self.restart()
        self.check()

    def settle(self):
        """Unplugs all devices, releases quarantined ones, and checks that all can be plugged again."""
        for instance in list(self.held.attachments):
            self.agent.unplug({"uuid": instance, "name": "vm"})
        for handle, record in self.held.handles.items():
            assert record.state is HandleState.QUARANTINED
            self.agent.release_quarantined(handle)
        for part in unknown_regions(self.held):  # a card without a blank: an operator programs it
            order = ProgramJob(deployable=part, image_id=self.good[AES], project_id=PROJECT)
            assert self.agent.program_region(order) == self.good[AES]
        assert self.held.handles == self.held.attachments == {}
        self.check()
        for part in self.card.deployables:
            holders = [new_instance() for _ in part.handles]
            assert sorted(self.plug_and_use(holder, part.name) for holder in holders) == sorted(part.handles)
            self.check()
            for holder in holders:
                assert self.agent.unplug({"uuid": holder, "name": "vm"}) == 1
        self.check()


@pytest.fixture(params=BENCHES, ids=lambda make: make.__name__)
def make(request):
    return request.param


@pytest.fixture
def new_machine(make, tmp_path, clock, monkeypatch):
    """Creates a machine whose `watch` also records runs of tools and writes of files."""
    machines = []

    def machine(name):
        machines.append(Machine(tmp_path / name, clock, make))
        return machines[-1]

    def watched(method, *name):
        def call(*arguments, **more):
            with machines[-1].watch.event(*name) if machines else contextlib.nullcontext():
                return method(*arguments, **more)

        return call

    monkeypatch.setattr(VendorTool, "run", watched(VendorTool.run, "tool"))
    monkeypatch.setattr(fpga, "write_durably", watched(fpga.write_durably, "note"))
    return machine


def points_of(machine, act):
    machine.watch.arm(None)
    act()
    return 2 * len(machine.watch.events)


def plug_and_unplug(machine, instance, wish):
    machine.plug_and_use(instance, machine.bench.deployable, wish)
    machine.agent.unplug({"uuid": instance, "name": "vm"})


def test_after_a_kill_at_any_point_of_a_plug_and_unplug_all_devices_can_be_used_again(make, new_machine):
    """The restart after each kill may be killed, too."""
    random = Random(make.__name__)
    machine = new_machine("machine")
    wishes = machine.wishes()
    # Each round programs the other bitstream, so that none finds its bitstream loaded.
    points = points_of(machine, lambda: [plug_and_unplug(machine, new_instance(), wish) for wish in wishes[-1:]])
    sample = range(points) if EXPLORE else sorted(random.sample(range(points), min(points, 4 if make in SLOW else 12)))
    for number, point in enumerate(sample):
        instance, wish = new_instance(), wishes[1 + number % 2 if len(wishes) > 1 else 0]
        machine.watch.arm(point)
        with pytest.raises(Killed):
            plug_and_unplug(machine, instance, wish)
            pytest.fail(f"{machine.watch.events}: nothing at point {point} of {points}")
        machine.restart_until_up([random.randrange(6)] if number % 3 == 0 else [])
        assert set(machine.held.attachments) <= {instance}
        if instance in machine.held.attachments:  # the plug was completed and the unplug not begun
            machine.plug_and_use(instance, machine.bench.deployable, wish)
        machine.settle()


@pytest.mark.parametrize("seed", range(40 if EXPLORE else 2))
def test_after_random_operations_with_kills_all_devices_can_be_used_again(make, new_machine, seed):
    random = Random(f"{make.__name__} {seed}")
    machine = new_machine("machine")
    instances = [new_instance() for _ in range(4)]
    for _ in range(4 if make in SLOW and not EXPLORE else 12):
        machine.watch.arm(random.choice([None, random.randrange(20)]))
        try:
            step(machine, random, random.choice(instances))
        except Killed:
            machine.restart_until_up([random.randrange(8) for _ in range(random.randrange(2))])
        machine.watch.arm(None)
        machine.check()
    machine.settle()


def step(machine, random, instance):
    """One random operation. It may be refused, but only with errors that it can cause."""
    what = random.choice(["plug", "plug", "plug", "unplug", "unplug", "look", "order", "tampered"])
    part, wish = random.choice(machine.parts), random.choice(machine.wishes())
    if what == "look":
        machine.agent.nodes()
    elif what == "unplug":
        machine.agent.unplug({"uuid": instance, "name": "vm"})
    elif what == "plug" or not machine.programmable:
        _may_be_refused(lambda: machine.plug_and_use(instance, part, wish))
    elif what == "order":
        image_id = random.choice(list(machine.good.values()))
        order = ProgramJob(deployable=part, image_id=image_id, project_id=PROJECT)
        _may_be_refused(lambda: machine.agent.program_region(order))
    elif instance not in machine.held.attachments and part not in unknown_regions(machine.held):
        before = machine.held.regions
        with pytest.raises((ChecksumMismatch, ConflictingBitstreams, NoCapacity)):
            machine.plug_and_use(instance, part, f"bitstream:{machine.tampered}")
        assert machine.held.regions == before


def _may_be_refused(call):
    with contextlib.suppress(AlreadyPlugged, ConflictingBitstreams, NoCapacity):
        call()
