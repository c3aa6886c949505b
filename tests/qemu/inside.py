"""Runs in the guest as root: our drivers, unmodified, over the guest's own kernel. Prints a line for each fact.

The guest has an NVMe controller with virtual functions, and QEMU's educational device, both behind an IOMMU.
"""

import traceback
from collections.abc import Callable
from pathlib import Path

from moorage.accelerator.drivers.base import DeviceGone, DriverError
from moorage.accelerator.drivers.device_spec import VFIO, DeviceSpec
from moorage.accelerator.drivers.pci import MediatedDevices, PciDriver
from moorage.accelerator.drivers.sysfs import Sysfs
from moorage.accelerator.model.devices import Health

SYSFS = Sysfs()
CONTROLLER = DeviceSpec(vendor="1b36", product="0010", type="SSD", functions="virtual")
EDUCATIONAL = DeviceSpec(vendor="1234", product="11e8", type="PCI")


def card() -> str:
    return next(one.address for one in SYSFS.pci_functions() if one.product == "0010" and not one.physical_function)


def handles(driver: PciDriver) -> tuple[str, ...]:
    (device,) = driver.discover()
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


def cleaning() -> str:
    """The kernel resets a device; a device that cannot be reset does not count as clean."""
    driver = PciDriver([CONTROLLER, EDUCATIONAL])
    handle = next(one.deployables[0].handles[0] for one in driver.discover() if one.product_id == "0010")
    driver.clean(handle)
    plain = next(one.pci_id for one in driver.discover() if one.product_id == "11e8")
    if SYSFS.has_attribute(plain, "reset"):
        driver.clean(plain)
        return f"{handle} {plain}"
    try:
        driver.clean(plain)
    except DriverError as error:
        return f"{handle} {error.message}"
    raise AssertionError("a device that cannot be reset was called clean")


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


FACTS: list[Callable[[], str]] = [sriov, binding, cleaning, whole, vanishing, mediated]


def main() -> None:
    for fact in FACTS:
        try:
            print(f"FACT {fact.__name__} holds: {fact()}", flush=True)
        except Exception:  # noqa: BLE001 - the test reads every failure from the console
            print(f"FACT {fact.__name__} fails: {' | '.join(traceback.format_exc().splitlines()[-4:])}", flush=True)
    print("FACTS END", flush=True)


if __name__ == "__main__":
    main()
