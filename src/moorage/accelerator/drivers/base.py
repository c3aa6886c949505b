"""The interface between the attach engine and the drivers of devices: seven operations, which may all be repeated.

A driver does not record who holds a handle; the checkpoint does. Drivers are called from several threads, but never
for the same handle at once, nor to program the same region at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from moorage.accelerator.model.devices import Bitstream, Device, Health, RegionState
from moorage.core.errors import MoorageError


class DriverError(MoorageError):
    """The device or its vendor's tool refused the operation."""

    code = "accelerator.driver"


class DeviceGone(DriverError):
    """The device was present before and has vanished."""

    code = "accelerator.device_gone"


@dataclass(frozen=True, slots=True)
class RegionContent:
    """The content of a region. Idle without `bitstream`: the region is blank. Unknown: programming was interrupted."""

    state: RegionState
    bitstream: Bitstream | None = None


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The handle is clean. The device history keeps `proof`: the commands, the device's answer, and the check."""

    proof: str


@dataclass(frozen=True, slots=True)
class StillCleaning:
    """The device has not finished; call `clean` again. After `allowed_s` in all, the handle is quarantined."""

    progress: str  #: for operators: ``sanitize, 37 %``
    allowed_s: float


@dataclass(frozen=True, slots=True)
class CleaningFacts:
    """A driver's row in the table of docs/reference/accelerator-drivers.md."""

    remains: str  #: data of the last user that is on the device when it is released
    removal: str
    check: str  #: how the removal is verified


class AcceleratorDriver(Protocol):
    """A method may raise only `DriverError`. It must do so for a handle or deployable that the driver does not have
    (`DeviceGone` if its device has vanished).
    """

    name: str
    cleaning: CleaningFacts

    def discover(self) -> Sequence[Device]:
        """Returns all devices present now, under stable addresses. Only reads."""
        ...

    def identify(self, deployable: str) -> RegionContent: ...

    def program(self, deployable: str, bitstream: Bitstream | None, data: BinaryIO | None) -> None:
        """Load verified `data`, or the vendor's blank if both are None. After a `DriverError`, `identify` reports the
        region's content.
        """
        ...

    def prepare(self, handle: str, instance_uuid: str) -> None:
        """Make the handle attachable: bind it to the pass-through driver, or create the mediated device."""
        ...

    def release(self, handle: str) -> None:
        """Undo `prepare`. The handle still contains the data of its instance."""
        ...

    def clean(self, handle: str) -> Cleaned | StillCleaning:
        """Remove all data of the handle's last user, and verify that. Returns soon; if the device needs longer, returns
        `StillCleaning`, and is called again. After a restart of the agent, the first call continues or repeats the
        interrupted cleaning.
        """
        ...

    def health(self, pci_id: str) -> Health:
        """The health of the card at `pci_id`."""
        ...
