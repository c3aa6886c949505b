"""Adds the providers of accelerators to the tree that the virt driver reports.

The accelerator agent reports them, each with its parent's name, and gets their UUIDs after the update. Virt drivers do
not know them.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from moorage.agent.tree.provider_tree import ProviderNode, ProviderTree
from moorage.core.inventories import Inventory


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
