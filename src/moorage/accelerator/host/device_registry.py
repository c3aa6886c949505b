"""All devices of one host: discovers them with all drivers, and looks them up by deployable."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from moorage.accelerator.drivers.base import AcceleratorDriver, DriverError, RegionContent
from moorage.accelerator.model.devices import Deployable, Device, Health, RegionState
from moorage.accelerator.model.errors import BadRequest
from moorage.core.errors import StartError

log = logging.getLogger(__name__)

NO_LONGER_REPORTED = "its driver no longer reports it, perhaps because no device spec selects it; removed on release"


@dataclass(frozen=True, slots=True)
class ManagedDeployable:
    """A deployable with its card and its driver."""

    driver: AcceleratorDriver
    device: Device
    deployable: Deployable


class DeviceRegistry:
    def __init__(self, drivers: Sequence[AcceleratorDriver]) -> None:
        self._drivers = {driver.name: driver for driver in drivers}
        if len(self._drivers) != len(drivers):
            raise StartError("two accelerator drivers of this host have the same name")
        self._deployables: dict[str, ManagedDeployable] = {}

    def discover(self, known: Iterable[Device], in_use: frozenset[str]) -> tuple[Device, ...]:
        """Returns the devices present now, by address, with the content of each region; pass those to offer to `adopt`.

        If a driver fails, its devices are marked unknown; other drivers are unaffected. A device that a driver no
        longer reports is dropped, unless one of its handles is in `in_use`. Then it stays, so that its handles can
        still be released: with health ``gone`` if it has vanished, or with the handles in use if it only is no longer
        configured.
        """
        last = {device.pci_id: device for device in known}
        found: dict[str, Device] = {}
        failed_drivers: set[str] = set()
        for driver in self._drivers.values():
            try:
                for device in driver.discover():
                    if device.pci_id in found:
                        raise StartError(f"two accelerator drivers report the device at {device.pci_id}")
                    found[device.pci_id] = self._inspected(driver, replace(device, driver=driver.name))
            except DriverError as error:
                log.warning("discovery failed", extra={"driver": driver.name, "reason": error.message})
                failed_drivers.add(driver.name)
        for device in last.values():
            if device.pci_id in found:
                continue
            if device.driver in failed_drivers:
                found[device.pci_id] = replace(device, health=Health.UNKNOWN, withheld="")
            elif any(handle in in_use for part in device.deployables for handle in part.handles):
                found[device.pci_id] = self._unreported(device, in_use)
        return tuple(found[pci_id] for pci_id in sorted(found))

    def adopt(self, devices: Iterable[Device]) -> None:
        """Sets the devices that `deployable` looks up."""
        self._deployables = {
            part.name: ManagedDeployable(self._drivers[device.driver], device, part)
            for device in devices
            if device.driver in self._drivers
            for part in device.deployables
        }

    def deployable(self, deployable: str) -> ManagedDeployable:
        if deployable not in self._deployables:
            raise BadRequest(f"this host has no deployable {deployable}")
        return self._deployables[deployable]

    def identify(self, deployable: str) -> RegionContent:
        """The region's content; state unknown if the driver fails."""
        try:
            return self.deployable(deployable).driver.identify(deployable)
        except (DriverError, BadRequest):
            return RegionContent(RegionState.UNKNOWN)

    def _unreported(self, device: Device, in_use: frozenset[str]) -> Device:
        """A device with handles in use that its driver no longer reports: it has vanished, or no spec matches it."""
        try:
            driver = self._drivers.get(device.driver)
            health = Health.GONE if driver is None else driver.health(device.pci_id)
        except DriverError:
            health = Health.GONE
        if health is not Health.OK:
            return replace(device, health=Health.GONE, withheld="")
        parts = tuple(
            replace(part, handles=tuple(handle for handle in part.handles if handle in in_use))
            for part in device.deployables
        )
        return replace(device, deployables=parts, health=health, withheld=NO_LONGER_REPORTED)

    def _inspected(self, driver: AcceleratorDriver, device: Device) -> Device:
        """`device` with its health and the content of its regions; health unknown if the driver fails."""
        try:
            parts = tuple(
                replace(part, bitstream=driver.identify(part.name).bitstream) if part.programmable else part
                for part in device.deployables
            )
            return replace(device, deployables=parts, health=driver.health(device.pci_id))
        except DriverError as error:
            log.warning("device cannot be inspected", extra={"device": device.pci_id, "reason": error.message})
            return replace(device, health=Health.UNKNOWN)
