"""The leases of a host, from the slots of ``GET /v1/os-hosts/allocations`` of the Reservation API. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from moorage.dashboard.views.reservation_documents import SlotDocument, parse_date


@dataclass(frozen=True, slots=True)
class Lent:
    """What a lease holds of a host: a number of slots. The whole host counts as one slot."""

    lease_id: str
    name: str
    project_id: str
    slots: int
    start: datetime
    end: datetime

    @property
    def words(self) -> str:
        return "1 slot" if self.slots == 1 else f"{self.slots:,} slots"


def lent(slots: Iterable[SlotDocument]) -> tuple[Lent, ...]:
    """The leases of these slots, by their end."""
    counts = Counter(
        (one["lease_id"], one["lease_name"], one["project_id"], one["start_date"], one["end_date"]) for one in slots
    )
    found = [
        Lent(lease, name, project, count, parse_date(start), parse_date(end))
        for (lease, name, project, start, end), count in counts.items()
    ]
    return tuple(sorted(found, key=lambda one: (one.end, one.lease_id)))


def active_slots(slots: Iterable[SlotDocument], now: datetime) -> list[SlotDocument]:
    """The slots that are held at `now`."""
    return [one for one in slots if parse_date(one["start_date"]) <= now < parse_date(one["end_date"])]


def next_lent(slots: Iterable[SlotDocument], now: datetime) -> tuple[Lent, ...]:
    """The leases that hold the host later than `now`, by their start."""
    coming = lent(one for one in slots if parse_date(one["start_date"]) > now)
    return tuple(sorted(coming, key=lambda one: (one.start, one.lease_id)))
