"""Keeps Placement's picture of this host right: read, let the driver and the files say what is, write the difference.

    files (once) -> accelerators -> Placement's tree -> virt driver -> grafts -> files merged -> diff -> writes

A round in which nothing changed makes one request per compute node. Placement bumps a provider's generation with
every change of its inventories and traits, so those are read again only when the generation of the listing moved.
Allocations bump it too, which costs a superfluous reading and never a stale one.

Spec: docs/specs/provider-config.md, "Merging"
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from moorage.agent.changes import (
    Changes,
    CreateProvider,
    DropProvider,
    PutInventories,
    PutTraits,
    Step,
    diff,
    identified,
    unwanted,
    with_foreign,
)
from moorage.agent.grafts import Grafts, grafted
from moorage.agent.provider_config.load import load
from moorage.agent.provider_config.merge import Merged, merge, start_error
from moorage.agent.provider_config.model import ProviderConfig
from moorage.agent.published import PublishedFile, either
from moorage.agent.tree import Inventory, ProviderTree, SeenProvider, inventory_of, tree_of
from moorage.agent.virt.driver import VirtDriver
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, MoorageError
from moorage.core.ids import Ids
from moorage.placement.client import Inventory as PlacementInventory
from moorage.placement.client import PlacementClient, Provider

log = logging.getLogger(__name__)

#: Rounds in one update when others write to the same providers meanwhile; then it is left to the next period.
MAX_ROUNDS = 5
#: Pause before the 2nd round; doubled for each further one.
FIRST_PAUSE_S = 0.2

#: What Nova puts on every compute node, and what others tell them apart by.
COMPUTE_NODE_TRAIT = "COMPUTE_NODE"


@dataclass(frozen=True)
class ProviderFiles:
    """Where the provider configuration files are."""

    directory: Path
    allow_writable_by_others: bool = False


@dataclass(frozen=True)
class Round:
    """What an update came to."""

    tree: ProviderTree  #: as it is published
    written: int  #: steps; 0: Placement had it right
    warnings: tuple[str, ...]


class ResourceTracker:
    """`grafts` is the accelerator agent. One `update` at a time; the views may be read from any thread."""

    def __init__(
        self,
        *,
        driver: VirtDriver,
        grafts: Grafts,
        placement: PlacementClient,
        files: ProviderFiles,
        published: PublishedFile,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._driver = driver
        self._grafts = grafts
        self._placement = _Reader(placement)
        self._writer = _Writer(placement)
        self._files = files
        self._published = published
        self._clock = clock
        self._ids = ids
        self._warned: frozenset[str] = frozenset()
        #: What the files say, since the start.
        self.configs: Sequence[ProviderConfig] = ()
        #: The tree of the last update.
        self.tree = ProviderTree()
        #: Providers of accelerators in it.
        self.devices = 0

    def start(self) -> Round:
        """Read the files and publish. Raises `StartError` for a faulty file or one that contradicts the driver."""
        self.configs = load(self._files.directory, allow_writable_by_others=self._files.allow_writable_by_others)
        return self.update(startup=True)

    def update(self, *, startup: bool = False) -> Round:
        """Bring Placement up to date. Raises `Conflict` when others were in the way `MAX_ROUNDS` times."""
        pause_s = FIRST_PAUSE_S
        for _ in range(MAX_ROUNDS - 1):
            try:
                return self._round(startup)
            except Conflict as conflict:
                log.info("somebody else wrote to a provider of this host; reading again", extra={"why": str(conflict)})
            self._placement.forget()
            self._clock.sleep(pause_s)
            pause_s *= 2
        return self._round(startup)

    def provider_uuid(self, node: str) -> str:
        """Of a compute node, once it was published."""
        uuid = self.tree[node].uuid
        assert uuid is not None  # noqa: S101 - published trees have uuids
        return uuid

    def above(self, uuids: Iterable[str]) -> frozenset[str]:
        """Names of all providers that those of `uuids` hang below: where a server's devices are."""
        tree, wanted = self.tree, set(uuids)
        return frozenset(above for node in tree if node.uuid in wanted for above in tree.ancestors(node.name))

    def _round(self, startup: bool) -> Round:
        grafts = self._grafts.nodes()
        nodes = self._driver.nodes()
        seen = self._placement.read(nodes)
        tree = grafted(self._driver.update_provider_tree(tree_of(seen)), grafts, root=nodes[0])
        tree = identified(_marked(tree).marked_native(), seen, self._ids)
        merged = merge(with_foreign(tree, seen, self._published.content), self.configs)
        if startup and merged.conflicts:
            raise start_error(merged.conflicts)
        changes = self._changes(merged.tree, seen)
        self._apply(changes, seen)
        self.tree, self.devices = merged.tree, len(grafts)
        self._grafts.published({node.name: merged.tree[node.name].uuid or "" for node in grafts})
        warnings = (*_sentences(merged), *changes.warnings)
        self._warn(warnings)
        return Round(merged.tree, len(changes.steps), warnings)

    def _changes(self, tree: ProviderTree, seen: Sequence[SeenProvider]) -> Changes:
        published = self._published.content
        used = {uuid: self._placement.usages(uuid) for uuid in unwanted(tree, seen, published)}
        return diff(tree, seen, published, used)

    def _apply(self, changes: Changes, seen: Sequence[SeenProvider]) -> None:
        """Done twice, or only half, it is the next round that finds the rest."""
        if changes.steps:
            self._published.save(either(self._published.content, changes.published))
            self._writer.write(changes.steps, seen)
            log.info("provider tree published", extra={"writes": len(changes.steps)})
        self._published.save(changes.published)

    def _warn(self, warnings: Sequence[str]) -> None:
        """Each sentence once, and again when it went away in between."""
        for warning in warnings:
            if warning not in self._warned:
                log.warning(warning)
        self._warned = frozenset(warnings)


class ResourcesDuty:
    """An update each period, and when woken by the topic of its name: programmed devices change their traits."""

    def __init__(self, tracker: ResourceTracker, *, host: str, clock: Clock, period_s: float) -> None:
        self.name = resources_topic(host)
        self._tracker = tracker
        self._clock = clock
        self._period = timedelta(seconds=period_s)

    def tick(self) -> datetime:
        try:
            self._tracker.update()
        except MoorageError as error:  # Placement is away or busy: the next period will do
            log.warning("the provider tree could not be updated; trying again", extra={"why": str(error)})
        return self._clock.now() + self._period


def resources_topic(host: str) -> str:
    """What to wake so that the host's providers are compared with Placement at once."""
    return f"resources of {host}"


def _marked(tree: ProviderTree) -> ProviderTree:
    for root in tree.roots:
        tree = tree.with_traits(root.name, root.traits | {COMPUTE_NODE_TRAIT})
    return tree


def _sentences(merged: Merged) -> list[str]:
    absent = [
        f"{config.source}: there is no provider {config.who} on this host now; the entry waits for it"
        for config in merged.absent
    ]
    return [*(f"{conflict} (ignored until then)" for conflict in merged.conflicts), *absent]


class _Reader:
    """Placement's tree of the compute nodes; remembers what it read by generation."""

    def __init__(self, placement: PlacementClient) -> None:
        self._placement = placement
        self._roots: dict[str, str] = {}  #: compute node -> provider uuid
        self._known: dict[str, SeenProvider] = {}

    def read(self, nodes: Iterable[str]) -> list[SeenProvider]:
        listed = [provider for node in nodes for provider in self._tree(node)]
        self._known = {provider.uuid: self._provider(provider) for provider in listed}
        return list(self._known.values())

    def usages(self, uuid: str) -> Mapping[str, int]:
        return self._placement.usages(uuid)

    def forget(self) -> None:
        self._known = {}

    def _tree(self, node: str) -> list[Provider]:
        if node in self._roots and (listed := self._placement.tree(self._roots[node])):
            return listed
        root = self._placement.provider_by_name(node)
        if root is None:
            self._roots.pop(node, None)
            return []
        self._roots[node] = root.uuid
        return self._placement.tree(root.uuid)

    def _provider(self, listed: Provider) -> SeenProvider:
        known = self._known.get(listed.uuid)
        if known is not None and known.generation == listed.generation:
            return replace(known, name=listed.name, parent_uuid=listed.parent_uuid)
        generation, inventories = self._placement.inventories(listed.uuid)
        later, traits = self._placement.traits(listed.uuid)
        return SeenProvider(
            uuid=listed.uuid,
            name=listed.name,
            # Written between the two readings: with the older number a write is refused, and the round repeated.
            generation=min(generation, later),
            parent_uuid=listed.parent_uuid,
            inventories={name: inventory_of(inventory) for name, inventory in inventories.items()},
            traits=traits,
        )


class _Writer:
    def __init__(self, placement: PlacementClient) -> None:
        self._placement = placement

    def write(self, steps: Sequence[Step], seen: Iterable[SeenProvider]) -> None:
        """Raises `Conflict` when a provider changed since it was seen, or a class came into use."""
        generations = {provider.uuid: provider.generation for provider in seen}
        for step in steps:
            match step:
                case CreateProvider(uuid, name, parent_uuid):
                    created = self._placement.create_provider(name, uuid=uuid, parent_uuid=parent_uuid)
                    generations[uuid] = created.generation
                case PutInventories(uuid, inventories, ensure):
                    self._ensure(ensure, traits=False)
                    wanted = {name: _for_placement(inventory) for name, inventory in inventories.items()}
                    generations[uuid] = self._placement.set_inventories(uuid, generations[uuid], wanted)
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


def _for_placement(inventory: Inventory) -> PlacementInventory:
    return PlacementInventory(
        total=inventory.total,
        reserved=inventory.reserved,
        min_unit=inventory.min_unit,
        max_unit=inventory.max_unit,
        step_size=inventory.step_size,
        allocation_ratio=inventory.allocation_ratio,
    )
