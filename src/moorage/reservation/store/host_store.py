"""SQL of registered hosts, their capacity and their allocations. Their properties are in `property_store`."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    bindparam,
    delete,
    false,
    func,
    insert,
    literal_column,
    not_,
    or_,
    select,
    update,
)

from moorage.db.engine import ListStatement, in_list, inserted_id
from moorage.reservation.capacity.calendar import HostCapacity, HostUsage
from moorage.reservation.model.leases import Allocation, LeasedSlot, LeaseStatus, RegisteredHost
from moorage.reservation.model.list_query import HostPage
from moorage.reservation.model.slot_demand import relabelled
from moorage.reservation.store import property_store
from moorage.reservation.store.tables import (
    computehost_allocations,
    computehost_resources,
    computehosts,
    hold_allocations,
    leases,
    reservations,
)

#: Size of a part: a range of consecutive host ids. `revised` summarises each part, to show whether a host changed.
PART = 128

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
_REVISIONS = select(computehosts.c.id, computehosts.c.revision)
_PART = computehosts.c.id // literal_column(str(PART), Integer)
_REVISED = select(
    _PART.label("part"),
    func.count().label("hosts"),
    func.max(computehosts.c.id).label("highest"),
    func.sum(computehosts.c.revision).label("total"),
).group_by("part")
_REVISE = update(computehosts).values(revision=computehosts.c.revision + 1)
_RESOURCES = select(computehost_resources)
_CAPACITIES = _RESOURCES.join(computehosts, computehosts.c.id == computehost_resources.c.computehost_id).where(
    computehosts.c.ready.is_(True), computehosts.c.reservable.is_(True)
)
#: The columns are the fields of an `Allocation`.
_ALLOCATION = (
    computehost_allocations.c.id,
    computehost_allocations.c.compute_host_id,
    computehost_allocations.c.reservation_id,
    computehost_allocations.c.start_date,
    computehost_allocations.c.end_date,
    computehost_allocations.c.resources,
)
_ALLOCATIONS: Select[Any] = select(*_ALLOCATION).order_by(
    computehost_allocations.c.compute_host_id, computehost_allocations.c.start_date, computehost_allocations.c.id
)
_LIVE = _ALLOCATIONS.where(computehost_allocations.c.end_date > bindparam("now"))
_SLOTS = ListStatement(
    computehost_allocations.c.reservation_id,
    select(
        computehost_allocations.c.reservation_id,
        computehosts.c.hypervisor_hostname,
        computehosts.c.service_name,
        func.count().label("slots"),
    )
    .join(computehosts, computehosts.c.id == computehost_allocations.c.compute_host_id)
    .group_by(
        computehost_allocations.c.reservation_id,
        computehosts.c.id,
        computehosts.c.hypervisor_hostname,
        computehosts.c.service_name,
    )
    .order_by(computehosts.c.id)
    .where,
)
# The period of the lease: the period of an allocation also includes the cleaning time.
_LEASED_SLOTS: Select[Any] = (
    select(
        computehost_allocations.c.id,
        computehost_allocations.c.compute_host_id,
        computehost_allocations.c.reservation_id,
        leases.c.start_date,
        leases.c.end_date,
        computehost_allocations.c.resources,
        reservations.c.lease_id,
        leases.c.name,
        leases.c.status,
        leases.c.project_id,
    )
    .join(reservations, reservations.c.id == computehost_allocations.c.reservation_id)
    .join(leases, leases.c.id == reservations.c.lease_id)
    .order_by(computehost_allocations.c.compute_host_id, leases.c.start_date, computehost_allocations.c.id)
)


def insert_host(connection: Connection, host: RegisteredHost, *, host_id: int | None = None) -> int:
    """Inserts the host without its extra capabilities; returns its id: `host_id` or a new one. Ignores `host.id`.

    After inserts with `host_id`, call `after_given_ids`.
    """
    values: dict[str, Any] = {name: getattr(host, name) for name in _COLUMNS} | {"created_at": host.created_at}
    if host_id is not None:
        connection.execute(insert(computehosts), values | {"id": host_id})
        return host_id
    return inserted_id(connection.execute(insert(computehosts), values))


def after_given_ids(connection: Connection) -> None:
    """Sets PostgreSQL's sequence above all existing ids: it does not count ids that an insert named."""
    if connection.dialect.name == "postgresql":
        sequence = func.pg_get_serial_sequence(computehosts.name, "id")
        highest = select(func.coalesce(func.max(computehosts.c.id), 0) + 1).scalar_subquery()
        connection.execute(select(func.setval(sequence, highest, False)))


def update_host(connection: Connection, host: RegisteredHost, now: datetime) -> None:
    """Writes all columns of the row with `host.id`."""
    values = {name: getattr(host, name) for name in _COLUMNS}
    connection.execute(update(computehosts).where(computehosts.c.id == host.id).values(**values, updated_at=now))


def set_ready(connection: Connection, host_id: int, ready: bool) -> None:
    connection.execute(update(computehosts).where(computehosts.c.id == host_id).values(ready=ready))
    _revise(connection, [host_id])


def set_reservable(connection: Connection, host_id: int, reservable: bool, now: datetime) -> None:
    values = {"reservable": reservable, "updated_at": now}
    connection.execute(update(computehosts).where(computehosts.c.id == host_id).values(**values))
    _revise(connection, [host_id])


def delete_host(connection: Connection, host_id: int) -> None:
    property_store.remove_extra(connection, host_id)
    connection.execute(delete(computehost_resources).where(computehost_resources.c.computehost_id == host_id))
    connection.execute(delete(hold_allocations).where(hold_allocations.c.compute_host_id == host_id))
    connection.execute(delete(computehosts).where(computehosts.c.id == host_id))


def all_hosts(connection: Connection) -> list[RegisteredHost]:
    extra = property_store.extra_of(connection)
    return [_host(row, extra[row.id]) for row in connection.execute(_ALL)]


def page_of_hosts(connection: Connection, wanted: HostPage, limit: int) -> list[RegisteredHost]:
    """Up to `limit` registered hosts after the marker, by id. Ignores `wanted.properties` and `wanted.limit`."""
    statement = _ALL.where(computehosts.c.ready.is_(True)).limit(limit)
    for name in ("hypervisor_hostname", "availability_zone", "reservable"):
        if (value := getattr(wanted, name)) is not None:
            statement = statement.where(computehosts.c[name] == value)
    if wanted.marker is not None:
        statement = statement.where(computehosts.c.id > wanted.marker)
    rows = connection.execute(statement).all()
    extra = property_store.extra_of(connection, [row.id for row in rows])
    return [_host(row, extra[row.id]) for row in rows]


def host_names(connection: Connection, host_ids: Collection[int]) -> dict[int, tuple[str, str]]:
    """{host id: (hypervisor hostname, name of its compute service)} of these hosts."""
    if not host_ids:
        return {}
    its = computehosts.c
    wanted = select(its.id, its.hypervisor_hostname, its.service_name).where(in_list(connection, its.id, host_ids))
    return {row.id: (row.hypervisor_hostname, row.service_name) for row in connection.execute(wanted)}


def services(connection: Connection, hostnames: Collection[str]) -> dict[str, str]:
    """{hypervisor hostname: name of its compute service} of the registered hosts."""
    if not hostnames:
        return {}
    its = computehosts.c
    wanted = in_list(connection, its.hypervisor_hostname, hostnames)
    rows = connection.execute(select(its.hypervisor_hostname, its.service_name).where(wanted))
    return {row.hypervisor_hostname: row.service_name for row in rows}


def find_host(connection: Connection, host_id: int) -> RegisteredHost | None:
    row = connection.execute(_ONE, {"host_id": host_id}).one_or_none()
    return None if row is None else _with_extra(connection, row)


def host_named(connection: Connection, hypervisor_hostname: str) -> RegisteredHost | None:
    row = connection.execute(_NAMED, {"name": hypervisor_hostname}).one_or_none()
    return None if row is None else _with_extra(connection, row)


def lock_hosts(connection: Connection, host_ids: Iterable[int]) -> list[int]:
    """Ids of the hosts that exist, locked in ascending order until the transaction ends."""
    statement = (
        select(computehosts.c.id)
        .where(computehosts.c.id.in_(sorted(host_ids)))
        .order_by(computehosts.c.id)
        .with_for_update()
    )
    return list(connection.execute(statement).scalars())


def revisions(connection: Connection, parts: Collection[int]) -> dict[int, dict[int, int]]:
    """{part: {host id: its revision}} of these parts; see `PART`."""
    its = computehosts.c.id
    statement = _REVISIONS.where(or_(false(), *(its.between(PART * part, PART * part + PART - 1) for part in parts)))
    found: dict[int, dict[int, int]] = {part: {} for part in parts}
    for row in connection.execute(statement):
        found[row.id // PART][row.id] = row.revision
    return found


def revised(connection: Connection) -> dict[int, tuple[int, int, int]]:
    """{part: summary that changes whenever its `revisions` do}: revisions only grow, and ids are not reused."""
    return {int(row.part): (row.hosts, row.highest, int(row.total)) for row in connection.execute(_REVISED)}


def _revise(connection: Connection, host_ids: Iterable[int]) -> None:
    """Raises the revisions, so that other processes read these hosts again."""
    if ids := lock_hosts(connection, set(host_ids)):
        connection.execute(_REVISE.where(computehosts.c.id.in_(ids)))


def set_capacity(connection: Connection, host_id: int, capacity: HostCapacity) -> None:
    """Replaces the host's capacity. A known provider keeps its labels, because slots refer to them."""
    mine = _RESOURCES.where(computehost_resources.c.computehost_id == host_id)
    before = {row.resource_class: row.provider or "" for row in connection.execute(mine)}
    labels = relabelled(before, {name: capacity.providers.get(name, "") for name in capacity.capacity})
    connection.execute(delete(computehost_resources).where(computehost_resources.c.computehost_id == host_id))
    rows = [
        {
            "computehost_id": host_id,
            "resource_class": labels[name],
            "capacity": amount,
            "max_unit": capacity.largest.get(name, amount),
            "provider": (provider := capacity.providers.get(name)),
            "above": list(capacity.above.get(provider, ())) if provider is not None else None,
        }
        for name, amount in capacity.capacity.items()
    ]
    if rows:
        connection.execute(insert(computehost_resources), rows)
    _revise(connection, [host_id])


def capacities(connection: Connection, host_ids: Collection[int] | None = None) -> list[HostCapacity]:
    """Capacities of ready, reservable hosts (all, or those among `host_ids`)."""
    statement = _CAPACITIES
    if host_ids is not None:
        statement = statement.where(computehost_resources.c.computehost_id.in_(list(host_ids)))
    return _capacities(connection, statement)


def capacities_of(connection: Connection, host_ids: Collection[int]) -> list[HostCapacity]:
    """Capacities of these hosts, also if they are not reservable now. A host without inventory is omitted."""
    return _capacities(
        connection, _RESOURCES.where(in_list(connection, computehost_resources.c.computehost_id, host_ids))
    )


def _capacities(connection: Connection, statement: Select[Any]) -> list[HostCapacity]:
    amounts: dict[int, dict[str, int]] = defaultdict(dict)
    largest: dict[int, dict[str, int]] = defaultdict(dict)
    providers: dict[int, dict[str, str]] = defaultdict(dict)
    above: dict[int, dict[str, list[str]]] = defaultdict(dict)
    for row in connection.execute(statement):
        amounts[row.computehost_id][row.resource_class] = row.capacity
        largest[row.computehost_id][row.resource_class] = row.max_unit
        if row.provider is not None:
            providers[row.computehost_id][row.resource_class] = row.provider
            above[row.computehost_id][row.provider] = row.above
    return [HostCapacity(each, amounts[each], largest[each], providers[each], above[each]) for each in sorted(amounts)]


def amounts(connection: Connection, host_ids: Collection[int]) -> dict[int, dict[str, int]]:
    """{host id: {label: capacity}} of these hosts, in any state."""
    found: dict[int, dict[str, int]] = defaultdict(dict)
    if host_ids:
        statement = _RESOURCES.where(in_list(connection, computehost_resources.c.computehost_id, host_ids))
        for row in connection.execute(statement):
            found[row.computehost_id][row.resource_class] = row.capacity
    return found


def live_usages(connection: Connection, now: datetime, host_ids: Collection[int] | None = None) -> list[HostUsage]:
    """All allocations that have not ended, or those on these hosts. Holds are in `hold_store`."""
    statement = _LIVE
    if host_ids is not None:
        statement = statement.where(computehost_allocations.c.compute_host_id.in_(list(host_ids)))
    return [_usage(row) for row in connection.execute(statement, {"now": now})]


def usages_between(
    connection: Connection,
    host_ids: Collection[int],
    start: datetime,
    end: datetime,
    without: Collection[str],
    without_slots: Collection[str] = (),
) -> list[HostUsage]:
    """Allocations on these hosts during ``[start, end)``, except those of the reservations `without`, and those with
    the ids `without_slots`.
    """
    statement = select(computehost_allocations).where(
        computehost_allocations.c.compute_host_id.in_(list(host_ids)),
        computehost_allocations.c.start_date < end,
        computehost_allocations.c.end_date > start,
    )
    if without:
        statement = statement.where(computehost_allocations.c.reservation_id.not_in(list(without)))
    if without_slots:
        statement = statement.where(not_(in_list(connection, computehost_allocations.c.id, without_slots)))
    return [_usage(row) for row in connection.execute(statement)]


def allocations_of(
    connection: Connection, reservation_ids: Collection[str], slot_ids: Collection[str] = ()
) -> list[Allocation]:
    """The slots of these reservations, and those with these ids."""
    which = []
    if reservation_ids:
        which.append(in_list(connection, computehost_allocations.c.reservation_id, reservation_ids))
    if slot_ids:
        which.append(in_list(connection, computehost_allocations.c.id, slot_ids))
    if not which:
        return []
    return [Allocation(*row) for row in connection.execute(_ALLOCATIONS.where(or_(*which)))]


def slots_of(
    connection: Connection, reservation_ids: Collection[str]
) -> tuple[dict[str, dict[str, int]], dict[str, str]]:
    """({reservation id: {hypervisor hostname: number of slots}}, {hypervisor hostname: its compute service}), by host.

    A reservation without slots has an empty dict.
    """
    slots: dict[str, dict[str, int]] = {each: {} for each in reservation_ids}
    services: dict[str, str] = {}
    for row in connection.execute(_SLOTS.on(connection), {"ids": list(reservation_ids)}) if slots else ():
        slots[row.reservation_id][row.hypervisor_hostname] = row.slots
        services[row.hypervisor_hostname] = row.service_name
    return slots, services


def leased_slots(connection: Connection, host_ids: Collection[int] | None = None) -> dict[int, list[LeasedSlot]]:
    """{host id: its slots by start} of all hosts, or of these."""
    statement = _LEASED_SLOTS
    if host_ids is not None:
        statement = statement.where(computehost_allocations.c.compute_host_id.in_(host_ids))
    found: dict[int, list[LeasedSlot]] = defaultdict(list)
    for row in connection.execute(statement):
        slot = LeasedSlot(Allocation(*row[:6]), row.lease_id, row.name, LeaseStatus(row.status), row.project_id)
        found[row.compute_host_id].append(slot)
    return found


def leases_on(connection: Connection, host_ids: Collection[int], start: datetime, end: datetime) -> list[str]:
    """Ids of the leases that have a slot on one of these hosts during ``[start, end)``."""
    if not host_ids:
        return []
    statement = (
        select(reservations.c.lease_id)
        .join(computehost_allocations, computehost_allocations.c.reservation_id == reservations.c.id)
        .where(
            computehost_allocations.c.compute_host_id.in_(list(host_ids)),
            computehost_allocations.c.start_date < end,
            computehost_allocations.c.end_date > start,
        )
        .distinct()
        .order_by(reservations.c.lease_id)
    )
    return list(connection.execute(statement).scalars())


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
        _revise(connection, [each.host_id for each in allocations])


def move_allocations(
    connection: Connection, reservation_ids: Collection[str], start: datetime, end: datetime, now: datetime
) -> None:
    """Moves all slots of these reservations to another period."""
    if reservation_ids:
        connection.execute(
            update(computehost_allocations)
            .where(computehost_allocations.c.reservation_id.in_(list(reservation_ids)))
            .values(start_date=start, end_date=end, updated_at=now)
        )
        _revise(connection, _hosts_of(connection, computehost_allocations.c.reservation_id.in_(list(reservation_ids))))


def delete_allocations(connection: Connection, ids: Collection[str]) -> None:
    if ids:
        _delete(connection, computehost_allocations.c.id.in_(list(ids)))


def delete_allocations_of(connection: Connection, reservation_ids: Collection[str]) -> None:
    if reservation_ids:
        _delete(connection, computehost_allocations.c.reservation_id.in_(list(reservation_ids)))


def _delete(connection: Connection, which: ColumnElement[bool]) -> None:
    _revise(connection, _hosts_of(connection, which))
    connection.execute(delete(computehost_allocations).where(which))


def _hosts_of(connection: Connection, which: ColumnElement[bool]) -> list[int]:
    """Hosts of these allocations."""
    return list(connection.execute(select(computehost_allocations.c.compute_host_id).where(which).distinct()).scalars())


def _with_extra(connection: Connection, row: Row[Any]) -> RegisteredHost:
    return _host(row, property_store.extra_of(connection, [row.id])[row.id])


def _host(row: Row[Any], extra: Mapping[str, str]) -> RegisteredHost:
    values = {name: getattr(row, name) for name in _COLUMNS}
    return RegisteredHost(id=row.id, created_at=row.created_at, updated_at=row.updated_at, extra=dict(extra), **values)


def _usage(row: Row[Any]) -> HostUsage:
    return HostUsage(row.compute_host_id, row.start_date, row.end_date, row.resources)
