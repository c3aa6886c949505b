"""SQL of one page of leases: a range of one index, then what belongs to those leases. Four statements, however many."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, or_, select

from moorage.core.errors import Invalid
from moorage.reservation.model.leases import Lease
from moorage.reservation.model.list_query import LeasePage
from moorage.reservation.store import event_store, lease_store
from moorage.reservation.store.tables import leases


def page(connection: Connection, wanted: LeasePage) -> tuple[list[Lease], bool]:
    """(the leases, whether more follow). Raises `Invalid` for a marker that is no lease of the list's project."""
    rows = connection.execute(statement(connection, wanted)).all()
    ids = [row.id for row in rows[: wanted.limit]]
    return of_ids(connection, ids), len(rows) > wanted.limit


def of_ids(connection: Connection, ids: Collection[str]) -> list[Lease]:
    """In the order of `ids`; those that are not there are left out."""
    if not ids:
        return []
    reservations = lease_store.reservations_of_leases(connection, ids)
    events = event_store.of_leases(connection, ids)
    found = {
        row.id: lease_store.lease_of(row, reservations[row.id], events[row.id])
        for row in connection.execute(select(leases).where(leases.c.id.in_(ids)))
    }
    return [found[each] for each in ids if each in found]


def statement(connection: Connection, wanted: LeasePage) -> Select[Any]:
    """One row more than the page has, to know whether more follow."""
    key = leases.c[wanted.sort_key]
    found = select(leases.c.id).where(*_filters(wanted)).limit(wanted.limit + 1)
    if wanted.marker is not None:
        found = found.where(_after(connection, wanted))
    order = (key.desc(), leases.c.id.desc()) if wanted.descending else (key, leases.c.id)
    return found.order_by(*order)


def _filters(wanted: LeasePage) -> list[ColumnElement[bool]]:
    equal = {"project_id": wanted.project_id, "name": wanted.name, "status": wanted.status}
    found = [leases.c[name] == value for name, value in equal.items() if value is not None]
    if wanted.ends_after is not None:
        found.append(leases.c.end_date > wanted.ends_after)
    if wanted.starts_before is not None:
        found.append(leases.c.start_date < wanted.starts_before)
    return found


def _after(connection: Connection, wanted: LeasePage) -> ColumnElement[bool]:
    """Written so that the bound on the key stands alone: MariaDB uses no index for a comparison of pairs."""
    key, last = leases.c[wanted.sort_key], leases.c.id
    statement = select(key).where(last == wanted.marker)
    if wanted.project_id is not None:
        statement = statement.where(leases.c.project_id == wanted.project_id)
    at = connection.execute(statement).scalar_one_or_none()
    if at is None:
        raise Invalid(f"marker [{wanted.marker}] not found")
    if wanted.descending:
        return and_(key <= at, or_(key < at, last < wanted.marker))
    return and_(key >= at, or_(key > at, last > wanted.marker))
