"""Rows of the central service's tables as values."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from moorage.accelerator.model.device_history import HistoryRecord

#: Key of a deployable's attribute for each public function that it carries.
FUNCTION = "function"
#: Key of the attribute with a programmable deployable's region type.
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
    health_since: datetime | None
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
    """A deployable with its free capacity, for binding a request to it."""

    rp_uuid: str
    name: str
    num_accelerators: int
    handles: Mapping[str, str]  #: state by PCI address
    taken: int  #: number of accelerators taken by requests that are bound or being bound
    device_uuid: str
    status: str
    health: str
    vendor_board_info: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AttributeRecord:
    """Created by an operator. Attributes reported by a host are in the deployable's own record."""

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
    """A record's position in the history: its sequence number on its host, then the row's id if two hosts have the
    same number.
    """

    sequence: int
    id: int

    def __str__(self) -> str:
        return f"{self.sequence}-{self.id}"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A history record with its position and host."""

    place: HistoryPosition
    hostname: str
    record: HistoryRecord


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Filters of the history; None matches everything. The time range is ``[since, until)``."""

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
    """An accelerator request: created from a device profile through the API, or reported by a host for a plugged
    handle.
    """

    id: int
    uuid: str
    state: str
    hostname: str | None
    device_rp_uuid: str | None
    instance_uuid: str | None
    project_id: str
    device_profile_name: str | None  #: None: reported by a host
    device_profile_group_id: int
    profile_group: Mapping[str, str] | None  #: the profile's group when the request was created
    attach_handle_uuid: str | None
    pci_id: str | None
    created_at: datetime
    updated_at: datetime | None
    physical_network: str | None = None  #: of its device; only of requests that are bound through the API


@dataclass(frozen=True, slots=True)
class HandleRow:
    """An attach handle of a host, with its deployable, its device and its holder. `reason`: why it is quarantined."""

    handle: str
    state: str
    reason: str
    device: DeviceRecord
    deployable: DeployableRecord
    request: RequestRecord | None  #: of its holder
