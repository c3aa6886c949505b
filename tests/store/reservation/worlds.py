"""Hosts and leases that tests of the store and of admission put into a database."""

from datetime import UTC, datetime, timedelta

from moorage.core.ids import SeededIds
from moorage.db.session import in_transaction
from moorage.reservation.capacity.calendar import HostCapacity
from moorage.reservation.model.leases import (
    Event,
    EventStatus,
    EventType,
    Lease,
    LeaseStatus,
    RegisteredHost,
    Reservation,
    ReservationStatus,
)
from moorage.reservation.model.reservation_requests import InstanceRequest, Size
from moorage.reservation.store import host_store

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
START, END = NOW + timedelta(days=1), NOW + timedelta(days=2)


def add_host(engine, name="compute-1", *, vcpus=8, memory_mb=16384, disk_gb=100, wanted_id=None) -> int:
    host = RegisteredHost(
        id=0,
        hypervisor_hostname=name,
        service_name=name,
        hypervisor_type="QEMU",
        hypervisor_version=8000000,
        cpu_info="{}",
        vcpus=vcpus,
        memory_mb=memory_mb,
        local_gb=disk_gb,
        availability_zone="",
        status=None,
        trust_id=None,
        reservable=True,
        ready=True,
        created_at=NOW,
        updated_at=None,
    )

    def work(connection) -> int:
        host_id = host_store.insert_host(connection, host, host_id=wanted_id)
        capacity = {"VCPU": vcpus, "MEMORY_MB": memory_mb, "DISK_GB": disk_gb}
        host_store.set_capacity(connection, host_id, HostCapacity(host_id, capacity))
        return host_id

    return in_transaction(engine, work)


def new_lease(ids: SeededIds, *requests: InstanceRequest, start=START, end=END, project="p") -> Lease:
    lease_id = ids.uuid()
    reservations = []
    for request in requests or [InstanceRequest(Size(1, 1024, 10), 2)]:
        reservation_id = ids.uuid()
        reservations.append(
            Reservation(
                reservation_id,
                lease_id,
                ids.uuid(),
                "virtual:instance",
                ReservationStatus.PENDING,
                missing_resources=False,
                resources_changed=False,
                request=request,
                flavor_id=reservation_id,
                aggregate_id=None,
                server_group_id=None,
                created_at=NOW,
                updated_at=None,
            )
        )
    times = {EventType.START: start, EventType.BEFORE_END: end - timedelta(hours=1), EventType.END: end}
    events = [Event(ids.uuid(), lease_id, kind, time, EventStatus.UNDONE, NOW, None) for kind, time in times.items()]
    return Lease(
        lease_id,
        "lease",
        "u",
        project,
        start,
        end,
        None,
        LeaseStatus.PENDING,
        degraded=False,
        created_at=NOW,
        updated_at=None,
        reservations=tuple(reservations),
        events=tuple(sorted(events, key=lambda event: (event.time, event.type))),
    )
