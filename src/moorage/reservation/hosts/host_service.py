"""Registered hosts: their row here, reservation provider in Placement and membership of Nova's freepool aggregate.

Spec: docs/evidence/specs/instance-reservation.md (R1-R5, R34)

Registering writes the row, then the provider ``blazar_<host>`` below the host's own, then the freepool aggregate
and the trait that keeps other servers off. A failure undoes the earlier effects. The row is marked `ready` only at
the end, so repeating the request after a crash continues where it stopped.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from moorage.compute.client.compute_client import ComputeClient
from moorage.compute.client.values import Hypervisor
from moorage.core.errors import Conflict, Forbidden, Invalid, MoorageError, NotFound
from moorage.core.names import RESERVED_HOST_TRAIT, reservation_provider
from moorage.db.session import in_transaction, read
from moorage.placement.client.placement_client import PlacementClient
from moorage.reservation.booking.placement_capacity import PlacementCapacity
from moorage.reservation.deps import ReservationDeps
from moorage.reservation.model.leases import HOST_PROPERTIES, LeasedSlot, RegisteredHost
from moorage.reservation.steps.reservation_providers import ensure_reservation_provider
from moorage.reservation.store import host_store as store
from moorage.reservation.store import property_store

log = logging.getLogger(__name__)

MAX_KEY_LENGTH = 64

#: Names of host columns. Queries use the column, so an extra capability of that name could never be queried.
COLUMN_NAMES = HOST_PROPERTIES | {"status", "trust_id", "reservable", "created_at", "updated_at", "hypervisor_id"}


class ReservedHosts:
    """The effects in Placement and Nova. Each may be repeated."""

    def __init__(self, placement: PlacementClient, compute: ComputeClient, freepool: str) -> None:
        self._placement = placement
        self._compute = compute
        self._freepool = freepool

    def hypervisor(self, name: str) -> Hypervisor:
        found = self._compute.hypervisor(name)
        if found is None:
            raise NotFound(f"Host '{name}' not found!")
        return found

    def check_provider(self, hypervisor_hostname: str) -> None:
        """Raises `NotFound` if Placement does not have the host."""
        if self._placement.provider_by_name(hypervisor_hostname) is None:
            raise NotFound(f"Placement has no resource provider named {hypervisor_hostname}")

    def reserve(self, host: RegisteredHost) -> None:
        """Sets provider, freepool and trait; on failure undoes the changes of this call (R5)."""
        undo: list[Callable[[], None]] = []
        try:
            undo.append(lambda: self._drop_provider(host))
            provider = ensure_reservation_provider(self._placement, host.hypervisor_hostname)
            undo.append(lambda: self._leave_freepool(host))
            self._join_freepool(host)
            undo.append(lambda: self._set_trait(host, wanted=False))
            self._set_trait(host, wanted=True)
            log.info("host reserved", extra={"host": host.hypervisor_hostname, "provider": provider.uuid})
        except MoorageError:
            for step in reversed(undo):
                _try(step, host)
            raise

    def release(self, host: RegisteredHost) -> None:
        """R34: removes provider, freepool and its trait; absent ones are no error."""
        self._drop_provider(host)
        self._leave_freepool(host)
        self._set_trait(host, wanted=False)

    def _drop_provider(self, host: RegisteredHost) -> None:
        """Leaves a provider of that name in another place alone: see `ensure_reservation_provider`."""
        root = self._placement.provider_by_name(host.hypervisor_hostname)
        provider = self._placement.provider_by_name(reservation_provider(host.hypervisor_hostname))
        if root is not None and provider is not None and provider.parent_uuid == root.uuid:
            self._placement.delete_provider(provider.uuid)

    def _join_freepool(self, host: RegisteredHost) -> None:
        aggregate = self._compute.aggregate_by_name(self._freepool) or self._compute.create_aggregate(self._freepool)
        if host.service_name not in aggregate.hosts:
            self._compute.add_host(aggregate.id, host.service_name)

    def _leave_freepool(self, host: RegisteredHost) -> None:
        aggregate = self._compute.aggregate_by_name(self._freepool)
        if aggregate is not None and host.service_name in aggregate.hosts:
            self._compute.remove_host(aggregate.id, host.service_name)

    def _set_trait(self, host: RegisteredHost, *, wanted: bool) -> None:
        if wanted:
            self._placement.ensure_trait(RESERVED_HOST_TRAIT)
        root = self._placement.provider_by_name(host.hypervisor_hostname)
        if root is not None:
            self._placement.put_trait(root.uuid, RESERVED_HOST_TRAIT, wanted=wanted)


@dataclass(frozen=True)
class HostService:
    """The use cases of ``/os-hosts``."""

    deps: ReservationDeps
    reserved: ReservedHosts
    placement_capacity: PlacementCapacity

    def list_hosts(self) -> list[RegisteredHost]:
        with read(self.deps.engine) as connection:
            return [host for host in store.all_hosts(connection) if host.ready]

    def get_host(self, host_id: str) -> RegisteredHost:
        with read(self.deps.engine) as connection:
            return self._found(connection, host_id)

    def create_host(self, name: str, extra: Mapping[str, str]) -> RegisteredHost:
        """Registers the hypervisor `name`. Raises `Conflict` if it runs servers, which use capacity of leases."""
        _check_keys(extra)
        hypervisor = self.reserved.hypervisor(name)
        if hypervisor.running_servers:
            raise Conflict(f"Servers [{hypervisor.running_servers}] found for host {name}; move or delete them first")
        host_id = self._register(hypervisor, extra)
        with read(self.deps.engine) as connection:
            host = store.find_host(connection, host_id)
        if host is None:
            raise Conflict(f"host {name} was removed by another request")
        try:
            self.reserved.check_provider(host.hypervisor_hostname)
            self.reserved.reserve(host)
            try:
                self.placement_capacity.read_host(host_id, host.hypervisor_hostname)
            except MoorageError:
                _try(lambda: self.reserved.release(host), host)
                raise
        except MoorageError:
            in_transaction(self.deps.engine, lambda connection: store.delete_host(connection, host_id))
            raise
        in_transaction(self.deps.engine, lambda connection: store.set_ready(connection, host_id, ready=True))
        # Changes in Placement are not followed before the host is ready, so it is read once more.
        self.placement_capacity.read_again(host_id, host.hypervisor_hostname)
        return self.get_host(str(host_id))

    def update_host(self, host_id: str, values: Mapping[str, str | None]) -> RegisteredHost:
        """Sets extra capabilities; None removes one. Also reads the host's capacity from Placement again."""
        if not values:
            raise Invalid("No data to update")
        _check_keys(values)
        host = self.get_host(host_id)
        self.reserved.check_provider(host.hypervisor_hostname)
        self.placement_capacity.read_host(host.id, host.hypervisor_hostname)
        ids = self._fresh(values)

        def write_properties(connection: Connection) -> RegisteredHost:
            store.lock_hosts(connection, [host.id])
            property_store.set_extra(connection, host.id, values, ids, self.deps.clock.now())
            store.update_host(connection, self._found(connection, host_id), self.deps.clock.now())
            return self._found(connection, host_id)

        return in_transaction(self.deps.engine, write_properties)

    def delete_host(self, host_id: str) -> None:
        def withdraw(connection: Connection) -> RegisteredHost:
            host = self._found(connection, host_id, ready=False)
            store.lock_hosts(connection, [host.id])
            if store.count_allocations(connection, host.id):
                raise Conflict(f"Can't delete host {host_id}. The host is reserved.")
            store.set_ready(connection, host.id, ready=False)
            return host

        host = in_transaction(self.deps.engine, withdraw)
        self.reserved.release(host)
        in_transaction(self.deps.engine, lambda connection: store.delete_host(connection, host.id))

    def properties(self, *, everything: bool) -> list[tuple[str, bool, list[str]]]:
        """(name, private, values) of each extra capability; private ones only with `everything`."""
        with read(self.deps.engine) as connection:
            values = property_store.property_values(connection)
            rows = property_store.properties(connection)
        return [
            (row.property_name, row.private, values.get(row.property_name, []))
            for row in rows
            if everything or not row.private
        ]

    def set_private(self, name: str, *, private: bool) -> dict[str, object]:
        """The changed row of resource_properties as {column: value}."""

        def write_private(connection: Connection) -> dict[str, object]:
            if not property_store.set_private(connection, name, private, self.deps.clock.now()):
                raise NotFound(f"Resource property {name} does not exist for resource type {property_store.HOST_TYPE}.")
            row = next(row for row in property_store.properties(connection) if row.property_name == name)
            return dict(row._mapping)

        return in_transaction(self.deps.engine, write_private)

    def allocations(self) -> list[tuple[RegisteredHost, list[LeasedSlot]]]:
        """[(host, its slots), ...] of all hosts."""
        with read(self.deps.engine) as connection:
            rows = store.leased_slots(connection)
            hosts = [host for host in store.all_hosts(connection) if host.ready]
        return [(host, rows.get(host.id, [])) for host in hosts]

    def allocation(self, host_id: str) -> tuple[RegisteredHost, list[LeasedSlot]]:
        """(the host, its slots)"""
        with read(self.deps.engine) as connection:
            host = self._found(connection, host_id)
            return host, store.leased_slots(connection, [host.id]).get(host.id, [])

    def _register(self, hypervisor: Hypervisor, extra: Mapping[str, str]) -> int:
        """Writes the row, not yet ready (R1); returns its id. Reuses the row of an interrupted registration."""
        now = self.deps.clock.now()
        ids = self._fresh(extra)

        def write_row(connection: Connection) -> int:
            known = store.host_named(connection, hypervisor.hostname)
            if known is not None and known.ready:
                raise Conflict(f"Host {hypervisor.hostname} is already registered with id {known.id}")
            host = RegisteredHost(
                id=known.id if known else 0,
                hypervisor_hostname=hypervisor.hostname,
                service_name=hypervisor.service_host,
                hypervisor_type=hypervisor.type,
                hypervisor_version=hypervisor.version,
                cpu_info=hypervisor.cpu_info or "{}",  # Horizon reads it as JSON
                vcpus=hypervisor.vcpus,
                memory_mb=hypervisor.memory_mb,
                local_gb=hypervisor.local_gb,
                availability_zone="",
                status=None,
                trust_id=None,
                reservable=True,
                ready=False,
                created_at=now,
                updated_at=None,
            )
            if known is not None:
                store.update_host(connection, host, now)
            host_id = known.id if known else store.insert_host(connection, host)
            property_store.set_extra(connection, host_id, dict(extra), ids, now)
            return host_id

        try:
            return in_transaction(self.deps.engine, write_row)
        except IntegrityError:
            raise Conflict(f"Host {hypervisor.hostname} is being registered by another request") from None

    def _found(self, connection: Connection, host_id: str, *, ready: bool = True) -> RegisteredHost:
        host = store.find_host(connection, int(host_id)) if host_id.isdecimal() and len(host_id) < 10 else None
        if host is None or (ready and not host.ready):
            raise NotFound(f"Object with {{'host_id': '{host_id}'}} not found")
        return host

    def _fresh(self, values: Mapping[str, str | None]) -> list[str]:
        return [self.deps.ids.uuid() for _ in range(2 * len(values))]


def _check_keys(values: Mapping[str, object]) -> None:
    for key in values:
        if len(key) > MAX_KEY_LENGTH:
            raise Invalid(f"Extra capability key too long: {key[:MAX_KEY_LENGTH]}... (at most {MAX_KEY_LENGTH})")
        if key in COLUMN_NAMES:
            raise Forbidden(f"{key} is a property of every host and cannot be set as an extra capability")


def _try(step: Callable[[], None], host: RegisteredHost) -> None:
    try:
        step()
    except MoorageError:
        log.exception(
            "could not undo the registration of a host; register or delete the host again", extra={"host": host.id}
        )
