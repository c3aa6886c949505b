"""[pure] The resource providers of a host: `ProviderTree` as wanted, by name, and `SeenProvider` as Placement has it.

A class or trait is *native* if the virt driver or the accelerator agent reports it. Provider configuration files and
other services add further ones.

`with_accelerators` adds the providers of accelerators to the tree of a virt driver, which does not know them. The
accelerator agent reports them, each with its parent's name, and gets their UUIDs after the update. Not here: the writes
that make Placement equal to the wanted tree (`moorage.agent.tree.provider_tree_diff`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from moorage.core.inventories import Inventory

_NO_INVENTORIES: Mapping[str, Inventory] = MappingProxyType({})


@dataclass(frozen=True)
class ProviderNode:
    """A provider that this host wants in Placement.

    `native` and `native_traits` are its classes and traits that the virt driver or the accelerators report in this
    update; provider configuration files may not name those classes.
    """

    name: str
    parent: str | None = None  #: name of the parent; None: a compute node
    inventories: Mapping[str, Inventory] = field(default_factory=lambda: _NO_INVENTORIES)
    traits: frozenset[str] = frozenset()
    uuid: str | None = None  #: None: `with_uuids` takes Placement's uuid for this name, or a new one
    native: frozenset[str] = frozenset()
    native_traits: frozenset[str] = frozenset()
    #: False: another client created it, for example a reservation provider. It is in the tree because provider
    #: configuration may add to it.
    ours: bool = True

    @property
    def known_uuid(self) -> str:
        """The uuid. Raises `ValueError` if it has none yet (see `provider_tree_diff.with_uuids`)."""
        if self.uuid is None:
            raise ValueError(f"provider {self.name} has no uuid yet")
        return self.uuid


class ProviderTree:
    """Immutable; `with_*` return a new tree. Iteration gives parents before their children."""

    def __init__(self, nodes: Iterable[ProviderNode] = ()) -> None:
        self._nodes: dict[str, ProviderNode] = {}
        for node in nodes:
            if node.parent is not None and node.parent not in self._nodes:
                raise ValueError(f"provider {node.name} comes before, or without, its parent {node.parent}")
            if node.name in self._nodes:
                raise ValueError(f"provider {node.name} is in the tree twice")
            self._nodes[node.name] = node

    def __iter__(self) -> Iterator[ProviderNode]:
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, name: object) -> bool:
        return name in self._nodes

    def __getitem__(self, name: str) -> ProviderNode:
        return self._nodes[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProviderTree) and self._nodes == other._nodes

    #: Trees cannot be hashed, because their nodes contain mappings.
    __hash__ = None  # type: ignore[assignment]  # typeshed declares a method only

    def get(self, name: str) -> ProviderNode | None:
        return self._nodes.get(name)

    @property
    def roots(self) -> list[ProviderNode]:
        """The compute nodes, to which ``$COMPUTE_NODE`` refers."""
        return [node for node in self if node.parent is None]

    def with_node(self, node: ProviderNode) -> "ProviderTree":
        """A copy with `node` added, or put in place of the node with the same name."""
        if node.name in self._nodes:
            return ProviderTree(node if old.name == node.name else old for old in self)
        return ProviderTree([*self, node])

    def with_traits(self, name: str, traits: Iterable[str]) -> "ProviderTree":
        return self.with_node(replace(self[name], traits=frozenset(traits)))

    def ancestors(self, name: str) -> list[str]:
        """Names from the parent up to the root."""
        names: list[str] = []
        parent = self[name].parent
        while parent is not None:
            names.append(parent)
            parent = self[parent].parent
        return names

    def marked_native(self) -> "ProviderTree":
        """A copy with all present classes and traits marked as native."""
        return ProviderTree(
            replace(node, native=frozenset(node.inventories), native_traits=node.traits) for node in self
        )


@dataclass(frozen=True)
class SeenProvider:
    """A provider as Placement has it."""

    uuid: str
    name: str
    generation: int
    parent_uuid: str | None = None
    inventories: Mapping[str, Inventory] = field(default_factory=lambda: _NO_INVENTORIES)
    traits: frozenset[str] = frozenset()


def tree_of(seen: Iterable[SeenProvider]) -> ProviderTree:
    """Placement's providers as a tree. A provider whose parent is not in `seen` becomes a root."""
    by_uuid = {provider.uuid: provider for provider in seen}
    ordered: dict[str, ProviderNode] = {}

    def add(provider: SeenProvider) -> None:
        if provider.name in ordered:
            return
        parent = by_uuid.get(provider.parent_uuid or "")
        if parent is not None:
            add(parent)
        ordered[provider.name] = ProviderNode(
            name=provider.name,
            parent=parent.name if parent else None,
            inventories=dict(provider.inventories),
            traits=provider.traits,
            uuid=provider.uuid,
        )

    for provider in by_uuid.values():
        add(provider)
    return ProviderTree(ordered.values())


class AcceleratorProviderNode(Protocol):
    """The provider of one accelerator: a region of an FPGA, a GPU."""

    @property
    def name(self) -> str: ...
    @property
    def parent(self) -> str:
        """Name of its parent: the root, a NUMA node, or an accelerator provider that comes before it."""
        ...

    @property
    def inventories(self) -> Mapping[str, Inventory]: ...
    @property
    def traits(self) -> frozenset[str]: ...


class AcceleratorProviders(Protocol):
    """The methods of an accelerator agent that the resource tracker uses."""

    def nodes(self) -> Sequence[AcceleratorProviderNode]:
        """Discovers the devices again. Parents come before children; the same devices always give the same nodes."""
        ...

    def published(self, uuids: Mapping[str, str]) -> None:
        """Called after each update: all `nodes` are in Placement, with their traits. `uuids`: {provider name: uuid}."""
        ...


class NoAcceleratorProviders:
    """A host without accelerators."""

    def nodes(self) -> Sequence[AcceleratorProviderNode]:
        return ()

    def published(self, uuids: Mapping[str, str]) -> None:
        return


def with_accelerators(tree: ProviderTree, nodes: Sequence[AcceleratorProviderNode], root: str) -> ProviderTree:
    """`tree` with `nodes` added. A node whose parent is not in the tree is added below `root`.

    A driver may report no NUMA nodes, and the scheduler must still find the devices below them.
    """
    for node in nodes:
        tree = tree.with_node(
            ProviderNode(
                name=node.name,
                parent=node.parent if node.parent in tree else root,
                inventories=node.inventories,
                traits=frozenset(node.traits),
            )
        )
    return tree
