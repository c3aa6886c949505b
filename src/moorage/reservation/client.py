"""What other features need of the reservation service, over its public API."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moorage.core.errors import NotFound
from moorage.wire.client import ServiceClient


@dataclass(frozen=True, slots=True)
class ReservationView:
    id: str
    resource_type: str
    status: str
    amount: int
    flavor_id: str | None


@dataclass(frozen=True, slots=True)
class LeaseView:
    """`start_date` and `end_date` as the wire has them: ``2026-11-22T15:42:00.000000``, UTC."""

    id: str
    name: str
    project_id: str
    status: str
    start_date: str
    end_date: str
    reservations: tuple[ReservationView, ...]


@dataclass(frozen=True, slots=True)
class HostView:
    id: str
    hypervisor_hostname: str
    reservable: bool


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

    def hosts(self) -> list[HostView]:
        return [
            HostView(each["id"], each["hypervisor_hostname"], each["reservable"])
            for each in self._http.get("/v1/os-hosts")["hosts"]
        ]


def _lease(body: Mapping[str, Any]) -> LeaseView:
    return LeaseView(
        body["id"],
        body["name"],
        body["project_id"],
        body["status"],
        body["start_date"],
        body["end_date"],
        tuple(
            ReservationView(
                each["id"], each["resource_type"], each["status"], each.get("amount", 0), each.get("flavor_id")
            )
            for each in body["reservations"]
        ),
    )
