"""Keeps Placement's picture of this host right: read, let the driver and the files say what is, write the difference.

    files (kept) -> accelerators -> Placement's tree -> virt driver -> grafts -> files merged -> diff -> writes

A round in which nothing changed makes one request per compute node. Placement bumps a provider's generation with
every change of its inventories and traits, so those are read again only when the generation of the listing moved.
Allocations bump it too, which costs a superfluous reading and never a stale one.

Spec: docs/evidence/specs/provider-config.md, "Merging"
"""

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from moorage.agent.provider_config.load import DirectoryStamp, ProviderFiles, directory_stamp, load_provider_files
from moorage.agent.provider_config.rules.merge import MergeResult, merge_configs, start_error
from moorage.agent.provider_config.rules.model import ProviderConfig
from moorage.agent.tracker.placement_tree import PlacementTreeReader, PlacementTreeWriter
from moorage.agent.tracker.published_state import PublishedFile, published_union
from moorage.agent.tree.accelerator_subtree import AcceleratorProviders, with_accelerators
from moorage.agent.tree.drift_backoff import ClassOrTrait, DriftBackoff, drifted_items
from moorage.agent.tree.provider_tree import ProviderNode, ProviderTree, SeenProvider, tree_of
from moorage.agent.tree.provider_tree_diff import ProviderTreeDiff, diff, identified, unwanted, with_foreign
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, MoorageError, Unavailable
from moorage.core.ids import Ids
from moorage.placement.client.placement_client import PlacementClient

log = logging.getLogger(__name__)

#: Rounds in one update when others write to the same providers meanwhile; then it is left to the next period.
MAX_ROUNDS = 5
#: Pause before the 2nd round; doubled for each further one.
FIRST_PAUSE_S = 0.2

#: While Placement is away.
FIRST_RETRY_S = 5.0
LONGEST_RETRY_S = 300.0

#: What Nova puts on every compute node: what others tell them apart by, and what its scheduler wants of every root.
COMPUTE_NODE_TRAITS = frozenset({"COMPUTE_NODE", "OWNER_NOVA"})


@dataclass(frozen=True)
class UpdateResult:
    """What an update came to."""

    tree: ProviderTree  #: as it is published
    changes: ProviderTreeDiff
    seen: tuple[SeenProvider, ...]  #: before it
    warnings: tuple[str, ...]

    @property
    def written(self) -> int:
        """Steps; 0: Placement had it right."""
        return len(self.changes.steps)


@dataclass(frozen=True)
class _UpdatePlan:
    """What a round would do, before anything is done."""

    merged: MergeResult
    changes: ProviderTreeDiff
    seen: Sequence[SeenProvider]
    accelerators: tuple[str, ...]  #: names of accelerators' providers
    to_restore: set[ClassOrTrait]
    warnings: tuple[str, ...]


class ProviderSource(Protocol):
    """As much of a virt driver as is about providers (`moorage.agent.virt.driver.VirtDriver`)."""

    def nodes(self) -> Sequence[str]: ...

    def update_provider_tree(self, tree: ProviderTree) -> ProviderTree: ...


class ResourceTracker:
    """`accelerator_subtree` is the accelerator agent. One round at a time, whoever asks; the views may be read from any thread."""

    def __init__(
        self,
        *,
        driver: ProviderSource,
        accelerators: AcceleratorProviders,
        placement: PlacementClient,
        files: ProviderFiles,
        published: PublishedFile,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._driver = driver
        self._accelerators = accelerators
        self._placement = PlacementTreeReader(placement)
        self._writer = PlacementTreeWriter(placement)
        self._published = published
        self._clock = clock
        self._ids = ids
        self._backoff = DriftBackoff()
        self._one_at_a_time = threading.Lock()
        self._warned: frozenset[str] = frozenset()
        self.files = files
        #: What `start` has read: the files themselves, and what they looked like before.
        self.texts: Mapping[str, str] = {}
        self.stamp: DirectoryStamp = ()
        #: What the files say, as they were accepted last.
        self.configs: Sequence[ProviderConfig] = ()
        #: The tree of the last update.
        self.tree = ProviderTree()
        #: Providers of accelerators in it.
        self.devices = 0

    def start(self) -> UpdateResult:
        """Read the files and publish. Raises `StartError` for a faulty file or one that contradicts the driver."""
        self.stamp = directory_stamp(self.files.directory)
        report = load_provider_files(self.files)
        self.texts = report.texts
        return self.adopt_configs(report.configs)

    def adopt_configs(self, configs: Sequence[ProviderConfig]) -> UpdateResult:
        """Publish with `configs`, which count from now on.

        Raises `StartError` when they contradict the driver, and what Placement refuses or does not answer: then what
        counted before still does.
        """
        with self._one_at_a_time:
            before, self.configs = self.configs, configs
            try:
                return self._update_with_retries(startup=True)
            except BaseException:
                self.configs = before
                raise

    def follow_configs(self, configs: Sequence[ProviderConfig]) -> None:
        """`configs` count from the next update on; what contradicts the driver is left out of it, with a warning."""
        with self._one_at_a_time:
            self.configs = configs

    def update(self) -> UpdateResult:
        """Bring Placement up to date. Raises `Conflict` when others were in the way `MAX_ROUNDS` times."""
        with self._one_at_a_time:
            return self._update_with_retries(startup=False)

    def preview_configs(self, configs: Sequence[ProviderConfig]) -> UpdateResult:
        """What `adopt_configs` would do, with nothing done. Raises what it would raise."""
        with self._one_at_a_time:
            plan = self._plan_update(configs)
        if plan.merged.conflicts:
            raise start_error(plan.merged.conflicts)
        return UpdateResult(plan.merged.tree, plan.changes, tuple(plan.seen), plan.warnings)

    def holders(self, provider: str) -> Mapping[str, Mapping[str, int]]:
        """Who uses a provider: {consumer: {class: units}}"""
        return self._placement.holders(provider)

    def random_fraction(self) -> float:
        """In [0, 1), another one each time."""
        return int(self._ids.uuid()[:8], 16) / (1 << 32)

    def _update_with_retries(self, *, startup: bool) -> UpdateResult:
        pause_s = FIRST_PAUSE_S
        for _ in range(MAX_ROUNDS - 1):
            try:
                return self._update_once(startup)
            except Conflict as conflict:
                log.info("somebody else wrote to a provider of this host; reading again", extra={"why": str(conflict)})
            self._placement.forget()
            self._clock.sleep(pause_s)
            pause_s *= 2
        return self._update_once(startup)

    def provider_uuid(self, node: str) -> str:
        """Of a compute node, once it was published."""
        return self.tree[node].known_uuid

    def ancestor_names(self, uuids: Iterable[str]) -> frozenset[str]:
        """Names of all providers that those of `uuids` hang below: where a server's devices are."""
        tree, wanted = self.tree, set(uuids)
        return frozenset(above for node in tree if node.uuid in wanted for above in tree.ancestors(node.name))

    def _update_once(self, startup: bool) -> UpdateResult:
        plan = self._plan_update(self.configs)
        if startup and plan.merged.conflicts:
            raise start_error(plan.merged.conflicts)
        tree = plan.merged.tree
        self._apply(plan.changes, plan.seen)
        self._backoff.record_restored(plan.to_restore, self._clock.now())
        self.tree, self.devices = tree, len(plan.accelerators)
        self._accelerators.published({name: tree[name].uuid or "" for name in plan.accelerators})
        self._log_new_warnings(plan.warnings)
        return UpdateResult(tree, plan.changes, tuple(plan.seen), plan.warnings)

    def _plan_update(self, configs: Sequence[ProviderConfig]) -> _UpdatePlan:
        accelerators = self._accelerators.nodes()
        nodes = self._driver.nodes()
        seen = self._placement.read(nodes)
        tree = with_accelerators(self._driver.update_provider_tree(tree_of(seen)), accelerators, root=nodes[0])
        tree = identified(_with_compute_node_traits(tree).marked_native(), seen, self._ids)
        merged = merge_configs(with_foreign(tree, seen, self._published.content), configs)
        changed = drifted_items(self.tree, merged.tree, {provider.uuid: provider for provider in seen})
        backed_off = self._backoff.backed_off(changed, self._clock.now())
        changes = self._diff(merged.tree, seen, backed_off)
        return _UpdatePlan(
            merged,
            changes,
            seen,
            tuple(node.name for node in accelerators),
            changed - backed_off.keys(),
            (*_config_warnings(merged), *changes.warnings, *_backoff_warnings(backed_off, seen)),
        )

    def _diff(
        self, tree: ProviderTree, seen: Sequence[SeenProvider], backed_off: Mapping[ClassOrTrait, object]
    ) -> ProviderTreeDiff:
        published = self._published.content
        used = {uuid: self._placement.usages(uuid) for uuid in unwanted(tree, seen, published)}
        return diff(tree, seen, published, used, backed_off.keys())

    def _apply(self, changes: ProviderTreeDiff, seen: Sequence[SeenProvider]) -> None:
        """Done twice, or only half, it is the next round that finds the rest."""
        if changes.steps:
            self._published.save(published_union(self._published.content, changes.published))
            self._writer.write(changes.steps, seen)
            log.info("provider tree published", extra={"writes": len(changes.steps)})
        self._published.save(changes.published)

    def _log_new_warnings(self, warnings: Sequence[str]) -> None:
        """Each sentence once, and again when it went away in between."""
        for warning in warnings:
            if warning not in self._warned:
                log.warning(warning)
        self._warned = frozenset(warnings)


class ResourcesTask:
    """An update each period, and when woken by the topic of its name: programmed devices change their traits.

    While Placement is away it is asked again soon, then ever more rarely. A compute node of another service that is not
    there yet is no burden for Placement: it is looked for again soon, then each period, so that the host's accelerators
    follow it within a period and a half however long it took.
    """

    #: Servers that come and go one after the other are published together.
    min_pause_s = 0.2

    def __init__(self, tracker: ResourceTracker, *, host: str, clock: Clock, period_s: float) -> None:
        self.name = resources_topic(host)
        self._tracker = tracker
        self._clock = clock
        self._period_s = period_s
        self._failures = 0

    def run_once(self) -> datetime:
        try:
            self._tracker.update()
        except MoorageError as error:  # Placement is away or busy, or the compute node of another service is not there
            self._failures += 1
            pause_s = self._pause_s(self._period_s if isinstance(error, NoComputeNode) else LONGEST_RETRY_S)
            log.warning(
                "the provider tree could not be updated; trying again",
                extra={"why": str(error), "failures": self._failures, "pause_s": round(pause_s, 1)},
            )
            return self._clock.now() + timedelta(seconds=pause_s)
        if self._failures:
            log.info("the provider tree is up to date again", extra={"failures": self._failures})
        self._failures = 0
        return self._clock.now() + timedelta(seconds=self._period_s)

    def _pause_s(self, longest_s: float) -> float:
        """`FIRST_RETRY_S`, doubled for each failure, to `longest_s`; between half of it and one and a half: many hosts
        that lost Placement together must not come back together.
        """
        pause_s = min(FIRST_RETRY_S * (1 << min(self._failures - 1, 16)), longest_s)
        return pause_s * (0.5 + self._tracker.random_fraction())


def resources_topic(host: str) -> str:
    """What to wake so that the host's providers are compared with Placement at once."""
    return f"resources of {host}"


def _with_compute_node_traits(tree: ProviderTree) -> ProviderTree:
    for root in tree.roots:
        tree = tree.with_traits(root.name, root.traits | COMPUTE_NODE_TRAITS)
    return tree


def _config_warnings(merged: MergeResult) -> list[str]:
    absent = [
        f"{config.source}: there is no provider {config.who} on this host now; the entry waits for it"
        for config in merged.absent
    ]
    return [*(f"{conflict} (ignored until then)" for conflict in merged.conflicts), *absent]


def _backoff_warnings(items: Mapping[ClassOrTrait, datetime], seen: Iterable[SeenProvider]) -> list[str]:
    names = {provider.uuid: provider.name for provider in seen}
    return [
        f"{name} of provider {names[uuid]} is changed by somebody else each time this agent has set it; left as it is "
        f"for now. Find who that is (a second agent of this name, a script), or take {name} out of the files"
        for uuid, name in sorted(items)
    ]


class NoComputeNode(Unavailable):
    """The other service has not made the host's provider: it starts later, or never under this name."""

    code = "agent.no_compute_node"


class ExternalHypervisor:
    """What the resource tracker asks of a virt driver, and nothing else."""

    def __init__(self, node: str) -> None:
        self._node = node

    def nodes(self) -> Sequence[str]:
        return (self._node,)

    def update_provider_tree(self, tree: ProviderTree) -> ProviderTree:
        """Nothing but a place to hang something on. Raises `NoComputeNode` until the other service has made it."""
        if self._node not in tree:
            raise NoComputeNode(
                f"Placement has no compute node {self._node} yet; start the compute service of this host, or correct "
                "[agent] host, which must be its hypervisor's name"
            )
        return ProviderTree([ProviderNode(self._node, ours=False)])
