"""The `VirtDriver` protocol: the agent's interface to a hypervisor, one method per operation of a server.

The agent may call every method twice with the same arguments, also after a crash in the middle of the first call,
because jobs are delivered at least once. A driver lists its operations in `HostFacts.capabilities`; the API
refuses all others.

A move between hosts needs no method of its own: the source stops the domain and hands out its disk (`snapshot`), the
destination makes a domain from it (`spawn`), and the source keeps its own domain, stopped, until the move is confirmed
(`destroy`) or reverted (`spawn`). Only a live migration uses `receive`, `hand_over` and `take_over`.
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
    """The hypervisor refused or failed; the message is the hypervisor's own."""

    code = "virt.failed"


class NoSuchDomain(VirtError):
    """The hypervisor has no domain of that server."""

    code = "virt.no_such_domain"


class HypervisorAway(VirtError, Unavailable):
    """The hypervisor does not answer: whether anything was done is unknown. Repeat the call later."""

    code = "virt.away"


class Unsupported(VirtError):
    """This hypervisor, or this guest (for example without a guest agent), cannot do it. Do not repeat the call."""

    code = "virt.unsupported"


class Capability(StrEnum):
    """Operations that not every hypervisor can do. The values are the kinds of the jobs that need them."""

    SUSPEND = "suspend"
    RESCUE = "rescue"
    SNAPSHOT = "snapshot"
    SET_PASSWORD = "set-password"  # noqa: S105 - the name of an operation, not a password
    CRASH_DUMP = "crash-dump"
    LIVE_MIGRATION = "live-migration"


@dataclass(frozen=True)
class HostFacts:
    """Facts of the host, as the compute service shows them."""

    name: str
    hypervisor_type: str
    hypervisor_version: int  #: in Nova's form: 8.2.1 is 8002001
    host_ip: str
    vcpus: int
    memory_mb: int
    local_gb: int
    capabilities: frozenset[Capability] = frozenset()


@dataclass(frozen=True)
class DomainSpec:
    """A server to run: everything that its definition contains."""

    uuid: str
    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int = 0  #: 0: the size of the image
    image_id: str | None = None
    pci_addresses: tuple[str, ...] = ()  #: ``dddd:bb:dd.f``, in the order in which the guest sees them
    #: Names of the ancestors of the server's devices. A driver places the guest near the NUMA nodes among them.
    near: frozenset[str] = frozenset()
    mdev_uuids: tuple[str, ...] = ()  #: of mediated devices
    ephemeral_gb: int = 0
    swap_mb: int = 0
    project_id: str | None = None
    flavor: str | None = None  #: its name
    #: Files of the config drive, {``openstack/latest/meta_data.json``: content}; None: an existing drive stays. The
    #: driver writes it when it creates the domain, or recreates it while it is off; the definition does not contain it.
    config_drive: Mapping[str, bytes] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Domain:
    """A defined server."""

    spec: DomainSpec
    power: DomainPowerState
    is_rescued: bool = False


@dataclass(frozen=True)
class DiskImage:
    """A disk to upload into the image service."""

    disk_format: str  #: ``raw``, ``qcow2``
    size_bytes: int  #: required: image services refuse data of unknown length
    chunks: Iterator[bytes]
    #: Image properties that a guest made from it needs to boot.
    properties: Mapping[str, str] = field(default_factory=dict)


#: Data of a live migration's destination for its source. Only the driver reads it.
Target = Mapping[str, str]


class VirtDriver(Protocol):
    def facts(self) -> HostFacts: ...

    def nodes(self) -> Sequence[str]:
        """Names of the compute nodes: the roots of the provider tree. One, except for bare metal."""
        ...

    def update_provider_tree(self, tree: ProviderTree) -> ProviderTree:
        """Returns the driver's providers with all their inventories and traits at this moment.

        `tree` is Placement's tree, for drivers that have to move something. A provider that is not in the answer stays
        in Placement as it is, unless this agent published it.
        """
        ...

    # ------------------------------------------------------------------------- create and destroy

    def spawn(self, spec: DomainSpec, *, start: bool = True) -> Domain:
        """Define the domain, and start it if `start`. The devices in `spec` are plugged already.

        Makes the disk from the image, `disk_gb` large. An existing domain of this uuid gets this definition and keeps
        its disk, which may grow. Does nothing if definition and power are as wanted.
        """
        ...

    def destroy(self, uuid: str) -> bool:
        """Stop the domain and remove it with its disk and saved memory. False: there was no such domain."""
        ...

    def rebuild(self, spec: DomainSpec, *, key: str, start: bool) -> Domain:
        """Same as `spawn`, with a new disk from the image of `spec` in place of the old one.

        The devices stay attached: the guest is off before its disk is removed. A repetition with the same `key` does
        not make the disk again, and only corrects definition and power.
        """
        ...

    # -------------------------------------------------------------------- operations on a domain

    def power(self, uuid: str, action: PowerAction) -> DomainPowerState:
        """Returns the state afterwards. Raises `NoSuchDomain`, or `VirtError` if `action` is not possible now."""
        ...

    def rescue(self, uuid: str, image_id: str, password: str) -> DomainPowerState:
        """Boot from the rescue image, with the domain's own disk beside it and its devices as they were.

        `password` is for the rescue system, if that takes one (from its config drive). Does nothing more if the domain
        is in rescue already. Raises `NoSuchDomain`.
        """
        ...

    def unrescue(self, uuid: str) -> DomainPowerState:
        """Boot from its own disk again and delete the rescue disk. A domain that is not in rescue is only started."""
        ...

    def set_password(self, uuid: str, password: str) -> None:
        """Set the password of the guest's administrator. Raises `Unsupported` if no guest agent answers,
        `NoSuchDomain`.
        """
        ...

    def crash_dump(self, uuid: str) -> None:
        """Make the guest's kernel panic and dump, by an NMI. Raises `NoSuchDomain`."""
        ...

    def snapshot(self, uuid: str) -> AbstractContextManager[DiskImage]:
        """The domain's own disk as it is now, consistent as after a power cut. The power state does not change.

        Its temporary files are removed when the context ends, or at the latest by the next call for this domain. Raises
        `NoSuchDomain`.
        """
        ...

    # ------------------------------------------------------------------------- live migration

    def receive(self, spec: DomainSpec) -> Target:
        """On the destination: prepare to take the running domain over. Returns the data that the source needs.

        Nothing runs here yet; `destroy` undoes it.
        """
        ...

    def hand_over(self, uuid: str, target: Target) -> None:
        """On the source: move the running or paused domain with its disk to `target`; it is not here afterwards.

        A domain that is not here was handed over before. Raises `VirtError` if it still runs here.
        """
        ...

    def take_over(self, uuid: str) -> DomainPowerState:
        """On the destination, afterwards: the domain is this host's now. Raises `NoSuchDomain` if it never arrived."""
        ...

    # ------------------------------------------------------------------------------------- read only

    def console(self, uuid: str) -> str:
        """The text that the guest wrote to its console. Raises `NoSuchDomain`."""
        ...

    def domains(self) -> Mapping[str, Domain]:
        """{uuid: domain}: this agent's domains as they are on the host now."""
        ...
