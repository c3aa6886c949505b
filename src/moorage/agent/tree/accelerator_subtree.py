"""What the accelerator agent of this host gives the provider tree, and is told about it.

The virt driver has no part in it: devices are grafted onto the tree that the driver reports, below the NUMA node
or the root that they name.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from moorage.agent.tree.provider_tree import ProviderNode, ProviderTree
from moorage.core.inventories import Inventory


class AcceleratorProviderNode(Protocol):
    """One provider to be grafted on: a region of an FPGA, a GPU ..."""

    @property
    def name(self) -> str: ...
    @property
    def parent(self) -> str:
        """Name of the provider it hangs below: the root, a NUMA node, or a graft that comes before it."""
        ...

    @property
    def inventories(self) -> Mapping[str, Inventory]: ...
    @property
    def traits(self) -> frozenset[str]: ...


class AcceleratorProviders(Protocol):
    """An accelerator agent, seen from the resource tracker."""

    def nodes(self) -> Sequence[AcceleratorProviderNode]:
        """Discover again; parents before children. The same devices give the same nodes."""
        ...

    def published(self, uuids: Mapping[str, str]) -> None:
        """All `nodes` are in Placement, with their traits; provider name -> uuid. Called after each round."""
        ...


class NoAcceleratorProviders:
    """A host without accelerators."""

    def nodes(self) -> Sequence[AcceleratorProviderNode]:
        return ()

    def published(self, uuids: Mapping[str, str]) -> None:
        return


def with_accelerators(tree: ProviderTree, nodes: Sequence[AcceleratorProviderNode], root: str) -> ProviderTree:
    """[pure] `provider_tree` with `nodes` on it. A parent that the driver does not report is replaced by `root`.

    The one case for that: a driver that shows no NUMA nodes. The device must be schedulable all the same.
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
