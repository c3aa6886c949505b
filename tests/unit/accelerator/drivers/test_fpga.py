"""The drivers for FPGAs with a kernel driver: the Device Feature List, and the FPGA manager class.

The simulated sysfs follows the kernel's documents (fpga/dfl.rst, sysfs-class-fpga-manager); none was recorded.
"""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.drivers.bitstream_headers import read_gbs_header, read_xclbin_header
from moorage.accelerator.drivers.device_spec import DeviceSpec
from moorage.accelerator.drivers.fpga_dfl import FpgaDflDriver, load_port
from moorage.accelerator.drivers.fpga_manager import FpgaManagerDriver
from moorage.accelerator.model.devices import Health, RegionState
from moorage.core.errors import StartError
from tests.unit.accelerator.drivers import benches
from tests.unit.accelerator.drivers.benches import AES, FACTORY, FPGA, REGION_TYPE, SHA, DflKernel, dfl_card
from tests.unit.accelerator.drivers.bits import bitstream_of, gbs, opened, xclbin
from tests.unit.accelerator.drivers.sysfs_tree import Tree
from tests.unit.accelerator.rig import Killed

R1 = f"{FPGA}_R1"


@pytest.fixture
def tree(tmp_path):
    tree = Tree(tmp_path / "sys")
    tree.bind_nothing_to("vfio-pci")
    return tree


@pytest.fixture
def kernel(tree):
    return DflKernel(tree)


@pytest.fixture
def new_driver(tree, kernel, tmp_path):
    def make(*specs):
        return FpgaDflDriver(tmp_path / "state", specs, benches._Hiding(tree), tmp_path / "dev", kernel.load)

    return make


def load(driver, afu=AES, deployable=R1, region_type=REGION_TYPE):
    bitstream, data = bitstream_of(gbs(region_type, afu), f"image-{afu[:4]}", afu)
    driver.program(deployable, bitstream, opened(data))
    return bitstream


def test_each_port_is_a_region_with_its_virtual_function(new_driver, tree):
    """R3: several regions of one device, each with its own handle."""
    dfl_card(tree, ports=2, virtual=True)
    (card,) = new_driver().discover()
    assert [(part.name, part.handles, part.region_type) for part in card.deployables] == [
        (f"{FPGA}_R1", ("0000:3b:00.1",), REGION_TYPE),
        (f"{FPGA}_R2", ("0000:3b:00.2",), REGION_TYPE),
    ]
    assert (card.numa_node, card.shell_id) == (1, REGION_TYPE)


def test_without_virtual_functions_the_card_is_the_handle_of_its_first_region(new_driver, tree):
    """R3: a card that is attached as a whole offers one region; the other region is known and has no handle."""
    dfl_card(tree, ports=2)
    (card,) = new_driver().discover()
    assert [part.handles for part in card.deployables] == [(FPGA,), ()]


def test_the_fpga_of_a_smart_nic_is_a_device_and_its_network_functions_are_not(new_driver, tree):
    """R11: the FPGA of a PAC N3000 is a device; its network functions stay with the host."""
    dfl_card(tree)
    (tree.devices / FPGA / "device").write_text("0x0b30\n")
    for number in (0, 1):
        tree.add(f"0000:3d:00.{number}", "8086:0d58", kind="020000", driver="i40e")
    (card,) = new_driver().discover()
    assert (card.product_id, [part.handles for part in card.deployables]) == ("0b30", [(FPGA,)])


def test_a_card_without_a_management_engine_is_not_discovered(new_driver, tree):
    tree.add(FPGA, "8086:09c4", driver="something-else")
    assert new_driver().discover() == []


def test_a_factory_bitstream_is_identified_by_its_function_only(new_driver, tree):
    dfl_card(tree)
    found = new_driver().identify(R1)
    assert (found.state, found.bitstream.digest) == (RegionState.IDLE, "")
    assert [function.id for function in found.bitstream.functions] == [FACTORY]


def test_the_kernel_gets_the_port_the_file_and_the_offset_of_the_data(new_driver, tree, kernel, tmp_path):
    dfl_card(tree, ports=2, virtual=True)
    load(new_driver(), deployable=f"{FPGA}_R2")
    ((node, port, name, offset),) = kernel.orders
    assert (node, port) == (f"{tmp_path}/dev/dfl-fme.0", 1)
    assert gbs(REGION_TYPE, AES)[offset:] == b"bits" * 64
    assert name.endswith(".gbs")


def test_a_region_can_be_programmed_while_a_guest_uses_another_region_of_the_card(new_driver, tree):
    dfl_card(tree, ports=2, virtual=True)
    driver = new_driver()
    first = load(driver)
    driver.prepare("0000:3b:00.1", "instance")
    second = load(driver, SHA, f"{FPGA}_R2")
    assert driver.identify(f"{FPGA}_R1").bitstream == first  # known although an attached port shows no function
    assert driver.identify(f"{FPGA}_R2").bitstream == second


def test_a_bitstream_for_another_shell_is_refused_before_it_is_loaded(new_driver, tree, kernel):
    """Cyborg does not check this."""
    dfl_card(tree)
    with pytest.raises(DriverError, match=r"made for region type 11111111.*has type ce489693"):
        load(new_driver(), region_type="11111111-2222-3333-4444-555555555555")
    assert kernel.orders == []
    assert new_driver().identify(R1).bitstream.functions[0].id == FACTORY


def test_after_a_refusal_of_the_kernel_the_region_is_unknown_until_it_is_programmed(new_driver, tree, kernel):
    dfl_card(tree)
    kernel.fault = "refuses"
    with pytest.raises(DriverError, match="refused"):
        load(new_driver())
    assert new_driver().identify(R1).state is RegionState.UNKNOWN
    kernel.fault = ""
    assert load(new_driver()) == new_driver().identify(R1).bitstream


def test_after_a_kill_during_programming_the_region_is_unknown_until_it_is_programmed(
    new_driver, tree, kernel, tmp_path
):
    """Even if the card shows the wanted function, because it may do so before the last data is loaded."""
    dfl_card(tree)
    load(new_driver())
    kernel.fault = "is killed"
    with pytest.raises(Killed):
        load(new_driver())
    left = tmp_path / "state" / "staging" / "0000-3b-00.0_R1.gbs"
    left.write_bytes(b"as a kill leaves it")
    assert new_driver().identify(R1).state is RegionState.UNKNOWN
    kernel.fault = ""
    assert load(new_driver(), SHA) == new_driver().identify(R1).bitstream
    assert not left.exists()


def test_a_bitstream_that_was_loaded_by_hand_is_identified_by_its_function_only(new_driver, tree):
    dfl_card(tree)
    load(new_driver())
    (afu_id,) = tree.devices.glob(f"{FPGA}/fpga_region/*/dfl-port.0/afu_id")
    tree.write(afu_id, SHA.replace("-", ""))
    found = new_driver().identify(R1).bitstream
    assert (found.digest, found.functions[0].id) == ("", SHA)


def test_a_region_is_cleared_with_the_blank_bitstream_of_its_device_spec(new_driver, tree, tmp_path):
    dfl_card(tree)
    blank = tmp_path / "blank.gbs"
    spec = DeviceSpec(vendor="8086", kind="1200", type="FPGA", blank=str(blank))
    load(new_driver())
    with pytest.raises(DriverError, match=r"no blank bitstream \(blank\)"):
        new_driver().program(R1, None, None)
    with pytest.raises(DriverError, match="does not exist"):
        new_driver(spec).program(R1, None, None)
    blank.write_bytes(gbs(REGION_TYPE, FACTORY))
    new_driver(spec).program(R1, None, None)
    assert new_driver(spec).identify(R1).bitstream is None


def test_an_attached_card_cannot_be_programmed_and_is_still_identified(new_driver, tree):
    dfl_card(tree)
    driver = new_driver()
    bitstream = load(driver)
    driver.prepare(FPGA, "instance")
    assert new_driver().identify(R1).bitstream == bitstream
    assert new_driver().health(FPGA) is Health.OK
    with pytest.raises(DriverError, match="does not show the region now"):
        load(driver, SHA)


def test_the_ioctl_on_a_file_that_is_no_device_is_a_driver_error(tmp_path):
    """The call is the real one, but the device node is an ordinary file, for which the kernel has no such ioctl."""
    bits, node = tmp_path / "bits", tmp_path / "node"
    bits.write_bytes(b"head" + b"bits" * 2000)
    node.write_bytes(b"")
    with pytest.raises(DriverError, match="Inappropriate ioctl"):
        load_port(node, 0, bits, 4)
    with pytest.raises(DriverError, match="No such file"):
        load_port(tmp_path / "absent", 0, bits, 4)


def test_a_state_file_that_cannot_be_read_is_a_start_error_that_names_it(new_driver, tree, tmp_path):
    dfl_card(tree)
    (tmp_path / "state").mkdir(exist_ok=True)
    (tmp_path / "state" / "loaded.json").write_text("{")
    with pytest.raises(StartError, match=r"loaded\.json"):
        new_driver().identify(R1)


# ---------------------------------------------------------------------------------- FPGA manager class


@pytest.fixture
def managed(tmp_path, clock):
    return benches.fpga_manager(tmp_path, clock)


def test_after_a_reboot_of_the_host_no_bitstream_counts_as_loaded(managed, tmp_path):
    bitstream, data = managed.bitstreams[0]
    managed.driver.program(managed.deployable, bitstream, opened(data))
    (tmp_path / "boot_id").write_text("boot-2\n")
    assert managed.again().identify(managed.deployable).bitstream is None


def test_the_file_of_a_bitstream_is_removed_from_the_firmware_directory(managed, tmp_path):
    bitstream, data = managed.bitstreams[0]
    managed.driver.program(managed.deployable, bitstream, opened(data))
    assert list((tmp_path / "firmware" / "moorage").iterdir()) == []


def test_an_fpga_manager_without_a_firmware_file_requires_an_overlay_in_the_device_spec(managed, tmp_path):
    (tmp_path / "sys/bus/pci/devices/0000:04:00.0/fpga_manager/fpga0/firmware").unlink()
    bitstream, data = managed.bitstreams[0]
    with pytest.raises(DriverError, match=r"spec \(overlay\)"):
        managed.driver.program(managed.deployable, bitstream, opened(data))


@pytest.mark.parametrize("status", ["applied", "unapplied"])
def test_an_overlay_is_applied_and_its_status_is_checked(tmp_path, tree, status):
    tree.add("0000:04:00.0", "1d22:3684")
    manager = tree.devices / "0000:04:00.0" / "fpga_manager" / "fpga0"
    tree.write(manager / "state", "power up")
    tree.write(tmp_path / "boot_id", "boot-1")
    overlays = tree.root / "kernel/config/device-tree/overlays"
    overlays.mkdir(parents=True)
    applied = []

    def apply(path, value):
        applied.append((path.parent.name, value, (tmp_path / "firmware/moorage/0000:04:00.0.bin").read_bytes()))
        tree.write(path.parent / "status", status)
        tree.write(manager / "state", "operating")

    tree.effects.append(("/path", apply))
    spec = DeviceSpec(vendor="1d22", type="FPGA", region_type=REGION_TYPE, overlay="card.dtbo")
    driver = FpgaManagerDriver(tmp_path / "state", [spec], tree.sysfs(), tmp_path / "firmware", tmp_path / "boot_id")
    bitstream, data = bitstream_of(b"raw bits", "image")
    if status == "applied":
        driver.program("0000:04:00.0_R1", bitstream, opened(data))
    else:
        with pytest.raises(DriverError, match="is unapplied after it was applied"):
            driver.program("0000:04:00.0_R1", bitstream, opened(data))
    assert applied == [("moorage-0000-04-00.0", "card.dtbo", b"raw bits")]


# ------------------------------------------------------------------------------------------- hostile files


def test_the_headers_of_gbs_and_xclbin_files_are_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(gbs(REGION_TYPE, AES))
    assert (read_gbs_header(path).region_type, read_gbs_header(path).shown) == (REGION_TYPE, AES)
    path.write_bytes(xclbin(SHA))
    assert read_xclbin_header(path).shown == SHA


@given(st.binary(max_size=600), st.integers(0, 400), st.booleans())
def test_a_file_with_a_random_header_is_read_or_a_driver_error(tmp_path_factory, noise, at, whole):
    path = tmp_path_factory.getbasetemp() / "hostile"
    for make, read in ((gbs(REGION_TYPE, AES), read_gbs_header), (xclbin(AES), read_xclbin_header)):
        path.write_bytes(noise if whole else make[:at] + noise + make[at + len(noise) :])
        with contextlib.suppress(DriverError):  # anything else fails the test
            assert read(path).shown


@pytest.mark.parametrize(
    "about",
    [
        [],
        {"afu-image": {}},
        {"afu-image": {"interface-uuid": 5, "accelerator-clusters": []}},
        {"afu-image": {"interface-uuid": "x", "accelerator-clusters": []}},
        {"afu-image": {"interface-uuid": "x", "accelerator-clusters": [{"accelerator-type-uuid": "y"}] * 2}},
    ],
)
def test_a_gbs_header_of_another_structure_is_a_driver_error(about, tmp_path):
    header = json.dumps(about).encode()
    path = tmp_path / "file"
    path.write_bytes(b"XeonFPGA\xb7GBSv001" + len(header).to_bytes(4, "little") + header + b"bits")
    with pytest.raises(DriverError):
        read_gbs_header(path)


def test_a_gbs_header_with_a_huge_length_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"XeonFPGA\xb7GBSv001" + b"\xff\xff\xff\xff" + b"{")
    with pytest.raises(DriverError, match="at most 65536 are allowed"):
        read_gbs_header(path)
