"""The contract between the attach engine and whatever talks to devices: seven verbs, all repeatable.

A driver keeps no record of who holds what: that is the checkpoint's. It may be called from several threads, though
never for one handle, and never for programming one region, from two at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from moorage.accelerator.model.devices import Bitstream, Device, Health, RegionState
from moorage.core.errors import MoorageError


class DriverError(MoorageError):
    """The device, or its vendor's tool, said no."""

    code = "accelerator.driver"


class DeviceGone(DriverError):
    """The device was here and is no more."""

    code = "accelerator.device_gone"


@dataclass(frozen=True, slots=True)
class RegionContent:
    """What a region carries now. `bitstream` None while idle: blank. Unknown: it was left half-programmed."""

    state: RegionState
    bitstream: Bitstream | None = None


class AcceleratorDriver(Protocol):
    """Any verb may raise `DriverError`, and does for a handle or deployable that is not this driver's (`DeviceGone` where
    its device has vanished): nothing else.
    """

    name: str

    def discover(self) -> Sequence[Device]:
        """All devices that are there now, under the same addresses each time. Reads only."""
        ...

    def identify(self, deployable: str) -> RegionContent: ...

    def program(self, deployable: str, bitstream: Bitstream | None, data: BinaryIO | None) -> None:
        """Load verified `data`, or the vendor's blank where both are None. Raises `DriverError`: then the region is
        what `identify` says.
        """
        ...

    def prepare(self, handle: str, instance_uuid: str) -> None:
        """Make it attachable: bind it to the pass-through driver, or make the mediated device that it is."""
        ...

    def release(self, handle: str) -> None:
        """Undo `prepare`; the handle still holds what its instance left there."""
        ...

    def clean(self, handle: str) -> None:
        """Reset the handle until nothing of its last user is left, and look whether that is so."""
        ...

    def health(self, pci_id: str) -> Health:
        """Of the card at `pci_id`."""
        ...
