"""SQL of leases and their reservations. `request_store` has requests, `event_store` events and steps.

A transaction that changes a lease locks its row first (`lock`), then hosts in the order of their ids. All transactions
use this order, so that no two wait for each other.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, bindparam, delete, insert, or_, select, update

from moorage.core.errors import Conflict, Invalid
from moorage.db.engine import ListStatement, in_list
from moorage.reservation.model.before_end_actions import EndAction, EndActionKind
from moorage.reservation.model.leases import (
    LEASE_STATES,
    RESERVATION_STATES,
    Event,
    Lease,
    LeaseStatus,
    Reservation,
    ReservationGeneration,
    ReservationStatus,
)
from moorage.reservation.model.list_query import LeasePage
from moorage.reservation.store import event_store, request_store
from moorage.reservation.store.tables import lease_incidents, leases, older_reservations, reservations

_ALL = select(leases).order_by(leases.c.created_at, leases.c.id)
_OF_PROJECT = _ALL.where(leases.c.project_id == bindparam("project_id"))
_SOME = ListStatement(leases.c.id, select(leases).where)
_LOCK = ListStatement(leases.c.id, select(leases.c.id).order_by(leases.c.id).with_for_update().where)
_MOVE = ListStatement(leases.c.id, update(leases).where(leases.c.status == bindparam("before")).where)

_RESERVATIONS = (
    request_store.joined(
        reservations,
        older_reservations.c.reservation_id.label("older_id"),
        older_reservations.c.generation,
        older_reservations.c.aggregate_id,
        older_reservations.c.server_group_id,
    )
    .outerjoin(older_reservations, older_reservations.c.reservation_id == reservations.c.id)
    .order_by(reservations.c.lease_id, reservations.c.position)
)
_RESERVATIONS_OF_PROJECT = _RESERVATIONS.join(leases, leases.c.id == reservations.c.lease_id).where(
    leases.c.project_id == bindparam("project_id")
)
#: `reservation_of` decodes a row.
RESERVATIONS_OF_LEASES = ListStatement(reservations.c.lease_id, _RESERVATIONS.where)
_MOVE_RESERVATIONS = ListStatement(
    reservations.c.lease_id,
    update(reservations).where(reservations.c.status.in_(bindparam("before", expanding=True))).where,
)
_IDS_OF = select(reservations.c.id).where(reservations.c.lease_id == bindparam("lease_id"))

_UPDATE = update(leases).where(leases.c.id == bindparam("lease_id"))


def insert_lease(connection: Connection, lease: Lease) -> None:
    """Inserts the lease with its reservations and events."""
    connection.execute(
        insert(leases),
        {
            "id": lease.id,
            "name": lease.name,
            "user_id": lease.user_id,
            "project_id": lease.project_id,
            "start_date": lease.start_date,
            "end_date": lease.end_date,
            "trust_id": lease.trust_id,
            "status": lease.status,
            "degraded": lease.degraded,
            "created_at": lease.created_at,
            "updated_at": lease.updated_at,
            **({"before_end_actions": _listed(lease.before_end_actions)} if lease.before_end_actions else {}),
        },
    )
    for position, reservation in enumerate(lease.reservations):
        _insert_reservation(connection, reservation, position)
    event_store.insert_events(connection, lease.events)


def all_leases(connection: Connection, project_id: str | None = None) -> list[Lease]:
    """Leases of one project, or of all, oldest first. Always three SQL statements."""
    wanted = {} if project_id is None else {"project_id": project_id}
    found: dict[str, list[Reservation]] = defaultdict(list)
    for row in connection.execute(_RESERVATIONS_OF_PROJECT if wanted else _RESERVATIONS, wanted):
        found[row.lease_id].append(reservation_of(row))
    events = event_store.of_leases(connection, project_id=project_id)
    return [
        lease_of(row, found[row.id], events[row.id])
        for row in connection.execute(_OF_PROJECT if wanted else _ALL, wanted)
    ]


def find_page(connection: Connection, wanted: LeasePage) -> tuple[list[Lease], bool]:
    """(the leases, True if more follow). Raises `Invalid` if the marker is not the id of a lease of the list."""
    rows = connection.execute(page_statement(connection, wanted)).all()
    ids = [row.id for row in rows[: wanted.limit]]
    return find_leases(connection, ids), len(rows) > wanted.limit


def find_leases(connection: Connection, ids: Collection[str]) -> list[Lease]:
    """The leases with these ids, in the same order; omits ids without a lease. Three SQL statements at most."""
    rows = connection.execute(_SOME.on(connection), {"ids": list(ids)}).all() if ids else ()
    if not rows:
        return []
    its_reservations: dict[str, list[Reservation]] = defaultdict(list)
    for row in connection.execute(RESERVATIONS_OF_LEASES.on(connection), {"ids": list(ids)}):
        its_reservations[row.lease_id].append(reservation_of(row))
    its_events = event_store.of_leases(connection, ids)
    found = {row.id: lease_of(row, its_reservations[row.id], its_events[row.id]) for row in rows}
    return [found[each] for each in ids if each in found]


def reservations_of_types(
    connection: Connection, lease_ids: Collection[str], types: Collection[str]
) -> list[Reservation]:
    """The reservations of these leases that have one of these resource types."""
    which = in_list(connection, reservations.c.lease_id, lease_ids)
    statement = _RESERVATIONS.where(which, reservations.c.resource_type.in_(types))
    return [reservation_of(row) for row in connection.execute(statement)] if lease_ids else []


def page_statement(connection: Connection, wanted: LeasePage) -> Select[Any]:
    """Selects the ids of the page and one more, which shows whether more follow."""
    key = leases.c[wanted.sort_key]
    found = select(leases.c.id).where(*_filters(wanted)).limit(wanted.limit + 1)
    if wanted.marker is not None:
        found = found.where(_after(connection, wanted))
    order = (key.desc(), leases.c.id.desc()) if wanted.descending else (key, leases.c.id)
    return found.order_by(*order)


def find_lease(connection: Connection, lease_id: str) -> Lease | None:
    return next(iter(find_leases(connection, [lease_id])), None)


def find_lease_of_reservation(connection: Connection, reservation_id: str) -> Lease | None:
    """The lease that has this reservation."""
    statement = select(reservations.c.lease_id).where(reservations.c.id == reservation_id)
    lease_id = connection.execute(statement).scalar_one_or_none()
    return None if lease_id is None else find_lease(connection, lease_id)


def lock(connection: Connection, lease_id: str) -> Lease | None:
    """Locks the lease until the transaction ends; returns its present state."""
    lock_rows(connection, [lease_id])
    return find_lease(connection, lease_id)


def lock_rows(connection: Connection, ids: Collection[str]) -> None:
    """Locks the leases in the order of their ids, as every transaction does."""
    connection.execute(_LOCK.on(connection), {"ids": list(ids)})


def move(
    connection: Connection,
    ids: Collection[str],
    before: LeaseStatus,
    after: LeaseStatus,
    now: datetime,
    reservations: ReservationStatus | None = None,
) -> None:
    """Changes the status of all these leases. Raises `Conflict` if one is not in `before`; the caller rolls back.

    `reservations`: the status of those of their reservations for which `RESERVATION_STATES` allows it; the others stay.
    """
    LEASE_STATES.check_transition(before, after)
    values = {"ids": list(ids), "before": before, "status": after, "updated_at": now}
    if connection.execute(_MOVE.on(connection), values).rowcount != len(ids):
        raise Conflict(f"lease {' or '.join(ids)} was changed by another request", code="reservation.lease_changed")
    if reservations is not None:
        states = sorted(RESERVATION_STATES.states_before(reservations))
        connection.execute(_MOVE_RESERVATIONS.on(connection), values | {"before": states, "status": reservations})


def change(connection: Connection, lease_id: str, now: datetime, **values: str | datetime) -> None:
    """Sets `name`, `start_date` or `end_date`."""
    connection.execute(_UPDATE, {"lease_id": lease_id, "updated_at": now, **values})


def change_actions(connection: Connection, lease_id: str, actions: Iterable[EndAction], now: datetime) -> None:
    connection.execute(_UPDATE, {"lease_id": lease_id, "before_end_actions": _listed(actions), "updated_at": now})


def set_generation(connection: Connection, reservation_id: str, generation: ReservationGeneration) -> None:
    """Stores the generation of an older system's reservation."""
    connection.execute(
        update(older_reservations)
        .where(older_reservations.c.reservation_id == reservation_id)
        .values(generation=generation)
    )


def set_server_group(connection: Connection, reservation_id: str, group_id: str | None) -> bool:
    """Stores the server group of a reservation of this service. False if the reservation is gone."""
    if connection.execute(select(reservations.c.id).where(reservations.c.id == reservation_id)).first() is None:
        return False
    values = {"generation": ReservationGeneration.PURE, "server_group_id": group_id}
    own = update(older_reservations).where(older_reservations.c.reservation_id == reservation_id)
    if connection.execute(own.values(values)).rowcount == 0:
        connection.execute(insert(older_reservations), {"reservation_id": reservation_id} | values)
    return True


def mark(
    connection: Connection, lease_id: str, degraded: bool, flags: Mapping[str, tuple[bool, bool]], now: datetime
) -> None:
    """Sets `degraded` and the flags, {reservation id: (missing_resources, resources_changed)}."""
    connection.execute(_UPDATE, {"lease_id": lease_id, "degraded": degraded, "updated_at": now})
    for reservation_id, (missing, changed) in flags.items():
        connection.execute(
            update(reservations)
            .where(reservations.c.id == reservation_id)
            .values(missing_resources=missing, resources_changed=changed, updated_at=now)
        )


def degraded_leases(connection: Connection) -> list[str]:
    """Ids of degraded leases that have not ended."""
    statement = select(leases.c.id).where(leases.c.degraded.is_(True), leases.c.status != LeaseStatus.TERMINATED)
    return list(connection.execute(statement.order_by(leases.c.id)).scalars())


def by_rank(connection: Connection, ids: Collection[str]) -> list[str]:
    """These leases in the order in which they get capacity: active ones first, then those that were created earlier."""
    if not ids:
        return []
    order = (leases.c.status != LeaseStatus.ACTIVE, leases.c.created_at, leases.c.id)
    statement = select(leases.c.id).where(in_list(connection, leases.c.id, ids)).order_by(*order)
    return list(connection.execute(statement).scalars())


def delete_lease(connection: Connection, lease_id: str) -> None:
    """Deletes the lease with its reservations, events and steps. Its host allocations must already be deleted."""
    ids = list(connection.execute(_IDS_OF, {"lease_id": lease_id}).scalars())
    event_store.delete_of_lease(connection, lease_id)
    connection.execute(delete(lease_incidents).where(lease_incidents.c.lease_id == lease_id))
    if ids:
        connection.execute(delete(older_reservations).where(older_reservations.c.reservation_id.in_(ids)))
        request_store.delete_requests(connection, ids)
    connection.execute(delete(reservations).where(reservations.c.lease_id == lease_id))
    connection.execute(delete(leases).where(leases.c.id == lease_id))


def _insert_reservation(connection: Connection, reservation: Reservation, position: int) -> None:
    connection.execute(
        insert(reservations),
        {
            "id": reservation.id,
            "lease_id": reservation.lease_id,
            "position": position,
            "resource_id": reservation.resource_id,
            "resource_type": reservation.resource_type,
            "status": reservation.status,
            "missing_resources": reservation.missing_resources,
            "resources_changed": reservation.resources_changed,
            "created_at": reservation.created_at,
            "updated_at": reservation.updated_at,
        },
    )
    request_store.insert_request(connection, reservation)
    if reservation.generation is not ReservationGeneration.PURE:
        connection.execute(
            insert(older_reservations),
            {
                "reservation_id": reservation.id,
                "generation": reservation.generation,
                "aggregate_id": reservation.aggregate_id,
                "server_group_id": reservation.server_group_id,
            },
        )


def lease_of(row: Row[Any], found: Iterable[Reservation], events: Iterable[Event]) -> Lease:
    return Lease(
        id=row.id,
        name=row.name,
        user_id=row.user_id,
        project_id=row.project_id,
        start_date=row.start_date,
        end_date=row.end_date,
        trust_id=row.trust_id,
        status=LeaseStatus(row.status),
        degraded=row.degraded,
        created_at=row.created_at,
        updated_at=row.updated_at,
        reservations=tuple(found),
        events=tuple(events),
        before_end_actions=tuple(EndAction(EndActionKind(kind), of) for kind, of in row.before_end_actions or ()),
    )


def _listed(actions: Iterable[EndAction]) -> list[tuple[str, str]] | None:
    return [(each.kind, each.target) for each in actions] or None


def reservation_of(row: Row[Any]) -> Reservation:
    generation = (
        ReservationGeneration.PURE if row.older_id is None else row.generation and ReservationGeneration(row.generation)
    )
    return Reservation(
        id=row.id,
        lease_id=row.lease_id,
        resource_id=row.resource_id,
        resource_type=row.resource_type,
        status=ReservationStatus(row.status),
        missing_resources=row.missing_resources,
        resources_changed=row.resources_changed,
        request=request_store.request_of(row),
        flavor_id=row.flavor_id,
        aggregate_id=row.aggregate_id,
        server_group_id=row.server_group_id,
        created_at=row.created_at,
        updated_at=row.updated_at,
        generation=generation,
    )


def _filters(wanted: LeasePage) -> list[ColumnElement[bool]]:
    equal = {"project_id": wanted.project_id, "name": wanted.name, "status": wanted.status}
    found = [leases.c[name] == value for name, value in equal.items() if value is not None]
    if wanted.ends_after is not None:
        found.append(leases.c.end_date > wanted.ends_after)
    if wanted.starts_before is not None:
        found.append(leases.c.start_date < wanted.starts_before)
    return found


def _after(connection: Connection, wanted: LeasePage) -> ColumnElement[bool]:
    """Selects the rows after the marker. The key has a condition of its own: MariaDB uses no index to compare pairs."""
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
