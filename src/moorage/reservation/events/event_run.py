"""A claimed event while a worker runs it: its journal, how far it is, how its run ends, and what the end changes.

`change_finished` and `change_given_up` change the lease in the transaction that ends the event.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from sqlalchemy import Connection

from moorage.core.errors import MoorageError
from moorage.core.ids import Ids
from moorage.reservation.capacity.addresses import build_address_requests
from moorage.reservation.model.leases import (
    DUE_IMMEDIATELY,
    WIRE_EVENTS,
    Event,
    EventStatus,
    EventType,
    Lease,
    LeaseStatus,
    ReservationStatus,
    status_after_update,
)
from moorage.reservation.model.steps import Step
from moorage.reservation.store import address_store, archive_store, event_store, host_store, lease_store, limit_store
from moorage.reservation.store.event_store import StepRow, StepState

#: Maximum number of failures that the error of an event names.
MAX_REASONS = 3


@dataclass(frozen=True, slots=True)
class EventClaim:
    """The right to run an event, until another worker raises the epoch.

    `deadline`: when the event is given up. None: never, because creations fail at once, and ends and deletions must be
    completed. `journal`: its steps, if they were written together with the claim. None: they must be read, or planned.
    """

    event_id: str
    lease_id: str
    type: EventType
    epoch: int
    deadline: datetime | None = None
    journal: Sequence[StepRow] | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """The event is released until the pause is over. `row`: the step that waits or failed; `further`: steps to add."""

    reason: str
    pause_s: float
    row: StepRow | None = None
    further: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The event ends with an error. `error`: that of its step, if a step failed."""

    reason: str
    error: MoorageError | None = None


class RunEnd(Enum):
    FINISHED = "finished"
    LOST = "lost"  #: another worker has claimed the event


class EventRun:
    """A claimed event in progress. `lease`: as it was claimed; None: not read."""

    def __init__(self, claim: EventClaim, renew_at: datetime, lease: Lease | None = None) -> None:
        self.claim = claim
        self.renew_at = renew_at
        self.lease = lease
        self.todo: deque[StepRow] = deque()  #: the steps that are left, in order
        self.length = 0  #: of the journal
        self.done = 0  #: number of the last step that is done or given up
        self.recorded = 0  #: number of the last step that is so in the journal
        self.failures: list[str] = []  #: the errors of steps that were given up
        self.end: Retry | GiveUp | RunEnd | None = None  #: None: it goes on
        self.read_journal(claim.journal or ())

    def read_journal(self, rows: Sequence[StepRow]) -> None:
        self.todo.extend(row for row in rows if row.state is StepState.UNDONE)
        self.failures += [row.last_error or row.step.kind for row in rows if row.state is StepState.FAILED]
        self.length = len(rows)


def summarise_failures(failures: Sequence[str]) -> str:
    """Up to `MAX_REASONS` different ones."""
    reasons = list(dict.fromkeys(failures))
    more = [f"and {len(reasons) - MAX_REASONS} more"] if len(reasons) > MAX_REASONS else []
    return "; ".join(reasons[:MAX_REASONS] + more)


def change_finished(connection: Connection, ended: Sequence[EventClaim], now: datetime) -> None:
    """Changes leases and their reservations as required by their finished events, which are of one type."""
    ids = [claim.lease_id for claim in ended]
    match ended[0].type:
        case EventType.CREATE:
            lease_store.move(connection, ids, LeaseStatus.CREATING, LeaseStatus.PENDING, now)
        case EventType.START:
            before, after = LeaseStatus.STARTING, LeaseStatus.ACTIVE
            lease_store.move(connection, ids, before, after, now, reservations=ReservationStatus.ACTIVE)
        case EventType.UPDATE:
            for lease in lease_store.find_leases(connection, ids):
                lease_store.move(connection, [lease.id], lease.status, status_after_update(lease), now)
        case EventType.END:
            leases = lease_store.find_leases(connection, ids)
            before, after = LeaseStatus.TERMINATING, LeaseStatus.TERMINATED
            lease_store.move(connection, ids, before, after, now, reservations=ReservationStatus.DELETED)
            _free_resources(connection, leases, now)
            for event in (event for lease in leases for event in lease.events):
                if event.type in WIRE_EVENTS and event.status is EventStatus.UNDONE:  # it never ran
                    event_store.move_event(connection, event, event.time, now, EventStatus.DONE)
        case EventType.DELETE:
            leases = lease_store.find_leases(connection, ids)
            _free_resources(connection, leases, now)
            archive_store.archive(connection, leases, now)
            for lease_id in ids:
                lease_store.delete_lease(connection, lease_id)
        case EventType.BEFORE_END:
            pass  # the lease does not change


def _free_resources(connection: Connection, leases: Sequence[Lease], now: datetime) -> None:
    """Deletes the allocations of ended leases."""
    reservations = [reservation for lease in leases for reservation in lease.reservations]
    host_store.delete_allocations_of(connection, [each.id for each in reservations])
    address_store.release_all(connection, [want.reservation_id for want in build_address_requests(reservations)])
    for lease in leases:
        limit_store.close(connection, lease.id, now)


def change_given_up(connection: Connection, lease: Lease, kind: EventType, now: datetime, ids: Ids) -> None:
    """Changes the lease as required by an event that was given up."""
    if kind is EventType.CREATE:  # deleting the lease undoes its creation (R12)
        lease_store.move(connection, [lease.id], lease.status, LeaseStatus.DELETING, now)
        deletion = Event(ids.uuid(), lease.id, EventType.DELETE, DUE_IMMEDIATELY, EventStatus.UNDONE, now, None)
        event_store.insert_events(connection, [deletion])
    elif kind is EventType.UPDATE:
        lease_store.move(connection, [lease.id], lease.status, status_after_update(lease), now)
    elif kind is EventType.START:
        after, of_reservations = LeaseStatus.ERROR, ReservationStatus.ERROR
        lease_store.move(connection, [lease.id], lease.status, after, now, reservations=of_reservations)
