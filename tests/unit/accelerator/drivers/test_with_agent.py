"""The accelerator agent with real drivers: an FPGA is programmed on request, and a GPU has mediated devices."""

import pytest

from moorage.accelerator.drivers.device_spec import DeviceSpec
from moorage.accelerator.drivers.fpga_dfl import FpgaDflDriver
from moorage.accelerator.drivers.nvidia import NvidiaDriver
from moorage.accelerator.host.agent import AcceleratorAgent
from moorage.accelerator.host.checkpoint import Checkpoint
from moorage.accelerator.host.programming import BitstreamSource
from moorage.accelerator.host.signatures import SignatureVerifier
from moorage.accelerator.model.devices import mdev_of
from moorage.accelerator.model.errors import NoCapacity, ProgramFailed
from moorage.core.ids import SeededIds
from moorage.images.cache import DigestCache
from moorage.images.directory import ImageDirectory
from moorage.images.model import Image, Visibility
from tests.unit.accelerator.drivers import benches
from tests.unit.accelerator.drivers.benches import AES, FPGA, REGION_TYPE, DflKernel, dfl_card
from tests.unit.accelerator.drivers.bits import gbs
from tests.unit.accelerator.drivers.sysfs_tree import Tree
from tests.unit.accelerator.rig import HOST, PROJECT, fpga, new_instance, rp

GPU = "0000:17:00.0"
SHARES = DeviceSpec(vendor="10de", type="VGPU", functions="mdev", mdev_type="nvidia-474")


class Host:
    def __init__(self, directory, clock) -> None:
        self.directory, self.clock = directory, clock
        self.tree = Tree(directory / "sys")
        self.tree.bind_nothing_to("vfio-pci")
        dfl_card(self.tree, ports=2, virtual=True)
        self.tree.add(GPU, "10de:2237", kind="030200", driver="nvidia")
        self.tree.add_mdev_type(GPU, "nvidia-474", 2)
        self.kernel = DflKernel(self.tree)
        self.images = ImageDirectory(directory / "images", clock=clock, ids=SeededIds(7))
        self.agent = self.restarted()

    def restarted(self):
        sysfs = benches._Hiding(self.tree)
        cache = DigestCache(self.directory / "cache", max_bytes=1 << 24, clock=self.clock)
        drivers = [
            FpgaDflDriver(self.directory / "dfl", (), sysfs, self.directory / "dev", self.kernel.load),
            NvidiaDriver([SHARES], sysfs, dict),
        ]
        checkpoint = Checkpoint(self.directory / "agent" / "checkpoint.json", HOST, self.clock)
        bitstreams = BitstreamSource(self.images, cache, SignatureVerifier(None, self.clock))
        self.agent = AcceleratorAgent(HOST, drivers, checkpoint, bitstreams, self.clock)
        nodes = self.agent.nodes()
        self.agent.published({node.name: rp(node.name.removeprefix(f"{HOST}_")) for node in nodes})
        return self.agent

    def node(self, deployable):
        return next(node for node in self.agent.nodes() if node.name == f"{HOST}_{deployable}")

    def upload(self, **properties):
        now = self.clock.now()
        image = Image(
            "11111111-2222-4333-8444-555555555555", now, now, "aes", PROJECT,
            visibility=Visibility.PUBLIC, properties=properties,
        )  # fmt: skip
        self.images.create(image)
        self.images.upload(image.id, iter([gbs(REGION_TYPE, AES)]), size_bytes=None)
        return image.id

    def plug(self, instance, specs, deployable):
        return self.agent.plug({"uuid": instance, "name": "vm", "project_id": PROJECT}, {"uuid": rp(deployable)}, specs)


@pytest.fixture
def host(tmp_path, clock):
    host = Host(tmp_path, clock)
    yield host
    host.agent.close()


def test_a_plug_programs_the_requested_function_which_is_known_after_a_restart(host):
    """R9, R22, R24: through the driver of the selected provider; the trait names the function that the card shows."""
    region = f"{FPGA}_R1"
    host.upload(region_uuid=REGION_TYPE, function_uuid=AES)
    instance = new_instance()
    assert host.plug(instance, fpga(function=AES), region) == [{"pci_id": "0000:3b:00.1"}]
    assert [order[1] for order in host.kernel.orders] == [0]
    trait = f"CUSTOM_FPGA_INTEL_FUNCTION_{AES.upper().replace('-', '_')}"
    assert trait in host.node(region).traits
    host.agent.close()
    host.restarted()
    assert trait in host.node(region).traits
    assert host.plug(instance, fpga(function=AES), region) == [{"pci_id": "0000:3b:00.1"}]
    assert host.agent.unplug({"uuid": instance, "name": "vm"}) == 1
    assert len(host.kernel.orders) == 1  # the function stays loaded for the next server
    assert host.tree.sysfs().pci_function("0000:3b:00.1").driver == "dfl-pci"


def test_a_region_that_shows_another_function_after_programming_is_not_attached_and_becomes_reserved(host):
    host.upload(region_uuid=REGION_TYPE, function_uuid=AES)
    host.kernel.fault = "loads something else"
    with pytest.raises(ProgramFailed, match=r"shows 00000000-.* after programming"):
        host.plug(new_instance(), fpga(function=AES), f"{FPGA}_R1")
    units = host.node(f"{FPGA}_R1").inventories["CUSTOM_ACCELERATOR_FPGA"]
    assert (units.total, units.reserved) == (1, 1)
    assert host.node(f"{FPGA}_R2").inventories["CUSTOM_ACCELERATOR_FPGA"].reserved == 0


def test_mediated_devices_of_a_gpu_are_plugged_by_uuid_and_removed_by_unplug(host):
    """R1, R28: each mediated device is attached separately, and has its card and its own uuid in the answer."""
    flavor = {"resources:CUSTOM_ACCELERATOR_VGPU": "1"}
    instances = [new_instance(), new_instance()]
    answers = [host.plug(instance, flavor, GPU)[0] for instance in instances]
    assert len({answer["mdev"] for answer in answers}) == 2
    for answer in answers:
        assert answer == {"pci_id": GPU, "mdev": answer["mdev"], "mdev_type": "nvidia-474"}
    made = {path.name for path in (host.tree.devices / GPU).glob("*-*-*-*-*")}
    assert made == {answer["mdev"] for answer in answers}
    with pytest.raises(NoCapacity, match="0 free attach handles of 2"):
        host.plug(new_instance(), flavor, GPU)
    host.agent.close()
    host.restarted()
    for instance in instances:
        assert host.agent.unplug({"uuid": instance, "name": "vm"}) == 1
    assert not list((host.tree.devices / GPU).glob("*-*-*-*-*"))
    assert mdev_of(f"{GPU}_nvidia-474_0").uuid in made


def test_after_a_reboot_of_the_host_attached_devices_are_created_and_bound_again(host):
    """R51, R42: with the same uuid, so that the guest's definition remains valid."""
    function, share = new_instance(), new_instance()
    host.plug(function, fpga(), f"{FPGA}_R1")
    answer = host.plug(share, {"resources:CUSTOM_ACCELERATOR_VGPU": "1"}, GPU)
    host.agent.close()
    host.tree.remove_mdev(GPU, answer[0]["mdev"])
    host.tree.bind("0000:3b:00.1", "dfl-pci")
    host.restarted()
    assert (host.tree.mdev_bus / GPU / answer[0]["mdev"]).exists()
    assert host.tree.sysfs().pci_function("0000:3b:00.1").driver == "vfio-pci"
    assert host.plug(share, {"resources:CUSTOM_ACCELERATOR_VGPU": "1"}, GPU) == answer
    for instance in (function, share):
        assert host.agent.unplug({"uuid": instance, "name": "vm"}) == 1


def test_an_attached_device_that_is_missing_after_a_restart_does_not_stop_the_agent(host, caplog):
    instance = new_instance()
    host.plug(instance, {"resources:CUSTOM_ACCELERATOR_VGPU": "1"}, GPU)
    host.agent.close()
    host.tree.remove(GPU)
    host.restarted()
    assert "a device could not be prepared again for its instance" in [record.message for record in caplog.records]
    assert [one.instance_uuid for one in host.agent.attach_state.attachments.values()] == [instance]
