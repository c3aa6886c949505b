"""SQL of holds: capacity that is kept for a project until it expires. Expired holds count as absent."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select

from moorage.reservation.capacity.calendar import HostUsage
from moorage.reservation.model.leases import Allocation
from moorage.reservation.model.limits import Account, Reserved, charged, whole_hosts
from moorage.reservation.model.slot_demand import Amounts
from moorage.reservation.store import host_store
from moorage.reservation.store.tables import hold_allocations, holds


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold. `requests`: the reservations as in the request's body."""

    id: str
    user_id: str
    project_id: str
    start_date: datetime
    end_date: datetime
    expires_at: datetime
    requests: Sequence[Mapping[str, Any]]
    created_at: datetime


_LIVE = holds.c.expires_at > bindparam("now")
_OF_PROJECT = (
    select(holds).where(holds.c.project_id == bindparam("project_id"), _LIVE).order_by(holds.c.created_at, holds.c.id)
)
_ONE = select(holds).where(holds.c.id == bindparam("hold_id"), _LIVE)
_SLOTS = select(hold_allocations).join(holds, holds.c.id == hold_allocations.c.hold_id).where(_LIVE)
_EXPIRED = select(holds.c.id).where(holds.c.expires_at <= bindparam("now")).order_by(holds.c.expires_at).limit(100)


def insert_hold(connection: Connection, hold: Hold, slots: Sequence[Sequence[Allocation]]) -> None:
    """Inserts the hold. `slots`: the slots of each reservation, in order."""
    values = {name: getattr(hold, name) for name in Hold.__dataclass_fields__ if name != "requests"}
    connection.execute(insert(holds), values | {"requests": [dict(each) for each in hold.requests]})
    rows = [
        {
            "id": slot.id,
            "hold_id": hold.id,
            "position": position,
            "compute_host_id": slot.host_id,
            "start_date": slot.start_date,
            "end_date": slot.end_date,
            "resources": dict(slot.resources),
        }
        for position, some in enumerate(slots)
        for slot in some
    ]
    if rows:
        connection.execute(insert(hold_allocations), rows)


def of_project(connection: Connection, project_id: str, now: datetime) -> list[Hold]:
    return [_hold(row) for row in connection.execute(_OF_PROJECT, {"project_id": project_id, "now": now})]


def count(connection: Connection, account: Account, now: datetime) -> int:
    mine = holds.c[f"{account.kind}_id"] == account.id
    return int(connection.execute(select(func.count()).where(mine, _LIVE), {"now": now}).scalar_one())


def reserved(connection: Connection, account: Account, now: datetime) -> list[Reserved]:
    """What the account keeps by holds, one entry per hold."""
    mine = holds.c[f"{account.kind}_id"] == account.id
    found = {row.id: row for row in connection.execute(select(holds).where(mine, _LIVE), {"now": now})}
    slots: dict[str, dict[int, list[Amounts]]] = {}
    for row in connection.execute(_SLOTS.where(mine), {"now": now}) if found else ():
        slots.setdefault(row.hold_id, {}).setdefault(row.compute_host_id, []).append(row.resources)
    whole = host_store.amounts(connection, {host for placing in slots.values() for host in whole_hosts(placing)})
    return [
        Reserved(hold_id, found[hold_id].start_date, found[hold_id].end_date, charged(placing, whole))
        for hold_id, placing in slots.items()
        if hold_id in found
    ]


def find(connection: Connection, hold_id: str, now: datetime, *, lock: bool = False) -> Hold | None:
    """`lock`: locks the row until the transaction ends."""
    statement = _ONE.with_for_update() if lock else _ONE
    row = connection.execute(statement, {"hold_id": hold_id, "now": now}).one_or_none()
    return None if row is None else _hold(row)


def placings(connection: Connection, hold_id: str) -> dict[int, dict[int, list[Amounts]]]:
    """{position of a reservation: {host id: amounts of each slot there}}"""
    found: dict[int, dict[int, list[Amounts]]] = {}
    for row in connection.execute(select(hold_allocations).where(hold_allocations.c.hold_id == hold_id)):
        found.setdefault(row.position, {}).setdefault(row.compute_host_id, []).append(row.resources)
    return found


def usages(
    connection: Connection, now: datetime, host_ids: Collection[int] | None = None, *, without: str | None = None
) -> list[HostUsage]:
    """Usages of holds on all hosts or on these, except for the hold `without`."""
    statement = _SLOTS
    if host_ids is not None:
        statement = statement.where(hold_allocations.c.compute_host_id.in_(list(host_ids)))
    if without is not None:
        statement = statement.where(hold_allocations.c.hold_id != without)
    rows = connection.execute(statement, {"now": now})
    return [HostUsage(row.compute_host_id, row.start_date, row.end_date, row.resources) for row in rows]


def remove(connection: Connection, ids: Collection[str]) -> None:
    connection.execute(delete(hold_allocations).where(hold_allocations.c.hold_id.in_(list(ids))))
    connection.execute(delete(holds).where(holds.c.id.in_(list(ids))))


def remove_expired(connection: Connection, now: datetime) -> None:
    """Deletes up to 100 expired holds. Each new hold calls this, so there are never many."""
    if ids := list(connection.execute(_EXPIRED, {"now": now}).scalars()):
        remove(connection, ids)


def _hold(row: Row[Any]) -> Hold:
    return Hold(**row._mapping)
