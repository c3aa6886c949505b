"""All devices of one host: discovers them with all drivers, and looks them up by deployable."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from moorage.accelerator.drivers.base import AcceleratorDriver, DriverError, RegionContent
from moorage.accelerator.model.devices import Deployable, Device, Health, RegionState
from moorage.accelerator.model.errors import BadRequest
from moorage.core.errors import StartError

log = logging.getLogger(__name__)


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
        """Returns the devices present now, by address, with the content of each region.

        If a driver fails, its devices are marked unknown; other drivers are unaffected. A device that has vanished is
        dropped, unless one of its handles is in `in_use`. Then it stays with health ``gone``, so that its units are
        not offered but its handles can still be released.
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
                found[device.pci_id] = replace(device, health=Health.UNKNOWN)
            elif any(handle in in_use for part in device.deployables for handle in part.handles):
                found[device.pci_id] = replace(device, health=Health.GONE)
        devices = tuple(found[pci_id] for pci_id in sorted(found))
        self._deployables = {
            part.name: ManagedDeployable(self._drivers[device.driver], device, part)
            for device in devices
            if device.driver in self._drivers
            for part in device.deployables
        }
        return devices

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
