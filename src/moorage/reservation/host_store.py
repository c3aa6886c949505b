"""SQL of registered hosts, what they have, and what is allocated on them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, bindparam, delete, func, insert, select, update

from moorage.db.rows import inserted_id
from moorage.reservation.calendar import HostCapacity, Usage
from moorage.reservation.model import Allocation, Host
from moorage.reservation.tables import (
    computehost_allocations,
    computehost_extra_capabilities,
    computehost_resources,
    computehosts,
    leases,
    reservations,
    resource_properties,
)

HOST_TYPE = "physical:host"

_COLUMNS = (
    "hypervisor_hostname",
    "service_name",
    "hypervisor_type",
    "hypervisor_version",
    "cpu_info",
    "vcpus",
    "memory_mb",
    "local_gb",
    "availability_zone",
    "status",
    "trust_id",
    "reservable",
    "ready",
)

_ALL = select(computehosts).order_by(computehosts.c.id)
_ONE = select(computehosts).where(computehosts.c.id == bindparam("host_id"))
_NAMED = select(computehosts).where(computehosts.c.hypervisor_hostname == bindparam("name"))
_EXTRA = select(
    computehost_extra_capabilities.c.computehost_id,
    computehost_extra_capabilities.c.capability_value,
    resource_properties.c.property_name,
).join(resource_properties, resource_properties.c.id == computehost_extra_capabilities.c.property_id)
_RESOURCES = select(computehost_resources)
_CAPACITIES = _RESOURCES.join(computehosts, computehosts.c.id == computehost_resources.c.computehost_id).where(
    computehosts.c.ready.is_(True), computehosts.c.reservable.is_(True)
)
_ALLOCATIONS = select(computehost_allocations).order_by(
    computehost_allocations.c.compute_host_id, computehost_allocations.c.start_date, computehost_allocations.c.id
)
_LIVE = _ALLOCATIONS.where(computehost_allocations.c.end_date > bindparam("now"))
# The lease's own period: that of the allocation also holds the time for cleaning.
_BY_LEASE: Select[Any] = (
    select(
        computehost_allocations.c.id,
        computehost_allocations.c.compute_host_id,
        computehost_allocations.c.reservation_id,
        computehost_allocations.c.resources,
        reservations.c.lease_id,
        leases.c.start_date,
        leases.c.end_date,
    )
    .join(reservations, reservations.c.id == computehost_allocations.c.reservation_id)
    .join(leases, leases.c.id == reservations.c.lease_id)
    .order_by(computehost_allocations.c.compute_host_id, leases.c.start_date, computehost_allocations.c.id)
)
_PROPERTIES = select(resource_properties).order_by(
    resource_properties.c.created_at, resource_properties.c.property_name
)


def insert_host(connection: Connection, host: Host) -> int:
    """The new id; `host.id` is ignored, extra capabilities are set by `set_extra`."""
    result = connection.execute(
        insert(computehosts), {name: getattr(host, name) for name in _COLUMNS} | {"created_at": host.created_at}
    )
    return inserted_id(result)


def update_host(connection: Connection, host: Host, now: datetime) -> None:
    """All columns of the row with `host.id`."""
    values = {name: getattr(host, name) for name in _COLUMNS}
    connection.execute(update(computehosts).where(computehosts.c.id == host.id).values(**values, updated_at=now))


def set_ready(connection: Connection, host_id: int, ready: bool) -> None:
    connection.execute(update(computehosts).where(computehosts.c.id == host_id).values(ready=ready))


def delete_host(connection: Connection, host_id: int) -> None:
    connection.execute(
        delete(computehost_extra_capabilities).where(computehost_extra_capabilities.c.computehost_id == host_id)
    )
    connection.execute(delete(computehost_resources).where(computehost_resources.c.computehost_id == host_id))
    connection.execute(delete(computehosts).where(computehosts.c.id == host_id))


def all_hosts(connection: Connection) -> list[Host]:
    extra = _extra(connection, _EXTRA)
    return [_host(row, extra[row.id]) for row in connection.execute(_ALL)]


def find_host(connection: Connection, host_id: int) -> Host | None:
    row = connection.execute(_ONE, {"host_id": host_id}).one_or_none()
    return None if row is None else _with_extra(connection, row)


def host_named(connection: Connection, hypervisor_hostname: str) -> Host | None:
    row = connection.execute(_NAMED, {"name": hypervisor_hostname}).one_or_none()
    return None if row is None else _with_extra(connection, row)


def lock_hosts(connection: Connection, host_ids: Iterable[int]) -> list[int]:
    """The ids of those that are there, locked in ascending order until the transaction ends."""
    statement = (
        select(computehosts.c.id)
        .where(computehosts.c.id.in_(sorted(host_ids)))
        .order_by(computehosts.c.id)
        .with_for_update()
    )
    return list(connection.execute(statement).scalars())


def set_capacity(connection: Connection, host_id: int, capacity: HostCapacity) -> None:
    connection.execute(delete(computehost_resources).where(computehost_resources.c.computehost_id == host_id))
    rows = [
        {
            "computehost_id": host_id,
            "resource_class": name,
            "capacity": amount,
            "max_unit": capacity.largest.get(name, amount),
        }
        for name, amount in capacity.capacity.items()
    ]
    if rows:
        connection.execute(insert(computehost_resources), rows)


def capacities(connection: Connection, host_ids: Collection[int] | None = None) -> list[HostCapacity]:
    """Of hosts that may be given out (all, or those of `host_ids` that may)."""
    statement = _CAPACITIES
    if host_ids is not None:
        statement = statement.where(computehost_resources.c.computehost_id.in_(list(host_ids)))
    amounts: dict[int, dict[str, int]] = defaultdict(dict)
    largest: dict[int, dict[str, int]] = defaultdict(dict)
    for row in connection.execute(statement):
        amounts[row.computehost_id][row.resource_class] = row.capacity
        largest[row.computehost_id][row.resource_class] = row.max_unit
    return [HostCapacity(host_id, amounts[host_id], largest[host_id]) for host_id in sorted(amounts)]


def set_extra(
    connection: Connection, host_id: int, values: Mapping[str, str | None], ids: Iterable[str], now: datetime
) -> None:
    """Set extra capabilities; None unsets. `ids` gives two fresh ids per value. Other capabilities stay."""
    fresh = iter(ids)
    for name, value in values.items():
        property_id = _property_id(connection, name, next(fresh), now)
        mine = and_(
            computehost_extra_capabilities.c.computehost_id == host_id,
            computehost_extra_capabilities.c.property_id == property_id,
        )
        connection.execute(delete(computehost_extra_capabilities).where(mine))
        capability_id = next(fresh)
        if value is not None:
            connection.execute(
                insert(computehost_extra_capabilities),
                {
                    "id": capability_id,
                    "computehost_id": host_id,
                    "property_id": property_id,
                    "capability_value": value,
                    "created_at": now,
                },
            )


def properties(connection: Connection) -> list[Row[Any]]:
    """Rows of resource_properties, oldest first."""
    return list(connection.execute(_PROPERTIES))


def property_values(connection: Connection) -> dict[str, list[str]]:
    """{property name: its values on hosts, in the hosts' order, each once}."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for row in connection.execute(_EXTRA.order_by(computehost_extra_capabilities.c.computehost_id)):
        found[row.property_name][row.capability_value] = None
    return {name: list(values) for name, values in found.items()}


def set_private(connection: Connection, name: str, private: bool, now: datetime) -> bool:
    """False when there is no such property."""
    changed = connection.execute(
        update(resource_properties)
        .where(resource_properties.c.property_name == name, resource_properties.c.resource_type == HOST_TYPE)
        .values(private=private, updated_at=now)
    )
    return changed.rowcount == 1


def live_usages(connection: Connection, now: datetime) -> list[Usage]:
    """All allocations that have not ended."""
    return [_usage(row) for row in connection.execute(_LIVE, {"now": now})]


def usages_between(
    connection: Connection, host_ids: Collection[int], start: datetime, end: datetime, without: Collection[str]
) -> list[Usage]:
    """What is allocated on these hosts during ``[start, end)``, the reservations `without` aside."""
    statement = select(computehost_allocations).where(
        computehost_allocations.c.compute_host_id.in_(list(host_ids)),
        computehost_allocations.c.start_date < end,
        computehost_allocations.c.end_date > start,
    )
    if without:
        statement = statement.where(computehost_allocations.c.reservation_id.not_in(list(without)))
    return [_usage(row) for row in connection.execute(statement)]


def allocations_of(connection: Connection, reservation_ids: Collection[str]) -> list[Allocation]:
    if not reservation_ids:
        return []
    rows = connection.execute(_ALLOCATIONS.where(computehost_allocations.c.reservation_id.in_(list(reservation_ids))))
    return [_allocation(row) for row in rows]


def allocations_by_lease(connection: Connection) -> list[tuple[str, Allocation]]:
    """(lease id, slot with the lease's period) of all, by host and start."""
    return [(row.lease_id, _allocation(row)) for row in connection.execute(_BY_LEASE)]


def count_allocations(connection: Connection, host_id: int) -> int:
    statement = select(func.count()).where(computehost_allocations.c.compute_host_id == host_id)
    return int(connection.execute(statement).scalar_one())


def insert_allocations(connection: Connection, allocations: Sequence[Allocation], now: datetime) -> None:
    if allocations:
        connection.execute(
            insert(computehost_allocations),
            [
                {
                    "id": each.id,
                    "compute_host_id": each.host_id,
                    "reservation_id": each.reservation_id,
                    "start_date": each.start_date,
                    "end_date": each.end_date,
                    "resources": dict(each.resources),
                    "created_at": now,
                }
                for each in allocations
            ],
        )


def move_allocations(
    connection: Connection, reservation_ids: Collection[str], start: datetime, end: datetime, now: datetime
) -> None:
    """Give all slots of these reservations another period."""
    if reservation_ids:
        connection.execute(
            update(computehost_allocations)
            .where(computehost_allocations.c.reservation_id.in_(list(reservation_ids)))
            .values(start_date=start, end_date=end, updated_at=now)
        )


def delete_allocations(connection: Connection, ids: Collection[str]) -> None:
    if ids:
        connection.execute(delete(computehost_allocations).where(computehost_allocations.c.id.in_(list(ids))))


def delete_allocations_of(connection: Connection, reservation_ids: Collection[str]) -> None:
    if reservation_ids:
        connection.execute(
            delete(computehost_allocations).where(computehost_allocations.c.reservation_id.in_(list(reservation_ids)))
        )


def _property_id(connection: Connection, name: str, fresh_id: str, now: datetime) -> str:
    statement = select(resource_properties.c.id).where(
        resource_properties.c.property_name == name, resource_properties.c.resource_type == HOST_TYPE
    )
    found = connection.execute(statement).scalar_one_or_none()
    if found is not None:
        return str(found)
    connection.execute(
        insert(resource_properties),
        {"id": fresh_id, "resource_type": HOST_TYPE, "property_name": name, "private": False, "created_at": now},
    )
    return fresh_id


def _with_extra(connection: Connection, row: Row[Any]) -> Host:
    extra = _extra(connection, _EXTRA.where(computehost_extra_capabilities.c.computehost_id == row.id))
    return _host(row, extra[row.id])


def _extra(connection: Connection, statement: Any) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = defaultdict(dict)
    for row in connection.execute(
        statement.order_by(resource_properties.c.created_at, resource_properties.c.property_name)
    ):
        found[row.computehost_id][row.property_name] = row.capability_value
    return found


def _host(row: Row[Any], extra: Mapping[str, str]) -> Host:
    values = {name: getattr(row, name) for name in _COLUMNS}
    return Host(id=row.id, created_at=row.created_at, updated_at=row.updated_at, extra=dict(extra), **values)


def _usage(row: Row[Any]) -> Usage:
    return Usage(row.compute_host_id, row.start_date, row.end_date, row.resources)


def _allocation(row: Row[Any]) -> Allocation:
    return Allocation(
        id=row.id,
        host_id=row.compute_host_id,
        reservation_id=row.reservation_id,
        start_date=row.start_date,
        end_date=row.end_date,
        resources=row.resources,
    )
