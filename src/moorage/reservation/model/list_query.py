"""The filters, order and page of a list of leases or hosts."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from moorage.reservation.model.leases import LeaseStatus

#: The maximum page length, and the default.
MAX_LIMIT = 1000


class SortKey(StrEnum):
    """Each key has an index, and another one together with the project."""

    CREATED_AT = "created_at"
    START_DATE = "start_date"
    END_DATE = "end_date"


@dataclass(frozen=True, slots=True)
class LeasePage:
    """At most `limit` leases after the lease with the id `marker`. All filters must match; None matches every lease."""

    project_id: str | None = None
    name: str | None = None
    status: LeaseStatus | None = None
    ends_after: datetime | None = None  #: with `starts_before`: leases that overlap ``[ends_after, starts_before)``
    starts_before: datetime | None = None
    sort_key: SortKey = SortKey.CREATED_AT
    descending: bool = False
    limit: int = MAX_LIMIT
    marker: str | None = None


@dataclass(frozen=True, slots=True)
class DeletedPage:
    """At most `limit` deleted leases after the one with the id `marker`. `project_id` None: of all projects."""

    project_id: str | None = None
    limit: int = MAX_LIMIT
    marker: str | None = None


@dataclass(frozen=True, slots=True)
class HostPage:
    """Like `LeasePage`, in the order of ids. `properties`: a query, see `property_query`."""

    hypervisor_hostname: str | None = None
    availability_zone: str | None = None
    reservable: bool | None = None
    properties: str = ""
    limit: int = MAX_LIMIT
    marker: int | None = None
