"""Keeps this host's providers in Placement up to date: reads them, collects the host's resources, writes the
difference.

    read Placement -> virt driver -> accelerators -> files merged -> drift backoff -> diff -> writes

An update in which nothing changed makes one request per compute node. Placement increases a provider's generation with
every change of its inventories and traits, so the tracker reads those again only when the listed generation differs.
Allocations increase it too, which only causes an unnecessary read.

Spec: docs/evidence/specs/provider-config.md, "Merging"
"""

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from moorage.agent.provider_config.load import DirectoryStamp, ProviderFiles, directory_stamp, load_provider_files
from moorage.agent.provider_config.rules.merge import MergeResult, merge_configs, start_error
from moorage.agent.provider_config.rules.model import ProviderConfig
from moorage.agent.tracker.placement_tree import PlacementTreeReader, PlacementTreeWriter
from moorage.agent.tracker.published_state import PublishedFile, published_union
from moorage.agent.tree.provider_tree import (
    AcceleratorProviders,
    ProviderNode,
    ProviderTree,
    SeenProvider,
    tree_of,
    with_accelerators,
)
from moorage.agent.tree.provider_tree_diff import (
    ClassOrTrait,
    DriftBackoff,
    ProviderTreeDiff,
    diff,
    drifted_items,
    providers_losing_classes,
    with_foreign_providers,
    with_uuids,
)
from moorage.core.backoff import Backoff
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, MoorageError, Unavailable
from moorage.core.ids import Ids
from moorage.placement.client.placement_client import PlacementClient

log = logging.getLogger(__name__)

#: Attempts of one update while other clients write to the same providers. After them, the update fails until the next
#: period.
MAX_ATTEMPTS = 5
#: Pauses between these attempts.
ATTEMPT_BACKOFF = Backoff(first_s=0.2, longest_s=1.6)

#: Pauses between updates while Placement does not answer.
UPDATE_BACKOFF = Backoff(first_s=5.0, longest_s=300.0)

#: Nova sets these traits on every compute node. Other services recognise compute nodes by them, and Nova's scheduler
#: requires them.
COMPUTE_NODE_TRAITS = frozenset({"COMPUTE_NODE", "OWNER_NOVA"})


@dataclass(frozen=True)
class UpdateResult:
    """The result of an update, or of a preview."""

    tree: ProviderTree  #: as published
    changes: ProviderTreeDiff
    seen: tuple[SeenProvider, ...]  #: the providers in Placement before the update
    warnings: tuple[str, ...]

    @property
    def written(self) -> int:
        """Number of writes; 0: Placement was up to date."""
        return len(self.changes.steps)


@dataclass(frozen=True)
class _UpdatePlan:
    """The writes of an update, decided before the first of them."""

    merged: MergeResult
    changes: ProviderTreeDiff
    seen: Sequence[SeenProvider]
    accelerators: tuple[str, ...]  #: names of the accelerators' providers
    to_restore: set[ClassOrTrait]
    warnings: tuple[str, ...]


class ProviderSource(Protocol):
    """The provider methods of `moorage.agent.virt.driver.VirtDriver`, with the same contract."""

    def nodes(self) -> Sequence[str]: ...

    def update_provider_tree(self, tree: ProviderTree) -> ProviderTree: ...


class ResourceTracker:
    """Publishes this host's provider tree. Updates run one at a time; the attributes may be read from any thread.

    `accelerators` is the accelerator agent of this host.
    """

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
        self._update_lock = threading.Lock()
        self._warned: frozenset[str] = frozenset()
        self.files = files
        #: {file name: text} as read by `start`, and the directory's stamp before it read them.
        self.texts: Mapping[str, str] = {}
        self.stamp: DirectoryStamp = ()
        #: The provider configuration in force.
        self.configs: Sequence[ProviderConfig] = ()
        #: The tree as the last update published it.
        self.tree = ProviderTree()
        #: Number of the accelerators' providers in `tree`.
        self.devices = 0

    def start(self) -> UpdateResult:
        """Reads the configuration files and publishes. Raises `StartError` for a file that is faulty or contradicts the
        driver.
        """
        self.stamp = directory_stamp(self.files.directory)
        report = load_provider_files(self.files)
        self.texts = report.texts
        return self.adopt_configs(report.configs)

    def adopt_configs(self, configs: Sequence[ProviderConfig]) -> UpdateResult:
        """Publishes the tree with `configs`, and uses them from now on.

        Raises `StartError` if they contradict the driver, and the errors of Placement's client. After an error the
        previous configuration stays in use.
        """
        with self._update_lock:
            before, self.configs = self.configs, configs
            try:
                return self._update_with_retries(startup=True)
            except BaseException:  # also an interrupted update must leave the previous configuration in use
                self.configs = before
                raise

    def follow_configs(self, configs: Sequence[ProviderConfig]) -> None:
        """Uses `configs` from the next update on. An entry that contradicts the driver is omitted, with a warning."""
        with self._update_lock:
            self.configs = configs

    def update(self) -> UpdateResult:
        """Brings Placement up to date.

        Raises `Conflict` if other clients wrote to the providers during all `MAX_ATTEMPTS` attempts, and the errors of
        Placement's client.
        """
        with self._update_lock:
            return self._update_with_retries(startup=False)

    def preview_configs(self, configs: Sequence[ProviderConfig]) -> UpdateResult:
        """Returns the result that `adopt_configs` would have, and writes nothing. Raises the same errors as
        `adopt_configs`.
        """
        with self._update_lock:
            plan = self._plan_update(configs)
        if plan.merged.conflicts:
            raise start_error(plan.merged.conflicts)
        return UpdateResult(plan.merged.tree, plan.changes, tuple(plan.seen), plan.warnings)

    def allocations_by_consumer(self, provider: str) -> Mapping[str, Mapping[str, int]]:
        """Allocations of a provider: {consumer: {class: units}}."""
        return self._placement.allocations_by_consumer(provider)

    def random_fraction(self) -> float:
        """A random number in [0, 1)."""
        return int(self._ids.uuid()[:8], 16) / (1 << 32)

    def _update_with_retries(self, *, startup: bool) -> UpdateResult:
        for conflicts in range(1, MAX_ATTEMPTS):
            try:
                return self._update_once(startup)
            except Conflict as conflict:
                log.info("another client wrote to a provider of this host; reading again", extra={"why": str(conflict)})
            self._placement.forget_generations()
            self._clock.sleep(ATTEMPT_BACKOFF.pause_s(conflicts))
        return self._update_once(startup)

    def provider_uuid(self, node: str) -> str:
        """UUID of a compute node's provider. Raises `ValueError` if it is not published yet."""
        return self.tree[node].known_uuid

    def ancestor_names(self, uuids: Iterable[str]) -> frozenset[str]:
        """Names of all ancestors of the providers `uuids`; for a server's devices: their NUMA nodes and roots."""
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
        seen = self._placement.read_providers(nodes)
        tree = with_accelerators(self._driver.update_provider_tree(tree_of(seen)), accelerators, root=nodes[0])
        tree = with_uuids(_with_compute_node_traits(tree).marked_native(), seen, self._ids)
        merged = merge_configs(with_foreign_providers(tree, seen, self._published.content), configs)
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
        used = {uuid: self._placement.usages(uuid) for uuid in providers_losing_classes(tree, seen, published)}
        return diff(tree, seen, published, used, backed_off.keys())

    def _apply(self, changes: ProviderTreeDiff, seen: Sequence[SeenProvider]) -> None:
        """Writes `changes`. After a crash at any point, the next update writes the rest."""
        if changes.steps:
            self._published.save(published_union(self._published.content, changes.published))
            self._writer.write_steps(changes.steps, seen)
            log.info("provider tree published", extra={"writes": len(changes.steps)})
        self._published.save(changes.published)

    def _log_new_warnings(self, warnings: Sequence[str]) -> None:
        """Logs each warning that the last update did not have."""
        for warning in warnings:
            if warning not in self._warned:
                log.warning(warning)
        self._warned = frozenset(warnings)


class ResourcesTask:
    """Updates the tree every period, and when its topic is woken, for example because programming a device changed its
    traits.

    While Placement does not answer, the pauses grow as in `UPDATE_BACKOFF`. While the compute node of another compute
    service is missing, they grow only up to the period, because this update costs Placement little. So the accelerators
    of the host appear in Placement at most one and a half periods after their compute node.
    """

    #: Minimum pause between runs, so that one update publishes the changes of several servers.
    min_pause_s = 0.2

    def __init__(self, tracker: ResourceTracker, *, host: str, clock: Clock, period_s: float) -> None:
        self.name = resources_topic(host)
        self._tracker = tracker
        self._clock = clock
        self._period_s = period_s
        self._node_backoff = replace(UPDATE_BACKOFF, longest_s=period_s)
        self._failures = 0

    def run_once(self) -> datetime:
        try:
            self._tracker.update()
        except MoorageError as error:  # Placement is unavailable or busy, or another service's compute node is missing
            self._failures += 1
            backoff = self._node_backoff if isinstance(error, NoComputeNode) else UPDATE_BACKOFF
            pause_s = backoff.pause_s(self._failures, self._tracker.random_fraction())
            log.warning(
                "the provider tree could not be updated; trying again",
                extra={"why": str(error), "failures": self._failures, "pause_s": round(pause_s, 1)},
            )
            return self._clock.now() + timedelta(seconds=pause_s)
        if self._failures:
            log.info("the provider tree is up to date again", extra={"failures": self._failures})
        self._failures = 0
        return self._clock.now() + timedelta(seconds=self._period_s)


def resources_topic(host: str) -> str:
    """The topic to wake in order to update the host's providers in Placement at once."""
    return f"resources of {host}"


def _with_compute_node_traits(tree: ProviderTree) -> ProviderTree:
    for root in tree.roots:
        tree = tree.with_traits(root.name, root.traits | COMPUTE_NODE_TRAITS)
    return tree


def _config_warnings(merged: MergeResult) -> list[str]:
    absent = [
        f"{config.source}: this host has no provider {config.identification} now; the entry has no effect"
        for config in merged.absent
    ]
    return [*(f"{conflict} (ignored until then)" for conflict in merged.conflicts), *absent]


def _backoff_warnings(items: Mapping[ClassOrTrait, datetime], seen: Iterable[SeenProvider]) -> list[str]:
    names = {provider.uuid: provider.name for provider in seen}
    return [
        f"{name} of provider {names[uuid]} is changed by another client each time this agent sets it; this "
        f"agent leaves it for now. Find that client (a second agent of this name, a script), or remove {name} from the "
        "files"
        for uuid, name in sorted(items)
    ]


class NoComputeNode(Unavailable):
    """The other compute service has not created the host's provider: it has not started, or uses another host name."""

    code = "agent.no_compute_node"


class ExternalHypervisor:
    """Provider source of a host whose servers another compute service manages, for example Nova.

    `node` is the name of that service's compute node, below which this agent adds accelerators.
    """

    def __init__(self, node: str) -> None:
        self._node = node

    def nodes(self) -> Sequence[str]:
        return (self._node,)

    def update_provider_tree(self, tree: ProviderTree) -> ProviderTree:
        """The compute node without its resources. Raises `NoComputeNode` if the other service has not created it
        yet.
        """
        if self._node not in tree:
            raise NoComputeNode(
                f"Placement has no compute node {self._node} yet; start the compute service of this host, or correct "
                "[agent] host, which must be its hypervisor's name"
            )
        return ProviderTree([ProviderNode(self._node, ours=False)])
