"""All devices of one host, whatever their drivers: found together, looked up by deployable."""

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
    """A deployable with its card and whoever talks to it."""

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
        """What is there now, by address, each region with what it carries.

        A driver that fails marks only its own devices unknown. A device that is gone is dropped, unless a handle of
        it is in `in_use`: then it stays, as gone, so that its provider is not offered and its release is not lost.
        """
        last = {device.pci_id: device for device in known}
        found: dict[str, Device] = {}
        silent: set[str] = set()
        for driver in self._drivers.values():
            try:
                for device in driver.discover():
                    if device.pci_id in found:
                        raise StartError(f"two accelerator drivers report the device at {device.pci_id}")
                    found[device.pci_id] = self._inspected(driver, replace(device, driver=driver.name))
            except DriverError as error:
                log.warning("discovery failed", extra={"driver": driver.name, "reason": error.message})
                silent.add(driver.name)
        for device in last.values():
            if device.pci_id in found:
                continue
            if device.driver in silent:
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
            raise BadRequest(f"this host has no {deployable}")
        return self._deployables[deployable]

    def identify(self, deployable: str) -> RegionContent:
        """Unknown also where the driver cannot tell."""
        try:
            return self.deployable(deployable).driver.identify(deployable)
        except (DriverError, BadRequest):
            return RegionContent(RegionState.UNKNOWN)

    def _inspected(self, driver: AcceleratorDriver, device: Device) -> Device:
        """`device` with what its regions carry and how it is; unknown where the driver cannot tell."""
        try:
            parts = tuple(
                replace(part, bitstream=driver.identify(part.name).bitstream) if part.programmable else part
                for part in device.deployables
            )
            return replace(device, deployables=parts, health=driver.health(device.pci_id))
        except DriverError as error:
            log.warning("device cannot be looked at", extra={"device": device.pci_id, "reason": error.message})
            return replace(device, health=Health.UNKNOWN)
