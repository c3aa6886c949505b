"""Imports an existing OpenStack Placement database: everything in one transaction, or nothing.

The import keeps uuids, names, generations and times; the target assigns new ids. `rules` decides about each row,
`placement_db` reads, `target` writes. The memory holds all providers with their inventories, and one page of consumers.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import TypeVar

import os_resource_classes
import os_traits
from sqlalchemy import Connection, Engine

from moorage.core.import_findings import ImportFinding, ImportOutcome
from moorage.db.importing import INSERT_ROWS, Importer, ImportListener, ImportReceipt, PeerImport, batched
from moorage.placement.forest.model import Inventory
from moorage.placement.importing import rules
from moorage.placement.importing.placement_db import PlacementDatabase, open_placement_database
from moorage.placement.importing.rules import Holdings, ImportedConsumer, PeerAllocation, PlacementFindingKind
from moorage.placement.importing.target import ImportTarget, Name
from moorage.placement.store.tables import consumers, providers

T = TypeVar("T")


IMPORTER = Importer(
    feature="placement",
    open_peer=open_placement_database,
    kinds=PlacementFindingKind,
    target_tables=(providers, consumers),
    not_empty="{where} has {providers} providers and {consumers} consumers already; an import goes into an empty "
    "database: set [database] placement to a new one, or delete this one first",
)


def import_placement(
    target: Engine | None, peer: PlacementDatabase, now: datetime, listener: ImportListener
) -> ImportReceipt:
    """Imports all of `peer`; rehearses it if `target` is None. See `Importer.run`.

    `target` must have the schema and the standard names (`PlacementService.start`).
    """

    def begin(connection: Connection | None) -> _Import:
        return _Import(peer, None if connection is None else ImportTarget(connection, now), listener)

    return IMPORTER.run(target, begin)


class _Import(PeerImport[PlacementDatabase, ImportTarget]):
    def __init__(self, peer: PlacementDatabase, target: ImportTarget | None, listener: ImportListener) -> None:
        super().__init__(peer, target, listener)
        self._class_names: dict[int, str] = {}
        self._trait_ids: set[int] = set()
        self._provider_names: dict[int, str] = {}
        self._inventories: dict[tuple[int, int], Inventory] = {}
        self._used: dict[tuple[int, int], int] = {}
        #: {table of the peer: names that a consumer refers to}
        self._owners: dict[str, set[str]] = {"projects": set(), "users": set(), "consumer_types": set()}

    def import_rows(self) -> None:
        self._import_names()
        self._import_providers()
        self._import_inventories()
        self._import_traits()
        self._import_aggregates()
        self._import_consumers()
        self._import_allocations_without_consumer()
        self._check_owners()
        self._check_capacity()
        self._write(ImportTarget.finish)

    # --- names and providers ------------------------------------------------------------------------------------

    def _import_names(self) -> None:
        classes = list(self._names("resource_classes", frozenset(os_resource_classes.STANDARDS)))
        self._class_names = {peer_id: name for peer_id, name, _, _ in classes}
        self._write(ImportTarget.add_classes, classes)
        traits = list(self._names("traits", frozenset(os_traits.get_traits())))
        self._trait_ids = {peer_id for peer_id, _, _, _ in traits}
        self._write(ImportTarget.add_traits, traits)

    def _names(self, table: str, standard: frozenset[str]) -> Iterator[Name]:
        for row in self._peer.classes() if table == "resource_classes" else self._peer.traits():
            if finding := rules.name_finding(table, row.name, is_standard=row.name in standard):
                self._record(finding)
                if finding.outcome is ImportOutcome.LEFT_OUT:
                    continue
            self._count(table)
            yield row.id, row.name, not row.name.startswith("CUSTOM_"), self._peer.created_at(row)

    def _import_providers(self) -> None:
        pads = self._target is not None and self._target.pads
        imported = list(self._accepted(rules.imported_providers(self._peer.providers(), pads=pads)))
        self._provider_names = {one.id: one.name for one in imported}
        for _, level in groupby(imported, key=lambda one: one.depth):
            self._write_batches("resource_providers", ImportTarget.add_providers, level)

    def _import_inventories(self) -> None:
        self._write_batches("inventories", ImportTarget.add_inventories, self._accepted(self._inventory_rows()))

    def _inventory_rows(self) -> Iterator[tuple[int, int, Inventory, datetime] | ImportFinding]:
        for row in self._peer.inventories():
            provider = self._provider_names.get(row.resource_provider_id)
            name = self._class_names.get(row.resource_class_id)
            where = f"inventory {row.id}"
            if provider is None:
                text = f"{where}: provider {row.resource_provider_id} does not exist"
                yield ImportFinding(PlacementFindingKind.LOST_PROVIDER, where, text)
                continue
            if name is None:
                text = f"{where} of {provider}: resource class {row.resource_class_id} does not exist"
                yield ImportFinding(PlacementFindingKind.LOST_CLASS, where, text)
                continue
            inventory = Inventory(
                row.total, row.reserved, row.min_unit, row.max_unit, row.step_size, row.allocation_ratio
            )
            yield from rules.inventory_findings(provider, name, inventory)
            self._inventories[row.resource_provider_id, row.resource_class_id] = inventory
            yield row.resource_provider_id, row.resource_class_id, inventory, self._peer.updated_at(row)

    def _import_traits(self) -> None:
        table = "resource_provider_traits"
        rows = ((provider, trait, trait if trait in self._trait_ids else None)
                for provider, trait in self._peer.provider_traits())  # fmt: skip
        self._write_batches(
            table, ImportTarget.add_provider_traits, self._accepted(self._references(table, "trait", rows))
        )

    def _import_aggregates(self) -> None:
        table = "resource_provider_aggregates"
        uuids = self._peer.aggregates()
        rows = ((provider, aggregate, uuids.get(aggregate)) for provider, aggregate in self._peer.provider_aggregates())
        used: set[str] = set()
        for batch in batched(self._accepted(self._references(table, "aggregate", rows))):
            used |= {aggregate for _, aggregate in batch}
            self._write(ImportTarget.add_aggregates, batch)
            self._count(table, len(batch))
        self._count("placement_aggregates", len(used))
        for uuid in uuids.values():
            if uuid not in used:
                self._record(ImportFinding(PlacementFindingKind.UNUSED, str(uuid), f"aggregate {uuid}"))

    def _references(
        self, table: str, what: str, rows: Iterable[tuple[int, int, T | None]]
    ) -> Iterator[tuple[int, T] | ImportFinding]:
        """`rows`: provider, id in the peer's database, and the object with that id, if it exists."""
        for provider, peer_id, found in rows:
            if provider not in self._provider_names:
                text = f"{what} {peer_id} of provider {provider}, which does not exist"
                yield ImportFinding(PlacementFindingKind.LOST_PROVIDER, table, text)
            elif found is None:
                name = self._provider_names[provider]
                yield ImportFinding(PlacementFindingKind.LOST_NAME, name, f"{what} {peer_id} of {name} does not exist")
            else:
                yield provider, found

    # --- consumers ----------------------------------------------------------------------------------------------

    def _import_consumers(self) -> None:
        for page in self._peer.consumers():
            imported: list[tuple[ImportedConsumer, Holdings]] = []
            for row, allocations in page:
                held = self._holdings(row.uuid, allocations)
                for consumer in self._accepted(rules.imported_consumer(row, allocations, held)):
                    imported.append((consumer, held))
                    self._count_consumer(consumer, allocations, held)
            self._write(ImportTarget.add_consumers, imported)
            self._count("consumers", len(imported))

    def _import_allocations_without_consumer(self) -> None:
        for batch in batched(self._peer.allocations_without_consumer(), INSERT_ROWS // 10):
            imported: list[tuple[ImportedConsumer, Holdings]] = []
            for uuid, allocations in batch:
                held = self._holdings(uuid, allocations)
                for consumer in self._accepted(rules.consumer_without_row(uuid, held)):
                    imported.append((consumer, held))
                    self._count_consumer(consumer, allocations, held)
            self._write(ImportTarget.add_consumers, imported)

    def _holdings(self, uuid: str, allocations: list[PeerAllocation]) -> Holdings:
        held, findings = rules.imported_allocations(uuid, allocations, self._provider_names, self._class_names)
        for finding in findings:
            self._record(finding)
        return held

    def _count_consumer(self, consumer: ImportedConsumer, allocations: list[PeerAllocation], held: Holdings) -> None:
        self._owners["projects"].add(consumer.project)
        self._owners["users"].add(consumer.user)
        if consumer.type is not None:
            self._owners["consumer_types"].add(consumer.type)
        for place, one in held.items():
            self._used[place] = self._used.get(place, 0) + one.used
        self._count("allocations", sum((row.provider_id, row.class_id) in held for row in allocations))

    # --- at the end ---------------------------------------------------------------------------------------------

    def _check_owners(self) -> None:
        for table, name in self._peer.owners():
            if name in self._owners[table]:
                self._count(table)
            else:
                kind = table.removesuffix("s").replace("_", " ")
                self._record(ImportFinding(PlacementFindingKind.UNUSED, name, f"{kind} {name}"))

    def _check_capacity(self) -> None:
        for place, used in self._used.items():
            provider, resource_class = place
            names = self._provider_names[provider], self._class_names[resource_class]
            if finding := rules.capacity_finding(*names, self._inventories.get(place), used):
                self._record(finding)
