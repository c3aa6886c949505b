"""SQL of deleted leases with their users, reservations and timelines.

A lease is archived by the transaction that deletes it, as the rows that it had, so that the same functions decode it.
Lists of leases do not contain deleted ones. Archived leases are removed after a time; see `remove_before`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, and_, delete, insert, or_, select

from moorage.core.errors import Invalid
from moorage.core.json import Json
from moorage.reservation.model.leases import Event, EventStatus, EventType, Lease
from moorage.reservation.model.list_query import DeletedPage
from moorage.reservation.store import capacity_store, event_store, lease_store
from moorage.reservation.store.capacity_store import Incident
from moorage.reservation.store.event_store import StepCount
from moorage.reservation.store.tables import deleted_leases, leases

#: Maximum number of rows that one deletion of a lease removes.
_PURGED = 100

#: The columns of a stored row that are times.
_TIMES = frozenset({"start_date", "end_date", "created_at", "updated_at"})


@dataclass(frozen=True, slots=True)
class DeletedLease:
    """`lease` is as it was when its deletion ended; `steps`: {event id: the counts of its steps}."""

    lease: Lease
    deleted_at: datetime
    steps: Mapping[str, list[StepCount]]
    incidents: list[Incident]


def archive(connection: Connection, found: Collection[Lease], now: datetime) -> None:
    """Keeps these leases, which are about to be deleted. One whose creation failed was never held."""
    rows = [
        {
            "id": lease.id,
            "name": lease.name,
            "user_id": lease.user_id,
            "project_id": lease.project_id,
            "start_date": lease.start_date,
            "end_date": lease.end_date,
            "deleted_at": now,
            "document": _document(connection, lease),
        }
        for lease in found
        if (creation := lease.event(EventType.CREATE)) is None or creation.status is EventStatus.DONE
    ]
    if rows:
        connection.execute(insert(deleted_leases), rows)


def remove_before(connection: Connection, moment: datetime) -> None:
    """Removes some of the leases that were deleted before `moment`; each deletion of a lease calls this."""
    old = select(deleted_leases.c.id).where(deleted_leases.c.deleted_at < moment).limit(_PURGED)
    if ids := list(connection.execute(old).scalars()):
        connection.execute(delete(deleted_leases).where(deleted_leases.c.id.in_(ids)))


def find(connection: Connection, lease_id: str, since: datetime) -> DeletedLease | None:
    its = deleted_leases.c
    row = connection.execute(select(deleted_leases).where(its.id == lease_id, its.deleted_at >= since)).one_or_none()
    return None if row is None else _deleted(row)


def page(connection: Connection, wanted: DeletedPage, since: datetime) -> tuple[list[DeletedLease], bool]:
    """(the leases that were deleted at or after `since`, the last deleted one first; True if more follow).

    Raises `Invalid` if the marker is not the id of a lease of the list.
    """
    its = deleted_leases.c
    mine = [its.deleted_at >= since]
    if wanted.project_id is not None:
        mine.append(its.project_id == wanted.project_id)
    statement = select(deleted_leases).where(*mine)
    if wanted.marker is not None:
        marker = select(its.deleted_at).where(its.id == wanted.marker, *mine)
        at = connection.execute(marker).scalar_one_or_none()
        if at is None:
            raise Invalid(f"marker [{wanted.marker}] not found")
        statement = statement.where(or_(its.deleted_at < at, and_(its.deleted_at == at, its.id < wanted.marker)))
    statement = statement.order_by(its.deleted_at.desc(), its.id.desc()).limit(wanted.limit + 1)
    rows = connection.execute(statement).all()
    return [_deleted(row) for row in rows[: wanted.limit]], len(rows) > wanted.limit


def _document(connection: Connection, lease: Lease) -> dict[str, Json]:
    row = connection.execute(select(leases).where(leases.c.id == lease.id)).one()
    reservation_rows = connection.execute(lease_store.RESERVATIONS_OF_LEASES.on(connection), {"ids": [lease.id]})
    document: dict[str, Json] = msgspec.to_builtins(
        {
            "lease": dict(row._mapping),
            "reservations": [dict(each._mapping) for each in reservation_rows],
            "events": lease.events,
            "steps": event_store.step_counts(connection, lease.id),
            "incidents": capacity_store.incidents_of(connection, lease.id),
        }
    )
    return document


def _deleted(row: Row[Any]) -> DeletedLease:
    document = row.document
    reservations = [lease_store.reservation_of(_row(each)) for each in document["reservations"]]
    events = msgspec.convert(document["events"], list[Event])
    lease = lease_store.lease_of(_row(document["lease"]), reservations, events)
    steps = msgspec.convert(document["steps"], dict[str, list[StepCount]])
    return DeletedLease(lease, row.deleted_at, steps, msgspec.convert(document["incidents"], list[Incident]))


def _row(values: Mapping[str, Any]) -> Any:
    """The stored row, with attributes as SQLAlchemy's rows have."""
    return SimpleNamespace(
        **{
            name: datetime.fromisoformat(value) if name in _TIMES and value is not None else value
            for name, value in values.items()
        }
    )
