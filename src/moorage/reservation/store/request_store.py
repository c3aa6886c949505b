"""SQL of the requests of reservations: one row in the table of their type, joined to the reservation."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from msgspec import to_builtins
from sqlalchemy import Connection, Row, Select, Table, delete, insert, select, update

from moorage.reservation.model.leases import Reservation
from moorage.reservation.model.reservation_requests import (
    FLAVOR_INSTANCE,
    PHYSICAL_HOST,
    RESOURCE_ANY,
    VIRTUAL_FLOATING_IP,
    AnyRequest,
    FlavorRequest,
    FloatingIpRequest,
    InstanceRequest,
    ReservationRequest,
    Size,
    SourceFlavor,
    WholeHostRequest,
)
from moorage.reservation.store.tables import (
    computehost_reservations,
    floatingip_reservations,
    instance_reservations,
    reservations,
)

_HOST = ("min_hosts", "max_hosts", "hypervisor_properties", "before_end")

_FLOATING_IP = ("network_id", "required_floatingips")

_INSTANCE = ("vcpus", "memory_mb", "disk_gb", "amount", "affinity", "resource_properties", "flavor_id", "source")


def joined(*columns: Any) -> Select[Any]:
    """Selects `columns` and the columns that `request_of` and `flavor_of` read, of all reservations."""
    return (
        select(
            *columns,
            *(instance_reservations.c[name] for name in _INSTANCE),
            *(computehost_reservations.c[name] for name in _HOST),
            computehost_reservations.c.resource_properties.label("host_resource_properties"),
            *(floatingip_reservations.c[name] for name in _FLOATING_IP),
            floatingip_reservations.c.amount.label("floating_ips"),
        )
        .outerjoin(instance_reservations, instance_reservations.c.reservation_id == reservations.c.id)
        .outerjoin(computehost_reservations, computehost_reservations.c.reservation_id == reservations.c.id)
        .outerjoin(floatingip_reservations, floatingip_reservations.c.reservation_id == reservations.c.id)
    )


def insert_request(connection: Connection, reservation: Reservation) -> None:
    table, values = _row(reservation.request)
    if table is instance_reservations:
        values["flavor_id"] = reservation.flavor_id
    own = {"id": reservation.resource_id, "reservation_id": reservation.id, "created_at": reservation.created_at}
    connection.execute(insert(table), own | values)


def change_request(connection: Connection, reservation_id: str, request: ReservationRequest, now: datetime) -> None:
    table, values = _row(request)
    connection.execute(update(table).where(table.c.reservation_id == reservation_id).values(**values, updated_at=now))
    connection.execute(update(reservations).where(reservations.c.id == reservation_id).values(updated_at=now))


def delete_requests(connection: Connection, reservation_ids: Collection[str]) -> None:
    for table in (instance_reservations, computehost_reservations, floatingip_reservations):
        if reservation_ids:
            connection.execute(delete(table).where(table.c.reservation_id.in_(list(reservation_ids))))


def request_of(row: Row[Any]) -> ReservationRequest:
    if row.resource_type == PHYSICAL_HOST:
        return WholeHostRequest(
            row.min_hosts, row.max_hosts, row.hypervisor_properties, row.host_resource_properties, row.before_end
        )
    if row.resource_type == VIRTUAL_FLOATING_IP:
        return FloatingIpRequest(row.network_id, row.floating_ips, tuple(row.required_floatingips))
    if row.resource_type == FLAVOR_INSTANCE:
        return FlavorRequest(SourceFlavor(**row.source), row.amount, row.affinity, row.resource_properties)
    if row.resource_type == RESOURCE_ANY:
        return AnyRequest(
            amount=row.amount, affinity=row.affinity, resource_properties=row.resource_properties, **row.source
        )
    return InstanceRequest(
        Size(row.vcpus, row.memory_mb, row.disk_gb), row.amount, row.affinity, row.resource_properties
    )


def _row(request: ReservationRequest) -> tuple[Table, dict[str, Any]]:
    if isinstance(request, WholeHostRequest):
        return computehost_reservations, {
            "min_hosts": request.least,
            "max_hosts": request.most,
            "hypervisor_properties": request.hypervisor_properties,
            "resource_properties": request.resource_properties,
            "before_end": request.before_end,
        }
    if isinstance(request, FloatingIpRequest):
        return floatingip_reservations, {
            "network_id": request.network_id,
            "amount": request.amount,
            "required_floatingips": list(request.required),
        }
    counted = {
        "amount": request.amount,
        "affinity": request.affinity,
        "resource_properties": request.resource_properties,
    }
    if isinstance(request, FlavorRequest):
        source = request.source
        size = {"vcpus": source.vcpus, "memory_mb": source.memory_mb, "disk_gb": source.disk_gb}
        return instance_reservations, {**size, **counted, "source": to_builtins(source)}
    if isinstance(request, AnyRequest):
        named = {"resources": dict(request.resources), "traits": dict(request.traits)}
        return instance_reservations, {
            "vcpus": request.resources.get("VCPU", 0),
            "memory_mb": request.resources.get("MEMORY_MB", 0),
            "disk_gb": request.resources.get("DISK_GB", 0),
            **counted,
            # Empty values are left out, so that an older release can read the row.
            "source": named | {"hypervisor_properties": request.hypervisor_properties} | dict(request.programs),
        }
    return instance_reservations, {
        "vcpus": request.size.vcpus,
        "memory_mb": request.size.memory_mb,
        "disk_gb": request.size.disk_gb,
        **counted,
    }
