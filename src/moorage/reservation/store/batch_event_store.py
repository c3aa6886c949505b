"""SQL for many events at once, like `event_store` for one event. The number of statements is constant.

Functions take the claimed events as {event id: epoch of the claim}. The caller locks their leases before it claims or
finishes them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, and_, select, update

from moorage.db.engine import in_list
from moorage.reservation.model.leases import EVENT_STATES, EventStatus
from moorage.reservation.model.steps import ReservationStep, kind_of
from moorage.reservation.store.event_store import OPEN, Fenced, StepState
from moorage.reservation.store.tables import events, steps

Held: TypeAlias = Mapping[str, int]


def claim(connection: Connection, seen: Held, worker: str, until: datetime, now: datetime) -> Held:
    """Claims the events read in these epochs; returns the new epochs. Raises `Fenced` if one is not available."""
    values = {"epoch": events.c.epoch + 1, "attempt": events.c.attempt + 1, "status": EventStatus.IN_PROGRESS}
    values |= {"claimed_by": worker, "claim_until": until, "updated_at": now}
    _write(connection, seen, values, events.c.status.in_(OPEN))
    return {event_id: epoch + 1 for event_id, epoch in seen.items()}


def hold(connection: Connection, held: Held, until: datetime) -> Held:
    """Extends the claims; returns those still held, which cannot be lost before the transaction ends."""
    try:
        _write(connection, held, {"claim_until": until})
    except Fenced:
        mine = [connection.execute(select(events.c.id).where(which)).scalars() for which in _by_epoch(connection, held)]
        return {event_id: held[event_id] for found in mine for event_id in found}
    return held


def finish(connection: Connection, held: Held, now: datetime) -> None:
    """Marks events and their steps as done. Raises `Fenced` if a claim was lost."""
    values: dict[str, Any] = {"claimed_by": None, "claim_until": None, "retry_at": None, "last_error": None}
    values |= {"status": EventStatus.DONE, "updated_at": now}
    _write(connection, held, values, events.c.status.in_(sorted(EVENT_STATES.states_before(EventStatus.DONE))))
    steps_done(connection, held, now)


def steps_done(connection: Connection, held: Held, now: datetime, kind: type[ReservationStep] | None = None) -> None:
    """Marks the undone steps of these events as done, of one kind or of all."""
    those = in_list(connection, steps.c.event_id, held) & (steps.c.state == StepState.UNDONE)
    if kind is not None:
        those &= steps.c.kind == kind_of(kind)
    connection.execute(update(steps).where(those).values(state=StepState.DONE, last_error=None, updated_at=now))


def _write(connection: Connection, held: Held, values: Mapping[str, Any], *but: ColumnElement[bool]) -> None:
    written = sum(
        connection.execute(update(events).where(which, *but).values(**values)).rowcount
        for which in _by_epoch(connection, held)
    )
    if written != len(held):
        raise Fenced(f"the claims on {len(held) - written} of {len(held)} events were lost")


def _by_epoch(connection: Connection, held: Held) -> Iterator[ColumnElement[bool]]:
    """Conditions that select the events, one for each epoch. Most events have the same epoch."""
    of_epoch: dict[int, list[str]] = defaultdict(list)
    for event_id, epoch in held.items():
        of_epoch[epoch].append(event_id)
    for epoch, ids in of_epoch.items():
        yield and_(in_list(connection, events.c.id, ids), events.c.epoch == epoch)
