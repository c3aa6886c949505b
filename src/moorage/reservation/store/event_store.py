"""SQL of events and of the journal of their steps. A function takes many events, in a constant number of statements.

A conditional UPDATE claims an event: it requires the epoch that was read, and increments it. Every later write requires
the new epoch, and returns the events that it has written. A worker that has lost its claim meanwhile (it was slow, or
the lease is being deleted) therefore writes nothing. A claim lasts until its time is over, as that of a job does
(`moorage.jobs.store`): `claim`, `release` and `finish` mean the same there.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from sqlalchemy import (
    Connection,
    Row,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)

from moorage.core.errors import Conflict
from moorage.db.engine import ListStatement, in_list
from moorage.db.types import UtcDateTime
from moorage.jobs.worker_watch import DeadWorker
from moorage.reservation.model.event_order import UnfinishedEvent
from moorage.reservation.model.leases import EVENT_STATES, Event, EventStatus, EventType, LeaseStatus
from moorage.reservation.model.steps import RetireInventory, Step, journal_entry, kind_of, step_from_journal
from moorage.reservation.store.tables import computehost_allocations, events, leases, reservations, steps

#: {event id: its epoch}
Epochs: TypeAlias = Mapping[str, int]


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
class Release:
    """An event to give back: it is due again at `retry_at`."""

    event_id: str
    epoch: int
    retry_at: datetime
    error: str


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

_OF_LEASES = ListStatement(events.c.lease_id, _ORDERED.where)
_CLAIMED = ListStatement(events.c.id, update(events).where(events.c.epoch == bindparam("in_epoch")).where)
_CLAIM = ListStatement(
    events.c.id,
    update(events)
    .where(events.c.epoch == bindparam("in_epoch"), events.c.status.in_(OPEN))
    .values(epoch=events.c.epoch + 1, attempt=events.c.attempt + 1)
    .where,
)
_HELD = ListStatement(events.c.id, select(events.c.id).where(events.c.epoch == bindparam("in_epoch")).where)
_RELEASE = update(events).where(events.c.id == bindparam("of_event"), events.c.epoch == bindparam("in_epoch"))
_FENCE_OTHERS = (
    update(events)
    .where(events.c.lease_id == bindparam("of_lease"), events.c.id != bindparam("but"))
    .values(epoch=events.c.epoch + 1)
)
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
_STEPS = ListStatement(steps.c.event_id, select(steps).order_by(steps.c.event_id, steps.c.seq).where)
_STEPS_DONE = ListStatement(
    steps.c.event_id,
    update(steps).where(steps.c.seq <= bindparam("number"), steps.c.state == StepState.UNDONE).where,
)
_STEP = update(steps).where(steps.c.event_id == bindparam("of_event"), steps.c.seq == bindparam("number"))


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


def of_leases(
    connection: Connection, ids: Collection[str] | None = None, *, project_id: str | None = None
) -> Mapping[str, list[Event]]:
    """{lease id: its events} of the leases with these ids, else of one project's leases, else of all."""
    if ids is not None:
        rows = connection.execute(_OF_LEASES.on(connection), {"ids": list(ids)})
    elif project_id is not None:
        rows = connection.execute(_OF_PROJECT, {"project_id": project_id})
    else:
        rows = connection.execute(_ORDERED)
    found: dict[str, list[Event]] = defaultdict(list)
    for row in rows:
        event = Event(
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
        found[row.lease_id].append(event)
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


def claim(connection: Connection, seen: Epochs, worker: str, until: datetime, now: datetime) -> Epochs:
    """Claims open events that the caller has read in these epochs, with their leases locked; returns the new epochs.

    Raises `Conflict` if one has changed, which the lock prevents.
    """
    values = {"status": EventStatus.IN_PROGRESS, "claimed_by": worker, "claim_until": until, "updated_at": now}
    claim_some = _CLAIM.on(connection)
    taken = [connection.execute(claim_some, which | values).rowcount for which in _by_epoch(seen)]
    if sum(taken) != len(seen):
        raise Conflict(f"one of the events {', '.join(seen)} was claimed by another worker", code="reservation.fenced")
    return {event_id: epoch + 1 for event_id, epoch in seen.items()}


def update_held(connection: Connection, claimed: Epochs, **values: str | datetime | None) -> Epochs:
    """Sets columns of the events whose claims are still held; returns these claims, which cannot be lost before the
    transaction ends. A later `claim_until` extends the claims.
    """
    update_some = _CLAIMED.on(connection)
    written = [connection.execute(update_some, which | values).rowcount for which in _by_epoch(claimed)]
    return claimed if sum(written) == len(claimed) else _held(connection, claimed)


def release(connection: Connection, released: Sequence[Release], now: datetime) -> Epochs:
    """Gives up the claims; each event is due again at its `retry_at`. Returns those that were still held."""
    rows = [
        {
            "of_event": each.event_id,
            "in_epoch": each.epoch,
            "claimed_by": None,
            "claim_until": None,
            "retry_at": each.retry_at,
            "last_error": each.error,
            "updated_at": now,
        }
        for each in released
    ]
    claimed = {each.event_id: each.epoch for each in released}
    return claimed if connection.execute(_RELEASE, rows).rowcount == len(rows) else _held(connection, claimed)


def finish(
    connection: Connection, claimed: Epochs, status: EventStatus, now: datetime, error: str | None = None
) -> Epochs:
    """Ends the events with this status; returns those whose claims were still held."""
    EVENT_STATES.check_transition(EventStatus.IN_PROGRESS, status)
    return update_held(
        connection,
        claimed,
        claimed_by=None,
        claim_until=None,
        retry_at=None,
        last_error=error,
        status=status,
        updated_at=now,
    )


def fence_others(connection: Connection, lease_id: str, event_id: str) -> None:
    """Fences the workers of other events of this lease, so that their writes fail.

    Their claims remain until they are dropped or expire, so that an effect in progress arrives before ours starts.
    """
    connection.execute(_FENCE_OTHERS, {"of_lease": lease_id, "but": event_id})


def drop_claims(connection: Connection, event_ids: Collection[str], worker: str) -> None:
    """Drops the claims of a fenced worker that has stopped."""
    connection.execute(
        update(events)
        .where(in_list(connection, events.c.id, event_ids), events.c.claimed_by == worker)
        .values(claimed_by=None, claim_until=None)
    )


def drop_claims_of(connection: Connection, dead: DeadWorker, _now: datetime) -> None:
    """Drops the claims of a worker that died. If it lives after all, it holds them until another worker claims them."""
    connection.execute(
        update(events)
        .where(events.c.status == EventStatus.IN_PROGRESS, events.c.claimed_by == dead.id)
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


def new_rows(plan: Iterable[Step], after: int = 0) -> list[StepRow]:
    """New rows of a journal. `after`: number of the rows that it has."""
    return [StepRow(seq, step, StepState.UNDONE, 0, None) for seq, step in enumerate(plan, after + 1)]


def insert_steps(connection: Connection, journals: Mapping[str, Sequence[StepRow]], now: datetime) -> None:
    """Appends to the journals of events, {event id: new rows}."""
    rows = [
        {
            "event_id": event_id,
            "seq": row.seq,
            **journal_entry(row.step),
            "state": row.state,
            "attempt": row.attempt,
            "created_at": now,
        }
        for event_id, journal in journals.items()
        for row in journal
    ]
    if rows:
        connection.execute(insert(steps), rows)


def steps_of(connection: Connection, event_ids: Collection[str]) -> Mapping[str, list[StepRow]]:
    """{event id: its journal}; events without steps have no entry."""
    found: dict[str, list[StepRow]] = defaultdict(list)
    for row in connection.execute(_STEPS.on(connection), {"ids": list(event_ids)}):
        found[row.event_id].append(_step(row))
    return found


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


def steps_done(connection: Connection, last: Mapping[str, int], now: datetime) -> None:
    """Marks the undone steps up to these as done, {event id: number of the last one}.

    One statement for each number: events that were planned in the same way have equally many steps.
    """
    of_number: dict[int, list[str]] = defaultdict(list)
    for event_id, number in last.items():
        of_number[number].append(event_id)
    for number, ids in of_number.items():
        values = {"ids": ids, "number": number, "state": StepState.DONE, "last_error": None, "updated_at": now}
        connection.execute(_STEPS_DONE.on(connection), values)


def steps_not_done(connection: Connection, failed: Mapping[str, StepRow], now: datetime) -> None:
    """Records the state, the attempts and the error of one step of each event, {event id: its step}; at least one."""
    rows = [
        {
            "of_event": event_id,
            "number": row.seq,
            "state": row.state,
            "attempt": row.attempt,
            "last_error": row.last_error,
            "updated_at": now,
        }
        for event_id, row in failed.items()
    ]
    connection.execute(_STEP, rows)


def _held(connection: Connection, claimed: Epochs) -> Epochs:
    found = [connection.execute(_HELD.on(connection), which).scalars() for which in _by_epoch(claimed)]
    return {event_id: claimed[event_id] for ids in found for event_id in ids}


def _by_epoch(epochs: Epochs) -> list[dict[str, Any]]:
    """Parameters that select the events, one for each epoch. Most events have the same epoch."""
    of_epoch: dict[int, list[str]] = defaultdict(list)
    for event_id, epoch in epochs.items():
        of_epoch[epoch].append(event_id)
    return [{"ids": ids, "in_epoch": epoch} for epoch, ids in of_epoch.items()]


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
