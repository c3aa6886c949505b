"""[pure] The writes that make Placement equal to this host's wanted tree, except for the entries of other clients.

Other clients write to the same providers: reservations, operators, audits. So the agent records its own writes
(`Published`) and removes only entries that it wrote: a class or trait that another client wrote stays, even if it is
not wanted.

    seen {VCPU, CUSTOM_A, CUSTOM_RESERVATION_1}, published {VCPU, CUSTOM_A}, wanted {VCPU}
    ->  PutInventories {VCPU, CUSTOM_RESERVATION_1}

`DriftBackoff` decides when the agent restores a class or trait that another client has changed. The first restores are
immediate, since the change may be an operator's mistake or come from a restored backup. If the item is changed
repeatedly, another client, for example a second agent of the same name or a script, undoes each restore. Then the agent
doubles the pause before each further restore of this item. It stops counting when the item has been left unchanged for
twice the last pause.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from moorage.agent.tree.provider_tree import ProviderNode, ProviderTree, SeenProvider
from moorage.core.backoff import Backoff
from moorage.core.ids import Ids
from moorage.core.inventories import Inventory
from moorage.core.names import CUSTOM_PREFIX

#: Provider uuid -> class -> units in use.
Usages = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class PublishedProvider:
    """The entries of a provider in Placement that this agent wrote and may therefore remove."""

    name: str
    created: bool  #: whether this agent created the provider
    classes: frozenset[str] = frozenset()
    traits: frozenset[str] = frozenset()


#: {provider uuid: the part of the provider that this agent published}.
Published = Mapping[str, PublishedProvider]


@dataclass(frozen=True)
class CreateProvider:
    uuid: str
    name: str
    parent_uuid: str | None


@dataclass(frozen=True)
class PutInventories:
    uuid: str
    inventories: Mapping[str, Inventory]  #: all of the provider after the write
    ensure: tuple[str, ...]  #: custom classes that may not exist yet


@dataclass(frozen=True)
class PutTraits:
    uuid: str
    traits: frozenset[str]  #: all of the provider after the write
    ensure: tuple[str, ...]  #: custom traits that may not exist yet


@dataclass(frozen=True)
class DropProvider:
    uuid: str
    name: str


Step = CreateProvider | PutInventories | PutTraits | DropProvider


@dataclass(frozen=True)
class ProviderTreeDiff:
    """`steps` are in an order that Placement accepts. The caller records `published` when they are done."""

    steps: tuple[Step, ...]
    published: Published
    warnings: tuple[str, ...]
    #: (provider uuid, class) of each class that is in use but no longer wanted. It accepts no new allocations, and is
    #: removed when it is not in use.
    closed: frozenset[tuple[str, str]] = frozenset()


def with_uuids(tree: ProviderTree, seen: Iterable[SeenProvider], ids: Ids) -> ProviderTree:
    """`tree` with a uuid for every node: the one in Placement for that name, else the node's own, else a new one."""
    uuids = {provider.name: provider.uuid for provider in seen}
    return ProviderTree(replace(node, uuid=uuids.get(node.name) or node.uuid or ids.uuid()) for node in tree)


def with_foreign_providers(tree: ProviderTree, seen: Sequence[SeenProvider], published: Published) -> ProviderTree:
    """`tree` with the providers that other clients created below it, without their inventories and traits.

    Provider configuration may add to these providers.
    """
    names = {provider.uuid: provider.name for provider in seen}
    for provider in by_depth(seen):
        before = published.get(provider.uuid)
        if provider.name in tree or (before is not None and before.created):
            continue
        parent = names.get(provider.parent_uuid or "")
        tree = tree.with_node(
            ProviderNode(provider.name, parent if parent in tree else None, uuid=provider.uuid, ours=False)
        )
    return tree


def providers_losing_classes(tree: ProviderTree, seen: Iterable[SeenProvider], published: Published) -> list[str]:
    """Uuids of the providers that will lose a class. `diff` needs their usages."""
    nodes = {node.uuid: node for node in tree}
    return [
        provider.uuid
        for provider in seen
        if (before := published.get(provider.uuid)) is not None
        and (
            (node := nodes.get(provider.uuid)) is None
            or before.classes.intersection(provider.inventories) - node.inventories.keys()
        )
    ]


def diff(
    tree: ProviderTree,
    seen: Sequence[SeenProvider],
    published: Published,
    used: Usages,
    backed_off: Collection[tuple[str, str]] = (),
) -> ProviderTreeDiff:
    """The steps from the `seen` providers to `tree`, whose nodes all have a uuid (`with_uuids`).

    `backed_off`: (provider uuid, class or trait) of each item that keeps another client's value for now
    (`DriftBackoff.backed_off`). `used`: usages of the providers that `providers_losing_classes` returns.
    """
    plan = _Plan(seen, published, used, backed_off)
    for node in tree:
        plan.plan_wanted(node, plan.uuid_of(node.parent))
    wanted = {node.uuid for node in tree}
    for provider in reversed(by_depth(seen)):
        if provider.uuid not in wanted:
            plan.plan_unwanted(provider)
    return plan.result()


def by_depth(seen: Sequence[SeenProvider]) -> list[SeenProvider]:
    """Parents before children."""
    by_uuid = {provider.uuid: provider for provider in seen}

    def depth(provider: SeenProvider) -> int:
        parent = by_uuid.get(provider.parent_uuid or "")
        return 0 if parent is None else depth(parent) + 1

    return sorted(seen, key=depth)


@dataclass
class _Plan:
    """Collects the steps of one `diff`."""

    seen_list: Sequence[SeenProvider]
    published: Published
    used: Usages
    backed_off: Collection[tuple[str, str]]
    closed: set[tuple[str, str]] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)
    after: dict[str, PublishedProvider] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    uuids: dict[str, str] = field(default_factory=dict)  #: {name: uuid} of the wanted nodes
    kept_parents: set[str] = field(default_factory=set)  #: uuids that still have a child

    def __post_init__(self) -> None:
        self.seen = {provider.uuid: provider for provider in self.seen_list}

    def uuid_of(self, name: str | None) -> str | None:
        return None if name is None else self.uuids[name]

    def plan_wanted(self, node: ProviderNode, parent_uuid: str | None) -> None:
        uuid = self.uuids[node.name] = node.known_uuid
        seen = self.seen.get(uuid)
        if seen is None:
            self.steps.append(CreateProvider(uuid, node.name, parent_uuid))
            seen = SeenProvider(uuid, node.name, generation=0, parent_uuid=parent_uuid)
        elif node.ours and seen.parent_uuid != parent_uuid:
            self.warnings.append(
                f"provider {node.name} is below {seen.parent_uuid} in Placement and not below {parent_uuid}; it stays "
                "there. To move it, use `openstack resource provider set --parent-provider`"
            )
        if seen.parent_uuid:
            self.kept_parents.add(seen.parent_uuid)
        before = self.published.get(uuid, PublishedProvider(node.name, created=False))
        kept = self._in_use(seen, before.classes - node.inventories.keys())
        self._put_inventories(seen, before.classes, {**kept, **node.inventories})
        self._put_traits(seen, before.traits, node.traits)
        after = PublishedProvider(
            name=node.name,
            created=node.ours,
            classes=frozenset(node.inventories) | kept.keys(),
            # A trait of a configuration file that the provider had before may be another client's, so it is not
            # recorded as this agent's. The driver's traits always are.
            traits=(before.traits & node.traits) | (node.traits - seen.traits) | node.native_traits,
        )
        if after.created or after.classes or after.traits:
            self.after[uuid] = after

    def plan_unwanted(self, seen: SeenProvider) -> None:
        """Plans the removal of a provider that is no longer wanted. Call it for children before their parents."""
        before = self.published.get(seen.uuid)
        if before is None or not before.created or seen.parent_uuid is None:
            # Another client created it, or it is a compute node. The agent never deletes compute nodes, because another
            # agent may use the same one now.
            self._keep(seen)
            return
        kept = self._in_use(seen, before.classes)
        in_use = bool(kept) or any(self.used.get(seen.uuid, {}).values())
        foreign = seen.inventories.keys() - before.classes
        if not in_use and not foreign and seen.uuid not in self.kept_parents:
            self.steps.append(DropProvider(seen.uuid, seen.name))
            return
        self._keep(seen)
        self._put_inventories(seen, before.classes, kept)
        if in_use:
            self.after[seen.uuid] = replace(before, classes=frozenset(kept))
            return
        self._put_traits(seen, before.traits, frozenset())
        self.after[seen.uuid] = replace(before, classes=frozenset(), traits=frozenset())

    def result(self) -> ProviderTreeDiff:
        return ProviderTreeDiff(tuple(self.steps), self.after, tuple(self.warnings), frozenset(self.closed))

    def _keep(self, seen: SeenProvider) -> None:
        if seen.parent_uuid:
            self.kept_parents.add(seen.parent_uuid)

    def _in_use(self, seen: SeenProvider, unwanted_classes: frozenset[str]) -> dict[str, Inventory]:
        """{class: fully reserved inventory}, for those of the `unwanted_classes` that are in use."""
        usage = self.used.get(seen.uuid, {})
        kept = {
            name: seen.inventories[name].fully_reserved()
            for name in sorted(unwanted_classes & seen.inventories.keys())
            if usage.get(name, 0) > 0
        }
        self.warnings += [
            f"{name} of provider {seen.name} is no longer wanted, but {usage[name]} are in use; it accepts no new "
            "allocations (reserved = total) and is removed when they are released"
            for name in kept
        ]
        self.closed |= {(seen.uuid, name) for name in kept}
        return kept

    def _put_inventories(self, seen: SeenProvider, before: frozenset[str], wanted: Mapping[str, Inventory]) -> None:
        foreign = {name: inventory for name, inventory in seen.inventories.items() if name not in before}
        target = {**foreign, **wanted}
        for name in self._backed_off(seen, target):
            if name in seen.inventories:
                target[name] = seen.inventories[name]
            else:
                del target[name]
        if target != seen.inventories:
            new = target.keys() - seen.inventories.keys()
            self.steps.append(PutInventories(seen.uuid, target, _custom(new)))

    def _put_traits(self, seen: SeenProvider, before: frozenset[str], wanted: frozenset[str]) -> None:
        target = (seen.traits - before) | wanted
        target = target - self._backed_off(seen, target) | (seen.traits & target)
        if target != seen.traits:
            self.steps.append(PutTraits(seen.uuid, target, _custom(target - seen.traits)))

    def _backed_off(self, seen: SeenProvider, names: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in names if (seen.uuid, name) in self.backed_off)


def _custom(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(name for name in names if name.startswith(CUSTOM_PREFIX)))


#: A class or trait of a provider: (provider uuid, name of the class or trait).
ClassOrTrait = tuple[str, str]

#: Number of restores without a pause.
FREE_RESTORES = 2
#: Between the restores after those.
BACKOFF = Backoff(first_s=120.0, longest_s=3600.0)


def drifted_items(before: ProviderTree, wanted: ProviderTree, seen: Mapping[str, SeenProvider]) -> set[ClassOrTrait]:
    """Classes and traits that this agent published as they are wanted now, and that are different in Placement.

    Those of a deleted provider are not among them: the agent creates it again at once.
    """
    items: set[ClassOrTrait] = set()
    for node in wanted:
        there, earlier = seen.get(node.uuid or ""), before.get(node.name)
        if there is None or earlier is None:
            continue
        items |= {
            (there.uuid, name)
            for name, inventory in node.inventories.items()
            if earlier.inventories.get(name) == inventory and there.inventories.get(name) != inventory
        }
        items |= {(there.uuid, name) for name in (node.traits & earlier.traits) - there.traits}
    return items


@dataclass
class _Drift:
    restores: int = 0
    last: datetime | None = None  #: time of the last restore


@dataclass
class DriftBackoff:
    """Counts the restores of each item. The counts are in memory, so after a restart the agent restores at once."""

    _by_item: dict[ClassOrTrait, _Drift] = field(default_factory=dict)

    def backed_off(self, items: set[ClassOrTrait], now: datetime) -> dict[ClassOrTrait, datetime]:
        """{item: earliest time of its restore}, for the drifted `items` that must not be restored now."""
        self._forget(items, now)
        waiting = {}
        for item in items:
            drift = self._by_item.setdefault(item, _Drift())
            due = now if drift.last is None else drift.last + _pause_before_restore(drift.restores)
            if due > now:
                waiting[item] = due
        return waiting

    def record_restored(self, items: set[ClassOrTrait], now: datetime) -> None:
        """Call it when the agent has written `items` again."""
        for item in items:
            drift = self._by_item.setdefault(item, _Drift())
            drift.restores += 1
            drift.last = now

    def _forget(self, items: set[ClassOrTrait], now: datetime) -> None:
        for item, drift in list(self._by_item.items()):
            if item not in items and drift.last is not None and now - drift.last > _forget_after(drift.restores):
                del self._by_item[item]


def _pause_before_restore(restores: int) -> timedelta:
    """Pause before the next restore, after this number of restores."""
    return timedelta(seconds=BACKOFF.pause_s(restores - FREE_RESTORES + 1))


def _forget_after(restores: int) -> timedelta:
    """The time without a change after which the drift of an item is forgotten."""
    return 2 * max(_pause_before_restore(restores), timedelta(seconds=BACKOFF.first_s))
