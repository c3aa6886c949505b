"""NVIDIA's cards: attached whole, shared as mediated devices, and read through NVML.

No such card was available when this was written. The H200's ids, class, name and memory come from documents and from
output of ``nvidia-smi`` (NVIDIA H200, 143771 MiB); nothing was recorded from a card.
"""

import types

import pytest

from moorage.accelerator.drivers import nvidia
from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.drivers.device_spec import VFIO, DeviceSpec
from moorage.accelerator.drivers.nvidia import NvidiaCard, NvidiaDriver
from moorage.accelerator.model.devices import DeviceType, HandleState, Mdev, mdev_of, plug_answer
from moorage.accelerator.model.inventory import provider_nodes
from tests.unit.accelerator.drivers.sysfs_tree import Tree

H200 = NvidiaCard("NVIDIA H200", 143771, "GPU-5c1f6d4e-0000-1111-2222-333344445555", "off")
A10 = "0000:65:00.0"
SHARES = DeviceSpec(vendor="10de", product="2236", type="VGPU", functions="mdev", mdev_type="nvidia-592")


@pytest.fixture
def tree(tmp_path):
    """An H200, and an A10 with its audio function."""
    tree = Tree(tmp_path / "sys")
    tree.bind_nothing_to(VFIO)
    tree.add("0000:18:00.0", "10de:2335", kind="030200", numa_node=1, driver="nvidia")
    tree.add(A10, "10de:2236", kind="030000", driver="nvidia")
    tree.add("0000:65:00.1", "10de:1aef", kind="040300", driver="snd_hda_intel")
    tree.add_mdev_type(A10, "nvidia-592", 4, "NVIDIA A10-6Q")
    tree.add_mdev_type(A10, "nvidia-593", 2, "NVIDIA A10-12Q")
    return tree


def test_every_gpu_is_a_device_and_the_other_functions_of_its_card_are_not(tree):
    """R1, R2"""
    h200, a10 = NvidiaDriver((), tree.sysfs(), dict).discover()
    assert [(one.pci_id, one.type, one.vendor) for one in (h200, a10)] == [
        ("0000:18:00.0", DeviceType.GPU, "nvidia"),
        (A10, DeviceType.GPU, "nvidia"),
    ]
    assert (h200.numa_node, h200.model, h200.deployables[0].handles) == (1, "nvidia 2335", ("0000:18:00.0",))


def test_details_from_nvml_are_shown_even_while_the_card_is_attached(tree):
    known = {"0000:18:00.0": H200}
    driver = NvidiaDriver((), tree.sysfs(), lambda: known)
    (h200, _) = driver.discover()
    assert h200.model == "H200"
    assert dict(h200.details) == {"name": "NVIDIA H200", "memory_mb": "143771", "uuid": H200.uuid, "mig": "off"}
    driver.prepare("0000:18:00.0", "instance")
    known.clear()
    assert driver.discover()[0] == h200


def test_a_card_with_mediated_devices_is_one_provider_with_one_unit_for_each(tree):
    """R1, R8: a mediated device is the smallest unit, and its resource class is that of its type."""
    driver = NvidiaDriver([SHARES], tree.sysfs(), dict)
    (card,) = driver.discover()
    handles = card.deployables[0].handles
    assert [mdev_of(handle) for handle in handles] == [Mdev(A10, "nvidia-592", slot) for slot in range(4)]
    (node,) = provider_nodes("compute-1", [card], {handles[0]: HandleState.DIRTY})
    assert node.name == f"compute-1_{A10}"
    assert {name: (units.total, units.reserved) for name, units in node.inventories.items()} == {
        "CUSTOM_ACCELERATOR_VGPU": (4, 1)
    }
    assert {"CUSTOM_VGPU_NVIDIA", "CUSTOM_NVIDIA_NVIDIA_592", "OWNER_CYBORG"} <= node.traits


def test_a_mediated_device_is_created_by_prepare_and_removed_by_release(tree):
    driver = NvidiaDriver([SHARES], tree.sysfs(), dict)
    before = driver.discover()
    share = mdev_of(before[0].deployables[0].handles[2])
    driver.prepare(str(share), "instance")
    assert (tree.mdev_bus / A10 / share.uuid / "mdev_type").readlink().name == "nvidia-592"
    assert driver.discover() == before
    assert plug_answer(str(share)) == {"pci_id": A10, "mdev": share.uuid, "mdev_type": "nvidia-592"}
    driver.release(str(share))
    driver.clean(str(share))
    assert not (tree.mdev_bus / A10 / share.uuid).exists()


def test_after_a_reboot_of_the_host_a_mediated_device_is_created_with_the_same_uuid(tree):
    """R51: the guest's definition contains the uuid."""
    share = Mdev(A10, "nvidia-592", 0)
    assert Mdev(A10, "nvidia-592", 0).uuid == share.uuid
    assert len({Mdev(A10, kind, slot).uuid for kind in ("nvidia-592", "nvidia-593") for slot in range(4)}) == 8
    NvidiaDriver([SHARES], tree.sysfs(), dict).prepare(str(share), "instance")
    tree.remove_mdev(A10, share.uuid)  # as a reboot does
    NvidiaDriver([SHARES], tree.sysfs(), dict).prepare(str(share), "instance")
    assert (tree.mdev_bus / A10 / share.uuid).exists()


def test_mediated_devices_created_by_others_are_kept_and_not_offered(tree):
    theirs = "11111111-2222-4333-8444-555555555555"
    tree.add_mdev(A10, "nvidia-592", theirs)
    driver = NvidiaDriver([SHARES], tree.sysfs(), dict)
    (card,) = driver.discover()
    assert len(card.deployables[0].handles) == 3
    for handle in card.deployables[0].handles:
        driver.prepare(handle, "instance")
    assert (tree.mdev_bus / A10 / theirs).exists()
    assert driver.discover() == [card]


def test_a_mediated_device_of_a_type_without_device_spec_is_refused(tree):
    driver = NvidiaDriver([SHARES], tree.sysfs(), dict)
    with pytest.raises(DriverError, match="no device spec of this host gives out mediated devices of type nvidia-593"):
        driver.prepare(str(Mdev(A10, "nvidia-593", 0)), "instance")


def test_mediated_devices_are_created_on_the_virtual_functions_of_a_card_that_has_them(tree):
    for number in (4, 5):
        address = f"0000:65:00.{number}"
        tree.add(address, "10de:2236", kind="030200", driver="nvidia", of=A10)
        tree.add_mdev_type(address, "nvidia-592", 1)
    (card,) = NvidiaDriver([SHARES], tree.sysfs(), dict).discover()
    assert card.deployables[0].handles == ("0000:65:00.4_nvidia-592_0", "0000:65:00.5_nvidia-592_0")


def test_a_card_without_the_mediated_device_type_of_the_spec_has_no_handles(tree):
    (tree.mdev_bus / A10).unlink()  # as without the vGPU driver
    (card,) = NvidiaDriver([SHARES], tree.sysfs(), dict).discover()
    assert card.deployables[0].handles == ()
    assert provider_nodes("compute-1", [card], {}) == []


@pytest.mark.parametrize(
    ("mode", "shown"), [((1, 1), "on"), ((1, 0), "on, off after a reset"), ((0, 1), "off, on after a reset")]
)
def test_a_card_in_mig_mode_is_discovered_without_handles(tree, mode, shown):
    """MIG instances are not PCI functions, and passing the whole card through would take it from their users."""
    driver = NvidiaDriver((), tree.sysfs(), lambda: nvidia.nvml_cards(Bindings(mig=mode, instances=(0, 3))))
    for _ in range(2):
        h200, a10 = driver.discover()
        assert h200.deployables[0].handles == ()
        details = dict(h200.details)
        assert (details["mig"], details["mig_instances"]) == (shown, "2" if mode[0] else "0")
        assert "nvidia-smi -mig 0" in h200.withheld
        assert [node.name for node in provider_nodes("compute-1", [h200, a10], {})] == [f"compute-1_{A10}"]


def test_a_card_whose_mig_mode_was_turned_off_has_a_handle_again(tree):
    cards = [nvidia.nvml_cards(Bindings(mig=(1, 1)))]
    driver = NvidiaDriver((), tree.sysfs(), lambda: cards[0])
    assert driver.discover()[0].deployables[0].handles == ()
    cards[0] = nvidia.nvml_cards(Bindings())
    assert driver.discover()[0].deployables[0].handles == ("0000:18:00.0",)


def test_mediated_devices_of_a_card_in_mig_mode_are_offered(tree):
    """MIG-backed vGPUs are mediated devices like others."""
    on = {A10: NvidiaCard("NVIDIA A10", 24 << 10, "GPU-1", "on", 2)}
    (card,) = NvidiaDriver([SHARES], tree.sysfs(), lambda: on).discover()
    assert len(card.deployables[0].handles) == 4
    assert not card.withheld


# ------------------------------------------------------------------------------------------------ NVML


class NvmlRefusal(Exception):
    pass


class Bindings:
    """The calls of NVIDIA's bindings that the driver uses, on a machine with one H200."""

    NVMLError = NvmlRefusal

    def __init__(self, *, fails_at="", mig=(0, 0), instances=()):
        self.fails_at, self.open, self.mig, self.instances = fails_at, 0, mig, instances

    def _call(self, name):
        if name == self.fails_at:
            raise NvmlRefusal(name)

    def nvmlInit(self):
        self._call("init")
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        self._call("count")
        return 1

    def nvmlDeviceGetHandleByIndex(self, index):
        return "handle"

    def nvmlDeviceGetPciInfo(self, handle):
        return types.SimpleNamespace(domain=0, bus=0x18, device=0)

    def nvmlDeviceGetName(self, handle):
        return b"NVIDIA H200"

    def nvmlDeviceGetUUID(self, handle):
        return H200.uuid

    def nvmlDeviceGetMemoryInfo(self, handle):
        return types.SimpleNamespace(total=143771 << 20)

    def nvmlDeviceGetMigMode(self, handle):
        self._call("mig")
        return list(self.mig)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index):
        if index not in self.instances:
            raise NvmlRefusal("not found")
        return f"{handle} {index}"


def test_nvml_is_closed_after_its_cards_were_read():
    bindings = Bindings()
    assert nvidia.nvml_cards(bindings) == {"0000:18:00.0": H200}
    assert bindings.open == 0


@pytest.mark.parametrize("fails_at", ["init", "count"])
def test_if_nvml_fails_cards_have_no_details(fails_at):
    bindings = Bindings(fails_at=fails_at)
    assert nvidia.nvml_cards(bindings) == {}
    assert bindings.open == 0


def test_a_card_without_mig_support_has_no_mig_mode():
    (card,) = nvidia.nvml_cards(Bindings(fails_at="mig")).values()
    assert card.mig == ""


def test_the_real_nvml_bindings_have_every_call_that_the_driver_uses():
    bindings = nvidia.nvml_bindings()
    if bindings is None:
        pytest.skip("nvidia-ml-py is not installed: make test installs it")
    used = [name for name in vars(Bindings) if name.startswith("nvml")]
    assert [name for name in used if not callable(getattr(bindings, name))] == []
    assert issubclass(bindings.NVMLError, Exception)
    for card in nvidia.nvml_cards(bindings).values():  # no cards on most machines
        assert card.name
        assert card.memory_mb > 0
