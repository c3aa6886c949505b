"""Changes of one provider's inventories inside a transaction that has locked the provider."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection

from moorage.core.errors import ConcurrentUpdate, Conflict, Invalid, NotFound
from moorage.placement import store, store_names
from moorage.placement.model import Inventory
from moorage.placement.writing import CONCURRENT_UPDATE

IN_USE = "placement.inventory.inuse"


def replace_all(
    connection: Connection, provider_id: int, uuid: str, wanted: Mapping[str, Inventory], now: datetime
) -> None:
    """An inventory may be set below what is used of it; it may not be removed while anything is."""
    ids = store_names.ids(connection, store_names.CLASSES, wanted)
    if missing := [name for name in wanted if name not in ids]:
        raise Invalid(f"Unknown resource class in inventory for resource provider {uuid}: {_no_class(missing[0])}")
    existing = store.inventory_class_ids(connection, provider_id)
    dropped = existing.difference(ids.values())
    if used := store.classes_in_use(connection, provider_id, dropped):
        raise Conflict(f"update conflict: {in_use(used, uuid)}", code=IN_USE)
    store.delete_inventories(connection, provider_id, dropped)
    by_id = {ids[name]: inventory for name, inventory in wanted.items()}
    store.put_inventories(connection, provider_id, by_id, existing, now)


def add(connection: Connection, provider_id: int, uuid: str, name: str, inventory: Inventory, now: datetime) -> None:
    ids = store_names.ids(connection, store_names.CLASSES, (name,))
    if name not in ids:
        raise Invalid(f"Unable to create inventory for resource provider {uuid}: {_no_class(name)}")
    existing = store.inventory_class_ids(connection, provider_id)
    if ids[name] in existing:
        raise ConcurrentUpdate(
            f"Update conflict: resource provider {uuid} has an inventory of class {name} already; use PUT",
            code=CONCURRENT_UPDATE,
        )
    store.put_inventories(connection, provider_id, {ids[name]: inventory}, existing, now)


def update(connection: Connection, provider_id: int, uuid: str, name: str, inventory: Inventory, now: datetime) -> None:
    ids = store_names.ids(connection, store_names.CLASSES, (name,))
    if name not in ids:
        raise NotFound(_no_class(name))
    existing = store.inventory_class_ids(connection, provider_id)
    if ids[name] not in existing:
        raise Invalid(
            f"No inventory record with resource class for resource provider {uuid}: No inventory of class {name} found."
        )
    store.put_inventories(connection, provider_id, {ids[name]: inventory}, existing, now)


def remove(connection: Connection, provider_id: int, uuid: str, name: str) -> None:
    ids = store_names.ids(connection, store_names.CLASSES, (name,))
    if name not in ids:
        raise NotFound(f"No inventory of class {name} found for delete: {_no_class(name)}")
    if store.classes_in_use(connection, provider_id, ids.values()):
        raise Conflict(f"Unable to delete inventory of class {name}: {in_use([name], uuid)}", code=CONCURRENT_UPDATE)
    if ids[name] not in store.inventory_class_ids(connection, provider_id):
        raise NotFound(f"No inventory of class {name} found for delete: No inventory of class {name} found for delete")
    store.delete_inventories(connection, provider_id, ids.values())


def in_use(names: list[str], uuid: str) -> str:
    return f"Inventory for '{', '.join(names)}' on resource provider '{uuid}' in use."


def _no_class(name: str) -> str:
    return f"No such resource class {name}."
