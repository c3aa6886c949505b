"""SQL of registered addresses and their allocations. `capacity.addresses` selects them.

A transaction that allocates addresses locks all of their networks first (`lock`), after leases and hosts.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, insert, select, update

from moorage.reservation.capacity.addresses import AddressAllocation, RegisteredAddress
from moorage.reservation.store.tables import floatingip_allocations, floatingips

_ALL = select(floatingips).order_by(floatingips.c.created_at, floatingips.c.id)
_ALLOCATED = floatingip_allocations.c


def insert_floating_ip(connection: Connection, floating_ip: RegisteredAddress) -> None:
    """Raises `IntegrityError` if the subnet already has this address."""
    values = {name: getattr(floating_ip, name) for name in RegisteredAddress.__dataclass_fields__}
    connection.execute(insert(floatingips), values)


def all_floating_ips(connection: Connection) -> list[RegisteredAddress]:
    """Oldest first."""
    return _read(connection, _ALL)


def find(connection: Connection, floating_ip_id: str, *, lock: bool = False) -> RegisteredAddress | None:
    statement = select(floatingips).where(floatingips.c.id == floating_ip_id)
    found = _read(connection, statement.with_for_update() if lock else statement)
    return found[0] if found else None


def is_allocated(connection: Connection, floating_ip_id: str) -> bool:
    statement = select(_ALLOCATED.id).where(_ALLOCATED.floatingip_id == floating_ip_id).limit(1)
    return connection.execute(statement).first() is not None


def delete_floating_ip(connection: Connection, floating_ip_id: str) -> None:
    """The address must not be allocated."""
    connection.execute(delete(floatingips).where(floatingips.c.id == floating_ip_id))


def of_networks(connection: Connection, network_ids: Collection[str], *, lock: bool = False) -> list[RegisteredAddress]:
    """The registered addresses of these networks, by id. `lock`: locks them until the transaction ends."""
    statement = select(floatingips).where(floatingips.c.floating_network_id.in_(network_ids)).order_by(floatingips.c.id)
    return _read(connection, statement.with_for_update() if lock else statement)


def taken(
    connection: Connection, network_ids: Collection[str], after: datetime, without: Collection[str] = ()
) -> list[AddressAllocation]:
    """Allocations of these networks' addresses that end after `after`, except those of the reservations `without`."""
    statement = (
        select(_ALLOCATED.floatingip_id, _ALLOCATED.start_date, _ALLOCATED.end_date)
        .join(floatingips, floatingips.c.id == _ALLOCATED.floatingip_id)
        .where(floatingips.c.floating_network_id.in_(network_ids), _ALLOCATED.end_date > after)
    )
    if without:
        statement = statement.where(_ALLOCATED.reservation_id.not_in(without))
    return [AddressAllocation(*row) for row in connection.execute(statement)]


def of_reservations(connection: Connection, reservation_ids: Collection[str]) -> Mapping[str, list[RegisteredAddress]]:
    """{reservation id: its addresses}; reservations without addresses have no entry."""
    found: dict[str, list[RegisteredAddress]] = defaultdict(list)
    if reservation_ids:
        statement = (
            select(floatingips, _ALLOCATED.reservation_id)
            .join(floatingips, floatingips.c.id == _ALLOCATED.floatingip_id)
            .where(_ALLOCATED.reservation_id.in_(reservation_ids))
            .order_by(floatingips.c.id)
        )
        for row in connection.execute(statement):
            found[row.reservation_id].append(_floating_ip(row))
    return found


def allocate(
    connection: Connection,
    reservation_id: str,
    floating_ips: Mapping[str, RegisteredAddress],
    start: datetime,
    end: datetime,
    now: datetime,
) -> None:
    """`floating_ips`: {id of the new row: address}"""
    rows = [
        {
            "id": row_id,
            "floatingip_id": each.id,
            "reservation_id": reservation_id,
            "start_date": start,
            "end_date": end,
            "created_at": now,
        }
        for row_id, each in floating_ips.items()
    ]
    if rows:
        connection.execute(insert(floatingip_allocations), rows)
        _revise(connection, [each.id for each in floating_ips.values()])


def release(connection: Connection, reservation_id: str, floating_ip_ids: Collection[str]) -> None:
    if floating_ip_ids:
        connection.execute(
            delete(floatingip_allocations).where(
                _ALLOCATED.reservation_id == reservation_id, _ALLOCATED.floatingip_id.in_(floating_ip_ids)
            )
        )
        _revise(connection, floating_ip_ids)


def move(
    connection: Connection, reservation_ids: Collection[str], start: datetime, end: datetime, now: datetime
) -> None:
    """Moves all addresses of these reservations to another period."""
    connection.execute(
        update(floatingip_allocations)
        .where(_ALLOCATED.reservation_id.in_(reservation_ids))
        .values(start_date=start, end_date=end, updated_at=now)
    )
    held = select(_ALLOCATED.floatingip_id).where(_ALLOCATED.reservation_id.in_(reservation_ids))
    _revise(connection, list(connection.execute(held).scalars()))


def release_all(connection: Connection, reservation_ids: Sequence[str]) -> None:
    """Deletes the allocations of ended leases."""
    if reservation_ids:
        connection.execute(delete(floatingip_allocations).where(_ALLOCATED.reservation_id.in_(reservation_ids)))


def _revise(connection: Connection, floating_ip_ids: Collection[str]) -> None:
    revision = floatingips.c.revision
    changed = update(floatingips).where(floatingips.c.id.in_(floating_ip_ids))
    connection.execute(changed.values(revision=revision + 1))


def _read(connection: Connection, statement: Select[Any]) -> list[RegisteredAddress]:
    return [_floating_ip(row) for row in connection.execute(statement)]


def _floating_ip(row: Row[Any]) -> RegisteredAddress:
    return RegisteredAddress(
        row.id,
        row.floating_network_id,
        row.subnet_id,
        row.floating_ip_address,
        row.reservable,
        row.created_at,
        row.updated_at,
    )
