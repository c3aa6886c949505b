"""Runs in the guest as root: our drivers, unmodified, over the guest's own kernel. Prints a line for each fact.

The guest has an NVMe controller with virtual functions, and QEMU's educational device, both behind an IOMMU.
"""

import traceback
from collections.abc import Callable
from pathlib import Path

from moorage.accelerator.drivers.base import Cleaned, DeviceGone, DriverError
from moorage.accelerator.drivers.device_spec import VFIO, DeviceSpec
from moorage.accelerator.drivers.pci import MediatedDevices, PciDriver
from moorage.accelerator.drivers.sysfs import Sysfs
from moorage.accelerator.model.devices import Health

SYSFS = Sysfs()
CONTROLLER = DeviceSpec(vendor="1b36", product="0010", type="SSD", functions="virtual")
EDUCATIONAL = DeviceSpec(vendor="1234", product="11e8", type="PCI")


def card() -> str:
    """The controller with virtual functions; the other one is a drive."""
    return next(one.address for one in SYSFS.pci_functions() if SYSFS.has_attribute(one.address, "sriov_numvfs"))


def drive() -> str:
    controllers = [one for one in SYSFS.pci_functions() if one.product == "0010" and not one.physical_function]
    return next(one.address for one in controllers if one.address != card())


def handles(driver: PciDriver) -> tuple[str, ...]:
    device = next(device for device in driver.discover() if device.pci_id == card())
    return device.deployables[0].handles


def sriov() -> str:
    """An operator sets the number of virtual functions; the driver finds as many, each in its own IOMMU group."""
    driver = PciDriver([CONTROLLER])
    assert handles(driver) == ()
    SYSFS.write_attribute(card(), "sriov_numvfs", "2")
    found = handles(driver)
    assert len(found) == 2
    groups = {SYSFS.pci_function(one).iommu_group for one in found}
    assert len(groups - {None}) == 2
    return " ".join(found)


def binding() -> str:
    """`prepare` binds to vfio-pci, and the kernel creates the group's file; after `release` the file is gone."""
    driver = PciDriver([CONTROLLER])
    handle = handles(driver)[0]
    group = Path("/dev/vfio") / SYSFS.pci_function(handle).iommu_group
    for _ in range(2):
        driver.prepare(handle, "instance")
        assert SYSFS.pci_function(handle).driver == VFIO
        assert group.exists()
    assert handles(driver)[0] == handle
    assert PciDriver([CONTROLLER]).health(handle) is Health.OK
    for _ in range(2):
        driver.release(handle)
        assert SYSFS.pci_function(handle).driver != VFIO
        assert not group.exists()
    return group.name


def finished(driver: PciDriver, handle: str) -> str:
    for _ in range(120):
        if isinstance(answer := driver.clean(handle), Cleaned):
            return answer.proof
    raise AssertionError("the device is never clean")


def cleaning() -> str:
    """A device that cannot be reset, or a virtual function whose namespaces cannot be reached, does not count as clean."""
    driver = PciDriver([CONTROLLER, EDUCATIONAL])
    try:
        finished(driver, handles(driver)[0])
    except DriverError as error:
        refused = error.message
    else:
        raise AssertionError("a controller that is offline was called clean")
    plain = next(one.pci_id for one in driver.discover() if one.product_id == "11e8")
    if SYSFS.has_attribute(plain, "reset"):
        return f"{refused} {finished(driver, plain)}"
    try:
        driver.clean(plain)
    except DriverError as error:
        return f"{refused} {error.message}"
    raise AssertionError("a device that cannot be reset was called clean")


def erasing() -> str:
    """A guest had the drive; after `clean` its data is gone: the kernel's ioctl, and the drive's own answers."""
    driver = PciDriver([DeviceSpec(address=drive(), type="SSD")])
    node = Path("/dev") / next((Path("/sys/bus/pci/devices") / drive() / "nvme").glob("*/nvme*n1")).name
    with node.open("rb") as disk:
        assert disk.read(24) == b"the last tenant's data, "
    driver.prepare(drive(), "instance")
    assert SYSFS.pci_function(drive()).driver == VFIO
    driver.release(drive())
    proof = finished(driver, drive())
    node = Path("/dev") / next((Path("/sys/bus/pci/devices") / drive() / "nvme").glob("*/nvme*n1")).name
    with node.open("rb") as disk:
        assert disk.read() == bytes(16 << 20)
    assert proof.startswith("NVMe format (user data erase) of namespaces 1: status 0x000"), proof
    assert "64 of 64 sampled blocks with content have changed" in proof
    return proof


def whole() -> str:
    driver = PciDriver([EDUCATIONAL])
    (device,) = driver.discover()
    driver.prepare(device.pci_id, "instance")
    assert SYSFS.pci_function(device.pci_id).driver == VFIO
    driver.release(device.pci_id)
    assert SYSFS.pci_function(device.pci_id).driver is None
    return device.pci_id


def vanishing() -> str:
    """The device is removed and added again, as by hot plug."""
    driver = PciDriver([EDUCATIONAL])
    (device,) = driver.discover()
    SYSFS.write_attribute(device.pci_id, "remove", "1")
    assert driver.discover() == []
    assert driver.health(device.pci_id) is Health.GONE
    try:
        driver.prepare(device.pci_id, "instance")
    except DeviceGone:
        SYSFS.write_text(Path("/sys/bus/pci/rescan"), "1")
        assert driver.discover() == [device]
        return device.pci_id
    raise AssertionError("a device that is not there was prepared")


def mediated() -> str:
    """The kernel's sample of mediated devices, if the guest has it."""
    bus = Path("/sys/class/mdev_bus")
    if not (bus / "mtty").exists():
        return "no mtty here"
    devices = MediatedDevices(SYSFS)
    kind = max(path.name for path in (bus / "mtty" / "mdev_supported_types").iterdir())
    before = [share.uuid for share in devices.available_mdevs("mtty", kind)]
    for _ in range(2):
        devices.create("mtty", kind, before[0])
        assert devices.exists("mtty", before[0])
        assert [share.uuid for share in devices.available_mdevs("mtty", kind)] == before
    for _ in range(2):
        devices.remove("mtty", before[0])
        assert not devices.exists("mtty", before[0])
    assert [share.uuid for share in devices.available_mdevs("mtty", kind)] == before
    return f"{kind} x {len(before)}"


FACTS: list[Callable[[], str]] = [sriov, binding, cleaning, erasing, whole, vanishing, mediated]


def main() -> None:
    for fact in FACTS:
        try:
            print(f"FACT {fact.__name__} holds: {fact()}", flush=True)
        except Exception:  # noqa: BLE001 - the test reads every failure from the console
            print(f"FACT {fact.__name__} fails: {' | '.join(traceback.format_exc().splitlines()[-4:])}", flush=True)
    print("FACTS END", flush=True)


if __name__ == "__main__":
    main()
