"""Reads an existing Blazar database: the tables of Blazar 18.0.0, with SELECT only.

Columns that are nullable in its schema may be None here. Leases are read in pages, so memory is limited to all hosts
and one page of leases.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from datetime import datetime

from sqlalchemy import Boolean, Column, DateTime, Float, Integer, MetaData, String, Table, Text, select
from sqlalchemy.schema import SchemaItem

from moorage.db import importing
from moorage.db.importing import PeerSchema
from moorage.db.types import ResultRow
from moorage.reservation.importing.rules.leases import PeerLease, PeerReservation

#: Blazar's schema revisions, oldest first; the last one is that of Blazar 18.0.0.
REVISIONS = (
    "0_1",
    "10e34bba18e8",
    "2bcfe76b0474",
    "23d6240b51b2",
    "1fd6c2eded89",
    "7f1a7bbb2cd2",
    "8805be233864",
    "ba75b766b64e",
    "6bfd1c23aa18",
    "97d2cad1504e",
    "e66f199a5414",
    "75a74e4539cb",
    "c0ae6b08b0d7",
    "35b314cd39ee",
    "9593f3656974",
    "e069c014356d",
    "f4084140f608",
    "02e2f2186d98",
    "553383923ca0",
)

#: Leases per page, which includes their reservations, events and allocations.
PAGE = 500

_metadata = MetaData()


def _table(name: str, *columns: SchemaItem) -> Table:
    times = (Column("created_at", DateTime), Column("updated_at", DateTime))
    return Table(name, _metadata, Column("id", String, primary_key=True), *columns, *times)


_hosts = _table(
    "computehosts",
    Column("vcpus", Integer),
    Column("cpu_info", Text),
    Column("hypervisor_type", Text),
    Column("hypervisor_version", Integer),
    Column("hypervisor_hostname", String),
    Column("service_name", String),
    Column("memory_mb", Integer),
    Column("local_gb", Integer),
    Column("status", String),
    Column("availability_zone", String),
    Column("trust_id", String),
    Column("reservable", Boolean),
)
_properties = _table(
    "resource_properties",
    Column("resource_type", String),
    Column("property_name", String),
    Column("private", Boolean),
)
_capabilities = _table(
    "computehost_extra_capabilities",
    Column("computehost_id", String),
    Column("property_id", String),
    Column("capability_value", Text),
)
_inventories = _table(
    "computehost_resource_inventory",
    Column("computehost_id", String),
    Column("resource_class", String),
    Column("total", Integer),
    Column("reserved", Integer),
    Column("max_unit", Integer),
    Column("allocation_ratio", Float),
)
_traits = _table("computehost_trait", Column("computehost_id", String), Column("trait", String))
_leases = _table(
    "leases",
    Column("name", String),
    Column("user_id", String),
    Column("project_id", String),
    Column("start_date", DateTime),
    Column("end_date", DateTime),
    Column("trust_id", String),
    Column("status", String),
    Column("degraded", Boolean),
)
_reservations = _table(
    "reservations",
    Column("lease_id", String),
    Column("resource_id", String),
    Column("resource_type", String),
    Column("status", String),
    Column("missing_resources", Boolean),
    Column("resources_changed", Boolean),
)
_instances = _table(
    "instance_reservations",
    Column("reservation_id", String),
    Column("vcpus", Integer),
    Column("memory_mb", Integer),
    Column("disk_gb", Integer),
    Column("amount", Integer),
    Column("affinity", Boolean),
    Column("resource_properties", Text),
    Column("flavor_id", String),
    Column("aggregate_id", Integer),
    Column("server_group_id", String),
)
_host_reservations = _table(
    "computehost_reservations",
    Column("reservation_id", String),
    Column("aggregate_id", Integer),
    Column("resource_properties", Text),
    Column("count_range", String),
    Column("hypervisor_properties", Text),
    Column("before_end", String),
)
_events = _table(
    "events",
    Column("lease_id", String),
    Column("event_type", String),
    Column("time", DateTime),
    Column("status", String),
)
_allocations = _table("computehost_allocations", Column("compute_host_id", String), Column("reservation_id", String))
_floating_ips = _table(
    "floatingips",
    Column("floating_network_id", String),
    Column("subnet_id", String),
    Column("floating_ip_address", String),
    Column("reservable", Boolean),
)
_floating_ip_reservations = _table(
    "floatingip_reservations",
    Column("reservation_id", String),
    Column("network_id", String),
    Column("amount", Integer),
)
_required = _table("required_floatingips", Column("floatingip_reservation_id", String), Column("address", String))
_addresses = _table("floatingip_allocations", Column("floatingip_id", String), Column("reservation_id", String))

_SCHEMA = PeerSchema(
    _metadata,
    needed="computehosts",
    revisions=REVISIONS,
    no_database="Blazar: use the URL of [database] connection in blazar.conf",
    older="Blazar; run `blazar-db-manage upgrade head` of release 18 on it, then import it",
    newest="Blazar 18.0.0",
)


def open_blazar_database(url: str, now: datetime) -> AbstractContextManager["BlazarDatabase"]:
    """See `moorage.db.importing.open_peer_database`."""
    return importing.open_peer_database(url, lambda connection: BlazarDatabase(connection, _SCHEMA, now))


class BlazarDatabase(importing.PeerDatabase):
    """The rows of a Blazar database. Their times are UTC without a zone."""

    def hosts(self) -> list[ResultRow]:
        return self._all_rows(_hosts)

    def properties(self) -> list[ResultRow]:
        return self._all_rows(_properties)

    def capabilities(self) -> list[ResultRow]:
        return self._all_rows(_capabilities)

    def inventories(self) -> list[ResultRow]:
        return self._all_rows(_inventories)

    def traits(self) -> list[ResultRow]:
        return self._all_rows(_traits)

    def floating_ips(self) -> list[ResultRow]:
        return self._all_rows(_floating_ips)

    def leases(self) -> Iterator[list[PeerLease]]:
        """All leases in pages, ordered by id, with their reservations and events (oldest first)."""
        after = ""
        page = select(_leases).order_by(_leases.c.id).limit(PAGE)
        while rows := self._connection.execute(page.where(_leases.c.id > after)).all():
            ids = [row.id for row in rows]
            reservations = self._reservations(ids)
            events = self._by(_events, _events.c.lease_id, ids)
            yield [PeerLease(row, tuple(reservations[row.id]), tuple(events[row.id])) for row in rows]
            after = ids[-1]

    def without_lease(self) -> Iterator[tuple[str, str]]:
        """(table, id) of rows that refer to a missing lease or reservation."""
        for table, reference, other in (
            (_reservations, _reservations.c.lease_id, _leases),
            (_events, _events.c.lease_id, _leases),
            (_instances, _instances.c.reservation_id, _reservations),
            (_host_reservations, _host_reservations.c.reservation_id, _reservations),
            (_allocations, _allocations.c.reservation_id, _reservations),
            (_floating_ip_reservations, _floating_ip_reservations.c.reservation_id, _reservations),
            (_required, _required.c.floatingip_reservation_id, _floating_ip_reservations),
            (_addresses, _addresses.c.reservation_id, _reservations),
        ):
            lost = select(table.c.id).outerjoin(other, other.c.id == reference).where(other.c.id.is_(None))
            for row in self._stream_rows(lost.order_by(table.c.id)):
                yield table.name, row.id

    def _reservations(self, lease_ids: Collection[str]) -> dict[str, list[PeerReservation]]:
        of_leases = self._by(_reservations, _reservations.c.lease_id, lease_ids)
        ids = [row.id for rows in of_leases.values() for row in rows]
        instances = self._by(_instances, _instances.c.reservation_id, ids)
        hosts = self._by(_host_reservations, _host_reservations.c.reservation_id, ids)
        slots = self._by(_allocations, _allocations.c.reservation_id, ids)
        networks = self._by(_floating_ip_reservations, _floating_ip_reservations.c.reservation_id, ids)
        of_network = [row.id for rows in networks.values() for row in rows]
        required = self._by(_required, _required.c.floatingip_reservation_id, of_network)
        addresses = self._by(_addresses, _addresses.c.reservation_id, ids)
        found: dict[str, list[PeerReservation]] = defaultdict(list)
        for lease_id, rows in of_leases.items():
            found[lease_id] = [
                PeerReservation(
                    row,
                    tuple(instances[row.id]),
                    tuple(hosts[row.id]),
                    tuple(slots[row.id]),
                    tuple(networks[row.id]),
                    tuple(each.address for network in networks[row.id] for each in required[network.id]),
                    tuple(addresses[row.id]),
                )
                for row in rows
            ]
        return found

    def _by(self, table: Table, key: Column[str], ids: Collection[str]) -> defaultdict[str, list[ResultRow]]:
        """{value of `key`: its rows, oldest first}, for the values `ids`"""
        found: defaultdict[str, list[ResultRow]] = defaultdict(list)
        if ids:
            # Oldest first. Blazar reads them in the order of database pages, which cannot be reproduced.
            statement = select(table).where(key.in_(ids)).order_by(table.c.created_at, table.c.id)
            for row in self._connection.execute(statement):
                found[getattr(row, key.name)].append(row)
        return found
