"""Devices, deployables, handles and regions, with the state tables of handles and regions.

A device has deployables. A deployable is one resource provider: a region of an FPGA, or the whole device if it cannot
be programmed. Instances get its attach handles: PCI functions by address, or mediated devices (`Mdev`), which are
created when they are given out.
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
    """The values appear in resource classes and traits."""

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
    UNKNOWN = "unknown"  #: the driver failed to inspect it
    GONE = "gone"  #: still held by an instance, but no longer found


class HandleState(StrEnum):
    FREE = "free"
    CLAIMED = "claimed"
    ATTACHED = "attached"
    DIRTY = "dirty"
    CLEANING = "cleaning"
    QUARANTINED = "quarantined"


#: States in which no instance holds a handle, but it cannot be given out.
WITHHELD = frozenset({HandleState.DIRTY, HandleState.CLEANING, HandleState.QUARANTINED})

#: A claimed handle that was not prepared yet becomes free at once; any other handle is cleaned first.
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
    """A function of a device, with a UUID, a name or both."""

    id: str = ""
    name: str = ""


class Voucher(StrEnum):
    """The party that vouches for the description of a public bitstream's image."""

    OPERATOR = "operator"  #: published the image; sufficient unless all bitstreams must be signed
    SIGNATURE = "signature"  #: a verified signature of the image's manifest
    NOBODY = "nobody"  #: a signature is required, but covers only the data


@dataclass(frozen=True, slots=True)
class Bitstream:
    """The content of a region, as far as it is known. `image_id` is empty for factory content."""

    digest: str  #: sha512 of the data, lower-case hex; empty: known only from the device's own report
    image_id: str = ""
    image_name: str = ""
    functions: tuple[Function, ...] = ()
    public: bool = True  #: whether all projects may see and use it, or only `owner`
    owner: str = ""
    voucher: Voucher = Voucher.OPERATOR

    @property
    def is_published(self) -> bool:
        """Whether its functions are published as traits."""
        return self.public and self.voucher is not Voucher.NOBODY


@dataclass(frozen=True, slots=True)
class Deployable:
    """`name` is unique on its host: the card's PCI address, and ``_R<n>`` for region n."""

    name: str
    handles: tuple[str, ...]  #: PCI addresses, or `Mdev`s as text
    region_type: str = ""  #: UUID of the region's type; empty: it cannot be programmed
    bitstream: Bitstream | None = None

    @property
    def programmable(self) -> bool:
        return bool(self.region_type)


# The host's checkpoint holds devices (`attach_state.AttachState.devices`), so a new field of `Device`, `Deployable`,
# `Bitstream` or `Function` needs a default: otherwise the agent cannot read the checkpoint of the previous release, and
# does not start.
@dataclass(frozen=True, slots=True)
class Device:
    pci_id: str
    type: DeviceType
    vendor: str  #: ``intel``: the name in traits
    vendor_id: str  #: ``8086``: PCI, hexadecimal
    product_id: str
    model: str
    numa_node: int
    deployables: tuple[Deployable, ...]
    board: str = ""
    shell_id: str = ""
    health: Health = Health.OK
    driver: str = ""  #: the name of the driver that found it
    traits: frozenset[str] = frozenset()  #: in addition to those of its type, vendor and regions
    #: Further (name, value) pairs from the driver, for display: the Accelerator API shows them in
    #: ``vendor_board_info``.
    details: tuple[tuple[str, str], ...] = ()
    part_of: str = ""  #: address of the physical function, if the device is a virtual function
    iommu_groups: tuple[tuple[str, str], ...] = ()  #: (PCI address, group) of its functions, as far as they are known
    withheld: str = ""  #: why some or all of its handles are not offered, and so not in `deployables`


#: Name of the pair in `Device.details` with the physical network of a network card, as Neutron calls it.
PHYSICAL_NETWORK = "physical_network"


@dataclass(frozen=True, slots=True)
class Mdev:
    """A mediated device: a share of a card, of a type that the card's kernel driver offers.

    Its text form is the attach handle: ``0000:17:00.0_nvidia-63_0``. `slot` numbers the devices of one type.
    """

    parent: str  #: PCI address
    type: str
    slot: int

    def __str__(self) -> str:
        return f"{self.parent}_{self.type}_{self.slot}"

    @property
    def uuid(self) -> str:
        """Derived from the text form, so that a device created again after a restart has the uuid in the guest's
        definition (R51).

        It is unique on its host, as the kernel and libvirt require.
        """
        return str(uuid.uuid5(_MDEVS, str(self)))


_MDEVS = uuid.UUID("6c3f2f0e-3a55-5d0b-9d3e-6a4d0a0c7a31")
_MDEV = re.compile(r"(.{12})_([A-Za-z0-9][A-Za-z0-9_.-]*)_(0|[1-9][0-9]{0,3})\Z")
_PCI_ID = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])\Z")


def pci_parts(pci_id: str) -> Mapping[str, str]:
    """``{"domain": "0000", "bus": "3b", "device": "00", "function": "1"}`` of ``0000:3b:00.1``."""
    match = _PCI_ID.match(pci_id)
    if match is None:
        raise Invalid(f"{pci_id!r} is not a PCI address of the form dddd:bb:dd.f")
    return dict(zip(("domain", "bus", "device", "function"), match.groups(), strict=True))


def mdev_of(handle: str) -> Mdev | None:
    """Parse `handle` as a mediated device; None for a PCI function."""
    match = _MDEV.match(handle)
    if match is None or not _PCI_ID.match(match[1]):
        return None
    return Mdev(match[1], match[2], int(match[3]))


#: Characters of a handle that the tables can hold.
MAX_HANDLE = 64


def check_handle(handle: str) -> None:
    """Raises `Invalid` unless `handle` is a PCI address or a mediated device."""
    if len(handle) > MAX_HANDLE:
        raise Invalid(f"{handle[:MAX_HANDLE]!r}... has {len(handle)} characters; a handle has at most {MAX_HANDLE}")
    if mdev_of(handle) is None:
        pci_parts(handle)


def plug_answer(handle: str) -> dict[str, str]:
    """A handle in the answer of `plug`, for the definition of a guest.

    ``{"pci_id": "0000:3b:00.1"}``; for a mediated device also ``mdev``, its uuid, and ``mdev_type``: `pci_id` is then
    the card, which the guest must not get.
    """
    mdev = mdev_of(handle)
    if mdev is None:
        return {"pci_id": handle}
    return {"pci_id": mdev.parent, "mdev": mdev.uuid, "mdev_type": mdev.type}
