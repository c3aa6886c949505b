"""Changes of a provider's inventories, and the reshaper, decided on a write set.

The capacity of an inventory may be set below its usage. An inventory in use cannot be removed.

A reshape is all or nothing. First the new inventories are added to the old ones, then the allocations move, then the
inventories that are not in the request are removed. If one of these is still in use, the whole reshape is refused.
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
            f"Unknown resource class in inventory for resource provider {provider.uuid}: {_no_class_text(missing[0])}"
        )
    if still_used := _classes_in_use(write_set, provider, provider.inventories.keys() - wanted.keys()):
        raise Conflict(f"update conflict: {in_use_text(still_used, provider.uuid)}", code=IN_USE)
    return _with_inventories(write_set, provider, wanted)


def add_inventory(write_set: WriteSet, provider: Provider, name: str, inventory: Inventory) -> Provider:
    if name not in write_set.forest.names.classes:
        raise Invalid(f"Unable to create inventory for resource provider {provider.uuid}: {_no_class_text(name)}")
    if name in provider.inventories:
        raise ConcurrentUpdate(
            f"Update conflict: resource provider {provider.uuid} has an inventory of class {name} already; use PUT",
            code=CONCURRENT_UPDATE,
        )
    return _with_inventories(write_set, provider, {**provider.inventories, name: inventory})


def update_inventory(write_set: WriteSet, provider: Provider, name: str, inventory: Inventory) -> Provider:
    if name not in write_set.forest.names.classes:
        raise NotFound(_no_class_text(name))
    if name not in provider.inventories:
        raise Invalid(
            f"No inventory record with resource class for resource provider {provider.uuid}: "
            f"No inventory of class {name} found."
        )
    return _with_inventories(write_set, provider, {**provider.inventories, name: inventory})


def remove_inventory(write_set: WriteSet, provider: Provider, name: str) -> Provider:
    if name not in write_set.forest.names.classes:
        raise NotFound(f"No inventory of class {name} found for delete: {_no_class_text(name)}")
    if _classes_in_use(write_set, provider, (name,)):
        raise Conflict(
            f"Unable to delete inventory of class {name}: {in_use_text([name], provider.uuid)}", code=CONCURRENT_UPDATE
        )
    if name not in provider.inventories:
        raise NotFound(f"No inventory of class {name} found for delete: No inventory of class {name} found for delete")
    return _with_inventories(
        write_set, provider, {kept: one for kept, one in provider.inventories.items() if kept != name}
    )


def add_inventories(write_set: WriteSet, provider: Provider, wanted: Mapping[str, Inventory]) -> Provider:
    """Adds the new inventories of a reshape; the old ones stay. Raises `Invalid` for an unknown resource class."""
    for name in wanted:
        if name not in write_set.forest.names.classes:
            raise Invalid(f"malformed reshaper data: {_no_class_text(name)}")
    return _with_inventories(write_set, provider, {**provider.inventories, **wanted})


@dataclass(frozen=True, slots=True)
class NewInventories:
    """The inventories of one provider after a reshape, and its expected generation."""

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


def in_use_text(names: Collection[str], uuid: str) -> str:
    return f"Inventory for '{', '.join(names)}' on resource provider '{uuid}' in use."


def _with_inventories(write_set: WriteSet, provider: Provider, inventories: Mapping[str, Inventory]) -> Provider:
    return write_set.change(
        provider,
        inventories=inventories,
        generation=provider.generation + 1,
        updated_at=write_set.now,
        inventories_updated_at=write_set.now if inventories else None,
    )


def _classes_in_use(write_set: WriteSet, provider: Provider, names: Collection[str]) -> list[str]:
    """The classes in `names` that are in use on this provider, in the order of their ids."""
    classes = write_set.forest.names.classes
    return sorted((name for name in names if provider.used.get(name)), key=lambda name: classes[name].id)


def _no_class_text(name: str) -> str:
    return f"No such resource class {name}."
