"""What the central service keeps: rows as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class RequestState(StrEnum):
    """Of an accelerator request (ARQ). Those that hosts report are Bound; the others come with binding by API."""

    BOUND = "Bound"


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
class ProfileRecord:
    id: int
    uuid: str
    name: str
    description: str | None
    groups: list[Mapping[str, str]]
    created_at: datetime
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class RequestRecord:
    id: int
    uuid: str
    state: str
    hostname: str
    device_rp_uuid: str
    instance_uuid: str
    project_id: str
    device_profile_group_id: int
    attach_handle_uuid: str
    pci_id: str
    created_at: datetime
    updated_at: datetime | None
