"""What a hypervisor has to do for the agent. Small on purpose: one method per thing that a server's life needs.

Every method may be called twice with the same arguments: jobs are delivered at least once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from moorage.agent.tree import ProviderTree
from moorage.core.errors import MoorageError
from moorage.core.states import table


class VirtError(MoorageError):
    """The hypervisor refused or failed; the message is its own sentence."""

    code = "virt.failed"


class NoSuchDomain(VirtError):
    code = "virt.no_such_domain"


class PowerState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    SHUTOFF = "shutoff"


class PowerAction(StrEnum):
    START = "start"
    STOP = "stop"
    REBOOT = "reboot"
    PAUSE = "pause"
    UNPAUSE = "unpause"


#: Reached by each action; an action whose state is reached already is done.
REACHED = {
    PowerAction.START: PowerState.RUNNING,
    PowerAction.STOP: PowerState.SHUTOFF,
    PowerAction.REBOOT: PowerState.RUNNING,
    PowerAction.PAUSE: PowerState.PAUSED,
    PowerAction.UNPAUSE: PowerState.RUNNING,
}

POWER = table(
    "a domain",
    {
        PowerState.RUNNING: [PowerState.PAUSED, PowerState.SHUTOFF, PowerState.RUNNING],
        PowerState.PAUSED: [PowerState.RUNNING, PowerState.SHUTOFF],
        PowerState.SHUTOFF: [PowerState.RUNNING],
    },
)


@dataclass(frozen=True)
class HostFacts:
    """What the compute service shows of the host."""

    name: str
    hypervisor_type: str
    hypervisor_version: int  #: as Nova writes it: 8.2.1 is 8002001
    host_ip: str
    vcpus: int
    memory_mb: int
    local_gb: int


@dataclass(frozen=True)
class DomainSpec:
    """A server to be run. Whoever knows this needs nothing else to write its definition."""

    uuid: str
    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int = 0
    image_id: str | None = None
    pci_addresses: tuple[str, ...] = ()  #: ``dddd:bb:dd.f``, in the order the guest sees them
    #: Providers that the server's devices hang below: a driver places the guest by those that it knows.
    near: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Domain:
    """A defined server."""

    spec: DomainSpec
    power: PowerState


class VirtDriver(Protocol):
    def facts(self) -> HostFacts: ...

    def nodes(self) -> Sequence[str]:
        """Names of the compute nodes: the roots of the provider tree. One, except for bare metal."""
        ...

    def update_provider_tree(self, tree: ProviderTree) -> ProviderTree:
        """The providers that the driver has, with all their inventories and traits of this moment.

        `tree` is what Placement has, for drivers that have to move something; what is not in the answer is not
        the driver's, and stays as it is in Placement unless this agent put it there.
        """
        ...

    def spawn(self, spec: DomainSpec) -> Domain:
        """Define and start. A domain of this uuid with another definition is replaced."""
        ...

    def destroy(self, uuid: str) -> bool:
        """Stop it, if it runs, and forget it. False: there was none."""
        ...

    def power(self, uuid: str, action: PowerAction) -> PowerState:
        """The state afterwards. Raises `NoSuchDomain`."""
        ...

    def console(self, uuid: str) -> str:
        """What the guest wrote. Raises `NoSuchDomain`."""
        ...

    def domains(self) -> Mapping[str, Domain]:
        """By uuid; as they are on the host now, whoever started them."""
        ...
