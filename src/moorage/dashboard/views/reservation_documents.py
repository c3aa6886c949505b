"""The documents of the Reservation API that the pages read (the keys used here, not all keys), and its dates."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NotRequired, TypedDict


class ReservationDocument(TypedDict):
    """A reservation, or a hold's request for one, which may omit fields."""

    resource_type: str
    id: str
    status: str
    amount: NotRequired[int]
    min: NotRequired[int]
    max: NotRequired[int]
    vcpus: NotRequired[int]
    memory_mb: NotRequired[int]
    disk_gb: NotRequired[int]
    affinity: NotRequired[bool | None]
    resources: NotRequired[Mapping[str, int]]
    resource_properties: NotRequired[str]
    hypervisor_properties: NotRequired[str]
    flavor_id: NotRequired[str]
    missing_resources: NotRequired[bool]


class ActionDocument(TypedDict):
    """An action before the end of a lease, with its result."""

    action: str
    to: NotRequired[str]
    url: NotRequired[str]
    status: str
    attempts: int
    error: str | None


class EventDocument(TypedDict):
    event_type: str
    time: str


class LeaseHeadDocument(TypedDict):
    """A lease in the calendar, whose project is the caller's."""

    id: str
    name: str
    status: str
    start_date: str
    end_date: str


class LeaseDocument(LeaseHeadDocument):
    project_id: str
    user_id: str
    degraded: bool
    reservations: Sequence[ReservationDocument]
    events: Sequence[EventDocument]
    before_end_actions: Sequence[ActionDocument]


class HoldDocument(TypedDict):
    id: str
    start_date: str
    end_date: str
    expires_at: str
    reservations: Sequence[ReservationDocument]


class StepDocument(TypedDict):
    kind: str
    total: int
    done: int
    failed: int
    attempts: int
    error: str | None


class TimelineDocument(TypedDict):
    event_type: str
    time: str
    status: str
    attempts: int
    error: str | None
    steps: Sequence[StepDocument]


class BusyDocument(TypedDict):
    start_date: str
    end_date: str
    used: Mapping[str, int]


class CalendarDocument(TypedDict):
    capacity: Mapping[str, int]
    busy: Sequence[BusyDocument]
    leases: Sequence[LeaseHeadDocument]


class HostDocument(TypedDict):
    id: str
    hypervisor_hostname: str
    vcpus: int
    reservable: bool


class SlotDocument(TypedDict):
    id: str  #: of the reservation
    lease_id: str
    lease_name: str
    lease_status: str
    project_id: str
    start_date: str
    end_date: str


class AllocationDocument(TypedDict):
    resource_id: str
    reservations: Sequence[SlotDocument]


class ReservationHostsDocument(TypedDict):
    """On how many hosts a reservation is; for administrators with {host name: number of slots}."""

    id: str
    slots: int
    hosts: int
    on: NotRequired[Mapping[str, int]]


class ShortageDocument(TypedDict):
    reason: str


class OffersDocument(TypedDict):
    """Free times that a search found; without any, `earliest_start` says why."""

    offers: Sequence[Mapping[str, str]]
    earliest_start: NotRequired[ShortageDocument]


def parse_date(text: str) -> datetime:
    """Parses a date of the Reservation API: UTC without an offset."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
