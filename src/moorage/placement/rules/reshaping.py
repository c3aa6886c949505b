"""New inventories and the allocations that go with them, decided on a draft: all or nothing.

First every provider gets its new inventories beside the old ones, then allocations move, then what is not wanted any
more goes: an inventory that is still in use then refuses the whole.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from moorage.core.errors import ConcurrentUpdate, Invalid
from moorage.placement.forest.model import Inventory
from moorage.placement.rules import inventory_writes
from moorage.placement.rules.allocation_writes import CONCURRENT_UPDATE, AllocationWrite, check, claim
from moorage.placement.rules.write_set import WriteSet

PROVIDER_NOT_FOUND = "placement.resource_provider.not_found"


@dataclass(frozen=True, slots=True)
class NewInventories:
    """Of one provider in a reshape."""

    generation: int
    inventories: Mapping[str, Inventory]


def reshape(draft: WriteSet, inventories: Mapping[str, NewInventories], wishes: Collection[AllocationWrite]) -> None:
    """`inventories` is {provider uuid: what it offers from now on}."""
    trial = draft.trial()
    _check_generations(trial, inventories)
    check(trial, wishes)
    for uuid, wanted in inventories.items():
        provider = trial.by_uuid(uuid)
        if provider is not None and wanted.inventories:
            inventory_writes.widen(trial, provider, wanted.inventories)
    claim(trial, wishes)
    for uuid, wanted in sorted(inventories.items()):
        provider = trial.by_uuid(uuid)
        if provider is not None:
            inventory_writes.replace_all(trial, provider, wanted.inventories)
    draft.accept(trial)


def _check_generations(draft: WriteSet, inventories: Mapping[str, NewInventories]) -> None:
    for uuid, wanted in inventories.items():
        provider = draft.by_uuid(uuid)
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
