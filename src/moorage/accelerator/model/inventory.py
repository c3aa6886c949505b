"""Provider nodes of discovered devices: one per deployable, below the NUMA node of its card.

A unit that cannot be given out now (dirty, being cleaned, quarantined, on a failed card) is counted as `reserved`, so
that the scheduler does not select it. Units held by instances are not reserved. Pure: no I/O here.
Spec: docs/evidence/specs/accelerator-attach.md
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from moorage.accelerator.model.devices import WITHHELD, Deployable, Device, HandleState, Health
from moorage.accelerator.model.naming import NameScheme, resource_class, traits_of
from moorage.core.inventories import Inventory


@dataclass(frozen=True, slots=True)
class DeployableNode:
    """One deployable as a resource provider below its NUMA node.

    `AcceleratorAgent.nodes` returns all nodes of a host; the host's resource tracker adds them to the tree of
    the virt driver, publishes it and calls `AcceleratorAgent.published` (`moorage.agent.tree.provider_tree`).
    """

    name: str
    parent: str  #: name of the parent provider
    inventories: Mapping[str, Inventory]  #: by resource class
    traits: frozenset[str]


def provider_name(host: str, deployable: str) -> str:
    """``compute-1_0000:3b:00.0_R1``: also the name of the deployable in the Accelerator API."""
    return f"{host}_{deployable}"


def provider_nodes(
    host: str,
    devices: Iterable[Device],
    states: Mapping[str, HandleState],
    withheld: frozenset[str] = frozenset(),
    more_traits: Mapping[str, Iterable[str]] = MappingProxyType({}),
    names: NameScheme = NameScheme.SPEC,
) -> list[DeployableNode]:
    """`states` is by PCI address (absent: free); `withheld`: deployables whose units are all reserved."""
    nodes = []
    for device in devices:
        for deployable in device.deployables:
            blocked = device.health is not Health.OK or deployable.name in withheld
            units = inventory_of(deployable, states, blocked=blocked)
            if units.total == 0:  # Placement allows no inventory with a total of 0
                continue
            nodes.append(
                DeployableNode(
                    name=provider_name(host, deployable.name),
                    parent=f"{host}_NUMA_{device.numa_node}",
                    inventories={resource_class(device.type, names): units},
                    traits=traits_of(device, deployable, names).union(more_traits.get(deployable.name, ())),
                )
            )
    return nodes


def inventory_of(deployable: Deployable, states: Mapping[str, HandleState], *, blocked: bool) -> Inventory:
    total = len(deployable.handles)
    withheld = sum(states.get(handle, HandleState.FREE) in WITHHELD for handle in deployable.handles)
    return Inventory(total, reserved=total if blocked else withheld, max_unit=total)
