"""Changes of a provider's inventories, and the reshaper, decided on a write set.

An inventory may be set below its usage; it may not be removed while any of it is used.

A reshape is all or nothing. First every provider gets its new inventories beside the old ones, then allocations move,
then the inventories that are no longer wanted are removed: one that is still in use refuses the whole reshape.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from moorage.core.errors import ConcurrentUpdate, Conflict, Invalid, NotFound
from moorage.placement.forest.model import Inventory, Provider
from moorage.placement.rules.allocation_writes import CONCURRENT_UPDATE, AllocationWrite, check_writes, claim
from moorage.placement.rules.write_set import WriteSet

IN_USE = "placement.inventory.inuse"


PROVIDER_NOT_FOUND = "placement.resource_provider.not_found"


def replace_inventories(write_set: WriteSet, provider: Provider, wanted: Mapping[str, Inventory]) -> Provider:
    if missing := [name for name in wanted if name not in write_set.forest.names.classes]:
        raise Invalid(
            f"Unknown resource class in inventory for resource provider {provider.uuid}: {_no_class(missing[0])}"
        )
    if used := _used(write_set, provider, provider.inventories.keys() - wanted.keys()):
        raise Conflict(f"update conflict: {in_use(used, provider.uuid)}", code=IN_USE)
    return _set(write_set, provider, wanted)


def add_inventory(write_set: WriteSet, provider: Provider, name: str, inventory: Inventory) -> Provider:
    if name not in write_set.forest.names.classes:
        raise Invalid(f"Unable to create inventory for resource provider {provider.uuid}: {_no_class(name)}")
    if name in provider.inventories:
        raise ConcurrentUpdate(
            f"Update conflict: resource provider {provider.uuid} has an inventory of class {name} already; use PUT",
            code=CONCURRENT_UPDATE,
        )
    return _set(write_set, provider, {**provider.inventories, name: inventory})


def update_inventory(write_set: WriteSet, provider: Provider, name: str, inventory: Inventory) -> Provider:
    if name not in write_set.forest.names.classes:
        raise NotFound(_no_class(name))
    if name not in provider.inventories:
        raise Invalid(
            f"No inventory record with resource class for resource provider {provider.uuid}: "
            f"No inventory of class {name} found."
        )
    return _set(write_set, provider, {**provider.inventories, name: inventory})


def remove_inventory(write_set: WriteSet, provider: Provider, name: str) -> Provider:
    if name not in write_set.forest.names.classes:
        raise NotFound(f"No inventory of class {name} found for delete: {_no_class(name)}")
    if _used(write_set, provider, (name,)):
        raise Conflict(
            f"Unable to delete inventory of class {name}: {in_use([name], provider.uuid)}", code=CONCURRENT_UPDATE
        )
    if name not in provider.inventories:
        raise NotFound(f"No inventory of class {name} found for delete: No inventory of class {name} found for delete")
    return _set(write_set, provider, {kept: one for kept, one in provider.inventories.items() if kept != name})


def add_inventories(write_set: WriteSet, provider: Provider, wanted: Mapping[str, Inventory]) -> Provider:
    """Adds the new inventories of a reshape beside the old ones. Raises `Invalid` for an unknown resource class."""
    for name in wanted:
        if name not in write_set.forest.names.classes:
            raise Invalid(f"malformed reshaper data: {_no_class(name)}")
    return _set(write_set, provider, {**provider.inventories, **wanted})


@dataclass(frozen=True, slots=True)
class NewInventories:
    """The inventories of one provider in a reshape."""

    generation: int
    inventories: Mapping[str, Inventory]


def reshape(
    write_set: WriteSet, inventories: Mapping[str, NewInventories], writes: Collection[AllocationWrite]
) -> None:
    """`inventories` is {provider uuid: its new inventories}."""
    trial = write_set.trial()
    _check_generations(trial, inventories)
    check_writes(trial, writes)
    for uuid, wanted in inventories.items():
        provider = trial.by_uuid(uuid)
        if provider is not None and wanted.inventories:
            add_inventories(trial, provider, wanted.inventories)
    claim(trial, writes)
    for uuid, wanted in sorted(inventories.items()):
        provider = trial.by_uuid(uuid)
        if provider is not None:
            replace_inventories(trial, provider, wanted.inventories)
    write_set.accept(trial)


def _check_generations(write_set: WriteSet, inventories: Mapping[str, NewInventories]) -> None:
    for uuid, wanted in inventories.items():
        provider = write_set.by_uuid(uuid)
        if provider is None:
            raise Invalid(
                f"Resource provider {uuid} in inventories not found: No resource provider with uuid {uuid} found",
                code=PROVIDER_NOT_FOUND,
            )
        if provider.generation != wanted.generation:
            raise ConcurrentUpdate(
                f"resource provider generation conflict for provider {uuid}: actual: {provider.generation}, "
                f"given: {wanted.generation}",
                code=CONCURRENT_UPDATE,
            )


def in_use(names: Collection[str], uuid: str) -> str:
    return f"Inventory for '{', '.join(names)}' on resource provider '{uuid}' in use."


def _set(write_set: WriteSet, provider: Provider, inventories: Mapping[str, Inventory]) -> Provider:
    return write_set.change(
        provider,
        inventories=inventories,
        generation=provider.generation + 1,
        updated_at=write_set.now,
        inventories_updated_at=write_set.now if inventories else None,
    )


def _used(write_set: WriteSet, provider: Provider, names: Collection[str]) -> list[str]:
    """Those of the classes that are in use on this provider, in the order of their ids."""
    classes = write_set.forest.names.classes
    return sorted((name for name in names if provider.used.get(name)), key=lambda name: classes[name])


def _no_class(name: str) -> str:
    return f"No such resource class {name}."
