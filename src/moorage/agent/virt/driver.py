"""What a hypervisor has to do for the agent. Small on purpose: one method per thing that a server's life needs.

Every method may be called twice with the same arguments, also after a crash in the middle of the first call: jobs are
delivered at least once. What a host cannot do at all it leaves out of `HostFacts.capabilities`; the API refuses it then.

A move between hosts needs no method of its own: the source stops the domain and hands out its disk (`snapshot`), the
destination makes a domain from that (`spawn`), and the source keeps its own, stopped, until the move is confirmed
(`destroy`) or reverted (`spawn`). Only a domain that must not stop goes by `receive`, `hand_over`, `take_over`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from moorage.agent.model.power import DomainPowerState, PowerAction
from moorage.agent.tree.provider_tree import ProviderTree
from moorage.core.errors import MoorageError, Unavailable


class VirtError(MoorageError):
    """The hypervisor refused or failed; the message is its own sentence."""

    code = "virt.failed"


class NoSuchDomain(VirtError):
    """The hypervisor has no domain of that server."""

    code = "virt.no_such_domain"


class HypervisorAway(VirtError, Unavailable):
    """It does not answer: nothing was done, or nobody can tell yet. Worth repeating."""

    code = "virt.away"


class Unsupported(VirtError):
    """This hypervisor, or this guest (no agent in it, say), cannot do it; a repetition would not help."""

    code = "virt.unsupported"


class Capability(StrEnum):
    """What not every hypervisor can do; the values are the kinds of the jobs that need it."""

    SUSPEND = "suspend"
    RESCUE = "rescue"
    SNAPSHOT = "snapshot"
    SET_PASSWORD = "set-password"  # noqa: S105 - an operation's name on the wire; no password is in it
    CRASH_DUMP = "crash-dump"
    LIVE_MIGRATION = "live-migration"


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
    capabilities: frozenset[Capability] = frozenset()


@dataclass(frozen=True)
class DomainSpec:
    """A server to be run. Whoever knows this needs nothing else to write its definition."""

    uuid: str
    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int = 0  #: 0: as large as the image says
    image_id: str | None = None
    pci_addresses: tuple[str, ...] = ()  #: ``dddd:bb:dd.f``, in the order the guest sees them
    #: Providers that the server's devices hang below: a driver places the guest by those that it knows.
    near: frozenset[str] = frozenset()
    mdev_uuids: tuple[str, ...] = ()  #: of mediated devices
    ephemeral_gb: int = 0
    swap_mb: int = 0
    project_id: str | None = None
    flavor: str | None = None  #: its name
    #: What the config drive holds, path -> content (``openstack/latest/meta_data.json``); None: one that is there
    #: stays. It is written when the domain is made, or made anew while it is off, and is no part of the definition.
    config_drive: Mapping[str, bytes] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Domain:
    """A defined server."""

    spec: DomainSpec
    power: DomainPowerState
    is_rescued: bool = False


@dataclass(frozen=True)
class DiskImage:
    """A disk on its way into the image service."""

    disk_format: str  #: ``raw``, ``qcow2``
    size_bytes: int  #: image services refuse data of unknown length
    chunks: Iterator[bytes]
    #: Of the image: what a guest that is made from it needs to boot.
    properties: Mapping[str, str] = field(default_factory=dict)


#: What the destination of a live migration tells the source; only the driver reads it.
Target = Mapping[str, str]


class VirtDriver(Protocol):
    def facts(self) -> HostFacts: ...

    def nodes(self) -> Sequence[str]:
        """Names of the compute nodes: the roots of the provider tree. One, except for bare metal."""
        ...

    def update_provider_tree(self, tree: ProviderTree) -> ProviderTree:
        """The providers that the driver has, with all their inventories and traits of this moment.

        `provider_tree` is what Placement has, for drivers that have to move something; what is not in the answer is not
        the driver's, and stays as it is in Placement unless this agent put it there.
        """
        ...

    # ------------------------------------------------------------------------------- made and unmade

    def spawn(self, spec: DomainSpec, *, start: bool = True) -> Domain:
        """Define, and start unless told otherwise. Devices in `spec` are plugged already.

        The disk is made from the image and is `disk_gb` large. A domain of this uuid that is there is given this
        definition and keeps its disk, which may grow; where definition and power are as wanted nothing happens.
        """
        ...

    def destroy(self, uuid: str) -> bool:
        """Stop it, if it runs, and forget it with its disk and saved memory. False: there was none."""
        ...

    def rebuild(self, spec: DomainSpec, *, key: str, start: bool) -> Domain:
        """`spawn`, with a new disk made from the image of `spec` in place of the old one, whatever was on it.

        The devices stay attached: the guest is off before its disk goes. The same `key` again does not make the
        disk again: only definition and power are put right.
        """
        ...

    # ---------------------------------------------------------------------------- while it is there

    def power(self, uuid: str, action: PowerAction) -> DomainPowerState:
        """The state afterwards. Raises `NoSuchDomain`."""
        ...

    def rescue(self, uuid: str, image_id: str, password: str) -> DomainPowerState:
        """Boot from the rescue image, with the domain's own disk beside it and its devices as they were.

        `password` is for the rescue system, where that takes one (a config drive, say). In rescue already: done.
        Raises `NoSuchDomain`.
        """
        ...

    def unrescue(self, uuid: str) -> DomainPowerState:
        """Boot from its own disk again; the rescue disk is forgotten. Not in rescue: it is running, that is all."""
        ...

    def set_password(self, uuid: str, password: str) -> None:
        """Of the guest's administrator. Raises `Unsupported` where no guest agent answers, `NoSuchDomain`."""
        ...

    def crash_dump(self, uuid: str) -> None:
        """Make the guest's kernel panic and dump (an NMI). It does not wait for devices. Raises `NoSuchDomain`."""
        ...

    def snapshot(self, uuid: str) -> AbstractContextManager[DiskImage]:
        """The domain's own disk as it is now, consistent as after a power cut; power stays as it is.

        Whatever is laid aside for it is gone when the context ends, or at the latest with the next call for this
        domain. Raises `NoSuchDomain`.
        """
        ...

    # ------------------------------------------------------------------------- live migration

    def receive(self, spec: DomainSpec) -> Target:
        """On the destination: be ready to take the running domain over. What the source must know for that.

        Nothing of it runs yet; `destroy` takes it back.
        """
        ...

    def hand_over(self, uuid: str, target: Target) -> None:
        """On the source: move the running (or paused) domain to `target`, disk and all; it is not here afterwards.

        A domain that is not here any more was handed over before. Raises `VirtError` when it still runs here.
        """
        ...

    def take_over(self, uuid: str) -> DomainPowerState:
        """On the destination, afterwards: it is this host's now. Raises `NoSuchDomain` when it never came."""
        ...

    # ------------------------------------------------------------------------------------ to look at

    def console(self, uuid: str) -> str:
        """What the guest wrote. Raises `NoSuchDomain`."""
        ...

    def domains(self) -> Mapping[str, Domain]:
        """By uuid; as they are on the host now, whoever started them."""
        ...
