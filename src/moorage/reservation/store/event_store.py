"""SQL of events and of the journal of their steps.

A conditional UPDATE claims an event: it requires the epoch that was read, and increments it. Every later write requires
the new epoch. A worker that has lost its claim meanwhile (it was slow, or the lease is being deleted) therefore gets
`Fenced` and writes nothing.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, Update, bindparam, case, delete, func, insert, select, tuple_, update

from moorage.core.errors import Conflict
from moorage.db.engine import in_list
from moorage.db.types import UtcDateTime
from moorage.reservation.model.event_order import UnfinishedEvent
from moorage.reservation.model.leases import EVENT_STATES, Event, EventStatus, EventType, LeaseStatus
from moorage.reservation.model.steps import RetireInventory, Step, journal_args, kind_of, step_from_journal
from moorage.reservation.store.tables import computehost_allocations, events, leases, reservations, steps

#: Maximum number of failures that the error of an event names.
MAX_REASONS = 3


class Fenced(Conflict):
    """Another worker has claimed this event."""

    code = "reservation.fenced"


class StepState(StrEnum):
    UNDONE = "UNDONE"
    DONE = "DONE"
    FAILED = "FAILED"  # given up; the other steps continue


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step in the journal."""

    seq: int
    step: Step
    state: StepState
    attempt: int
    last_error: str | None


@dataclass(frozen=True, slots=True)
class StepCount:
    """Counts of an event's steps of one kind. `attempts`: maximum of failed attempts; `changed_at`: latest change."""

    kind: str
    total: int
    done: int
    failed: int
    attempts: int
    changed_at: datetime | None
    error: str | None  #: error of a step that is not done


OPEN = (EventStatus.UNDONE, EventStatus.IN_PROGRESS)

_ORDERED = select(events).order_by(events.c.lease_id, events.c.time, events.c.event_type)
_OF_LEASE = _ORDERED.where(events.c.lease_id == bindparam("lease_id"))
_OF_PROJECT = _ORDERED.join(leases, leases.c.id == events.c.lease_id).where(
    leases.c.project_id == bindparam("project_id")
)

_UNFINISHED = (
    select(events, leases.c.status.label("lease_status"), leases.c.start_date, leases.c.end_date)
    .join(leases, leases.c.id == events.c.lease_id)
    .where(events.c.status.in_(OPEN))
)
# A start only waits for events that are due at its own time or earlier.
_ORDER = (events.c.time, case((events.c.event_type == EventType.START, 1), else_=0), events.c.id)
_DUE = _UNFINISHED.where(events.c.time <= bindparam("now")).order_by(*_ORDER)
_BEHIND = _DUE.where(
    tuple_(*_ORDER)
    > tuple_(bindparam("last_time", type_=UtcDateTime), bindparam("last_is_start"), bindparam("last_id"))
)
# Future events are all UNDONE, so one range of the index has them in order.
_COMING = (
    _UNFINISHED.where(events.c.status == EventStatus.UNDONE, events.c.time > bindparam("now"))
    .order_by(events.c.time)
    .limit(50)
)

_CLAIM = (
    update(events)
    .where(
        events.c.id == bindparam("event_id"),
        events.c.epoch == bindparam("seen_epoch"),
        events.c.status.in_(OPEN),
    )
    .values(epoch=events.c.epoch + 1, attempt=events.c.attempt + 1)
)
_HOLD = update(events).where(events.c.id == bindparam("event_id"), events.c.epoch == bindparam("my_epoch"))
_FENCE_OTHERS = (
    update(events)
    .where(events.c.lease_id == bindparam("of_lease"), events.c.id != bindparam("but"))
    .values(epoch=events.c.epoch + 1)
)
_STEPS = select(steps).where(steps.c.event_id == bindparam("event_id")).order_by(steps.c.seq)
_STEP_COUNTS = (
    select(
        steps.c.event_id,
        steps.c.kind,
        func.count().label("total"),
        func.sum(case((steps.c.state == StepState.DONE, 1), else_=0)).label("done"),
        func.sum(case((steps.c.state == StepState.FAILED, 1), else_=0)).label("failed"),
        func.max(steps.c.attempt).label("attempts"),
        func.max(steps.c.updated_at).label("changed_at"),
        func.max(case((steps.c.state != StepState.DONE, steps.c.last_error))).label("error"),
    )
    .join(events, events.c.id == steps.c.event_id)
    .where(events.c.lease_id == bindparam("lease_id"))
    .group_by(steps.c.event_id, steps.c.kind)
    .order_by(func.min(steps.c.seq))
)
_STEP = update(steps).where(steps.c.event_id == bindparam("of_event"), steps.c.seq == bindparam("number"))


def insert_event(connection: Connection, event: Event) -> None:
    insert_events(connection, [event])


def insert_events(connection: Connection, new: Collection[Event]) -> None:
    rows = [
        {
            "id": event.id,
            "lease_id": event.lease_id,
            "event_type": event.type,
            "time": event.time,
            "status": event.status,
            "epoch": event.epoch,
            "attempt": event.attempt,
            "claimed_by": event.claimed_by,
            "claim_until": event.claim_until,
            "retry_at": event.retry_at,
            "created_at": event.created_at,
            "updated_at": event.updated_at,
        }
        for event in new
    ]
    if rows:
        connection.execute(insert(events), rows)


def of_lease(connection: Connection, lease_id: str) -> list[Event]:
    return [_event(row) for row in connection.execute(_OF_LEASE, {"lease_id": lease_id})]


def of_leases(connection: Connection, ids: Collection[str]) -> Mapping[str, list[Event]]:
    """{lease id: its events}"""
    found: dict[str, list[Event]] = defaultdict(list)
    for row in connection.execute(_ORDERED.where(in_list(connection, events.c.lease_id, ids))):
        found[row.lease_id].append(_event(row))
    return found


def by_lease(connection: Connection, project_id: str | None = None) -> dict[str, list[Event]]:
    """{lease id: its events} of one project's leases, or of all."""
    wanted = {} if project_id is None else {"project_id": project_id}
    found: dict[str, list[Event]] = defaultdict(list)
    for row in connection.execute(_OF_PROJECT if wanted else _ORDERED, wanted):
        found[row.lease_id].append(_event(row))
    return found


def unfinished(connection: Connection, now: datetime, most: int | None = None) -> list[UnfinishedEvent]:
    """All unfinished events that are due, with the hosts of their leases.

    `most`: read that many, plus the later events of their leases. No other event decides whether these may run.
    """
    rows = list(connection.execute(_DUE.limit(most), {"now": now}))
    of_leases = {row.lease_id for row in rows}
    if len(rows) == most:
        last = rows[-1]
        behind = {"last_time": last.time, "last_is_start": int(last.event_type == EventType.START), "last_id": last.id}
        others = _BEHIND.where(in_list(connection, events.c.lease_id, of_leases))
        rows += connection.execute(others, {"now": now, **behind})
    hosts = _hosts(connection, of_leases)
    return [_unfinished(row, hosts[row.lease_id]) for row in rows]


def unfinished_of(connection: Connection, lease_id: str, now: datetime) -> list[UnfinishedEvent]:
    """`unfinished` for one lease, without hosts."""
    rows = connection.execute(_DUE.where(events.c.lease_id == lease_id), {"now": now})
    return [_unfinished(row, frozenset()) for row in rows]


def coming(connection: Connection, now: datetime) -> list[UnfinishedEvent]:
    """The next 50 events that are not due yet, soonest first, without hosts."""
    return [_unfinished(row, frozenset()) for row in connection.execute(_COMING, {"now": now})]


def claim(connection: Connection, event_id: str, epoch: int, worker: str, until: datetime, now: datetime) -> int | None:
    """Claims the event that was read with `epoch`. Returns the new epoch, or None if another worker was first."""
    claimed = connection.execute(
        _CLAIM,
        {
            "event_id": event_id,
            "seen_epoch": epoch,
            "status": EventStatus.IN_PROGRESS,
            "claimed_by": worker,
            "claim_until": until,
            "updated_at": now,
        },
    )
    return epoch + 1 if claimed.rowcount == 1 else None


def hold(connection: Connection, event_id: str, epoch: int, until: datetime) -> None:
    """Extends the claim, which then cannot be lost before the transaction ends. Raises `Fenced`."""
    _write(connection, event_id, epoch, {"claim_until": until})


def release(
    connection: Connection, event_id: str, epoch: int, *, retry_at: datetime, error: str, now: datetime
) -> None:
    """Gives up the claim; the event is due again at `retry_at`. Raises `Fenced`."""
    values = {"claimed_by": None, "claim_until": None, "retry_at": retry_at, "last_error": error, "updated_at": now}
    _write(connection, event_id, epoch, values)


def finish(
    connection: Connection, event_id: str, epoch: int, status: EventStatus, now: datetime, error: str | None = None
) -> None:
    values = {"claimed_by": None, "claim_until": None, "retry_at": None, "status": status, "updated_at": now}
    held = _HOLD.where(events.c.status.in_(sorted(EVENT_STATES.states_before(status))))
    _write(connection, event_id, epoch, values | {"last_error": error}, held)


def fence_others(connection: Connection, lease_id: str, event_id: str) -> None:
    """Fences the workers of other events of this lease, so that their writes fail.

    Their claims remain until they are dropped or expire, so that an effect in progress arrives before ours starts.
    """
    connection.execute(_FENCE_OTHERS, {"of_lease": lease_id, "but": event_id})


def drop_claim(connection: Connection, event_id: str, worker: str) -> None:
    """Drops the claim of a fenced worker that has stopped."""
    connection.execute(
        update(events)
        .where(events.c.id == event_id, events.c.claimed_by == worker)
        .values(claimed_by=None, claim_until=None)
    )


def move_event(connection: Connection, event: Event, time: datetime, now: datetime, status: EventStatus) -> None:
    """Changes the event's time and status; voids a claim on it."""
    if status is not event.status:
        EVENT_STATES.check_transition(event.status, status)
    connection.execute(
        update(events)
        .where(events.c.id == event.id)
        .values(
            time=time,
            status=status,
            epoch=events.c.epoch + 1,
            retry_at=None,
            claimed_by=None,
            claim_until=None,
            updated_at=now,
        )
    )


def delete_of_lease(connection: Connection, lease_id: str) -> None:
    ids = select(events.c.id).where(events.c.lease_id == lease_id)
    connection.execute(delete(steps).where(steps.c.event_id.in_(list(connection.execute(ids).scalars()))))
    connection.execute(delete(events).where(events.c.lease_id == lease_id))


def insert_steps(connection: Connection, plans: Mapping[str, Sequence[Step]], now: datetime, after: int = 0) -> None:
    """Appends steps to the journals of events, {event id: its steps}. `after`: number of steps that an event has."""
    rows = [
        {
            "event_id": event_id,
            "seq": seq,
            "kind": step.kind,
            "args": journal_args(step),
            "state": StepState.UNDONE,
            "attempt": 0,
            "created_at": now,
        }
        for event_id, plan in plans.items()
        for seq, step in enumerate(plan, after + 1)
    ]
    if rows:
        connection.execute(insert(steps), rows)


def steps_of(connection: Connection, event_id: str) -> list[StepRow]:
    return [_step(row) for row in connection.execute(_STEPS, {"event_id": event_id})]


def failures(connection: Connection, event_id: str) -> str | None:
    """The errors of the event's failed steps, up to `MAX_REASONS` different ones; None if no step failed."""
    failed = [row for row in steps_of(connection, event_id) if row.state is StepState.FAILED]
    reasons = list(dict.fromkeys(row.last_error or row.step.kind for row in failed))
    more = [f"and {len(reasons) - MAX_REASONS} more"] if len(reasons) > MAX_REASONS else []
    return "; ".join(reasons[:MAX_REASONS] + more) or None


def step_counts(connection: Connection, lease_id: str) -> dict[str, list[StepCount]]:
    """{event id: counts for each kind of step, in the order of the steps}"""
    found: dict[str, list[StepCount]] = defaultdict(list)
    for row in connection.execute(_STEP_COUNTS, {"lease_id": lease_id}):
        found[row.event_id].append(
            StepCount(
                row.kind, row.total, int(row.done or 0), int(row.failed or 0), row.attempts, row.changed_at, row.error
            )  # MariaDB returns sums as decimals
        )
    return found


def steps_before_end(connection: Connection, lease_ids: Collection[str]) -> dict[str, list[StepRow]]:
    """{lease id: the steps of its before_end event}"""
    statement = (
        select(steps, events.c.lease_id)
        .join(events, events.c.id == steps.c.event_id)
        .where(events.c.lease_id.in_(lease_ids), events.c.event_type == EventType.BEFORE_END)
        .order_by(steps.c.event_id, steps.c.seq)
    )
    found: dict[str, list[StepRow]] = defaultdict(list)
    for row in connection.execute(statement):
        found[row.lease_id].append(_step(row))
    return found


def forget_steps(connection: Connection, event_id: str) -> None:
    """Deletes the journal, so that the event runs again."""
    connection.execute(delete(steps).where(steps.c.event_id == event_id))


def retired_hosts(connection: Connection, lease_id: str) -> dict[str, set[str]]:
    """{reservation id: hypervisor hostnames of failed hosts from which its slots were moved}"""
    statement = (
        select(steps.c.args)
        .join(events, events.c.id == steps.c.event_id)
        .where(events.c.lease_id == lease_id, steps.c.kind == kind_of(RetireInventory))
    )
    found: dict[str, set[str]] = defaultdict(set)
    for args in connection.execute(statement).scalars():
        found[args["reservation_id"]].add(args["host"])
    return found


def step_done(connection: Connection, event_id: str, seq: int, now: datetime) -> None:
    values = {"state": StepState.DONE, "last_error": None, "updated_at": now}
    connection.execute(_STEP, {"of_event": event_id, "number": seq, **values})


def step_not_done(
    connection: Connection,
    event_id: str,
    seq: int,
    attempt: int,
    error: str,
    now: datetime,
    state: StepState = StepState.UNDONE,
) -> None:
    values = {"attempt": attempt, "last_error": error, "updated_at": now, "state": state}
    connection.execute(_STEP, {"of_event": event_id, "number": seq, **values})


def _write(connection: Connection, event_id: str, epoch: int, values: Mapping[str, Any], held: Update = _HOLD) -> None:
    written = connection.execute(held, {"event_id": event_id, "my_epoch": epoch, **values})
    if written.rowcount != 1:
        raise Fenced(f"the claim on event {event_id} in epoch {epoch} was lost")


def _step(row: Row[Any]) -> StepRow:
    return StepRow(row.seq, step_from_journal(row.kind, row.args), StepState(row.state), row.attempt, row.last_error)


def _hosts(connection: Connection, lease_ids: set[str]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    if lease_ids:
        statement = (
            select(reservations.c.lease_id, computehost_allocations.c.compute_host_id)
            .join(computehost_allocations, computehost_allocations.c.reservation_id == reservations.c.id)
            .where(in_list(connection, reservations.c.lease_id, lease_ids))
            .distinct()
        )
        for row in connection.execute(statement):
            found[row.lease_id].add(row.compute_host_id)
    return {lease_id: frozenset(found[lease_id]) for lease_id in lease_ids}


def _unfinished(row: Row[Any], hosts: frozenset[int]) -> UnfinishedEvent:
    return UnfinishedEvent(
        event_id=row.id,
        lease_id=row.lease_id,
        type=EventType(row.event_type),
        time=row.time,
        epoch=row.epoch,
        lease_status=LeaseStatus(row.lease_status),
        lease_start=row.start_date,
        lease_end=row.end_date,
        hosts=hosts,
        retry_at=row.retry_at,
        claim_until=row.claim_until,
    )


def _event(row: Row[Any]) -> Event:
    return Event(
        id=row.id,
        lease_id=row.lease_id,
        type=EventType(row.event_type),
        time=row.time,
        status=EventStatus(row.status),
        created_at=row.created_at,
        updated_at=row.updated_at,
        epoch=row.epoch,
        attempt=row.attempt,
        claimed_by=row.claimed_by,
        claim_until=row.claim_until,
        retry_at=row.retry_at,
        last_error=row.last_error,
    )
