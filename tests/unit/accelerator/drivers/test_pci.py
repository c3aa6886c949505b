"""The driver for any PCI device: the devices that its specs select, and its writes to the kernel."""

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


def test_only_what_a_spec_names_is_found_in_the_form_it_says(tree):
    """R1, R2: a share of a device, and a device as a whole"""
    qat, card = driver_of(tree, QAT, CARD).discover()
    assert (qat.pci_id, qat.type, qat.vendor, qat.numa_node) == ("0000:3d:00.0", DeviceType.QAT, "intel", 1)
    assert qat.deployables[0].handles == ("0000:3d:01.0", "0000:3d:01.1")
    assert (card.pci_id, card.type, card.vendor, card.numa_node) == ("0000:5e:00.0", DeviceType.FPGA, "inspur", 0)
    assert card.deployables[0].handles == ("0000:5e:00.0",)
    assert not any(part.programmable for device in (qat, card) for part in device.deployables)


def test_its_traits_name_type_product_and_what_the_operator_adds(tree):
    (qat,) = driver_of(tree, QAT).discover()
    assert traits_of(qat, qat.deployables[0]) == {
        "OWNER_CYBORG", "CUSTOM_QAT_INTEL", "CUSTOM_PCI_8086_37C8", "CUSTOM_QAT_C62X",
    }  # fmt: skip


def test_virtual_functions_are_devices_where_a_spec_names_them_and_not_their_card(tree):
    found = driver_of(tree, DeviceSpec(product="37c9", type="QAT")).discover()
    assert [device.pci_id for device in found] == ["0000:3d:01.0", "0000:3d:01.1"]


def test_the_first_spec_that_matches_counts_and_addresses_may_have_wildcards(tree):
    found = driver_of(tree, DeviceSpec(address="0000:3d:00.*", type="SSD"), QAT).discover()
    assert [(device.pci_id, device.type) for device in found] == [("0000:3d:00.0", DeviceType.SSD)]


def test_its_numa_node_and_its_iommu_group_are_told(tree):
    """The group shows operators which functions must go to one guest together."""
    tree.add("0000:5f:00.0", "1bd4:a115", numa_node=1)
    (tree.devices / "0000:5f:00.0" / "iommu_group").symlink_to("../../../kernel/iommu_groups/42")
    without, card = driver_of(tree, CARD).discover()
    assert (card.numa_node, card.details) == (1, (("iommu_group", "42"),))
    assert without.details == ()


def test_a_kind_is_the_beginning_of_the_class(tree):
    tree.add("0000:17:00.0", "10de:27b8", kind="030200")
    tree.add("0000:17:00.1", "10de:22bc", kind="040300")
    (gpu,) = driver_of(tree, DeviceSpec(vendor="10de", kind="03", type="GPU")).discover()
    assert (gpu.pci_id, gpu.vendor, gpu.type) == ("0000:17:00.0", "nvidia", DeviceType.GPU)


def test_a_device_that_was_added_or_removed_is_seen_the_next_time(tree):
    """R6"""
    driver = driver_of(tree, CARD)
    tree.add("0000:5f:00.0", "1bd4:a115")
    assert [device.pci_id for device in driver.discover()] == ["0000:5e:00.0", "0000:5f:00.0"]
    tree.remove("0000:5e:00.0")
    assert [device.pci_id for device in driver.discover()] == ["0000:5f:00.0"]
    assert driver.health("0000:5e:00.0") is Health.GONE


def test_a_machine_without_pci_has_no_devices(tmp_path):
    assert PciDriver([CARD], Sysfs(tmp_path)).discover() == []


def test_it_is_bound_for_the_guest_and_given_back_to_its_driver(tree):
    sysfs = tree.sysfs()
    driver = PciDriver([QAT], sysfs)
    for _ in range(2):  # jobs come twice
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


def test_where_the_pass_through_driver_is_absent_nothing_is_handed_over(tree):
    (tree.drivers / VFIO).rmdir()
    with pytest.raises(DriverError, match="vfio_pci loaded"):
        driver_of(tree, QAT).prepare("0000:3d:01.0", "instance")


def test_a_hypervisor_that_binds_by_itself_is_let(tree):
    sysfs = tree.sysfs()
    driver = PciDriver([DeviceSpec(vendor="1bd4", type="FPGA", bind="none")], sysfs)
    driver.prepare("0000:5e:00.0", "instance")
    driver.release("0000:5e:00.0")
    assert sysfs.written == []


def test_it_is_reset_between_tenants(tree):
    sysfs = tree.sysfs()
    PciDriver([QAT], sysfs).clean("0000:3d:01.0")
    assert sysfs.written == [("devices/0000:3d:01.0/reset", "1")]


def test_what_the_kernel_cannot_reset_is_not_called_clean_unless_the_operator_says_so(tree):
    tree.add("0000:60:00.0", "1bd4:a116", reset=False)
    with pytest.raises(DriverError, match=r'"reset": "none"'):
        driver_of(tree, CARD).clean("0000:60:00.0")
    driver_of(tree, DeviceSpec(vendor="1bd4", reset="none")).clean("0000:60:00.0")


def test_a_card_that_reads_as_all_ones_has_failed(tree):
    driver = driver_of(tree, CARD)
    assert driver.health("0000:5e:00.0") is Health.OK
    (tree.devices / "0000:5e:00.0" / "config").write_bytes(b"\xff" * 64)
    assert driver.health("0000:5e:00.0") is Health.FAILED


@pytest.mark.parametrize("verb", ["release", "clean"])
def test_what_is_not_there_or_not_ours_is_an_error(tree, verb):
    with pytest.raises(DriverError, match="no longer on this host"):
        getattr(driver_of(tree, CARD), verb)("0000:99:00.0")
    with pytest.raises(DriverError, match="no device spec"):
        getattr(driver_of(tree, CARD), verb)("0000:00:03.0")


def test_nothing_is_programmed(tree):
    with pytest.raises(DriverError, match="cannot be programmed"):
        driver_of(tree, CARD).program("0000:5e:00.0", None, None)


def test_specs_are_json():
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
        ('[{"vendor": "8086", "region_type": "A10"}]', "must be a UUID"),
        ('[{"vendor": "8086", "blank": "blank.gbs"}]', "absolute path"),
        ('[{"vendor": "8086", "reset": "no"}]', "kernel, none"),
        ('[{"vendor": "8086", "bind": "uio"}]', "vfio-pci, none"),
        ('[{"vendor": "8086", "traits": ["FAST"]}]', "CUSTOM_"),
    ],
)
def test_a_spec_that_cannot_be_meant_is_refused_at_the_start(text, fault):
    with pytest.raises(StartError, match="here") as refusal:
        parse_specs(text, "here")
    assert fault in refusal.value.message


def test_this_machine_is_read_as_its_kernel_shows_it():
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
SEEN_THERE = """\
from moorage.accelerator.drivers.device_spec import DeviceSpec
from moorage.accelerator.drivers.pci import PciDriver
for device in PciDriver([DeviceSpec(vendor="8086", product="09c4", type="FPGA")]).discover():
    print(device.pci_id, device.type, device.numa_node)
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("umockdev-run") is None, reason="umockdev is not here: apt-get install umockdev")
def test_the_same_code_under_a_mocked_kernel(tmp_path):
    """Nothing is injected: umockdev replaces /sys for the whole process."""
    mock = tmp_path / "card.umockdev"
    mock.write_text(MOCK)
    command = ["umockdev-run", "--device", mock, "--", sys.executable, "-c", SEEN_THERE]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(Path("src").resolve())}
    )
    assert done.stdout == "0000:5e:00.0 FPGA 1\n", done.stderr
