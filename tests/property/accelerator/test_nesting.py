"""No two handles that a host offers, or has given out, contain each other: random cards, drivers and configurations.

The trees have physical functions with siblings, virtual functions, mediated devices and regions. `overlap` is the slow
and obvious comparison: it follows the links of the generated machine, which the code under test never sees.
"""

import itertools
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.accelerator.drivers.device_spec import DeviceSpec, Functions
from moorage.accelerator.drivers.nvidia import NvidiaDriver
from moorage.accelerator.drivers.pci import PciDriver
from moorage.accelerator.drivers.qat import QatDriver
from moorage.accelerator.host.device_registry import DeviceRegistry
from moorage.accelerator.model import attach_state as h
from moorage.accelerator.model.devices import Deployable, Device, DeviceType, HandleState, Mdev
from moorage.accelerator.model.errors import NoCapacity
from moorage.accelerator.model.inventory import provider_nodes
from moorage.accelerator.model.nesting import find_nested, offered_devices, reported_tree
from moorage.accelerator.model.reports import device_reports
from moorage.core.errors import StartError
from tests.unit.accelerator.drivers.sysfs_tree import Tree


@dataclass
class Machine:
    """What contains what, and the IOMMU group of each function."""

    parents: dict[str, str] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)

    @property
    def handles(self):
        return [*self.groups, *(one for one in self.parents if one not in self.groups)]

    def chain(self, handle):
        return [handle, *(self.chain(self.parents[handle]) if handle in self.parents else ())]

    def overlap(self, one, other):
        mine, theirs = self.chain(one), self.chain(other)
        same_card = mine[-1].partition(".")[0] == theirs[-1].partition(".")[0]
        shared = one in self.groups and self.groups[one] != "" and self.groups[one] == self.groups.get(other)
        return one in theirs or other in mine or (same_card and shared)


@st.composite
def machines(draw):
    machine = Machine()
    for slot in range(draw(st.integers(1, 3))):
        for function in range(draw(st.integers(1, 2))):
            card = f"0000:{slot + 1:02x}:00.{function}"
            machine.groups[card] = draw(st.sampled_from(["", f"{slot}", f"{slot}-{function}"]))
            below = [card]
            for number in range(draw(st.integers(0, 3)) if function == 0 else 0):
                virtual = f"0000:{slot + 1:02x}:01.{number}"
                machine.parents[virtual] = card
                machine.groups[virtual] = draw(st.sampled_from(["", f"{slot}", f"v{slot}-{number}"]))
                below.append(virtual)
            for parent in below:
                for number in range(draw(st.integers(0, 2))):
                    machine.parents[str(Mdev(parent, "nvidia-63", number))] = parent
    return machine


@st.composite
def reports(draw, machine):
    """Devices as drivers could report them: each function alone, by its parts, by regions, or not at all, and the parts
    as devices too.
    """
    devices = []
    for address in draw(st.permutations(list(machine.groups))):
        below = [one for one in machine.handles if address in machine.chain(one)[1:]]
        handles = draw(st.lists(st.sampled_from([address, *below]), unique=True, max_size=5))
        cut = draw(st.integers(0, len(handles)))
        parts = (
            Deployable(address, tuple(handles)),
            Deployable(f"{address}_R1", tuple(handles[:cut])),
            Deployable(f"{address}_R2", tuple(handles[cut:])),
        )
        chosen = draw(st.sampled_from([(), parts[:1], parts[1:]]))
        if chosen:
            devices.append(device(machine, address, chosen))
    return devices


def device(machine, address, parts):
    kind = DeviceType.GPU
    known = tuple((one, group) for one, group in machine.groups.items() if group)
    return Device(
        address, kind, "nvidia", "10de", "27b8", "L4", 0, parts,
        part_of=machine.parents.get(address, ""), iommu_groups=known,
    )  # fmt: skip


def places(devices):
    return [(part.name, handle) for one in devices for part in one.deployables for handle in part.handles]


def check_offers(machine, offered, in_use):
    """All free handles among `offered` can be given out, together with those in use."""
    free = [(part, handle) for part, handle in offered if in_use.get(handle) != part]
    for (_, one), (_, other) in itertools.combinations(free, 2):
        assert not machine.overlap(one, other), f"{one} and {other} are both offered"
    for (_, one), other in itertools.product(free, in_use):
        assert not machine.overlap(one, other), f"{one} is offered, and {other} is in use"


@settings(max_examples=300)
@given(st.data())
def test_no_two_offered_handles_are_nested_in_each_other(data):
    """R3 (accelerator-attach); issue 18.4"""
    machine = data.draw(machines())
    found = data.draw(reports(machine))
    listed = places(found)
    used = data.draw(st.lists(st.sampled_from(listed), unique_by=lambda place: place[1], max_size=3)) if listed else []
    in_use = {handle: part for part, handle in used}
    devices = offered_devices((), found, in_use)
    offered = places(devices)
    check_offers(machine, offered, in_use)
    assert set(used) <= set(offered), "a handle in use was withheld"
    reasons = {part.name: one.withheld for one in devices for part in one.deployables}
    for part, handle in set(listed) - set(offered):  # nothing is withheld without a cause, and each cause is told
        others = [*in_use, *(other for _, other in offered)]
        assert any(machine.overlap(handle, other) for other in others), f"{handle} is withheld without a cause"
        assert reasons[part]
    for one in devices:
        assert bool(one.withheld) == bool(
            set(places([one])) != set(places([d for d in found if d.pci_id == one.pci_id]))
        )
    other_order = offered_devices((), data.draw(st.permutations(found)), in_use)
    assert {one.pci_id: one for one in other_order} == {one.pci_id: one for one in devices}
    again = offered_devices(devices, found, in_use)
    assert again == devices, "the next discovery of the same machine offers something else"


@settings(max_examples=200)
@given(st.data())
def test_the_service_finds_each_nesting_that_a_report_of_a_host_shows(data):
    machine = data.draw(machines())
    machine.groups = dict.fromkeys(machine.groups, "")  # a report has no IOMMU groups
    found = data.draw(reports(machine))
    listed = [handle for _, handle in places(found)]
    used = data.draw(st.sets(st.sampled_from(listed), max_size=2)) if listed else set()
    free = [handle for handle in listed if handle not in used]
    tree = reported_tree((one.pci_id, one.part_of, [handle for _, handle in places([one])]) for one in found)
    nested = [pair for pair in itertools.combinations(free, 2) if machine.overlap(*pair)]
    nested += [(one, other) for one in free for other in used if machine.overlap(one, other)]
    # The report of a part whose card is not in the report names no more than the card itself.
    assert bool(find_nested(tree, free, used)) == bool(nested)


@settings(max_examples=150)
@given(st.data())
def test_handles_in_use_are_never_nested_whatever_is_configured_discovered_and_claimed_in_between(data):
    """A claim can be older than the discovery, and the discovery older than the claim."""
    machine = data.draw(machines())
    held = h.AttachState()
    stale: list[tuple[str, str]] = []
    for number in range(data.draw(st.integers(1, 8))):
        act = data.draw(st.sampled_from(["discover", "claim", "claim", "release"]))
        if act == "discover":
            stale = places(held.devices)
            held = h.with_devices(held, data.draw(reports(machine)))
            check_offers(machine, places(held.devices), {key: one.deployable for key, one in held.handles.items()})
        elif act == "claim" and (listed := [*places(held.devices), *stale]):
            part, handle = data.draw(st.sampled_from(listed))
            server = f"00000000-0000-4000-8000-{number:012}"
            new = h.Attachment(server, "vm", "project", "digest", h.AttachStep.CLAIMED, ())
            try:
                held = h.claim_handles(held, new, [h.HandleRequest(part, (handle,), 1, "rp")])
            except NoCapacity:
                continue
        elif act == "release" and held.attachments:
            held = h.begin_release(held, data.draw(st.sampled_from(sorted(held.attachments))))
        for one, other in itertools.combinations(held.handles, 2):
            assert not machine.overlap(one, other), f"{one} and {other} are given to two guests"


# --------------------------------------------------------------------------------- real drivers over a kernel's tree

IDS = {"gpu": ("10de:2236", "030200"), "qat": ("8086:4940", "0b4000"), "ssd": ("1b36:0010", "010802")}


def specs_for(draw):
    specs = []
    for vendor, kinds in (("10de", "030200"), ("8086", ""), ("1b36", "")):
        functions = draw(st.sampled_from([*Functions, None]))
        if functions is not None:
            mdev = "nvidia-63" if functions is Functions.MDEV else ""
            address = draw(st.sampled_from(["", "*:00.0", "*:01.?"]))
            specs.append(
                DeviceSpec(vendor=vendor, kind=kinds, functions=str(functions), mdev_type=mdev, address=address)
            )
    return draw(st.permutations(specs))


def machine_in(tree, draw):
    machine = Machine()
    for slot in range(draw(st.integers(1, 3))):
        ids, kind = IDS[draw(st.sampled_from(sorted(IDS)))]
        card = f"0000:{slot + 1:02x}:00.0"
        tree.add(card, ids, kind=kind)
        machine.groups[card] = ""
        for number in range(draw(st.integers(0, 2))):
            virtual = f"0000:{slot + 1:02x}:01.{number}"
            tree.add(virtual, ids, kind=kind, of=card)
            machine.parents[virtual] = card
            machine.groups[virtual] = ""
        for parent in [one for one in machine.groups if one.startswith(card[:8])]:
            if draw(st.booleans()):
                tree.add_mdev_type(parent, "nvidia-63", 2)
                machine.parents |= {str(Mdev(parent, "nvidia-63", slot)): parent for slot in range(2)}
    return machine


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_the_drivers_of_a_host_find_together_is_offered_once(data):
    """R3 (accelerator-attach); issue 18.4: also `nvidia` without `nvidia_devices`, and `pci` with `functions: whole`."""
    with tempfile.TemporaryDirectory() as directory:
        tree = Tree(Path(directory) / "sys")
        machine = machine_in(tree, data.draw)
        drivers = [
            PciDriver(specs_for(data.draw) or [DeviceSpec(vendor="ffff")], tree.sysfs()),
            *data.draw(st.sampled_from([(), (NvidiaDriver((), tree.sysfs(), dict),), (QatDriver((), tree.sysfs()),)])),
        ]
        try:
            found = DeviceRegistry(drivers).discover((), frozenset())
        except StartError:  # two drivers report one card: the agent does not start
            return
        held = h.with_devices(h.AttachState(), found)
        check_offers(machine, places(held.devices), {})
        offered = {handle for _, handle in places(held.devices)}
        for handle in {handle for _, handle in places(found)} - offered:
            assert any(machine.overlap(handle, other) for other in offered)
        units = sum(
            unit.total for node in provider_nodes("host", held.devices, {}) for unit in node.inventories.values()
        )
        assert units == len(offered)
        reported = device_reports(held)
        shown = {one.address: dict(one.details).get("not_offered", "") for one in reported}
        assert all(shown[one.pci_id] == one.withheld for one in held.devices)


def test_a_quarantined_part_withholds_its_card():
    """Its data is still on the card."""
    whole, part = "0000:01:00.0", "0000:01:01.0"
    machine = Machine({part: whole}, {whole: "", part: ""})
    found = [device(machine, whole, (Deployable(whole, (whole,)),))]
    held = h.AttachState(handles={part: h.HandleRecord(HandleState.QUARANTINED, part)})
    both = [*found, device(machine, part, (Deployable(part, (part,)),))]
    after = h.with_devices(held, both)
    assert places(after.devices) == [(part, part)]
    assert [one.withheld for one in after.devices] == [f"{whole}: {part} is a part of it", ""]
    assert replace(after.devices[0], withheld="", deployables=found[0].deployables) == found[0]
