"""Imports an existing Blazar database: everything in one transaction, or nothing.

Keeps ids, names and times. `blazar_db` reads, and `rules` decide how each row is converted. The import neither reads
nor changes the resources of a reservation in Nova and Placement; that happens when an event of its lease runs.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine

from moorage.core.errors import Conflict
from moorage.core.ids import Ids
from moorage.core.import_findings import ImportFinding
from moorage.db.importing import Importer, ImportListener, ImportReceipt, PeerImport
from moorage.db.types import ResultRow
from moorage.reservation.booking.capacity_requests import held_of
from moorage.reservation.capacity.addresses import RegisteredAddress
from moorage.reservation.capacity.calendar import HostCapacity, HostUsage
from moorage.reservation.importing.blazar_db import BlazarDatabase, open_blazar_database
from moorage.reservation.importing.rules.hosts import (
    ConvertedHost,
    floating_ips,
    hosts,
    overbooked,
    overbooked_addresses,
)
from moorage.reservation.importing.rules.leases import (
    AddressSlot,
    ConvertedLease,
    LeaseConverter,
    LeaseFindingKind,
    UnsupportedReservation,
)
from moorage.reservation.model.leases import LeaseStatus
from moorage.reservation.model.limits import FLOATING_IPS, Reserved, charged
from moorage.reservation.model.reservation_requests import FloatingIpRequest, WholeHostRequest
from moorage.reservation.store import address_store, host_store, lease_store, limit_store, property_store
from moorage.reservation.store.tables import computehosts, floatingips, leases

#: Maximum number of leases named in the refusal of an import.
NAMED = 3


IMPORTER = Importer(
    feature="reservation",
    open_peer=open_blazar_database,
    kinds=LeaseFindingKind,
    target_tables=(computehosts, leases, floatingips),
    not_empty="{where} already has {computehosts} hosts, {leases} leases and {floatingips} floating IPs; an import "
    "needs an empty database: set [database] reservation to a new one, or remove this one first",
)


@dataclass(frozen=True)
class ImportSettings:
    cleaning_time: timedelta
    has_network: bool  #: whether the service is configured with a network service


def import_blazar(
    target: Engine | None,
    peer: BlazarDatabase,
    now: datetime,
    ids: Ids,
    settings: ImportSettings,
    listener: ImportListener,
) -> ImportReceipt:
    """Imports all of `peer` into `target`, whose tables must exist; rehearses it if `target` is None. See
    `Importer.run`.

    Raises `Conflict` also if this service cannot continue a reservation that has not ended.
    """
    return IMPORTER.run(target, lambda connection: _Import(peer, connection, now, ids, settings, listener))


class _Import(PeerImport[BlazarDatabase, Connection]):
    def __init__(
        self,
        peer: BlazarDatabase,
        connection: Connection | None,
        now: datetime,
        ids: Ids,
        settings: ImportSettings,
        listener: ImportListener,
    ) -> None:
        super().__init__(peer, connection, listener)
        self._now = now
        self._ids = ids
        self._settings = settings
        self._host_ids: dict[str, int] = {}
        self._host_names: dict[int, str] = {}
        self._capacities: list[HostCapacity] = []
        self._usages: list[HostUsage] = []
        self._floating_ips: dict[str, RegisteredAddress] = {}
        self._addresses: list[AddressSlot] = []

    def import_rows(self) -> None:
        self._import_hosts()
        self._import_properties()
        self._import_floating_ips()
        self._import_leases()
        self._import_lost()
        for finding in overbooked(self._capacities, self._host_names, self._usages):
            self._record(finding)
        for finding in overbooked_addresses(self._addresses):
            self._record(finding)

    def _import_hosts(self) -> None:
        inventories: dict[str, list[ResultRow]] = defaultdict(list)
        for row in self._peer.inventories():
            inventories[row.computehost_id].append(row)
        converted = self._accepted(hosts(self._peer.hosts(), inventories, self._peer.created_at))
        # Hosts that keep their id come first, so that a new id cannot equal one of theirs.
        for host in sorted(converted, key=lambda one: (one.host.id == 0, one.host.id)):
            self._import_host(host)
            self._count("computehosts")
            self._count("computehost_resource_inventory", len(inventories.pop(host.peer_id, ())))
        self._write(host_store.after_given_ids)
        for peer_id, rows in inventories.items():
            self._lost_host(f"{len(rows)} inventories", peer_id)
        for row in self._peer.traits():
            self._record(
                ImportFinding(
                    LeaseFindingKind.READ_ANEW, str(row.id), f"trait {row.trait} of host {row.computehost_id}"
                )
            )

    def _import_host(self, one: ConvertedHost) -> None:
        host_id = one.host.id or max([0, *self._host_names]) + 1
        capacity = HostCapacity(host_id, one.capacity.capacity, one.capacity.largest)
        self._host_ids[one.peer_id] = host_id
        self._host_names[host_id] = one.host.hypervisor_hostname
        self._capacities.append(capacity)
        self._write(host_store.insert_host, one.host, host_id=host_id)
        self._write(host_store.set_capacity, host_id, capacity)

    def _import_properties(self) -> None:
        names = {}
        for row in self._peer.properties():
            if row.resource_type == property_store.HOST_TYPE:
                names[row.id] = row.property_name
                self._count("resource_properties")
                created_at = self._peer.created_at(row)
                self._write(property_store.insert_property, row.id, row.property_name, bool(row.private), created_at)
            else:
                text = f"property {row.property_name} of {row.resource_type}"
                self._record(ImportFinding(LeaseFindingKind.OTHER_TYPE, str(row.id), text))
        for row in self._peer.capabilities():
            host_id = self._host_ids.get(row.computehost_id)
            if host_id is None or row.property_id not in names:
                self._lost_host(f"property {names.get(row.property_id, row.property_id)}", row.computehost_id)
                continue
            self._count("computehost_extra_capabilities")
            values = {names[row.property_id]: row.capability_value}
            fresh = [self._ids.uuid(), row.id]
            self._write(property_store.set_extra, host_id, values, fresh, self._peer.created_at(row))

    def _import_floating_ips(self) -> None:
        for one in self._accepted(floating_ips(self._peer.floating_ips(), self._times)):
            self._floating_ips[one.id] = one
            self._count("floatingips")
            self._write(address_store.insert_floating_ip, one)

    def _import_leases(self) -> None:
        converter = LeaseConverter(
            self._host_ids,
            self._floating_ips,
            self._times,
            self._ids.uuid,
            self._now,
            self._settings.cleaning_time,
            has_network=self._settings.has_network,
        )
        refused: list[UnsupportedReservation] = []
        for page in self._peer.leases():
            for peer_lease in page:
                converted: Iterator[ConvertedLease | UnsupportedReservation]
                converted = self._accepted(converter.convert(peer_lease))
                for one in converted:
                    if isinstance(one, ConvertedLease):
                        self._import_lease(one)
                    else:
                        refused.append(one)
        if refused:
            named = "; ".join(f"lease {one.lease_id}: {one.reason}" for one in refused[:NAMED])
            more = f" and {len(refused) - NAMED} more" if len(refused) > NAMED else ""
            raise Conflict(
                f"{len(refused)} reservations have not ended and cannot be continued here: {named}{more}. End or "
                "delete them in Blazar, then import again",
                code="reservation.import.not_carried_on",
            )

    def _import_lease(self, one: ConvertedLease) -> None:
        self._count("leases")
        self._count("reservations", one.reservations)
        requests = [each.request for each in one.lease.reservations]
        whole = sum(isinstance(each, WholeHostRequest) for each in requests)
        of_network = [each for each in requests if isinstance(each, FloatingIpRequest)]
        self._count("computehost_reservations", whole)
        self._count("floatingip_reservations", len(of_network))
        self._count("required_floatingips", sum(len(each.required) for each in of_network))
        self._count("instance_reservations", one.reservations - whole - len(of_network))
        self._count("events", one.events)
        self._count("computehost_allocations", len(one.slots))
        self._count("floatingip_allocations", len(one.addresses))
        self._addresses += one.addresses
        self._usages += [HostUsage(each.host_id, each.start_date, each.end_date, each.resources) for each in one.slots]
        self._write(lease_store.insert_lease, one.lease)
        self._write(host_store.insert_allocations, one.slots, self._now)
        self._write(limit_store.write_usage, one.lease.project_id, one.lease.user_id, one.lease.id, self._charged(one))
        for slot in one.addresses:
            mine = {slot.id: slot.floating_ip}
            self._write(address_store.allocate, slot.reservation_id, mine, slot.start, slot.end, self._now)

    def _charged(self, one: ConvertedLease) -> list[Reserved]:
        """The usage that counts for the limits of the lease's project and user, if the lease has not ended."""
        whole = {each.host: each.capacity for each in self._capacities}
        period = one.lease.start_date, one.lease.end_date
        placings = held_of(one.slots)
        charges: dict[str, Mapping[str, int]] = {}
        for each in () if one.lease.status is LeaseStatus.TERMINATED else one.lease.reservations:
            if isinstance(each.request, FloatingIpRequest):
                charges[each.id] = {FLOATING_IPS: each.request.amount}
            else:
                charges[each.id] = charged(placings.get(each.id, {}), whole)
        return [Reserved(reservation_id, *period, amounts) for reservation_id, amounts in charges.items() if amounts]

    def _import_lost(self) -> None:
        for table, row_id in self._peer.without_lease():
            self._record(
                ImportFinding(
                    LeaseFindingKind.LOST_LEASE,
                    f"{table} {row_id}",
                    f"{table} {row_id}: its lease or reservation does not exist",
                )
            )

    def _lost_host(self, what: str, host_id: str) -> None:
        self._record(
            ImportFinding(LeaseFindingKind.LOST_HOST, str(host_id), f"{what} of host {host_id}, which does not exist")
        )

    def _times(self, row: Any) -> tuple[datetime, datetime | None]:
        return self._peer.created_at(row), None if row.updated_at is None else self._peer.updated_at(row)
