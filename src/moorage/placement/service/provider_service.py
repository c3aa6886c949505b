"""Creates, moves and deletes providers, and sets their inventories, traits and aggregates.

Reads use the snapshot. `provider_writes` and `inventory_writes` decide writes and compare the generation that the
client sent; `committer` writes them.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from moorage.core.errors import ConcurrentUpdate, NotFound
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Inventory, Name, Provider
from moorage.placement.rules import inventory_writes
from moorage.placement.rules import provider_writes as writes
from moorage.placement.rules.allocation_writes import CONCURRENT_UPDATE
from moorage.placement.rules.write_set import WriteSet
from moorage.placement.service.deps import PlacementDeps
from moorage.placement.sync.committer import WriteRequest

STALE_INVENTORIES = "resource provider generation conflict"


@dataclass(frozen=True, slots=True)
class ProviderView:
    """A provider with the uuids of its parent and root, as the API shows it."""

    provider: Provider
    parent_uuid: str | None
    root_uuid: str


def provider_view(forest: Forest, provider: Provider) -> ProviderView:
    if provider.root_id == provider.id:
        return ProviderView(provider, None, provider.uuid)
    parent = forest.by_id(provider.parent_id) if provider.parent_id is not None else None
    root = forest.by_id(provider.root_id)
    return ProviderView(provider, None if parent is None else parent.uuid, provider.uuid if root is None else root.uuid)


@dataclass(frozen=True)
class ProviderService:
    deps: PlacementDeps

    # --- reading ------------------------------------------------------------------------------------------------

    def forest(self) -> Forest:
        return self.deps.snapshot.current()

    def view(self, uuid: str) -> ProviderView:
        forest = self.deps.snapshot.current()
        return provider_view(forest, self._existing_provider(forest, uuid))

    def provider(self, uuid: str) -> Provider:
        return self._existing_provider(self.deps.snapshot.current(), uuid)

    def check_exists(self, uuid: str) -> None:
        """An early check; the write checks again."""
        if self.deps.snapshot.cached().by_uuid(uuid) is None:
            self.provider(uuid)

    def check_generation(self, uuid: str, generation: int, message: str) -> None:
        """An early check, before the rest of the request is validated; the write checks again."""
        held = self.deps.snapshot.cached().by_uuid(uuid)
        if (held is None or held.generation != generation) and self.provider(uuid).generation != generation:
            raise ConcurrentUpdate(message, code=CONCURRENT_UPDATE)

    def _existing_provider(self, forest: Forest, uuid: str) -> Provider:
        provider = forest.by_uuid(uuid)
        if provider is None:
            raise NotFound(f"No resource provider with uuid {uuid} found")
        return provider

    # --- the tree -----------------------------------------------------------------------------------------------

    def create_provider(self, name: str, uuid: str | None, parent_uuid: str | None) -> ProviderView:
        new_uuid = uuid or self.deps.ids.uuid()
        about = [name, new_uuid] if parent_uuid is None else [name, new_uuid, parent_uuid]
        return self._submit(
            WriteRequest(
                lambda write_set: writes.create_provider(write_set, new_uuid, name, parent_uuid), about, names=(name,)
            )
        )

    def update_provider(
        self, uuid: str, name: str, parent_uuid: str | None, *, parent_given: bool, may_move: bool
    ) -> ProviderView:
        """Rename, and set the parent if `parent_given`.

        `may_move` (from 1.37 on): allow to change or remove the parent.
        """

        def decide(write_set: WriteSet) -> Provider:
            return writes.update_provider(
                write_set, uuid, name, parent_uuid, parent_given=parent_given, may_move=may_move
            )

        about = [name, uuid] if parent_uuid is None else [name, uuid, parent_uuid]
        return self._submit(WriteRequest(decide, about, names=(name,)))

    def _submit(self, request: WriteRequest[Provider]) -> ProviderView:
        provider = self.deps.committer.submit(request)
        return provider_view(self.deps.snapshot.cached(), provider)

    def delete_provider(self, uuid: str) -> None:
        self.deps.committer.submit(WriteRequest(lambda write_set: writes.delete_provider(write_set, uuid), (uuid,)))

    # --- inventories --------------------------------------------------------------------------------------------

    def set_inventories(self, uuid: str, generation: int | None, wanted: Mapping[str, Inventory]) -> Provider:
        """Replace all inventories. `generation` None: do not compare it."""
        return self._change_inventories(
            uuid,
            generation,
            lambda write_set, provider: inventory_writes.replace_inventories(write_set, provider, wanted),
        )

    def add_inventory(self, uuid: str, name: str, inventory: Inventory) -> Provider:
        return self._change_inventories(
            uuid, None, lambda write_set, provider: inventory_writes.add_inventory(write_set, provider, name, inventory)
        )

    def update_inventory(self, uuid: str, generation: int, name: str, inventory: Inventory) -> Provider:
        return self._change_inventories(
            uuid,
            generation,
            lambda write_set, provider: inventory_writes.update_inventory(write_set, provider, name, inventory),
        )

    def delete_inventory(self, uuid: str, name: str) -> None:
        self._change_inventories(
            uuid, None, lambda write_set, provider: inventory_writes.remove_inventory(write_set, provider, name)
        )

    def _change_inventories(
        self, uuid: str, generation: int | None, change: Callable[[WriteSet, Provider], Provider]
    ) -> Provider:
        def decide(write_set: WriteSet) -> Provider:
            return change(write_set, writes.at_generation(write_set, uuid, generation, STALE_INVENTORIES))

        return self.deps.committer.submit(WriteRequest(decide, (uuid,)))

    # --- traits and aggregates ----------------------------------------------------------------------------------

    def set_traits(self, uuid: str, generation: int | None, names: Collection[str]) -> tuple[Provider, list[Name]]:
        """The provider afterwards, and its traits."""
        provider = self.deps.committer.submit(
            WriteRequest(lambda write_set: writes.set_traits(write_set, uuid, generation, names), (uuid,))
        )
        known = self.deps.snapshot.cached().names.traits
        return provider, sorted((known[name] for name in set(names) & known.keys()), key=lambda trait: trait.id)

    def set_aggregates(self, uuid: str, generation: int | None, aggregates: Collection[str]) -> Provider:
        """`generation` None: a request below 1.19, which does not increase the provider's generation."""
        return self.deps.committer.submit(
            WriteRequest(lambda write_set: writes.set_aggregates(write_set, uuid, generation, aggregates), (uuid,))
        )
