"""Decides which events of leases run now, and in which order.

Events of one lease run one at a time: start, then before_end, then end. Creating, updating and deleting come before
these, and a lease that is being deleted runs no other event. Leases depend on each other only per host: a start waits
for the end of an earlier lease on a shared host, so that the servers of the earlier lease are gone before the new ones
arrive. A slow end therefore delays only its successors on its hosts.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from moorage.reservation.model.leases import MAX_AHEAD, RUNS_IN, EventType, LeaseStatus, is_claimed

#: How long a start waits for the end of an earlier lease. Then it runs anyway: its capacity is reserved, but its first
#: servers may still find the host occupied.
MAX_WAIT_FOR_END = timedelta(minutes=10)

#: The longest pause of a step. A retry time further ahead was written before the clock was set back, and is ignored.
LONGEST_PAUSE = timedelta(seconds=60) + MAX_AHEAD

_RANK = {
    EventType.DELETE: 0,
    EventType.CREATE: 1,
    EventType.UPDATE: 2,
    EventType.START: 3,
    EventType.BEFORE_END: 4,
    EventType.END: 5,
}


@dataclass(frozen=True, slots=True)
class UnfinishedEvent:
    """An event that is neither DONE nor ERROR, with the fields that decide when it runs."""

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
    claim_until: datetime | None = None  #: when the claim of a worker expires; None: not claimed

    def due(self, now: datetime) -> datetime:
        """The first moment at which the event could run, ignoring other events."""
        moments = [self.time]
        if self.claim_until is not None and is_claimed(self.claim_until, now):
            moments.append(self.claim_until)
        if self.retry_at is not None and self.retry_at <= now + LONGEST_PAUSE:
            moments.append(self.retry_at)
        return max(moments)


@dataclass(frozen=True, slots=True)
class EventSchedule:
    """`run`: the events to run now, in order; `wait`: {id of an event that is due but must wait: reason}."""

    run: tuple[UnfinishedEvent, ...]
    wait: dict[str, str]


def schedule_events(unfinished: Sequence[UnfinishedEvent], now: datetime) -> EventSchedule:
    """Which events to run at `now`. `unfinished` must contain every unfinished event whose time has come."""
    ends_on: dict[int, list[UnfinishedEvent]] = defaultdict(list)
    for event in unfinished:
        if event.type is EventType.END:
            for host in event.hosts:
                ends_on[host].append(event)
    busy = {event.lease_id for event in unfinished if is_claimed(event.claim_until, now)}
    heads: dict[str, UnfinishedEvent] = {}
    for event in sorted(unfinished, key=_within_lease):
        if event.time <= now and runnable(event):
            heads.setdefault(event.lease_id, event)
    run: list[UnfinishedEvent] = []
    wait: dict[str, str] = {}
    for event in sorted(heads.values(), key=_between_leases):
        if event.lease_id in busy:
            wait[event.event_id] = "another worker has claimed an event of this lease"
        elif (due := event.due(now)) > now:
            wait[event.event_id] = f"will be retried at {due.isoformat()}"
        elif reason := _predecessor(event, ends_on, now):
            wait[event.event_id] = reason
        else:
            run.append(event)
    return EventSchedule(tuple(run), wait)


def runnable(event: UnfinishedEvent) -> bool:
    """True if the lease's state admits this event."""
    return event.lease_status in RUNS_IN[event.type][0]


def _within_lease(event: UnfinishedEvent) -> tuple[int, datetime, str]:
    return _RANK[event.type], event.time, event.event_id


def _between_leases(event: UnfinishedEvent) -> tuple[datetime, bool, str]:
    """By time; at the same moment, events that free capacity come before starts."""
    return event.time, event.type is EventType.START, event.event_id


def _predecessor(event: UnfinishedEvent, ends_on: Mapping[int, Sequence[UnfinishedEvent]], now: datetime) -> str | None:
    """Why a start must wait for an earlier lease; None if it need not. `ends_on`: {host: unfinished end events}."""
    if event.type is not EventType.START or now >= event.time + MAX_WAIT_FOR_END:
        return None
    for host in sorted(event.hosts & ends_on.keys()):
        for end in ends_on[host]:
            if end.lease_id != event.lease_id and end.lease_end <= event.lease_start:
                return f"lease {end.lease_id} has not ended yet on a host of this lease"
    return None
