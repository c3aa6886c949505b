"""SQL of capacities that follow Placement: the position in its change log, the slots on hosts, and incidents."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection, insert, select, update

from moorage.db.engine import in_list
from moorage.reservation.capacity.lost_slots import HeldSlot
from moorage.reservation.model.leases import LeaseStatus
from moorage.reservation.store.tables import (
    computehost_allocations,
    computehost_resources,
    computehosts,
    lease_incidents,
    leases,
    placement_position,
    reservations,
)

_POSITION = select(placement_position.c.position).where(placement_position.c.id == 1)

#: States in which a lease has started.
_STARTED = frozenset({LeaseStatus.STARTING, LeaseStatus.ACTIVE, LeaseStatus.TERMINATING})

_HOSTS = select(computehosts.c.id, computehosts.c.hypervisor_hostname).where(computehosts.c.ready.is_(True))
_SLOTS = (
    select(
        computehost_allocations,
        reservations.c.lease_id,
        reservations.c.status.label("reservation_status"),
        leases.c.created_at.label("lease_created_at"),
        leases.c.status.label("lease_status"),
    )
    .join(reservations, reservations.c.id == computehost_allocations.c.reservation_id)
    .join(leases, leases.c.id == reservations.c.lease_id)
)


def position(connection: Connection) -> int | None:
    """The position in Placement's change log up to which the capacities were read; None: never read."""
    return connection.execute(_POSITION).scalar_one_or_none()


def lock_position(connection: Connection) -> int | None:
    return connection.execute(_POSITION.with_for_update()).scalar_one_or_none()


def set_position(connection: Connection, new: int, before: int | None) -> None:
    """`before`: the result of `lock_position`."""
    if before is None:
        connection.execute(insert(placement_position), {"id": 1, "position": new})
    elif new > before:
        connection.execute(update(placement_position).where(placement_position.c.id == 1).values(position=new))


def ready_hosts(connection: Connection, names: Collection[str] | None = None) -> dict[int, str]:
    """{host id: hypervisor hostname} of the registered hosts: all, or those with these names."""
    statement = (
        _HOSTS if names is None else _HOSTS.where(in_list(connection, computehosts.c.hypervisor_hostname, names))
    )
    return {row.id: row.hypervisor_hostname for row in connection.execute(statement.order_by(computehosts.c.id))}


def capacity_rows(connection: Connection, host_ids: Collection[int]) -> dict[int, set[tuple[object, ...]]]:
    """{host id: {(resource class, provider, capacity, max_unit, ancestors)}} of the hosts that have any."""
    its = computehost_resources.c
    found: dict[int, set[tuple[object, ...]]] = {}
    for row in connection.execute(
        select(computehost_resources).where(in_list(connection, its.computehost_id, host_ids))
    ):
        resource_class = row.resource_class.partition("#")[0]
        rest = (resource_class, row.provider, row.capacity, row.max_unit, tuple(row.above or ()))
        found.setdefault(row.computehost_id, set()).add(rest)
    return found


def held_slots(connection: Connection, now: datetime, host_ids: Collection[int] | None) -> dict[int, list[HeldSlot]]:
    """{host id: its slots that have not ended} of these hosts (None: all), without those of leases that are ending."""
    statement = _SLOTS.where(
        computehost_allocations.c.end_date > now, leases.c.status.not_in([LeaseStatus.TERMINATED, LeaseStatus.DELETING])
    )
    if host_ids is not None:
        statement = statement.where(in_list(connection, computehost_allocations.c.compute_host_id, host_ids))
    found: dict[int, list[HeldSlot]] = {}
    for row in connection.execute(statement):
        slot = HeldSlot(
            id=row.id,
            host=row.compute_host_id,
            reservation_id=row.reservation_id,
            lease_id=row.lease_id,
            start=row.start_date,
            end=row.end_date,
            amounts=row.resources,
            is_active=row.lease_status in _STARTED or row.reservation_status == "active",
            created_at=row.lease_created_at,
        )
        found.setdefault(slot.host, []).append(slot)
    return found


def hosts_of_leases(connection: Connection, lease_ids: Collection[str]) -> set[int]:
    """Ids of the hosts on which these leases have slots."""
    if not lease_ids:
        return set()
    statement = (
        select(computehost_allocations.c.compute_host_id)
        .join(reservations, reservations.c.id == computehost_allocations.c.reservation_id)
        .where(in_list(connection, reservations.c.lease_id, lease_ids))
        .distinct()
    )
    return set(connection.execute(statement).scalars())


class IncidentKind(StrEnum):
    LOST = "lost"  #: slots are no longer covered
    MOVED = "moved"  #: slots were moved to other hosts or devices
    RESTORED = "restored"  #: all slots are covered again


@dataclass(frozen=True, slots=True)
class Incident:
    """`reason` may name hosts and providers."""

    id: str
    lease_id: str
    kind: IncidentKind
    at: datetime
    reason: str


def insert_incidents(connection: Connection, incidents: Sequence[Incident]) -> None:
    rows: list[Mapping[str, object]] = [
        {"id": one.id, "lease_id": one.lease_id, "kind": one.kind, "at": one.at, "reason": one.reason}
        for one in incidents
    ]
    if rows:
        connection.execute(insert(lease_incidents), rows)


def incidents_of(connection: Connection, lease_id: str) -> list[Incident]:
    """In the order in which they happened."""
    its = lease_incidents.c
    statement = select(lease_incidents).where(its.lease_id == lease_id).order_by(its.at, its.id)
    return [
        Incident(row.id, row.lease_id, IncidentKind(row.kind), row.at, row.reason)
        for row in connection.execute(statement)
    ]
