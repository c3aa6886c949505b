"""SQL of the limits and usage of projects. Usage is kept after a lease has ended or was deleted."""

from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from moorage.db.session import in_transaction, read
from moorage.reservation.model.limits import ProjectLimits, Reserved
from moorage.reservation.store.tables import project_limits, project_usage


def ensure(engine: Engine, project_id: str) -> None:
    """Creates the project's row, which `lock` locks, if it is missing."""
    statement = select(project_limits.c.project_id).where(project_limits.c.project_id == project_id)
    with read(engine) as connection:
        if connection.execute(statement).scalar_one_or_none() is not None:
            return
    with suppress(IntegrityError):  # created concurrently
        in_transaction(
            engine, lambda connection: connection.execute(insert(project_limits), {"project_id": project_id})
        )


def lock(connection: Connection, project_id: str) -> None:
    """Serialises the checks of this project's limits until the transaction ends."""
    connection.execute(
        select(project_limits.c.project_id).where(project_limits.c.project_id == project_id).with_for_update()
    )


def own_limits(connection: Connection, project_id: str) -> ProjectLimits | None:
    """The project's own limits. None: the default limits apply."""
    statement = select(project_limits.c.limits).where(project_limits.c.project_id == project_id)
    document = connection.execute(statement).scalar_one_or_none()
    return None if document is None else ProjectLimits(document["now"], document["hours"])


def set_limits(connection: Connection, project_id: str, limits: ProjectLimits | None) -> None:
    """Sets or removes the project's own limits. The row must exist; see `ensure`."""
    document: dict[str, Any] | None = None
    if limits is not None:
        document = {"now": dict(limits.now), "hours": dict(limits.hours)}
    connection.execute(update(project_limits).where(project_limits.c.project_id == project_id).values(limits=document))


def between(connection: Connection, project_id: str, start: datetime, end: datetime) -> list[Reserved]:
    """The project's usage in ``[start, end)``, including that of deleted leases."""
    statement = select(project_usage).where(
        project_usage.c.project_id == project_id, project_usage.c.end_date > start, project_usage.c.start_date < end
    )
    rows = connection.execute(statement)
    return [Reserved(row.reservation_id, row.start_date, row.end_date, row.amounts) for row in rows]


def write(connection: Connection, project_id: str, lease_id: str, reserved: Iterable[Reserved]) -> None:
    """Writes the usage of these reservations, replacing any earlier usage of them."""
    rows = [
        {
            "reservation_id": each.reservation_id,
            "lease_id": lease_id,
            "project_id": project_id,
            "start_date": each.start,
            "end_date": each.end,
            "amounts": dict(each.amounts),
        }
        for each in reserved
    ]
    if rows:
        ids = [row["reservation_id"] for row in rows]
        connection.execute(delete(project_usage).where(project_usage.c.reservation_id.in_(ids)))
        connection.execute(insert(project_usage), rows)


def move(connection: Connection, reservation_ids: Collection[str], start: datetime, end: datetime) -> None:
    connection.execute(
        update(project_usage)
        .where(project_usage.c.reservation_id.in_(list(reservation_ids)))
        .values(start_date=start, end_date=end)
    )


def drop_before(connection: Connection, project_id: str, moment: datetime) -> None:
    """Deletes usage that ended before `moment`, when it no longer counts for any limit."""
    mine = project_usage.c.project_id == project_id
    connection.execute(delete(project_usage).where(mine, project_usage.c.end_date < moment))


def close(connection: Connection, lease_id: str, now: datetime) -> None:
    """Ends the lease's usage at `now`; unused time no longer counts."""
    mine = project_usage.c.lease_id == lease_id
    connection.execute(delete(project_usage).where(mine, project_usage.c.start_date >= now))
    connection.execute(update(project_usage).where(mine, project_usage.c.end_date > now).values(end_date=now))
