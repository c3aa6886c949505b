"""A card and its parts are never offered together, by the agent with real drivers over a simulated kernel."""

import pytest

from moorage.accelerator.drivers.device_spec import DeviceSpec
from moorage.accelerator.drivers.nvidia import NvidiaDriver
from moorage.accelerator.drivers.pci import PciDriver
from moorage.accelerator.host.agent import AcceleratorAgent
from moorage.accelerator.host.checkpoint import Checkpoint
from moorage.accelerator.host.programming import BitstreamSource
from moorage.accelerator.host.signatures import SignatureVerifier
from moorage.accelerator.model.devices import Health
from moorage.accelerator.model.errors import BadRequest, NoCapacity
from moorage.accelerator.model.reports import device_reports
from moorage.cli.doctor.devices import check_devices
from moorage.cli.doctor.finding import Severity
from moorage.core.ids import SeededIds
from moorage.images.cache import DigestCache
from moorage.images.directory import ImageDirectory
from tests.system.planes import write_config
from tests.unit.accelerator.drivers.sysfs_tree import Tree
from tests.unit.accelerator.rig import HOST, PROJECT, gpu, new_instance, rp

CARD, FIRST, SECOND = "0000:17:00.0", "0000:17:00.4", "0000:17:00.5"
WHOLE = DeviceSpec(vendor="10de", type="GPU", functions="whole")
VIRTUAL = DeviceSpec(vendor="10de", type="GPU", functions="virtual")


class Host:
    def __init__(self, directory, clock) -> None:
        self.directory, self.clock = directory, clock
        self.tree = Tree(directory / "sys")
        self.tree.bind_nothing_to("vfio-pci")
        self.tree.add(CARD, "10de:2236", kind="030200", driver="nvidia")
        self.agent = None

    def start(self, *drivers):
        if self.agent:
            self.agent.close()
        cache = DigestCache(self.directory / "cache", max_bytes=1 << 24, clock=self.clock)
        checkpoint = Checkpoint(self.directory / "state" / "accelerators" / "checkpoint.json", HOST, self.clock)
        images = ImageDirectory(self.directory / "images", clock=self.clock, ids=SeededIds(7))
        bitstreams = BitstreamSource(images, cache, SignatureVerifier(None, self.clock))
        self.agent = AcceleratorAgent(HOST, drivers, checkpoint, bitstreams, self.clock)
        return self.offered()

    def add_virtual_functions(self):
        for address in (FIRST, SECOND):
            self.tree.add(address, "10de:2236", kind="030200", driver="nvidia", of=CARD)

    def offered(self):
        """{provider: (total, reserved)} after a discovery."""
        nodes = self.agent.nodes()
        names = {node.name: rp(node.name.removeprefix(f"{HOST}_")) for node in nodes}
        self.agent.published(names)
        units = {node.name.removeprefix(f"{HOST}_"): unit for node in nodes for unit in node.inventories.values()}
        return {name: (unit.total, unit.reserved) for name, unit in units.items()}

    def plug(self, deployable):
        instance = new_instance()
        info = {"uuid": instance, "name": "vm", "project_id": PROJECT}
        self.agent.plug(info, {"uuid": rp(deployable)}, gpu())
        return instance

    def unplug(self, instance):
        return self.agent.unplug({"uuid": instance, "name": "vm"})

    def reasons(self):
        """{card: why it is not offered}, as the host reports it for the Accelerator API."""
        found = {one.address: dict(one.details) for one in device_reports(self.agent.attach_state)}
        return {address: told["not_offered"] for address, told in found.items() if "not_offered" in told}

    def driver(self, *specs):
        return PciDriver(specs, self.tree.sysfs())


@pytest.fixture
def host(tmp_path, clock):
    host = Host(tmp_path, clock)
    yield host
    host.agent.close()


@pytest.mark.parametrize("driver", ["nvidia", "pci"])
def test_a_card_with_virtual_functions_is_offered_by_them_only(host, driver, caplog):
    """Issue 18.4: `nvidia` without `nvidia_devices`, and `pci` with `functions: whole`."""
    host.add_virtual_functions()
    made = NvidiaDriver((), host.tree.sysfs(), dict) if driver == "nvidia" else host.driver(WHOLE)
    for _ in range(2):
        assert host.start(made) == {FIRST: (1, 0), SECOND: (1, 0)}
        assert host.reasons() == {CARD: f"{CARD}: {FIRST} is a part of it"}
    with pytest.raises(BadRequest):  # it has no provider that a scheduler could select
        host.plug(CARD)
    assert [one.why for one in caplog.records if one.message == "handles of a card are not offered"] == [
        f"{CARD}: {FIRST} is a part of it"
    ]


def test_two_drivers_that_find_one_function_offer_it_once(host):
    host.add_virtual_functions()
    drivers = (
        NvidiaDriver([VIRTUAL], host.tree.sysfs(), dict),
        host.driver(DeviceSpec(address="0000:17:00.[45]", type="GPU")),
    )
    assert host.start(*drivers) == {CARD: (2, 0)}
    assert host.reasons() == {
        FIRST: f"{FIRST}: {FIRST} has another owner", SECOND: f"{SECOND}: {SECOND} has another owner"
    }  # fmt: skip


def test_virtual_functions_that_appear_while_a_guest_has_their_card_are_withheld_until_it_is_released(host):
    host.start(NvidiaDriver((), host.tree.sysfs(), dict))
    instance = host.plug(CARD)
    host.add_virtual_functions()
    for _ in range(2):
        assert host.offered() == {CARD: (1, 0)}
        assert host.reasons() == {
            FIRST: f"{FIRST}: it is a part of {CARD}", SECOND: f"{SECOND}: it is a part of {CARD}"
        }  # fmt: skip
    host.start(NvidiaDriver((), host.tree.sysfs(), dict))
    assert host.unplug(instance) == 1
    assert host.offered() == {FIRST: (1, 0), SECOND: (1, 0)}


def test_a_virtual_function_that_was_discovered_before_its_card_was_given_out_is_not_given_out(host):
    """The claim and the discovery overlap: the claim decides on what is in use now."""
    host.start(host.driver(WHOLE))
    before = host.agent.attach_state.devices
    host.add_virtual_functions()
    assert host.offered() == {FIRST: (1, 0), SECOND: (1, 0)}
    first = host.plug(FIRST)
    host.agent._registry.adopt(before)  # as for a plug that looked up its deployable before the discovery ended
    host.agent.published({f"{HOST}_{CARD}": rp(CARD)})
    with pytest.raises(NoCapacity, match=f"{CARD} of {CARD} cannot be given out now: {FIRST} is a part of it"):
        host.plug(CARD)
    host.offered()
    assert host.unplug(first) == 1


def test_a_configuration_that_divides_an_attached_card_applies_when_the_card_is_released(host):
    host.add_virtual_functions()
    host.tree.remove(FIRST)
    host.tree.remove(SECOND)
    for path in (host.tree.devices / CARD).glob("virtfn*"):
        path.unlink()
    host.start(host.driver(WHOLE))
    instance = host.plug(CARD)
    host.add_virtual_functions()
    assert host.start(host.driver(VIRTUAL)) == {CARD: (1, 0)}
    assert host.reasons() == {CARD: f"its configuration changed; the new one applies when {CARD} is released"}
    assert host.unplug(instance) == 1
    assert host.offered() == {CARD: (2, 0)}
    assert host.reasons() == {}


def test_a_configuration_that_joins_attached_parts_applies_when_all_are_released(host):
    host.add_virtual_functions()
    host.start(host.driver(VIRTUAL))
    first = host.plug(CARD)
    only_cards = DeviceSpec(address=CARD, type="GPU", functions="whole")
    assert host.start(host.driver(only_cards)) == {CARD: (1, 0)}
    assert "the new one applies when" in host.reasons()[CARD]
    assert host.unplug(first) == 1  # by the spec of the card, although none matches the function any more
    assert host.tree.sysfs().pci_function(FIRST).driver == "nvidia"
    assert host.offered() == {CARD: (1, 0)}
    assert host.agent.attach_state.devices[0].deployables[0].handles == (CARD,)


def test_a_card_of_another_type_keeps_its_resource_class_while_it_is_attached(host):
    host.start(host.driver(WHOLE))
    instance = host.plug(CARD)
    host.start(host.driver(DeviceSpec(vendor="10de", type="PCI")))
    assert [str(one.type) for one in host.agent.attach_state.devices] == ["GPU"]
    host.unplug(instance)
    host.offered()
    assert [str(one.type) for one in host.agent.attach_state.devices] == ["PCI"]


def test_an_attached_card_that_is_no_longer_configured_is_not_reported_as_gone(host):
    host.start(host.driver(WHOLE))
    instance = host.plug(CARD)
    host.start(host.driver(DeviceSpec(vendor="8086")))
    (device,) = host.agent.attach_state.devices
    assert (device.health, device.deployables[0].handles) == (Health.OK, (CARD,))
    assert "removed on release" in host.reasons()[CARD]
    assert [one.instance_uuid for one in host.agent.attach_state.attachments.values()] == [instance]


def test_functions_of_one_card_in_one_iommu_group_are_offered_once(host):
    """The kernel gives a group to one guest only. Functions in groups of their own are separate devices."""
    for address, group in (("0000:18:00.0", "7"), ("0000:18:00.1", "7"), ("0000:19:00.0", "8"), ("0000:19:00.1", "9")):
        host.tree.add(address, "10de:1aef", kind="030200")
        (host.tree.devices / address / "iommu_group").symlink_to(f"../../../kernel/iommu_groups/{group}")
    offered = host.start(host.driver(WHOLE))
    assert offered == dict.fromkeys((CARD, "0000:18:00.0", "0000:19:00.0", "0000:19:00.1"), (1, 0))
    assert host.reasons() == {"0000:18:00.1": "0000:18:00.1: it shares IOMMU group 7 with 0000:18:00.0"}


def test_the_doctor_says_which_devices_are_not_offered_and_why(host):
    config = write_config(host.directory / "state")
    host.start(host.driver(WHOLE))
    (said,) = check_devices(config)
    assert (said.severity, said.what) == (Severity.FINE, "all 1 devices of this host are offered")
    host.add_virtual_functions()
    host.offered()
    (said,) = check_devices(config)
    assert (said.severity, said.where) == (Severity.WARNING, f"{CARD} (nvidia 2236)")
    assert said.what == f"not offered: {CARD}: {FIRST} is a part of it"
    instance = host.plug(FIRST)
    host.tree.deaf.add(FIRST)
    with pytest.raises(Exception, match="does not answer"):
        host.unplug(instance)
    quarantined = [one for one in check_devices(config) if one.where == FIRST]
    assert [one.what for one in quarantined] == [f"quarantined: {FIRST} does not answer after its reset"]
