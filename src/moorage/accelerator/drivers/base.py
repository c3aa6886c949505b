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


class AcceleratorDriver(Protocol):
    """A method may raise only `DriverError`. It must do so for a handle or deployable that the driver does not have
    (`DeviceGone` if its device has vanished).
    """

    name: str

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

    def clean(self, handle: str) -> None:
        """Reset the handle so that no data of its last user is left, and verify that."""
        ...

    def health(self, pci_id: str) -> Health:
        """The health of the card at `pci_id`."""
        ...
