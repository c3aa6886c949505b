"""The driver for any PCI device: the devices that its device specs select, and its writes to the kernel."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.drivers.device_spec import VFIO, DeviceSpec, parse_specs
from moorage.accelerator.drivers.pci import PciDriver
from moorage.accelerator.drivers.sysfs import PCI_ADDRESS, Sysfs
from moorage.accelerator.model.devices import DeviceType, Health
from moorage.accelerator.model.naming import traits_of
from moorage.core.errors import StartError
from tests.unit.accelerator.drivers.sysfs_tree import Tree

QAT = DeviceSpec(vendor="8086", product="37c8", type="QAT", functions="virtual", traits=("CUSTOM_QAT_C62X",))
CARD = DeviceSpec(vendor="1bd4", type="FPGA")


@pytest.fixture
def tree(tmp_path):
    """A QAT card with two virtual functions, an FPGA card, and the machine's own network card."""
    tree = Tree(tmp_path / "sys")
    tree.add("0000:3d:00.0", "8086:37c8", numa_node=1, driver="c6xx", sriov_totalvfs="16", sriov_numvfs="2")
    tree.add("0000:3d:01.0", "8086:37c9", numa_node=1, driver="c6xxvf", of="0000:3d:00.0")
    tree.add("0000:3d:01.1", "8086:37c9", numa_node=1, driver="c6xxvf", of="0000:3d:00.0")
    tree.add("0000:5e:00.0", "1bd4:a115", numa_node=-1)
    tree.add("0000:00:03.0", "8086:1572", driver="i40e", kind="020000")
    tree.bind_nothing_to(VFIO)
    return tree


def driver_of(tree, *specs):
    return PciDriver(specs, tree.sysfs())


def test_only_devices_of_a_device_spec_are_discovered_whole_or_by_virtual_functions(tree):
    """R1, R2: a part of a device, and a device as a whole."""
    qat, card = driver_of(tree, QAT, CARD).discover()
    assert (qat.pci_id, qat.type, qat.vendor, qat.numa_node) == ("0000:3d:00.0", DeviceType.QAT, "intel", 1)
    assert qat.deployables[0].handles == ("0000:3d:01.0", "0000:3d:01.1")
    assert (card.pci_id, card.type, card.vendor, card.numa_node) == ("0000:5e:00.0", DeviceType.FPGA, "inspur", 0)
    assert card.deployables[0].handles == ("0000:5e:00.0",)
    assert not any(part.programmable for device in (qat, card) for part in device.deployables)


def test_traits_name_the_type_the_product_and_those_of_the_device_spec(tree):
    (qat,) = driver_of(tree, QAT).discover()
    assert traits_of(qat, qat.deployables[0]) == {
        "OWNER_CYBORG", "CUSTOM_QAT_INTEL", "CUSTOM_PCI_8086_37C8", "CUSTOM_QAT_C62X",
    }  # fmt: skip


def test_a_network_card_has_the_physical_network_of_its_device_spec(tree):
    text = '[{"vendor": "8086", "kind": "02", "type": "PCI", "physical_network": "physnet 1"}]'
    (card,) = driver_of(tree, *parse_specs(text, "here")).discover()
    assert dict(card.details)["physical_network"] == "physnet 1"


def test_virtual_functions_are_devices_if_a_spec_selects_them_instead_of_their_card(tree):
    found = driver_of(tree, DeviceSpec(product="37c9", type="QAT")).discover()
    assert [device.pci_id for device in found] == ["0000:3d:01.0", "0000:3d:01.1"]


def test_the_first_spec_that_matches_counts_and_addresses_may_have_wildcards(tree):
    found = driver_of(tree, DeviceSpec(address="0000:3d:00.*", type="SSD"), QAT).discover()
    assert [(device.pci_id, device.type) for device in found] == [("0000:3d:00.0", DeviceType.SSD)]


def test_numa_node_and_iommu_group_of_a_device_are_shown(tree):
    """The IOMMU group tells operators which functions must be attached to the same guest."""
    tree.add("0000:5f:00.0", "1bd4:a115", numa_node=1)
    (tree.devices / "0000:5f:00.0" / "iommu_group").symlink_to("../../../kernel/iommu_groups/42")
    without, card = driver_of(tree, CARD).discover()
    assert (card.numa_node, card.details) == (1, (("iommu_group", "42"),))
    assert without.details == ()


def test_the_kind_of_a_spec_matches_the_beginning_of_the_pci_class(tree):
    tree.add("0000:17:00.0", "10de:27b8", kind="030200")
    tree.add("0000:17:00.1", "10de:22bc", kind="040300")
    (gpu,) = driver_of(tree, DeviceSpec(vendor="10de", kind="03", type="GPU")).discover()
    assert (gpu.pci_id, gpu.vendor, gpu.type) == ("0000:17:00.0", "nvidia", DeviceType.GPU)


def test_the_next_discovery_sees_added_and_removed_devices(tree):
    """R6"""
    driver = driver_of(tree, CARD)
    tree.add("0000:5f:00.0", "1bd4:a115")
    assert [device.pci_id for device in driver.discover()] == ["0000:5e:00.0", "0000:5f:00.0"]
    tree.remove("0000:5e:00.0")
    assert [device.pci_id for device in driver.discover()] == ["0000:5f:00.0"]
    assert driver.health("0000:5e:00.0") is Health.GONE


def test_a_machine_without_pci_has_no_devices(tmp_path):
    assert PciDriver([CARD], Sysfs(tmp_path)).discover() == []


def test_prepare_binds_a_device_to_vfio_and_release_gives_it_back_to_its_driver(tree):
    sysfs = tree.sysfs()
    driver = PciDriver([QAT], sysfs)
    for _ in range(2):  # a job may be done twice
        driver.prepare("0000:3d:01.0", "instance")
        assert sysfs.pci_function("0000:3d:01.0").driver == VFIO
    assert sysfs.written == [
        ("devices/0000:3d:01.0/driver_override", "vfio-pci\n"),
        ("drivers/c6xxvf/unbind", "0000:3d:01.0"),
        ("drivers_probe", "0000:3d:01.0"),
    ]
    for _ in range(2):
        driver.release("0000:3d:01.0")
        assert sysfs.pci_function("0000:3d:01.0").driver == "c6xxvf"
    assert sysfs.read_attribute("0000:3d:01.0", "driver_override") == ""


def test_a_device_without_a_driver_can_be_bound_too(tree):
    driver = driver_of(tree, CARD)
    driver.prepare("0000:5e:00.0", "instance")
    assert tree.sysfs().pci_function("0000:5e:00.0").driver == VFIO
    driver.release("0000:5e:00.0")
    assert tree.sysfs().pci_function("0000:5e:00.0").driver is None


def test_prepare_fails_if_the_vfio_driver_is_not_loaded(tree):
    (tree.drivers / VFIO).rmdir()
    with pytest.raises(DriverError, match="vfio_pci loaded"):
        driver_of(tree, QAT).prepare("0000:3d:01.0", "instance")


def test_with_bind_none_the_driver_of_a_device_is_not_changed(tree):
    sysfs = tree.sysfs()
    driver = PciDriver([DeviceSpec(vendor="1bd4", type="FPGA", bind="none")], sysfs)
    driver.prepare("0000:5e:00.0", "instance")
    driver.release("0000:5e:00.0")
    assert sysfs.written == []


def test_clean_resets_the_device(tree):
    sysfs = tree.sysfs()
    PciDriver([QAT], sysfs).clean("0000:3d:01.0")
    assert sysfs.written == [("devices/0000:3d:01.0/reset", "1")]


def test_clean_fails_for_a_device_without_reset_unless_its_spec_allows_it(tree):
    tree.add("0000:60:00.0", "1bd4:a116", reset=False)
    with pytest.raises(DriverError, match=r'"reset": "none"'):
        driver_of(tree, CARD).clean("0000:60:00.0")
    driver_of(tree, DeviceSpec(vendor="1bd4", reset="none")).clean("0000:60:00.0")


def test_a_card_whose_config_space_reads_as_all_ones_has_failed(tree):
    driver = driver_of(tree, CARD)
    assert driver.health("0000:5e:00.0") is Health.OK
    (tree.devices / "0000:5e:00.0" / "config").write_bytes(b"\xff" * 64)
    assert driver.health("0000:5e:00.0") is Health.FAILED


@pytest.mark.parametrize("verb", ["release", "clean"])
def test_a_missing_device_or_one_without_device_spec_is_a_driver_error(tree, verb):
    with pytest.raises(DriverError, match="no longer on this host"):
        getattr(driver_of(tree, CARD), verb)("0000:99:00.0")
    with pytest.raises(DriverError, match="no device spec"):
        getattr(driver_of(tree, CARD), verb)("0000:00:03.0")


def test_a_pci_device_cannot_be_programmed(tree):
    with pytest.raises(DriverError, match="cannot be programmed"):
        driver_of(tree, CARD).program("0000:5e:00.0", None, None)


def test_device_specs_are_parsed_from_json():
    text = json.dumps([{"vendor": "8086", "product": "37c8", "type": "QAT", "functions": "virtual"}])
    assert parse_specs(text, "here") == (DeviceSpec(vendor="8086", product="37c8", type="QAT", functions="virtual"),)
    assert parse_specs("  ", "here") == ()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "not a JSON list"),
        ("[1]", "not a JSON list"),
        ('[{"vendor": 8086}]', "not a JSON list"),
        ('[{"type": "GPU"}]', "no vendor, product"),
        ('[{"vendor": "0x8086"}]', "four lower-case hexadecimal digits"),
        ('[{"vendor": "8086", "type": "TOASTER"}]', "use one of FPGA, GPU"),
        ('[{"kind": "display"}]', "hexadecimal digits of the six-digit PCI class"),
        ('[{"vendor": "8086", "functions": "some"}]', "whole, virtual, any, mdev"),
        ('[{"vendor": "8086", "functions": "mdev"}]', "requires an mdev_type"),
        ('[{"vendor": "8086", "mdev_type": "nvidia-63"}]', "requires an mdev_type"),
        ('[{"vendor": "8086", "functions": "mdev", "mdev_type": "../../x"}]', "letters, digits"),
        ('[{"vendor": "8086", "physical_network": "' + "x" * 65 + '"}]', "at most 64 characters"),
        ('[{"vendor": "8086", "region_type": "A10"}]', "must be a UUID"),
        ('[{"vendor": "8086", "blank": "blank.gbs"}]', "absolute path"),
        ('[{"vendor": "8086", "reset": "no"}]', "kernel, none"),
        ('[{"vendor": "8086", "bind": "uio"}]', "vfio-pci, none"),
        ('[{"vendor": "8086", "traits": ["FAST"]}]', "CUSTOM_"),
    ],
)
def test_an_invalid_device_spec_is_a_start_error_with_the_reason(text, fault):
    with pytest.raises(StartError, match="here") as refusal:
        parse_specs(text, "here")
    assert fault in refusal.value.message


def test_the_real_pci_devices_of_this_machine_can_be_read():
    sysfs = Sysfs()
    for function in sysfs.pci_functions():
        assert PCI_ADDRESS.match(function.address)
        whole = PciDriver([DeviceSpec(address=function.address)], sysfs)
        (device,) = whole.discover()
        assert (device.vendor_id, device.product_id) == (function.vendor, function.product)
        assert whole.health(function.address) is Health.OK


MOCK = """\
P: /devices/pci0000:5d/0000:5e:00.0
E: SUBSYSTEM=pci
E: PCI_ID=8086:09C4
A: vendor=0x8086
A: device=0x09c4
A: class=0x120000
A: numa_node=1
"""
DISCOVER_SCRIPT = """\
from moorage.accelerator.drivers.device_spec import DeviceSpec
from moorage.accelerator.drivers.pci import PciDriver
for device in PciDriver([DeviceSpec(vendor="8086", product="09c4", type="FPGA")]).discover():
    print(device.pci_id, device.type, device.numa_node)
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("umockdev-run") is None, reason="umockdev is not here: apt-get install umockdev")
def test_a_device_that_umockdev_adds_to_the_real_sysfs_is_discovered(tmp_path):
    """The driver is unchanged: umockdev replaces /sys for the whole process."""
    mock = tmp_path / "card.umockdev"
    mock.write_text(MOCK)
    command = ["umockdev-run", "--device", mock, "--", sys.executable, "-c", DISCOVER_SCRIPT]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(Path("src").resolve())}
    )
    assert done.stdout == "0000:5e:00.0 FPGA 1\n", done.stderr
