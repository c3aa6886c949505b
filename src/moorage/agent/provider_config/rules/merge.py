"""[pure] Merges provider configuration into the provider tree of any driver.

Spec: docs/evidence/specs/provider-config.md, "Merging". A class belongs to the driver if the driver (or the accelerator
agent) reports it *in this update*. Upstream looks in Placement instead; there it finds the classes that its previous
update added, takes them for the driver's, and refuses every later update. So this module does not look in Placement.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from moorage.agent.provider_config.rules.model import ProviderConfig
from moorage.agent.tree.provider_tree import ProviderNode, ProviderTree
from moorage.core.errors import StartError


@dataclass(frozen=True)
class MergeResult:
    tree: ProviderTree
    #: Sentences with file and position. An agent does not start with conflicts; in a running agent they are warnings.
    #: Their entries are not in `tree`.
    conflicts: tuple[str, ...]
    #: Entries whose provider is not in the tree. This is no fault: the provider may appear later.
    absent: tuple[ProviderConfig, ...]


def merge_configs(tree: ProviderTree, configs: Sequence[ProviderConfig]) -> MergeResult:
    """`tree` with the additions of `configs`, whose uuids and names all differ (`duplicate_faults`).

    ``$COMPUTE_NODE`` does not apply to a provider that has an entry by uuid or name, even if that adds nothing.
    """
    by_uuid = {node.uuid.lower(): node.name for node in tree if node.uuid}
    chosen: dict[str, ProviderConfig] = {}
    conflicts: list[str] = []
    absent: list[ProviderConfig] = []
    for config in configs:
        if config.is_for_compute_nodes:
            continue
        name = by_uuid.get(config.uuid) if config.uuid else config.name
        if name is None or name not in tree:
            absent.append(config)
        elif name in chosen:
            conflicts.append(
                f"{config.source}: {config.identification} is the provider that {chosen[name].source} names "
                f"{chosen[name].identification}; keep one of them"
            )
        else:
            chosen[name] = config
    for config in configs:
        if config.is_for_compute_nodes:
            for root in tree.roots:
                if root.ours:
                    chosen.setdefault(root.name, config)
    for name, config in chosen.items():
        node, refused = _with_config(tree[name], config)
        tree = tree.with_node(node)
        conflicts += refused
    return MergeResult(tree, tuple(conflicts), tuple(absent))


def start_error(conflicts: Iterable[str]) -> StartError:
    """The error for conflicts that `merge_configs` finds when the agent starts."""
    lines = "\n".join(f"  {conflict}" for conflict in conflicts)
    return StartError(
        f"the provider configuration contradicts what this host reports:\n{lines}", code="agent.provider_config"
    )


def _with_config(node: ProviderNode, config: ProviderConfig) -> tuple[ProviderNode, list[str]]:
    refused = [
        f"{config.inventories[name].source}: {name} of provider {node.name} is managed by the virt driver or an "
        "accelerator of this host; remove it from the file"
        for name in sorted(config.inventories.keys() & node.native)
    ]
    additional = {name: record.inventory() for name, record in config.inventories.items() if name not in node.native}
    return (
        replace(node, inventories={**node.inventories, **additional}, traits=node.traits | config.traits),
        refused,
    )
