"""A host whose servers are another compute service's, as a real Nova's: its compute node is taken as it is.

What the accelerators of the host are grafted onto is the provider that the other service made, by its name.
"""

from collections.abc import Sequence

from moorage.agent.tree.provider_tree import ProviderNode, ProviderTree
from moorage.core.errors import Unavailable


class NoComputeNode(Unavailable):
    """The other service has not made the host's provider: it starts later, or never under this name."""

    code = "agent.no_compute_node"


class OutsideHypervisor:
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
