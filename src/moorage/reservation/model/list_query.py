"""Which leases or hosts a list is about, in which order, and which page of it. Values only."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from moorage.reservation.model.leases import LeaseStatus

#: The longest page, and the page of who does not say.
MAX_LIMIT = 1000


class SortKey(StrEnum):
    """Every one has an index, also together with the project."""

    CREATED_AT = "created_at"
    START_DATE = "start_date"
    END_DATE = "end_date"


@dataclass(frozen=True, slots=True)
class LeasePage:
    """At most `limit` leases after the one named `marker`. None of a filter lets all through; all of them must hold."""

    project_id: str | None = None
    name: str | None = None
    status: LeaseStatus | None = None
    ends_after: datetime | None = None  #: with the next one: leases whose period meets ``[ends_after, starts_before)``
    starts_before: datetime | None = None
    sort_key: SortKey = SortKey.CREATED_AT
    descending: bool = False
    limit: int = MAX_LIMIT
    marker: str | None = None


@dataclass(frozen=True, slots=True)
class HostPage:
    """As `LeasePage`, by id. `properties` is a query in the language of `property_query`."""

    hypervisor_hostname: str | None = None
    availability_zone: str | None = None
    reservable: bool | None = None
    properties: str = ""
    limit: int = MAX_LIMIT
    marker: int | None = None
