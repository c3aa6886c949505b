"""Reads this host's provider tree from Placement, and writes the steps of a diff to it.

Not here: the wanted tree (`moorage.agent.tracker.resource_tracker`) and the diff
(`moorage.agent.tree.provider_tree_diff`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from moorage.agent.tree.provider_tree import SeenProvider
from moorage.agent.tree.provider_tree_diff import CreateProvider, DropProvider, PutInventories, PutTraits, Step
from moorage.placement.client.placement_client import PlacementClient, Provider


class PlacementTreeReader:
    """Reads the providers of the compute nodes; reads a known provider again only if its generation has changed."""

    def __init__(self, placement: PlacementClient) -> None:
        self._placement = placement
        self._roots: dict[str, str] = {}  #: {compute node: provider uuid}
        self._known: dict[str, SeenProvider] = {}

    def read_providers(self, nodes: Iterable[str]) -> list[SeenProvider]:
        listed = [provider for node in nodes for provider in self._read_tree(node)]
        self._known = {provider.uuid: self._read_provider(provider) for provider in listed}
        return list(self._known.values())

    def usages(self, uuid: str) -> Mapping[str, int]:
        return self._placement.usages(uuid)

    def allocations_by_consumer(self, uuid: str) -> Mapping[str, Mapping[str, int]]:
        """{consumer: {class: units}}"""
        return self._placement.provider_allocations(uuid)

    def forget_generations(self) -> None:
        self._known = {}

    def _read_tree(self, node: str) -> list[Provider]:
        if node in self._roots and (listed := self._placement.tree(self._roots[node])):
            return listed
        root = self._placement.provider_by_name(node)
        if root is None:
            self._roots.pop(node, None)
            return []
        self._roots[node] = root.uuid
        return self._placement.tree(root.uuid)

    def _read_provider(self, listed: Provider) -> SeenProvider:
        known = self._known.get(listed.uuid)
        if known is not None and known.generation == listed.generation:
            return replace(known, name=listed.name, parent_uuid=listed.parent_uuid)
        generation, inventories = self._placement.inventories(listed.uuid)
        later, traits = self._placement.traits(listed.uuid)
        return SeenProvider(
            uuid=listed.uuid,
            name=listed.name,
            # After a write between the two reads, Placement refuses the older generation, and the tracker reads again.
            generation=min(generation, later),
            parent_uuid=listed.parent_uuid,
            inventories=inventories,
            traits=traits,
        )


class PlacementTreeWriter:
    def __init__(self, placement: PlacementClient) -> None:
        self._placement = placement

    def write_steps(self, steps: Sequence[Step], seen: Iterable[SeenProvider]) -> None:
        """Writes `steps` in order. `seen`: the providers with the generations at which they were read.

        Raises `Conflict` if a provider has changed since it was read, or a class to delete has come into use.
        """
        generations = {provider.uuid: provider.generation for provider in seen}
        for step in steps:
            match step:
                case CreateProvider(uuid, name, parent_uuid):
                    created = self._placement.create_provider(name, uuid=uuid, parent_uuid=parent_uuid)
                    generations[uuid] = created.generation
                case PutInventories(uuid, inventories, ensure):
                    self._ensure(ensure, traits=False)
                    generations[uuid] = self._placement.set_inventories(uuid, generations[uuid], inventories)
                case PutTraits(uuid, traits, ensure):
                    self._ensure(ensure, traits=True)
                    generations[uuid] = self._placement.set_traits(uuid, generations[uuid], traits)
                case DropProvider(uuid, _):
                    self._placement.delete_provider(uuid)

    def _ensure(self, names: Iterable[str], *, traits: bool) -> None:
        for name in names:
            if traits:
                self._placement.ensure_trait(name)
            else:
                self._placement.ensure_class(name)
