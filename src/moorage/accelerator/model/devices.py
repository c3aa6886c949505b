"""Devices and their parts, and the two states that matter: of an attach handle and of a region.

A device has deployables. A deployable is what a resource provider stands for: a region of an FPGA, or the whole
device where there is nothing to program. Its attach handles are what instances get: PCI functions by their addresses,
or mediated devices (`Mdev`), which are made when they are given out.
Pure: no I/O here.
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from moorage.core.errors import Invalid
from moorage.core.states import transition_table


class DeviceType(StrEnum):
    """The word in resource classes and traits."""

    FPGA = "FPGA"
    GPU = "GPU"
    VGPU = "VGPU"  #: a share of a GPU
    HPTS = "HPTS"  #: high-precision time stamping
    QAT = "QAT"
    NIC = "NIC"
    SSD = "SSD"
    PCI = "PCI"  #: anything else


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


#: States in which a handle is nobody's and yet not to be had.
WITHHELD = frozenset({HandleState.DIRTY, HandleState.CLEANING, HandleState.QUARANTINED})

#: A claim that never touched the device is given back at once; everything else is cleaned before it is free.
HANDLE_TRANSITIONS = transition_table(
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


REGION_TRANSITIONS = transition_table(
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


class Voucher(StrEnum):
    """Who vouches for what a public bitstream's image says it is."""

    OPERATOR = "operator"  #: who published the image; enough where no signature is demanded of every bitstream
    SIGNATURE = "signature"  #: of its manifest
    NOBODY = "nobody"  #: a signature would be needed, and covers the data alone


@dataclass(frozen=True, slots=True)
class Bitstream:
    """What a region carries, as far as we know it. `image_id` is empty for one that was there from the start."""

    digest: str  #: sha512 of the data, lower-case hex; empty: what the device tells of it is all that is known
    image_id: str = ""
    image_name: str = ""
    functions: tuple[Function, ...] = ()
    public: bool = True  #: may everybody know and use it? Else only the project `owner`
    owner: str = ""
    voucher: Voucher = Voucher.OPERATOR

    @property
    def is_published(self) -> bool:
        """Whether everybody is told of its functions."""
        return self.public and self.voucher is not Voucher.NOBODY


@dataclass(frozen=True, slots=True)
class Deployable:
    """`name` is unique on its host: the card's PCI address, and ``_R<n>`` for region n."""

    name: str
    handles: tuple[str, ...]  #: what can be attached: PCI addresses, or `Mdev`s as text
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
    traits: frozenset[str] = frozenset()  #: besides those of its type, vendor and regions
    details: tuple[tuple[str, str], ...] = ()  #: what its driver knows besides: name and value, for people


@dataclass(frozen=True, slots=True)
class Mdev:
    """A mediated device: a share of a card, of a type that the card's kernel driver offers.

    As text, which is how it is an attach handle: ``0000:17:00.0_nvidia-63_0``. `slot` counts those of one type.
    """

    parent: str  #: PCI address
    type: str
    slot: int

    def __str__(self) -> str:
        return f"{self.parent}_{self.type}_{self.slot}"

    @property
    def uuid(self) -> str:
        """The same each time, so that one made again after a restart of its host is the one that a guest knows (R51).

        Unique on its host, which is all that the kernel and libvirt ask for.
        """
        return str(uuid.uuid5(_MDEVS, str(self)))


_MDEVS = uuid.UUID("6c3f2f0e-3a55-5d0b-9d3e-6a4d0a0c7a31")
_MDEV = re.compile(r"(.{12})_([A-Za-z0-9][A-Za-z0-9_.-]*)_(0|[1-9][0-9]{0,3})\Z")
_PCI_ID = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])\Z")


def pci_parts(pci_id: str) -> Mapping[str, str]:
    """``{"domain": "0000", "bus": "3b", "device": "00", "function": "1"}`` of ``0000:3b:00.1``."""
    match = _PCI_ID.match(pci_id)
    if match is None:
        raise Invalid(f"{pci_id!r} is no PCI address of the form dddd:bb:dd.f")
    return dict(zip(("domain", "bus", "device", "function"), match.groups(), strict=True))


def mdev_of(handle: str) -> Mdev | None:
    """The mediated device that `handle` is; None for a PCI function."""
    match = _MDEV.match(handle)
    if match is None or not _PCI_ID.match(match[1]):
        return None
    return Mdev(match[1], match[2], int(match[3]))


def check_handle(handle: str) -> None:
    """Raises `Invalid` for what is neither a PCI address nor a mediated device."""
    if mdev_of(handle) is None:
        pci_parts(handle)


def plug_answer(handle: str) -> dict[str, str]:
    """What `plug` tells of a handle: how it stands in the definition of a guest.

    ``{"pci_id": "0000:3b:00.1"}``, or ``{"type": "MDEV", "mdev": <uuid>, "parent": "0000:17:00.0", "asked_type":
    "nvidia-63"}``: never ``pci_id`` there, for nobody shall pass the whole card through by mistake.
    """
    mdev = mdev_of(handle)
    if mdev is None:
        return {"pci_id": handle}
    return {"type": "MDEV", "mdev": mdev.uuid, "parent": mdev.parent, "asked_type": mdev.type}
