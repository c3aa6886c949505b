"""Client of the reservation service for other packages, over its public API. They import nothing else of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict
from urllib.parse import quote

import msgspec

from moorage.core.errors import NotFound
from moorage.core.json import JsonObject
from moorage.reservation.model.reservation_requests import VIRTUAL_INSTANCE
from moorage.reservation.steps.reservation_providers import publish_slots
from moorage.wire.client import ServiceClient

__all__ = [
    "FeedView",
    "HostRecord",
    "LeaseView",
    "OffersView",
    "ReservationClient",
    "ReservationView",
    "publish_slots",
]


@dataclass(frozen=True, slots=True)
class ReservationView:
    id: str
    resource_type: str
    status: str
    amount: int
    flavor_id: str | None
    aggregate_id: int | None = None  #: None unless an older system created the reservation
    amounts: Mapping[str, int] = field(default_factory=dict)  #: {class: units} of one slot; empty for other types
    lacks_resources: bool = False  #: its service knows that some of its slots are not covered any more


@dataclass(frozen=True, slots=True)
class LeaseView:
    """`start_date` and `end_date` are in the API's format: ``2026-11-22T15:42:00.000000``, UTC."""

    id: str
    name: str
    project_id: str
    status: str
    start_date: str
    end_date: str
    reservations: tuple[ReservationView, ...]


@dataclass(frozen=True, slots=True)
class HostRecord:
    id: str
    hypervisor_hostname: str
    reservable: bool
    service_name: str  #: of its compute service


@dataclass(frozen=True, slots=True)
class OffersView:
    """`periods`: (start, end) of each offer, in the API's format. `reason`: why the first does not start at once."""

    periods: tuple[tuple[str, str], ...]
    reason: str | None


@dataclass(frozen=True, slots=True)
class FeedView:
    id: str
    name: str
    user_id: str
    project_id: str
    created_at: str
    read_at: str | None


class ReservationClient:
    def __init__(self, http: ServiceClient) -> None:
        self._http = http

    def leases(self) -> list[LeaseView]:
        return [_lease(each) for each in self._http.get("/v1/leases")["leases"]]

    def lease(self, lease_id: str) -> LeaseView | None:
        try:
            return _lease(self._http.get(f"/v1/leases/{lease_id}")["lease"])
        except NotFound:
            return None

    def offers(
        self,
        reservations: Sequence[JsonObject],
        *,
        duration_minutes: int,
        earliest: str = "now",
        latest: str | None = None,
        limit: int = 1,
    ) -> OffersView:
        """The next periods in which `reservations` fit. `earliest` and `latest`: ``now`` or ``YYYY-MM-DD HH:MM``."""
        body = {
            "duration_minutes": duration_minutes,
            "reservations": list(reservations),
            "earliest_start": earliest,
            "limit": limit,
        } | ({} if latest is None else {"latest_start": latest})
        answer = self._http.request("POST", "/v1/offers", json=body, version="1.1", repeatable=True)
        periods = tuple((each["start_date"], each["end_date"]) for each in answer["offers"])
        return OffersView(periods, answer.get("earliest_start", {}).get("reason"))

    def feeds(self) -> list[FeedView]:
        """The caller's calendar feeds; for administrators, those of all users."""
        return msgspec.convert(self._http.get("/v1/calendar-feeds", version="1.1")["feeds"], list[FeedView])

    def create_feed(self, name: str) -> str:
        """The URL of a new calendar feed. It contains a secret and cannot be read again."""
        answer = self._http.request("POST", "/v1/calendar-feeds", json={"name": name}, version="1.1")
        return str(answer["feed"]["url"])

    def revoke_feed(self, feed_id: str) -> None:
        """Raises `NotFound`."""
        self._http.request("DELETE", f"/v1/calendar-feeds/{quote(feed_id, safe='')}", version="1.1")

    def hosts(self) -> list[HostRecord]:
        return [
            HostRecord(each["id"], each["hypervisor_hostname"], each["reservable"], each["service_name"])
            for each in self._http.get("/v1/os-hosts")["hosts"]
        ]

    def slots(self) -> dict[str, Counter[str]]:
        """{host id: {reservation id: number of its slots there}} of all reservations that have not ended."""
        return {
            each["resource_id"]: Counter(one["id"] for one in each["reservations"])
            for each in self._http.get("/v1/os-hosts/allocations")["allocations"]
        }


class _ReservationDocument(TypedDict):
    id: str
    resource_type: str
    status: str
    amount: NotRequired[int]
    flavor_id: NotRequired[str | None]
    aggregate_id: NotRequired[int | None]
    missing_resources: NotRequired[bool]
    vcpus: NotRequired[int]
    memory_mb: NotRequired[int]
    disk_gb: NotRequired[int]


class _LeaseDocument(TypedDict):
    id: str
    name: str
    project_id: str
    status: str
    start_date: str
    end_date: str
    reservations: list[_ReservationDocument]


def _lease(body: _LeaseDocument) -> LeaseView:
    return LeaseView(
        body["id"],
        body["name"],
        body["project_id"],
        body["status"],
        body["start_date"],
        body["end_date"],
        tuple(
            ReservationView(
                each["id"],
                each["resource_type"],
                each["status"],
                each.get("amount", 0),
                each.get("flavor_id"),
                each.get("aggregate_id"),
                _amounts(each),
                each.get("missing_resources", False),
            )
            for each in body["reservations"]
        ),
    )


def _amounts(body: _ReservationDocument) -> dict[str, int]:
    if body["resource_type"] != VIRTUAL_INSTANCE:
        return {}
    amounts = {"VCPU": body.get("vcpus", 0), "MEMORY_MB": body.get("memory_mb", 0), "DISK_GB": body.get("disk_gb", 0)}
    return {name: units for name, units in amounts.items() if units}
