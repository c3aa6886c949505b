"""Changes of one provider's inventories, decided on a draft. Each answers the provider as it is then.

An inventory may be set below what is used of it; it may not be removed while anything is.
"""

from collections.abc import Collection, Mapping

from moorage.core.errors import ConcurrentUpdate, Conflict, Invalid, NotFound
from moorage.placement.forest.model import Inventory, Provider
from moorage.placement.rules.allocation_writes import CONCURRENT_UPDATE
from moorage.placement.rules.write_set import WriteSet

IN_USE = "placement.inventory.inuse"


def replace_all(draft: WriteSet, provider: Provider, wanted: Mapping[str, Inventory]) -> Provider:
    if missing := [name for name in wanted if name not in draft.forest.names.classes]:
        raise Invalid(
            f"Unknown resource class in inventory for resource provider {provider.uuid}: {_no_class(missing[0])}"
        )
    if used := _used(draft, provider, provider.inventories.keys() - wanted.keys()):
        raise Conflict(f"update conflict: {in_use(used, provider.uuid)}", code=IN_USE)
    return _set(draft, provider, wanted)


def add(draft: WriteSet, provider: Provider, name: str, inventory: Inventory) -> Provider:
    if name not in draft.forest.names.classes:
        raise Invalid(f"Unable to create inventory for resource provider {provider.uuid}: {_no_class(name)}")
    if name in provider.inventories:
        raise ConcurrentUpdate(
            f"Update conflict: resource provider {provider.uuid} has an inventory of class {name} already; use PUT",
            code=CONCURRENT_UPDATE,
        )
    return _set(draft, provider, {**provider.inventories, name: inventory})


def update(draft: WriteSet, provider: Provider, name: str, inventory: Inventory) -> Provider:
    if name not in draft.forest.names.classes:
        raise NotFound(_no_class(name))
    if name not in provider.inventories:
        raise Invalid(
            f"No inventory record with resource class for resource provider {provider.uuid}: "
            f"No inventory of class {name} found."
        )
    return _set(draft, provider, {**provider.inventories, name: inventory})


def remove(draft: WriteSet, provider: Provider, name: str) -> Provider:
    if name not in draft.forest.names.classes:
        raise NotFound(f"No inventory of class {name} found for delete: {_no_class(name)}")
    if _used(draft, provider, (name,)):
        raise Conflict(
            f"Unable to delete inventory of class {name}: {in_use([name], provider.uuid)}", code=CONCURRENT_UPDATE
        )
    if name not in provider.inventories:
        raise NotFound(f"No inventory of class {name} found for delete: No inventory of class {name} found for delete")
    return _set(draft, provider, {kept: one for kept, one in provider.inventories.items() if kept != name})


def widen(draft: WriteSet, provider: Provider, wanted: Mapping[str, Inventory]) -> Provider:
    """In a reshape, the new inventories are first put beside the old ones."""
    for name in wanted:
        if name not in draft.forest.names.classes:
            raise Invalid(f"malformed reshaper data: {_no_class(name)}")
    return _set(draft, provider, {**provider.inventories, **wanted})


def in_use(names: Collection[str], uuid: str) -> str:
    return f"Inventory for '{', '.join(names)}' on resource provider '{uuid}' in use."


def _set(draft: WriteSet, provider: Provider, inventories: Mapping[str, Inventory]) -> Provider:
    return draft.change(
        provider,
        inventories=inventories,
        generation=provider.generation + 1,
        updated_at=draft.now,
        inventories_updated_at=draft.now if inventories else None,
    )


def _used(draft: WriteSet, provider: Provider, names: Collection[str]) -> list[str]:
    """Those of which somebody holds something here, in the order of their ids."""
    classes = draft.forest.names.classes
    return sorted((name for name in names if provider.used.get(name)), key=lambda name: classes[name])


def _no_class(name: str) -> str:
    return f"No such resource class {name}."
