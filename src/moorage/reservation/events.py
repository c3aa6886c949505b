"""Which events of leases run now, and in which order.

Within a lease one thing happens at a time: start before before_end before end; creating, updating and deleting come
before all of them, and a lease that is being deleted has no other event left. Between leases there is one dependency
only, and only per host: a start waits for the end of an earlier lease on a host that both use, so that the servers of
the one are gone before those of the other come. A slow end therefore delays its successors and nobody else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from moorage.reservation.model import RUNS_IN, EventType, LeaseStatus

#: How long a start waits for the end of an earlier lease. After that it goes ahead: its capacity is its own, only
#: its first servers may still find the host occupied.
PATIENCE = timedelta(minutes=10)

_RANK = {
    EventType.DELETE: 0,
    EventType.CREATE: 1,
    EventType.UPDATE: 2,
    EventType.START: 3,
    EventType.BEFORE_END: 4,
    EventType.END: 5,
}


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An event that is not DONE and not ERROR, and what its turn depends on."""

    event_id: str
    lease_id: str
    type: EventType
    time: datetime
    epoch: int
    lease_status: LeaseStatus
    lease_start: datetime
    lease_end: datetime
    hosts: frozenset[int] = field(default=frozenset())
    retry_at: datetime | None = None
    claim_until: datetime | None = None  #: somebody works on it until then, or died before

    def claimed(self, now: datetime) -> bool:
        return self.claim_until is not None and self.claim_until > now

    def due(self) -> datetime:
        """The first moment at which it could run, other events aside."""
        return max(moment for moment in (self.time, self.retry_at, self.claim_until) if moment is not None)


@dataclass(frozen=True, slots=True)
class Turn:
    """`run` in this order; `wait` are due but must not run yet: {event id: reason}."""

    run: tuple[Unfinished, ...]
    wait: dict[str, str]


def turn(unfinished: Sequence[Unfinished], now: datetime) -> Turn:
    """What to run at `now`. `unfinished` must hold every unfinished event whose time has come."""
    ends = [event for event in unfinished if event.type is EventType.END]
    busy = {event.lease_id for event in unfinished if event.claimed(now)}
    heads: dict[str, Unfinished] = {}
    for event in sorted(unfinished, key=_within_lease):
        if event.time <= now and runnable(event):
            heads.setdefault(event.lease_id, event)
    run: list[Unfinished] = []
    wait: dict[str, str] = {}
    for event in sorted(heads.values(), key=_between_leases):
        if event.lease_id in busy:
            wait[event.event_id] = "another worker holds an event of this lease"
        elif event.due() > now:
            wait[event.event_id] = f"tried again at {event.due().isoformat()}"
        elif reason := _predecessor(event, ends, now):
            wait[event.event_id] = reason
        else:
            run.append(event)
    return Turn(tuple(run), wait)


def runnable(event: Unfinished) -> bool:
    """Does the lease's state admit this event at all?"""
    return event.lease_status in RUNS_IN[event.type][0]


def _within_lease(event: Unfinished) -> tuple[int, datetime, str]:
    return _RANK[event.type], event.time, event.event_id


def _between_leases(event: Unfinished) -> tuple[datetime, bool, str]:
    """By time; of what falls on one moment whatever frees something before what starts."""
    return event.time, event.type is EventType.START, event.event_id


def _predecessor(event: Unfinished, ends: Iterable[Unfinished], now: datetime) -> str | None:
    if event.type is not EventType.START or now >= event.time + PATIENCE:
        return None
    for end in ends:
        if end.lease_id != event.lease_id and end.lease_end <= event.lease_start and end.hosts & event.hosts:
            return f"lease {end.lease_id} has not ended on a host of this one"
    return None
