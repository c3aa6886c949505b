"""[pure] Describes an update for operators: the changed classes and traits of each provider.

diff, providers in Placement -> [ProviderChange("compute-1", classes=[ClassChange("CUSTOM_LLC", "close", ...)], ...)]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from moorage.agent.tree.provider_tree import SeenProvider
from moorage.agent.tree.provider_tree_diff import (
    CreateProvider,
    DropProvider,
    ProviderTreeDiff,
    PutInventories,
    PutTraits,
)
from moorage.core.inventories import Inventory


class ChangeKind(StrEnum):
    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"
    CLOSE = "close"  #: no longer wanted, but in use: accepts no new allocations; is removed when it is not in use


@dataclass(frozen=True)
class ClassChange:
    name: str
    how: ChangeKind
    before: Inventory | None
    after: Inventory | None

    @property
    def loses_capacity(self) -> bool:
        """Whether the class loses capacity, so that the description must list the users of the class."""
        return self.how is ChangeKind.CLOSE or (
            self.before is not None and self.after is not None and _capacity(self.after) < _capacity(self.before)
        )


@dataclass
class ProviderChange:
    uuid: str
    name: str
    is_created: bool = False
    is_removed: bool = False
    classes: list[ClassChange] = field(default_factory=list)
    traits_added: list[str] = field(default_factory=list)
    traits_removed: list[str] = field(default_factory=list)


def describe_changes(changes: ProviderTreeDiff, seen: Sequence[SeenProvider]) -> list[ProviderChange]:
    """One entry per provider, in the order of the writes; includes classes that an earlier update has closed."""
    before = {provider.uuid: provider for provider in seen}
    rows: dict[str, ProviderChange] = {}

    def row(uuid: str, name: str = "") -> ProviderChange:
        if uuid not in rows:
            rows[uuid] = ProviderChange(uuid, name or before[uuid].name)
        return rows[uuid]

    for step in changes.steps:
        match step:
            case CreateProvider(uuid, name, _):
                row(uuid, name).is_created = True
            case PutInventories(uuid, inventories, _):
                earlier = before[uuid].inventories if uuid in before else {}
                row(uuid).classes += _classes(uuid, earlier, inventories, changes)
            case PutTraits(uuid, traits, _):
                had = before[uuid].traits if uuid in before else frozenset()
                row(uuid).traits_added += sorted(traits - had)
                row(uuid).traits_removed += sorted(had - traits)
            case DropProvider(uuid, name):
                row(uuid, name).is_removed = True
    for uuid, name in sorted(changes.closed):
        if not any(change.name == name for change in row(uuid).classes):
            inventory = before[uuid].inventories[name]
            row(uuid).classes.append(ClassChange(name, ChangeKind.CLOSE, inventory, inventory))
    return list(rows.values())


def _classes(
    uuid: str, before: Mapping[str, Inventory], after: Mapping[str, Inventory], changes: ProviderTreeDiff
) -> list[ClassChange]:
    found = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if (uuid, name) in changes.closed:
            how = ChangeKind.CLOSE
        else:
            how = ChangeKind.ADD if old is None else ChangeKind.REMOVE if new is None else ChangeKind.CHANGE
        found.append(ClassChange(name, how, old, new))
    return found


def _capacity(inventory: Inventory) -> int:
    return int((inventory.total - inventory.reserved) * inventory.allocation_ratio)
