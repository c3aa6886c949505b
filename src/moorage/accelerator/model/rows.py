"""What the central service keeps: rows as values."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from moorage.accelerator.model.device_history import HistoryRecord

#: The attribute of a deployable for each function that it carries and everybody may know of.
FUNCTION = "function"
#: The attribute of one that can be programmed: for which images it is.
REGION_TYPE = "region_type"


class DeviceStatus(StrEnum):
    ENABLED = "enabled"
    MAINTAINING = "maintaining"


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    id: int
    uuid: str
    hostname: str
    address: str
    type: str
    vendor: str
    model: str
    status: str
    health: str
    std_board_info: Mapping[str, str]
    vendor_board_info: Mapping[str, str]
    created_at: datetime
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class DeployableRecord:
    id: int
    uuid: str
    device_id: int
    name: str
    num_accelerators: int
    rp_uuid: str | None
    driver_name: str
    bitstream_id: str | None
    attributes: list[list[str]]  #: [key, value] pairs
    handles: Mapping[str, str]  #: state by PCI address
    created_at: datetime
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class DeployableUsage:
    """A deployable as somebody looks at it who wants to bind there."""

    rp_uuid: str
    name: str
    num_accelerators: int
    handles: Mapping[str, str]  #: state by PCI address
    taken: int  #: of its accelerators, by requests that are bound or being bound
    device_uuid: str
    status: str
    health: str


@dataclass(frozen=True, slots=True)
class AttributeRecord:
    """Made by an operator; what a host reports of a deployable is in its own record."""

    id: int
    uuid: str
    deployable_id: int
    key: str
    value: str
    created_at: datetime
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class ProfileRecord:
    id: int
    uuid: str
    name: str
    description: str | None
    groups: list[Mapping[str, str]]
    created_at: datetime
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class HistoryPosition:
    """Of a record in the order of the history: its number on its host, and the row's id where two hosts have the same."""

    sequence: int
    id: int

    def __str__(self) -> str:
        return f"{self.sequence}-{self.id}"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """What a host told of one of its devices."""

    place: HistoryPosition
    hostname: str
    record: HistoryRecord


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Which entries: all that is not None must be so; ``[since, until)``."""

    hostname: str | None = None
    device: str | None = None  #: the card's address on its host
    handle: str | None = None
    instance_uuid: str | None = None
    project_id: str | None = None
    event: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def of(self, device: DeviceRecord) -> "HistoryFilter":
        return replace(self, hostname=device.hostname, device=device.address)


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """An accelerator request. Made by the API, it is of a profile; or the host reported what was plugged there."""

    id: int
    uuid: str
    state: str
    hostname: str | None
    device_rp_uuid: str | None
    instance_uuid: str | None
    project_id: str
    device_profile_name: str | None  #: None: reported
    device_profile_group_id: int
    profile_group: Mapping[str, str] | None  #: of the profile, as it was then
    attach_handle_uuid: str | None
    pci_id: str | None
    created_at: datetime
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class HandleRow:
    """An attach handle of a host, where it is, and why it is quarantined if it is."""

    handle: str
    state: str
    reason: str
    device: DeviceRecord
    deployable: DeployableRecord
    request: RequestRecord | None  #: of whoever has it
