"""Devices and their parts, and the two states that matter: of an attach handle and of a region.

A device has deployables. A deployable is what a resource provider stands for: a region of an FPGA, or the whole
device where there is nothing to program. Its attach handles (PCI functions) are what instances get.
Pure: no I/O here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from moorage.core.errors import Invalid
from moorage.core.states import table


class DeviceType(StrEnum):
    FPGA = "FPGA"
    GPU = "GPU"


class Health(StrEnum):
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"  #: its driver could not look
    GONE = "gone"  #: still held by an instance, but no longer found


class HandleState(StrEnum):
    FREE = "free"
    CLAIMED = "claimed"
    ATTACHED = "attached"
    DIRTY = "dirty"
    CLEANING = "cleaning"
    QUARANTINED = "quarantined"


#: A claim that never touched the device is given back at once; everything else is cleaned before it is free.
HANDLE_TRANSITIONS = table(
    "an attach handle",
    {
        HandleState.FREE: [HandleState.CLAIMED],
        HandleState.CLAIMED: [HandleState.ATTACHED, HandleState.DIRTY, HandleState.FREE],
        HandleState.ATTACHED: [HandleState.DIRTY],
        HandleState.DIRTY: [HandleState.CLEANING],
        HandleState.CLEANING: [HandleState.FREE, HandleState.QUARANTINED],
        HandleState.QUARANTINED: [HandleState.DIRTY],
    },
)


class RegionState(StrEnum):
    IDLE = "idle"
    PROGRAMMING = "programming"
    UNKNOWN = "unknown"


REGION_TRANSITIONS = table(
    "a region",
    {
        RegionState.IDLE: [RegionState.PROGRAMMING],
        RegionState.PROGRAMMING: [RegionState.IDLE, RegionState.UNKNOWN],
        RegionState.UNKNOWN: [RegionState.PROGRAMMING],
    },
)


@dataclass(frozen=True, slots=True)
class Function:
    """Known by a UUID, by a free name, or by both; never by neither."""

    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Bitstream:
    """What a region carries, as far as we know it. `image_id` is empty for one that was there from the start."""

    digest: str  #: sha512 of the data, lower-case hex
    image_id: str = ""
    image_name: str = ""
    functions: tuple[Function, ...] = ()
    public: bool = True  #: may everybody know and use it? Else only the project `owner`
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Deployable:
    """`name` is unique on its host: the card's PCI address, and ``_R<n>`` for region n."""

    name: str
    handles: tuple[str, ...]  #: PCI addresses of what can be attached
    region_type: str = ""  #: UUID of the region's type; empty: it cannot be programmed
    bitstream: Bitstream | None = None

    @property
    def programmable(self) -> bool:
        return bool(self.region_type)


@dataclass(frozen=True, slots=True)
class Device:
    pci_id: str
    type: DeviceType
    vendor: str  #: ``intel``: the word in traits
    vendor_id: str  #: ``8086``: PCI, hexadecimal
    product_id: str
    model: str
    numa_node: int
    deployables: tuple[Deployable, ...]
    board: str = ""
    shell_id: str = ""
    health: Health = Health.OK
    driver: str = ""  #: the name of the driver that found it


_PCI_ID = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])\Z")


def pci_parts(pci_id: str) -> Mapping[str, str]:
    """``{"domain": "0000", "bus": "3b", "device": "00", "function": "1"}`` of ``0000:3b:00.1``."""
    match = _PCI_ID.match(pci_id)
    if match is None:
        raise Invalid(f"{pci_id!r} is no PCI address of the form dddd:bb:dd.f")
    return dict(zip(("domain", "bus", "device", "function"), match.groups(), strict=True))
