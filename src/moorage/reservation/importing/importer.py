"""Imports an existing Blazar database: everything in one transaction, or nothing.

Keeps ids, names and times. `blazar_db` reads, and `rules` decide how each row is converted. The import neither reads
nor changes the resources of a reservation in Nova and Placement; that happens when an event of its lease runs.
"""

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, func, select

from moorage.core.errors import Conflict
from moorage.core.ids import Ids
from moorage.core.import_findings import ImportFinding
from moorage.db.importing import FindingCallback, ImportLedger, ImportReceipt, ProgressCallback
from moorage.db.session import write
from moorage.reservation.capacity.addresses import RegisteredAddress
from moorage.reservation.capacity.calendar import HostCapacity, HostUsage
from moorage.reservation.importing.blazar_db import BlazarDatabase
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
    ImportFindingKind,
    LeaseConverter,
    UnsupportedReservation,
)
from moorage.reservation.model.reservation_requests import FloatingIpRequest, HostRequest
from moorage.reservation.store import address_store, host_store, lease_store, property_store
from moorage.reservation.store.tables import computehosts, floatingips, leases

#: Maximum number of leases named in the refusal of an import.
NAMED = 3


def check_empty(connection: Connection) -> None:
    """Raises `Conflict` if the database already has hosts, leases or floating IPs."""
    found = {
        table.name: int(connection.execute(select(func.count()).select_from(table)).scalar_one())
        for table in (computehosts, leases, floatingips)
    }
    if any(found.values()):
        where = connection.engine.url.render_as_string(hide_password=True)
        raise Conflict(
            f"{where} already has {found['computehosts']} hosts, {found['leases']} leases and {found['floatingips']} "
            "floating IPs; an import needs an empty database: set [database] reservation to a new one, or remove this "
            "one first",
            code="reservation.import.not_empty",
        )


def import_into(
    target: Engine,
    peer: BlazarDatabase,
    now: datetime,
    ids: Ids,
    *,
    cleaning_time_s: int,
    has_network: bool,
    noted: FindingCallback,
    progress: ProgressCallback,
) -> ImportReceipt:
    """Imports all of `peer` into `target`, whose tables must exist.

    `has_network`: True if the service is configured with a network service. `noted` is called with each finding.
    Raises `Conflict` if `target` is not empty, or if this service cannot continue a reservation that has not ended.
    """
    with write(target) as connection:
        check_empty(connection)
        cleaning_time = timedelta(seconds=cleaning_time_s)
        run = _Run(peer, connection, now, ids, cleaning_time, noted, progress, has_network=has_network)
        return run.receipt()


def rehearse(
    peer: BlazarDatabase,
    now: datetime,
    ids: Ids,
    *,
    cleaning_time_s: int,
    has_network: bool,
    noted: FindingCallback,
    progress: ProgressCallback,
) -> ImportReceipt:
    """Makes the same checks and findings as `import_into`, without writing."""
    cleaning_time = timedelta(seconds=cleaning_time_s)
    return _Run(peer, None, now, ids, cleaning_time, noted, progress, has_network=has_network).receipt()


class _Run:
    """One import. Without a connection it is a dry run, which writes nothing."""

    def __init__(
        self,
        peer: BlazarDatabase,
        connection: Connection | None,
        now: datetime,
        ids: Ids,
        cleaning_time: timedelta,
        noted: FindingCallback,
        progress: ProgressCallback,
        *,
        has_network: bool,
    ) -> None:
        self._has_network = has_network
        self._peer = peer
        self._connection = connection
        self._now = now
        self._ids = ids
        self._cleaning_time = cleaning_time
        self._ledger = ImportLedger(peer.row_counts(), noted, progress)
        self._note, self._count = self._ledger.record, self._ledger.count_rows
        self._host_ids: dict[str, int] = {}
        self._host_names: dict[int, str] = {}
        self._capacities: list[HostCapacity] = []
        self._usages: list[HostUsage] = []
        self._floating_ips: dict[str, RegisteredAddress] = {}
        self._addresses: list[AddressSlot] = []

    def receipt(self) -> ImportReceipt:
        """Imports everything; returns the counts."""
        self._import_hosts()
        self._import_properties()
        self._import_floating_ips()
        self._import_leases()
        self._import_lost()
        for finding in overbooked(self._capacities, self._host_names, self._usages):
            self._note(finding)
        for finding in overbooked_addresses(self._addresses):
            self._note(finding)
        return self._ledger.receipt()

    def _import_hosts(self) -> None:
        inventories: dict[str, list[Any]] = defaultdict(list)
        for row in self._peer.inventories():
            inventories[row.computehost_id].append(row)
        taken = []
        for one in hosts(self._peer.hosts(), inventories, self._peer.created_at):
            if isinstance(one, ImportFinding):
                self._note(one)
            else:
                taken.append(one)
        # Hosts that keep their id come first, so that a new id cannot equal one of theirs.
        for host in sorted(taken, key=lambda one: (one.host.id == 0, one.host.id)):
            self._import_host(host)
            self._count("computehosts")
            self._count("computehost_resource_inventory", len(inventories.pop(host.peer_id, ())))
        if self._connection is not None:
            host_store.after_given_ids(self._connection)
        for peer_id, rows in inventories.items():
            self._lost_host(f"{len(rows)} inventories", peer_id)
        for row in self._peer.traits():
            self._note(
                ImportFinding(
                    ImportFindingKind.READ_ANEW, str(row.id), f"trait {row.trait} of host {row.computehost_id}"
                )
            )

    def _import_host(self, one: ConvertedHost) -> None:
        host_id = one.host.id or max([0, *self._host_names]) + 1
        capacity = HostCapacity(host_id, one.capacity.capacity, one.capacity.largest)
        self._host_ids[one.peer_id] = host_id
        self._host_names[host_id] = one.host.hypervisor_hostname
        self._capacities.append(capacity)
        if self._connection is not None:
            host_store.insert_host(self._connection, one.host, host_id=host_id)
            host_store.set_capacity(self._connection, host_id, capacity)

    def _import_properties(self) -> None:
        names = {}
        for row in self._peer.properties():
            if row.resource_type == property_store.HOST_TYPE:
                names[row.id] = row.property_name
                self._count("resource_properties")
                if self._connection is not None:
                    created_at = self._peer.created_at(row)
                    private = bool(row.private)
                    property_store.insert_property(self._connection, row.id, row.property_name, private, created_at)
            else:
                text = f"property {row.property_name} of {row.resource_type}"
                self._note(ImportFinding(ImportFindingKind.OTHER_TYPE, str(row.id), text))
        for row in self._peer.capabilities():
            host_id = self._host_ids.get(row.computehost_id)
            if host_id is None or row.property_id not in names:
                self._lost_host(f"property {names.get(row.property_id, row.property_id)}", row.computehost_id)
                continue
            self._count("computehost_extra_capabilities")
            if self._connection is not None:
                values = {names[row.property_id]: row.capability_value}
                fresh = [self._ids.uuid(), row.id]
                property_store.set_extra(self._connection, host_id, values, fresh, self._peer.created_at(row))

    def _import_floating_ips(self) -> None:
        for one in floating_ips(self._peer.floating_ips(), self._times):
            if isinstance(one, ImportFinding):
                self._note(one)
                continue
            self._floating_ips[one.id] = one
            self._count("floatingips")
            if self._connection is not None:
                address_store.insert_floating_ip(self._connection, one)

    def _import_leases(self) -> None:
        converter = LeaseConverter(
            self._host_ids,
            self._floating_ips,
            self._times,
            self._ids.uuid,
            self._now,
            self._cleaning_time,
            has_network=self._has_network,
        )
        refused: list[UnsupportedReservation] = []
        for page in self._peer.leases():
            for peer_lease in page:
                for one in converter.convert(peer_lease):
                    match one:
                        case ImportFinding():
                            self._note(one)
                        case UnsupportedReservation():
                            refused.append(one)
                        case ConvertedLease():
                            self._import_lease(one)
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
        whole = sum(isinstance(each, HostRequest) for each in requests)
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
        if self._connection is not None:
            lease_store.insert_lease(self._connection, one.lease)
            host_store.insert_allocations(self._connection, one.slots, self._now)
            for slot in one.addresses:
                mine = {slot.id: slot.floating_ip}
                address_store.allocate(self._connection, slot.reservation_id, mine, slot.start, slot.end, self._now)

    def _import_lost(self) -> None:
        for table, row_id in self._peer.without_lease():
            self._note(
                ImportFinding(
                    ImportFindingKind.LOST_LEASE,
                    f"{table} {row_id}",
                    f"{table} {row_id}: its lease or reservation does not exist",
                )
            )

    def _lost_host(self, what: str, host_id: str) -> None:
        self._note(
            ImportFinding(ImportFindingKind.LOST_HOST, str(host_id), f"{what} of host {host_id}, which does not exist")
        )

    def _times(self, row: Any) -> tuple[datetime, datetime | None]:
        return self._peer.created_at(row), None if row.updated_at is None else self._peer.updated_at(row)
