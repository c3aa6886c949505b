"""The destination of an import: Moorage's tables and change log, filled in batches.

Callers use the peer's ids; the target assigns new ones.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection, Executable, Table, bindparam, insert, select, update

from moorage.db.engine import dialect_name
from moorage.placement.forest import change_entries
from moorage.placement.forest.model import Consumer, Inventory
from moorage.placement.importing.rules import Holdings, ImportedConsumer, ImportedProvider
from moorage.placement.store import change_store, name_store, provider_store
from moorage.placement.store.tables import (
    allocations,
    consumers,
    inventories,
    provider_aggregates,
    provider_traits,
    providers,
)

#: (peer's id, name, is standard, created at)
Name = tuple[int, str, bool, datetime]


_ROOTS = update(providers).where(providers.c.root_id == 0).values(root_id=providers.c.id)
_PROVIDER_IDS = select(providers.c.uuid, providers.c.id).where(providers.c.uuid.in_(bindparam("only", expanding=True)))
_CONSUMER_IDS = select(consumers.c.uuid, consumers.c.id).where(consumers.c.uuid.in_(bindparam("only", expanding=True)))


_UUIDS = select(providers.c.id, providers.c.uuid)


class ImportTarget:
    """Writes rows and an entry in the change log for each provider and consumer, in the caller's transaction.

    Call the methods in their order here, each any number of times; then `finish`.
    """

    def __init__(self, connection: Connection, now: datetime) -> None:
        self._connection = connection
        #: True if the database treats names as equal that differ only in trailing spaces.
        self.pads = dialect_name(connection) == "mariadb"
        self._log = change_store.ChangeLogWriter(connection, now)
        self._classes: dict[int, int] = {}
        self._class_names: dict[int, str] = {}
        self._traits: dict[int, int] = {}
        self._providers: dict[int, int] = {}
        self._uuids: dict[int, str] = {}

    def add_classes(self, names: Sequence[Name]) -> None:
        self._classes |= self._add_names(name_store.CLASSES, names)
        self._class_names |= {peer_id: name for peer_id, name, _, _ in names}

    def add_traits(self, names: Sequence[Name]) -> None:
        self._traits |= self._add_names(name_store.TRAITS, names)

    def _add_names(self, table: Table, names: Sequence[Name]) -> dict[int, int]:
        known = name_store.ids_of_names(self._connection, table, [name for _, name, _, _ in names])
        self._insert(
            table,
            [
                {"name": name, "standard": is_standard, "created_at": created_at}
                for _, name, is_standard, created_at in names
                if name not in known
            ],
        )
        # The standard names exist already; clients see their creation time, as `last-modified`.
        older = [{"wanted": name, "at": at} for _, name, _, at in names if name in known]
        if older:
            its_time = update(table).where(table.c.name == bindparam("wanted")).values(created_at=bindparam("at"))
            self._connection.execute(its_time, older)
        known = name_store.ids_of_names(self._connection, table, [name for _, name, _, _ in names])
        return {peer_id: known[name] for peer_id, name, _, _ in names}

    def add_providers(self, imported: Sequence[ImportedProvider]) -> None:
        """Providers of one depth; their parents must have been added before."""
        self._insert(
            providers,
            [
                {
                    "uuid": one.uuid,
                    "name": one.name,
                    "parent_id": None if one.parent_id is None else self._providers[one.parent_id],
                    "root_id": 0 if one.parent_id is None else self._providers[one.root_id],
                    "generation": one.generation,
                    "revision": 0,
                    "created_at": one.created_at,
                    "updated_at": one.updated_at,
                }
                for one in imported
            ],
        )
        self._connection.execute(_ROOTS)
        ids = self._ids(_PROVIDER_IDS, [one.uuid for one in imported])
        self._providers |= {one.id: ids[one.uuid] for one in imported}
        self._uuids |= {one.id: one.uuid for one in imported}

    def add_inventories(self, rows: Sequence[tuple[int, int, Inventory, datetime]]) -> None:
        """`rows`: (provider, class, inventory, time of the last change)."""
        self._insert(
            inventories,
            [
                {
                    "provider_id": self._providers[provider],
                    "class_id": self._classes[resource_class],
                    "total": inventory.total,
                    "reserved": inventory.reserved,
                    "min_unit": inventory.min_unit,
                    "max_unit": inventory.max_unit,
                    "step_size": inventory.step_size,
                    "allocation_ratio": inventory.allocation_ratio,
                    "updated_at": updated_at,
                }
                for provider, resource_class, inventory, updated_at in rows
            ],
        )

    def add_provider_traits(self, rows: Sequence[tuple[int, int]]) -> None:
        self._insert(
            provider_traits,
            [{"provider_id": self._providers[provider], "trait_id": self._traits[trait]} for provider, trait in rows],
        )

    def add_aggregates(self, rows: Sequence[tuple[int, str]]) -> None:
        self._insert(
            provider_aggregates,
            [{"provider_id": self._providers[provider], "aggregate": aggregate} for provider, aggregate in rows],
        )

    def add_consumers(self, imported: Sequence[tuple[ImportedConsumer, Holdings]]) -> None:
        self._insert(
            consumers,
            [
                {
                    "uuid": one.uuid,
                    "generation": one.generation,
                    "project_id": one.project,
                    "user_id": one.user,
                    "consumer_type": one.type,
                }
                for one, _ in imported
            ],
        )
        ids = self._ids(_CONSUMER_IDS, [one.uuid for one, _ in imported])
        self._insert(
            allocations,
            [
                {
                    "consumer_id": ids[one.uuid],
                    "provider_id": self._providers[provider],
                    "class_id": self._classes[resource_class],
                    "used": held.used,
                    "created_at": held.written_at,
                }
                for one, holdings in imported
                for (provider, resource_class), held in holdings.items()
            ],
        )
        self._log.add([self._consumer_entry(ids[one.uuid], one, holdings) for one, holdings in imported])

    def finish(self) -> None:
        """Writes the state of each provider to the change log, and an entry that makes running processes read
        everything again.
        """
        uuids: dict[int | None, str] = {row.id: row.uuid for row in self._connection.execute(_UUIDS)}
        known = name_store.name_table(self._connection)
        for part in provider_store.batches([self._providers[peer_id] for peer_id in self._uuids]):
            found = provider_store.some_providers(self._connection, known, part)
            self._log.add(
                [change_entries.provider_document(one, uuids.get(one.parent_id), uuids[one.root_id]) for one in found]
            )
        self._log.add([change_entries.EVERYTHING])

    def _consumer_entry(
        self, consumer_id: int, one: ImportedConsumer, holdings: Holdings
    ) -> change_entries.ChangeDocument:
        held: dict[str, dict[str, int]] = {}
        for (provider, resource_class), units in holdings.items():
            held.setdefault(self._uuids[provider], {})[self._class_names[resource_class]] = units.used
        consumer = Consumer(consumer_id, one.uuid, one.generation, one.project, one.user, one.type)
        return change_entries.consumer_document(consumer, held)

    def _ids(self, statement: Executable, uuids: Collection[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for part in provider_store.batches(uuids):
            found |= {row.uuid: row.id for row in self._connection.execute(statement, {"only": part})}
        return found

    def _insert(self, table: Table, rows: Sequence[Mapping[str, object]]) -> None:
        if rows:
            self._connection.execute(insert(table), rows)
