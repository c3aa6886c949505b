"""Reads an existing OpenStack Placement database: the tables of openstack-placement 16.0.0, with SELECT only.

One transaction reads one state, regardless of concurrent writers. It reads pages instead of keeping cursors open, so
the memory holds one page at a time.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import groupby

from sqlalchemy import (
    Column,
    DateTime,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    bindparam,
    select,
)
from sqlalchemy.schema import SchemaItem

from moorage.db import importing
from moorage.db.importing import PeerSchema
from moorage.db.types import ResultRow
from moorage.placement.importing.rules import PeerAllocation, PeerConsumer, PeerProvider

#: The peer's schema revisions, oldest first; the last one is that of openstack-placement 16.0.0 (since 8.0.0).
REVISIONS = ("b4ed3a175331", "611cd6dffd7b", "b5c396305c25", "422ece571366", "a082b8bb98d0")

#: Consumers per page; their allocations come with them.
PAGE = importing.FETCH_ROWS

_metadata = MetaData()


def _table(name: str, *columns: SchemaItem, key: str = "id") -> Table:
    times = (Column("created_at", DateTime), Column("updated_at", DateTime))
    keys = [Column(key, Integer, primary_key=True)] if key else []
    return Table(name, _metadata, *keys, *columns, *times)


_resource_classes = _table("resource_classes", Column("name", String))
_traits = _table("traits", Column("name", String))
_providers = _table(
    "resource_providers",
    Column("uuid", String),
    Column("name", String),
    Column("generation", Integer),
    Column("root_provider_id", Integer),
    Column("parent_provider_id", Integer),
)
_inventories = _table(
    "inventories",
    Column("resource_provider_id", Integer),
    Column("resource_class_id", Integer),
    Column("total", Integer),
    Column("reserved", Integer),
    Column("min_unit", Integer),
    Column("max_unit", Integer),
    Column("step_size", Integer),
    Column("allocation_ratio", Float),
)
_provider_traits = _table(
    "resource_provider_traits", Column("trait_id", Integer), Column("resource_provider_id", Integer), key=""
)
_aggregates = _table("placement_aggregates", Column("uuid", String))
_provider_aggregates = _table(
    "resource_provider_aggregates", Column("resource_provider_id", Integer), Column("aggregate_id", Integer), key=""
)
_projects = _table("projects", Column("external_id", String))
_users = _table("users", Column("external_id", String))
_consumer_types = _table("consumer_types", Column("name", String))
_consumers = _table(
    "consumers",
    Column("uuid", String),
    Column("project_id", Integer),
    Column("user_id", Integer),
    Column("generation", Integer),
    Column("consumer_type_id", Integer),
)
_allocations = _table(
    "allocations",
    Column("resource_provider_id", Integer),
    Column("consumer_id", String),
    Column("resource_class_id", Integer),
    Column("used", Integer),
)

_CONSUMERS = (
    select(
        _consumers.c.id,
        _consumers.c.uuid,
        _consumers.c.generation,
        _projects.c.external_id.label("project"),
        _users.c.external_id.label("user"),
        _consumer_types.c.name.label("type"),
        _consumers.c.consumer_type_id,
    )
    .select_from(_consumers)
    .outerjoin(_projects, _projects.c.id == _consumers.c.project_id)
    .outerjoin(_users, _users.c.id == _consumers.c.user_id)
    .outerjoin(_consumer_types, _consumer_types.c.id == _consumers.c.consumer_type_id)
    .where(_consumers.c.id > bindparam("after"))
    .order_by(_consumers.c.id)
    .limit(PAGE)
)
_ALLOCATIONS_OF_CONSUMERS = (
    select(_consumers.c.id.label("consumer"), _allocations)
    .join(_consumers, _allocations.c.consumer_id == _consumers.c.uuid)
    .where(_consumers.c.id > bindparam("after"), _consumers.c.id <= bindparam("last"))
    .order_by(_consumers.c.id, _allocations.c.id)
)
_ALLOCATIONS_WITHOUT_CONSUMER = (
    select(_allocations)
    .outerjoin(_consumers, _allocations.c.consumer_id == _consumers.c.uuid)
    .where(_consumers.c.id.is_(None))
    .order_by(_allocations.c.consumer_id, _allocations.c.id)
)


_SCHEMA = PeerSchema(
    _metadata,
    needed="resource_providers",
    revisions=REVISIONS,
    no_database=(
        "OpenStack Placement: use the URL of [placement_database] connection in placement.conf (before Stein, "
        "Placement's tables were in nova_api: upgrade it first)"
    ),
    older=(
        "Placement; run `placement-manage db sync` and `placement-manage db online_data_migrations` of a release from "
        "8.0 to 16.0 on it, then import it"
    ),
    newest="openstack-placement 16.0.0",
)


def open_placement_database(url: str, now: datetime) -> AbstractContextManager["PlacementDatabase"]:
    """See `moorage.db.importing.open_peer_database`."""
    return importing.open_peer_database(url, lambda connection: PlacementDatabase(connection, _SCHEMA, now))


class PlacementDatabase(importing.PeerDatabase):
    def classes(self) -> list[ResultRow]:
        """Rows with id, name and times; those of `traits` have the same columns."""
        return self._all_rows(_resource_classes)

    def traits(self) -> list[ResultRow]:
        return self._all_rows(_traits)

    def providers(self) -> list[PeerProvider]:
        return [
            PeerProvider(
                id=row.id,
                uuid=row.uuid,
                name=row.name,
                generation=row.generation,
                root_id=row.root_provider_id,
                parent_id=row.parent_provider_id,
                created_at=self.created_at(row),
                updated_at=self.updated_at(row),
            )
            for row in self._all_rows(_providers)
        ]

    def inventories(self) -> Iterator[ResultRow]:
        return self._stream_rows(select(_inventories).order_by(_inventories.c.resource_provider_id, _inventories.c.id))

    def provider_traits(self) -> Iterator[tuple[int, int]]:
        """(provider, trait)"""
        for row in self._stream_rows(select(_provider_traits)):
            yield row.resource_provider_id, row.trait_id

    def aggregates(self) -> dict[int, str | None]:
        """{id: uuid}"""
        return {row.id: row.uuid for row in self._all_rows(_aggregates)}

    def provider_aggregates(self) -> Iterator[tuple[int, int]]:
        """(provider, aggregate)"""
        for row in self._stream_rows(select(_provider_aggregates)):
            yield row.resource_provider_id, row.aggregate_id

    def owners(self) -> Iterator[tuple[str, str]]:
        """(table, name) of all projects, users and consumer types."""
        for table, name in (
            (_projects, _projects.c.external_id),
            (_users, _users.c.external_id),
            (_consumer_types, _consumer_types.c.name),
        ):
            for row in self._stream_rows(select(name).order_by(table.c.id)):
                yield table.name, str(row[0])

    def consumers(self) -> Iterator[list[tuple[PeerConsumer, list[PeerAllocation]]]]:
        """Yields pages of (consumer, its allocations), by id."""
        after = 0
        while rows := self._connection.execute(_CONSUMERS, {"after": after}).all():
            last = rows[-1].id
            held: dict[int, list[PeerAllocation]] = {}
            for row in self._connection.execute(_ALLOCATIONS_OF_CONSUMERS, {"after": after, "last": last}):
                held.setdefault(row.consumer, []).append(self._allocation(row))
            yield [
                (
                    PeerConsumer(
                        row.id, row.uuid, row.generation, row.project, row.user, row.type, row.consumer_type_id
                    ),
                    held.get(row.id, []),
                )
                for row in rows
            ]
            after = last

    def allocations_without_consumer(self) -> Iterator[tuple[str, list[PeerAllocation]]]:
        """Yields (uuid, allocations) of consumers without a row of their own."""
        for uuid, rows in groupby(
            self._stream_rows(_ALLOCATIONS_WITHOUT_CONSUMER), key=lambda row: str(row.consumer_id)
        ):
            yield uuid, [self._allocation(row) for row in rows]

    def _allocation(self, row: ResultRow) -> PeerAllocation:
        return PeerAllocation(row.resource_provider_id, row.resource_class_id, row.used, self.updated_at(row))
