"""Providers: creating, moving and deleting them, and setting what they offer.

Reads are answered from the snapshot. Writes lock the provider's row, check the generation that the client gave,
and move `generation` (the peer's rules) and `revision` (always).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Row

from moorage.core.clock import Clock
from moorage.core.errors import ConcurrentUpdate, Conflict, Invalid, NotFound
from moorage.core.ids import Ids
from moorage.placement import inventory_writes, store, store_names
from moorage.placement.forest import Forest
from moorage.placement.model import Inventory, Name, Provider
from moorage.placement.snapshot import Snapshot
from moorage.placement.writing import CONCURRENT_UPDATE, Writer, Written, locked

DUPLICATE_NAME = "placement.duplicate_name"
IN_USE = "placement.resource_provider.inuse"
HAS_CHILDREN = "placement.resource_provider.cannot_delete_parent"


@dataclass(frozen=True, slots=True)
class Kept:
    """A provider with the uuids around it, as the API shows it."""

    provider: Provider
    parent_uuid: str | None
    root_uuid: str


def kept(forest: Forest, provider: Provider) -> Kept:
    parent = forest.by_id(provider.parent_id) if provider.parent_id is not None else None
    root = forest.by_id(provider.root_id)
    return Kept(provider, None if parent is None else parent.uuid, provider.uuid if root is None else root.uuid)


class ProviderService:
    def __init__(self, engine: Engine, snapshot: Snapshot, writer: Writer, clock: Clock, ids: Ids) -> None:
        self._engine = engine
        self._snapshot = snapshot
        self._writer = writer
        self._clock = clock
        self._ids = ids

    # --- reading ------------------------------------------------------------------------------------------------

    def forest(self) -> Forest:
        return self._snapshot.current()

    def show(self, uuid: str) -> Kept:
        forest = self._snapshot.current()
        return kept(forest, self._found(forest, uuid))

    def get(self, uuid: str) -> Provider:
        return self._found(self._snapshot.current(), uuid)

    def check_generation(self, uuid: str, generation: int, message: str) -> None:
        """Early, before the request is looked at further; the write checks again under the lock."""
        if self.get(uuid).generation != generation:
            raise ConcurrentUpdate(message, code=CONCURRENT_UPDATE)

    def _found(self, forest: Forest, uuid: str) -> Provider:
        provider = forest.by_uuid(uuid)
        if provider is None:
            raise NotFound(f"No resource provider with uuid {uuid} found")
        return provider

    # --- the tree -----------------------------------------------------------------------------------------------

    def create(self, name: str, uuid: str | None, parent_uuid: str | None) -> Kept:
        new_uuid = uuid or self._ids.uuid()

        def refused(reason: str) -> Invalid:
            return Invalid(
                f'Unable to create resource provider "{name}", {new_uuid}: '
                f"Object action create failed because: {reason}"
            )

        def work(connection: Connection) -> Written[None]:
            if not name:
                raise refused("name is required")
            if parent_uuid == new_uuid:
                raise refused(
                    "parent provider UUID cannot be same as UUID. Please set parent provider UUID to None if "
                    "there is no parent."
                )
            parent = None if parent_uuid is None else store.lock_provider(connection, parent_uuid)
            if parent_uuid is not None and parent is None:
                raise refused("parent provider UUID does not exist.")
            _check_unique(connection, name, new_uuid)
            provider_id = store.insert_provider(
                connection,
                new_uuid,
                name,
                None if parent is None else parent.id,
                None if parent is None else parent.root_id,
                self._clock.now(),
            )
            return Written(None, (provider_id,))

        self._writer.run(work)
        return self.show(new_uuid)

    def update(self, uuid: str, name: str, parent_uuid: str | None, *, parent_given: bool, may_move: bool) -> Kept:
        """Rename, and set the parent where it is given. `may_move`: from 1.37 on it may also change or go."""

        def work(connection: Connection) -> Written[None]:
            row = locked(connection, uuid)
            parent_id, root_id, moved = row.parent_id, row.root_id, set[int]()
            if parent_given:
                parent_id, root_id, moved = _new_place(connection, row, parent_uuid, may_move=may_move)
            if store.name_taken(connection, name, but=row.id):
                raise Conflict(f"Conflicting resource provider {name} already exists.", code=DUPLICATE_NAME)
            store.update_provider(connection, row.id, name, parent_id, root_id)
            store.set_root(connection, moved - {row.id}, root_id)
            store.bump(connection, row.id, self._clock.now(), generations=0)
            return Written(None, {row.id, *moved})

        self._writer.run(work)
        return self.show(uuid)

    def delete(self, uuid: str) -> None:
        def work(connection: Connection) -> Written[None]:
            row = locked(connection, uuid, f"No resource provider with uuid {uuid} found for delete")
            if store.has_children(connection, row.id):
                raise Conflict(
                    f"Unable to delete parent resource provider {uuid}: It has child resource providers.",
                    code=HAS_CHILDREN,
                )
            if store.holds_allocations(connection, row.id):
                raise Conflict(
                    f"Unable to delete resource provider {uuid}: Resource provider has allocations.", code=IN_USE
                )
            store.delete_provider(connection, row.id)
            return Written(None, (row.id,))

        self._writer.run(work)

    # --- inventories --------------------------------------------------------------------------------------------

    def set_inventories(self, uuid: str, generation: int | None, wanted: Mapping[str, Inventory]) -> Provider:
        """Replace them all. `generation` None: whatever it is now."""

        def work(connection: Connection, row: Row[Any]) -> None:
            inventory_writes.replace_all(connection, row.id, uuid, wanted, self._clock.now())

        return self._change(uuid, generation, "resource provider generation conflict", work)

    def add_inventory(self, uuid: str, name: str, inventory: Inventory) -> Provider:
        def work(connection: Connection, row: Row[Any]) -> None:
            inventory_writes.add(connection, row.id, uuid, name, inventory, self._clock.now())

        return self._change(uuid, None, "", work)

    def update_inventory(self, uuid: str, generation: int, name: str, inventory: Inventory) -> Provider:
        def work(connection: Connection, row: Row[Any]) -> None:
            inventory_writes.update(connection, row.id, uuid, name, inventory, self._clock.now())

        return self._change(uuid, generation, "resource provider generation conflict", work)

    def delete_inventory(self, uuid: str, name: str) -> None:
        def work(connection: Connection, row: Row[Any]) -> None:
            inventory_writes.remove(connection, row.id, uuid, name)

        self._change(uuid, None, "", work)

    # --- traits and aggregates ----------------------------------------------------------------------------------

    def set_traits(self, uuid: str, generation: int | None, names: Collection[str]) -> tuple[Provider, list[Name]]:
        """The provider as it is then, and its traits in full."""
        wanted: list[Name] = []

        def work(connection: Connection, row: Row[Any]) -> bool:
            wanted[:] = store_names.every(connection, store_names.TRAITS, among=set(names))
            if missing := sorted(set(names).difference(name.name for name in wanted)):
                raise Invalid(f"No such trait {', '.join(missing)}")
            ids = {name.id for name in wanted}
            present = store.trait_ids_of(connection, row.id)
            store.remove_traits(connection, row.id, present - ids)
            store.add_traits(connection, row.id, ids - present)
            return ids != present

        provider = self._change(uuid, generation, _STALE, work)
        return provider, wanted

    def set_aggregates(self, uuid: str, generation: int | None, aggregates: Collection[str]) -> Provider:
        """`generation` None: the form before 1.19, which does not move the provider's generation."""

        def work(connection: Connection, row: Row[Any]) -> None:
            store.set_aggregates(connection, row.id, set(aggregates))

        return self._change(uuid, generation, _STALE, work, generations=0 if generation is None else 1)

    def _change(
        self,
        uuid: str,
        generation: int | None,
        stale: str,
        work: Callable[[Connection, Row[Any]], bool | None],
        *,
        generations: int = 1,
    ) -> Provider:
        """One change of one provider; the provider as it is then. `work` answers False where nothing changed."""

        def change(connection: Connection) -> Written[Provider]:
            row = locked(connection, uuid)
            if generation is not None and row.generation != generation:
                raise ConcurrentUpdate(stale, code=CONCURRENT_UPDATE)
            changed = work(connection, row) is not False
            if changed:
                store.bump(connection, row.id, self._clock.now(), generations=generations)
            (provider,) = store.some_providers(connection, (row.id,))
            return Written(provider, (row.id,) if changed else (), {row.id: provider})

        return self._writer.run(change)


_STALE = "Resource provider's generation already changed. Please update the generation and try again."


def _check_unique(connection: Connection, name: str, uuid: str) -> None:
    """Of two duplicates the uuid is named, as the peer's databases do."""
    if store.find_provider(connection, uuid) is not None:
        duplicate = f"uuid: {uuid}"
    elif store.name_taken(connection, name):
        duplicate = f"name: {name}"
    else:
        return
    raise Conflict(f"Conflicting resource provider {duplicate} already exists.", code=DUPLICATE_NAME)


def _new_place(
    connection: Connection, row: Row[Any], parent_uuid: str | None, *, may_move: bool
) -> tuple[int | None, int, set[int]]:
    """(parent id, root id, ids of the subtree that moves along)."""

    def refused(reason: str, action: str = "update") -> Invalid:
        return Invalid(f"Unable to save resource provider {row.uuid}: Object action {action} failed because: {reason}")

    if parent_uuid is None:
        if row.parent_id is None:
            return None, row.root_id, set()
        if not may_move:
            raise refused("un-parenting a provider is not currently allowed.")
        return None, row.id, _subtree(store.parents_in_tree(connection, row.root_id), row.id)
    parent = store.lock_provider(connection, parent_uuid)
    if parent is None:
        raise refused("parent provider UUID does not exist.", "create")
    if row.parent_id not in (None, parent.id) and not may_move:
        raise refused("re-parenting a provider is not currently allowed.")
    moved = _subtree(store.parents_in_tree(connection, row.root_id), row.id)
    if parent.id in moved:
        raise refused("creating loop in the provider tree is not allowed.")
    return parent.id, parent.root_id, moved


def _subtree(parents: Mapping[int, int | None], top: int) -> set[int]:
    """`top` and all below it."""
    found = {top}
    grown = True
    while grown:
        more = {child for child, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found
