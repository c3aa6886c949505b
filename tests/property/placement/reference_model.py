"""The meaning of the placement API, written with dictionaries: slow, obvious, and without `moorage.placement`.

Each method is a request at microversion 1.`minor` and returns a `Response`. Its code is set only where OpenStack
Placement has a specific one. Bodies must be well-formed; this model does not check schemas.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

CONCURRENT = "placement.concurrent_update"
DUPLICATE = "placement.duplicate_name"
INVENTORY_IN_USE = "placement.inventory.inuse"
NO_PROVIDER = "placement.resource_provider.not_found"
STANDARD_CLASSES = frozenset({"VCPU", "MEMORY_MB", "VGPU"})
STANDARD_TRAITS = frozenset({"HW_CPU_X86_AVX2", "HW_CPU_X86_SSE", "MISC_SHARES_VIA_AGGREGATE"})


class Response(NamedTuple):
    status: int
    code: str = "placement.undefined_code"


@dataclass
class Provider:
    name: str
    parent: str | None
    generation: int = 0
    inventories: dict[str, dict] = field(default_factory=dict)
    traits: set[str] = field(default_factory=set)
    aggregates: set[str] = field(default_factory=set)


@dataclass
class Consumer:
    generation: int
    project: str
    user: str
    type: str | None
    allocations: dict[str, dict[str, int]]


@dataclass(frozen=True)
class WantedAllocations:
    """The wanted allocations of one consumer.

    `generation` is compared from 1.28 on; `type` is present from 1.38 on.
    """

    allocations: Mapping[str, Mapping[str, int]]
    project: str
    user: str
    generation: int | None
    type: str | None


class Placement:
    def __init__(self) -> None:
        self.providers: dict[str, Provider] = {}
        self.consumers: dict[str, Consumer] = {}
        self.classes = set(STANDARD_CLASSES)
        self.traits = set(STANDARD_TRAITS)

    # --- derived values -----------------------------------------------------------------------------------------

    def root(self, uuid: str) -> str:
        while (parent := self.providers[uuid].parent) is not None:
            uuid = parent
        return uuid

    def used(self, uuid: str, name: str) -> int:
        return sum(one.allocations.get(uuid, {}).get(name, 0) for one in self.consumers.values())

    def capacity(self, uuid: str, name: str) -> float:
        inventory = self.providers[uuid].inventories[name]
        return (inventory["total"] - inventory["reserved"]) * inventory["allocation_ratio"]

    def _below(self, uuid: str) -> set[str]:
        """The provider and all providers below it."""
        return {uuid}.union(*(self._below(child) for child, one in self.providers.items() if one.parent == uuid))

    def _in_use(self, uuid: str, names: set[str]) -> bool:
        return any(self.used(uuid, name) for name in names)

    # --- providers ----------------------------------------------------------------------------------------------

    def create(self, minor: int, uuid: str, name: str, parent: str | None) -> Response:
        if parent is not None and (minor < 14 or parent == uuid or parent not in self.providers):
            return Response(400)
        if uuid in self.providers or name in {one.name for one in self.providers.values()}:
            return Response(409, DUPLICATE)
        self.providers[uuid] = Provider(name, parent)
        return Response(201 if minor < 20 else 200)

    def update(self, minor: int, uuid: str, name: str, *parent: str | None) -> Response:
        if uuid not in self.providers:
            return Response(404)
        provider = self.providers[uuid]
        if parent:
            wanted, moves = parent[0], provider.parent not in (None, parent[0])
            if minor < 14 or (moves and minor < 37) or (wanted is not None and wanted not in self.providers):
                return Response(400)
            if wanted in self._below(uuid):
                return Response(400)
        if name in {one.name for other, one in self.providers.items() if other != uuid}:
            return Response(409, DUPLICATE)
        provider.name = name
        if parent:
            provider.parent = parent[0]
        return Response(200)

    def delete(self, minor: int, uuid: str) -> Response:
        if uuid not in self.providers:
            return Response(404)
        if self._below(uuid) != {uuid}:
            return Response(409, "placement.resource_provider.cannot_delete_parent")
        if self._in_use(uuid, set(self.providers[uuid].inventories)):
            return Response(409, "placement.resource_provider.inuse")
        del self.providers[uuid]
        return Response(204)

    # --- inventories --------------------------------------------------------------------------------------------

    def set_inventories(self, minor: int, uuid: str, generation: int, wanted: Mapping[str, dict]) -> Response:
        if (refused := self._stale(uuid, generation)) is not None:
            return refused
        if not wanted.keys() <= self.classes:
            return Response(400)
        return self._replace(uuid, wanted)

    def clear_inventories(self, minor: int, uuid: str) -> Response:
        if minor < 5:
            return Response(405)
        return Response(404) if uuid not in self.providers else self._replace(uuid, {}, done=204)

    def _replace(self, uuid: str, wanted: Mapping[str, dict], done: int = 200) -> Response:
        provider = self.providers[uuid]
        if self._in_use(uuid, provider.inventories.keys() - wanted.keys()):
            return Response(409, INVENTORY_IN_USE)
        provider.inventories = dict(wanted)
        provider.generation += 1
        return Response(done)

    def add_inventory(self, minor: int, uuid: str, name: str, inventory: dict) -> Response:
        if uuid not in self.providers:
            return Response(404)
        if name not in self.classes:
            return Response(400)
        if name in self.providers[uuid].inventories:
            return Response(409, CONCURRENT)
        return self._put_inventory(uuid, name, inventory, 201)

    def update_inventory(self, minor: int, uuid: str, name: str, generation: int, inventory: dict) -> Response:
        if (refused := self._stale(uuid, generation)) is not None:
            return refused
        if name not in self.providers[uuid].inventories:
            return Response(400 if name in self.classes else 404)
        return self._put_inventory(uuid, name, inventory, 200)

    def _put_inventory(self, uuid: str, name: str, inventory: dict, done: int) -> Response:
        self.providers[uuid].inventories[name] = inventory
        self.providers[uuid].generation += 1
        return Response(done)

    def delete_inventory(self, minor: int, uuid: str, name: str) -> Response:
        if uuid not in self.providers or name not in self.providers[uuid].inventories:
            return Response(404)
        if self._in_use(uuid, {name}):
            return Response(409, INVENTORY_IN_USE)
        del self.providers[uuid].inventories[name]
        self.providers[uuid].generation += 1
        return Response(204)

    def _stale(self, uuid: str, generation: int) -> Response | None:
        if uuid not in self.providers:
            return Response(404)
        return None if self.providers[uuid].generation == generation else Response(409, CONCURRENT)

    # --- traits and aggregates of a provider --------------------------------------------------------------------

    def set_traits(self, minor: int, uuid: str, generation: int, traits: set[str]) -> Response:
        if (refused := self._stale(uuid, generation)) is not None:
            return refused
        return Response(400) if not traits <= self.traits else self._put_traits(uuid, traits, 200)

    def clear_traits(self, minor: int, uuid: str) -> Response:
        return Response(404) if uuid not in self.providers else self._put_traits(uuid, set(), 204)

    def _put_traits(self, uuid: str, traits: set[str], done: int) -> Response:
        provider = self.providers[uuid]
        provider.generation += provider.traits != traits
        provider.traits = set(traits)
        return Response(done)

    def set_aggregates(self, minor: int, uuid: str, generation: int, aggregates: set[str]) -> Response:
        if uuid not in self.providers:
            return Response(404)
        if minor >= 19:
            if (refused := self._stale(uuid, generation)) is not None:
                return refused
            self.providers[uuid].generation += 1
        self.providers[uuid].aggregates = set(aggregates)
        return Response(200)

    # --- names --------------------------------------------------------------------------------------------------

    def create_class(self, minor: int, name: str) -> Response:
        if name in self.classes:
            return Response(409)
        self.classes.add(name)
        return Response(201)

    def ensure_class(self, minor: int, name: str) -> Response:
        """Only from 1.7 on; before that, PUT renames."""
        known = name in self.classes
        self.classes.add(name)
        return Response(204 if known else 201)

    def rename_class(self, minor: int, name: str, new: str) -> Response:
        if name not in self.classes:
            return Response(404)
        if name in STANDARD_CLASSES:
            return Response(400)
        if new in self.classes - {name}:
            return Response(409)
        self.classes = self.classes - {name} | {new}
        for provider in self.providers.values():
            provider.inventories = {new if one == name else one: value for one, value in provider.inventories.items()}
        for consumer in self.consumers.values():
            for uuid, amounts in consumer.allocations.items():
                consumer.allocations[uuid] = {new if one == name else one: units for one, units in amounts.items()}
        return Response(200)

    def delete_class(self, minor: int, name: str) -> Response:
        if name not in self.classes:
            return Response(404)
        if name in STANDARD_CLASSES:
            return Response(400)
        if any(name in one.inventories for one in self.providers.values()):
            return Response(409)
        self.classes.remove(name)
        return Response(204)

    def create_trait(self, minor: int, name: str) -> Response:
        known = name in self.traits
        self.traits.add(name)
        return Response(204 if known else 201)

    def delete_trait(self, minor: int, name: str) -> Response:
        if name not in self.traits:
            return Response(404)
        if name in STANDARD_TRAITS:
            return Response(400)
        if any(name in one.traits for one in self.providers.values()):
            return Response(409)
        self.traits.remove(name)
        return Response(204)

    # --- claims -------------------------------------------------------------------------------------------------

    def claim(self, minor: int, wishes: Mapping[str, WantedAllocations]) -> Response:
        """Replaces the allocations of all consumers in `wishes` ({consumer: WantedAllocations}), or of none."""
        if (refused := self._refused(minor, wishes)) is not None:
            return refused
        self._take(wishes)
        return Response(204)

    def release(self, minor: int, consumer: str) -> Response:
        """The only write that changes no generation."""
        if consumer not in self.consumers:
            return Response(404)
        del self.consumers[consumer]
        return Response(204)

    def reshape(
        self,
        minor: int,
        inventories: Mapping[str, tuple[int, Mapping[str, dict]]],
        wishes: Mapping[str, WantedAllocations],
    ) -> Response:
        """`inventories`: {provider: (generation, new inventories)}.

        While the allocations move, a provider has its old and its new inventories; afterwards only the new ones.
        """
        for uuid, (generation, _) in inventories.items():
            if uuid not in self.providers:
                return Response(400, NO_PROVIDER)
            if self.providers[uuid].generation != generation:
                return Response(409, CONCURRENT)
        old = {uuid: self.providers[uuid].inventories for uuid in inventories}
        for uuid, (_, wanted) in inventories.items():
            self.providers[uuid].inventories = old[uuid] | dict(wanted)
        refused = self._refused(minor, wishes) or self._too_narrow(inventories, wishes)
        if refused is not None:
            for uuid, before in old.items():
                self.providers[uuid].inventories = before
            return refused
        self._take(wishes)
        for uuid, (_, wanted) in inventories.items():
            self.providers[uuid].inventories = dict(wanted)
            self.providers[uuid].generation += 1 + bool(wanted)
        return Response(204)

    def _too_narrow(
        self, inventories: Mapping[str, tuple[int, Mapping]], wishes: Mapping[str, WantedAllocations]
    ) -> Response | None:
        """A removed class must not be in use afterwards."""
        after = {one: consumer.allocations for one, consumer in self.consumers.items()}
        after |= {one: wish.allocations for one, wish in wishes.items()}
        for uuid, (_, wanted) in inventories.items():
            if any(allocations.get(uuid, {}).keys() - wanted.keys() for allocations in after.values()):
                return Response(409, INVENTORY_IN_USE)
        return None

    def _refused(self, minor: int, wishes: Mapping[str, WantedAllocations]) -> Response | None:
        for uuid, wish in wishes.items():
            known = self.consumers.get(uuid)
            if minor >= 28 and wish.generation != (known.generation if known else None):
                return Response(409, CONCURRENT)
        asked = [
            (uuid, name, units)
            for wish in wishes.values()
            for uuid, one in wish.allocations.items()
            for name, units in one.items()
        ]
        if any(uuid not in self.providers for uuid, _, _ in asked) or any(
            name not in self.classes for _, name, _ in asked
        ):
            return Response(400)
        for uuid, name, units in asked:
            inventory = self.providers[uuid].inventories.get(name)
            if (
                inventory is None
                or not inventory["min_unit"] <= units <= inventory["max_unit"]
                or units % inventory["step_size"]
            ):
                return Response(409)
            before = self.used(uuid, name)
            given_back = sum(
                self.consumers[one].allocations.get(uuid, {}).get(name, 0) for one in wishes if one in self.consumers
            )
            after = before - given_back + sum(amount for *where, amount in asked if where == [uuid, name])
            if after > self.capacity(uuid, name) and after > before:
                return Response(409)
        return None

    def _take(self, wishes: Mapping[str, WantedAllocations]) -> None:
        counted = set()
        for uuid, wish in wishes.items():
            known = self.consumers.pop(uuid, None)
            counted |= set(wish.allocations) or set(known.allocations if known else ())
            if wish.allocations:
                generation = 1 + (known.generation if known else 0)
                kind = wish.type or (known.type if known else None)
                allocations = {provider: dict(one) for provider, one in wish.allocations.items()}
                self.consumers[uuid] = Consumer(generation, wish.project, wish.user, kind, allocations)
        for uuid in counted:
            self.providers[uuid].generation += 1
