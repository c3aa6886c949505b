"""Resource classes and traits: standard ones are built in, custom ones are created and deleted."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection, Table

from moorage.core.errors import Conflict, Invalid, NotFound
from moorage.placement.forest import change_entries
from moorage.placement.forest.model import Name, NameTable
from moorage.placement.service.deps import PlacementDeps
from moorage.placement.store import name_store
from moorage.placement.store.name_store import CLASSES, TRAITS
from moorage.placement.sync.committer import TransactionResult


@dataclass(frozen=True)
class NameService:
    deps: PlacementDeps

    # --- resource classes ---------------------------------------------------------------------------------------

    def classes(self) -> list[Name]:
        """All resource classes, by id."""
        return sorted(self._name_table().classes.values(), key=lambda one: one.id)

    def resource_class(self, name: str) -> Name:
        return _existing_name(self._name_table().classes, name, f"No such resource class {name}.")

    def create_class(self, name: str) -> None:
        if not self._ensure(CLASSES, name)[1]:
            raise Conflict(f"Conflicting resource class already exists: {name}")

    def ensure_class(self, name: str) -> bool:
        """Returns True if the class was created, False if it existed."""
        return self._ensure(CLASSES, name)[1]

    def rename_class(self, name: str, new_name: str) -> None:
        """The request until 1.6. Inventories and allocations stay with the class."""

        def rename(connection: Connection) -> TransactionResult[None]:
            found = name_store.find_name(connection, CLASSES, name, lock=True)
            if found is None:
                raise NotFound(f"No such resource class {name}.")
            if found.standard:
                raise Invalid(f"Cannot update standard resource class {name}")
            if new_name != name and name_store.find_name(connection, CLASSES, new_name) is not None:
                raise Conflict(f"Resource class already exists: {new_name}")
            name_store.rename_name(connection, CLASSES, found.id, new_name)
            return TransactionResult(None, tuple(name_store.rename_entries(connection, found.id)))

        self.deps.committer.run_transaction(rename)

    def delete_class(self, name: str) -> None:
        def delete(connection: Connection) -> TransactionResult[None]:
            found = name_store.find_name(connection, CLASSES, name, lock=True)
            if found is None:
                raise NotFound(f"No such resource class {name}.")
            if found.standard:
                raise Invalid(f"Error in delete resource class: Cannot delete standard resource class {name}.")
            if name_store.class_in_use(connection, found.id):
                raise Conflict(
                    f"Error in delete resource class: Cannot delete resource class {name}. Class is in use in "
                    "inventory."
                )
            name_store.remove_name(connection, CLASSES, found.id)
            return TransactionResult(
                None, (change_entries.NAMES,), partial(name_store.without_name, table=CLASSES, name=found)
            )

        self.deps.committer.run_transaction(delete)

    # --- traits -------------------------------------------------------------------------------------------------

    def traits(
        self, *, prefix: str | None = None, among: Collection[str] | None = None, associated: bool | None = None
    ) -> list[Name]:
        """By id. `associated`: True: only traits with a provider; False: only traits without."""
        forest = self.deps.snapshot.current()
        return [
            trait
            for name, trait in forest.names.traits.items()
            if (prefix is None or name.startswith(prefix))
            and (among is None or name in among)
            and associated in (None, name in forest.with_trait)
        ]

    def trait(self, name: str) -> Name:
        return _existing_name(self._name_table().traits, name, f"No such trait(s): {name}.")

    def ensure_trait(self, name: str) -> tuple[Name, bool]:
        """(the trait, True if it was created)."""
        return self._ensure(TRAITS, name)

    def delete_trait(self, name: str) -> None:
        def delete(connection: Connection) -> TransactionResult[None]:
            found = name_store.find_name(connection, TRAITS, name, lock=True)
            if found is None:
                raise NotFound(f"No such trait(s): {name}.")
            if found.standard:
                raise Invalid(f"Cannot delete standard trait {name}.")
            if name_store.trait_in_use(connection, found.id):
                raise Conflict(f"The trait {name} is in use by a resource provider.")
            name_store.remove_name(connection, TRAITS, found.id)
            return TransactionResult(
                None, (change_entries.NAMES,), partial(name_store.without_name, table=TRAITS, name=found)
            )

        self.deps.committer.run_transaction(delete)

    # --- classes and traits -------------------------------------------------------------------------------------

    def _name_table(self) -> NameTable:
        return self.deps.snapshot.current().names

    def _names_in(self, table: Table) -> Mapping[str, Name]:
        known = self._name_table()
        return known.traits if table is TRAITS else known.classes

    def _ensure(self, table: Table, name: str) -> tuple[Name, bool]:
        if (found := self._names_in(table).get(name)) is not None:
            return found, False

        def create_if_missing(connection: Connection) -> TransactionResult[bool]:
            if name_store.find_name(connection, table, name) is not None:
                return TransactionResult(False, ())
            new = name_store.add_custom_name(connection, table, name, self.deps.clock.now())
            return TransactionResult(
                True, (change_entries.NAMES,), partial(name_store.with_name, table=table, name=new)
            )

        is_new = self.deps.committer.run_transaction(create_if_missing)
        return _existing_name(
            self._names_in(table), name, f"{name} was created, but another request deleted it; repeat the request"
        ), is_new


def _existing_name(known: Mapping[str, Name], name: str, missing: str) -> Name:
    if name not in known:
        raise NotFound(missing)
    return known[name]
