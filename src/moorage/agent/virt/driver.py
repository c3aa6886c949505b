"""The `VirtDriver` protocol: the agent's interface to a hypervisor, one method per operation of a server.

The agent may call every method twice with the same arguments, also after a crash in the middle of the first call,
because jobs are delivered at least once. A driver lists its operations in `HypervisorFacts.capabilities`; the API
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

from moorage.agent.model import DomainPowerState, PowerAction
from moorage.agent.tree.provider_tree import ProviderTree
from moorage.core.errors import MoorageError, Unavailable


class VirtError(MoorageError):
    """The hypervisor refused or failed; the message is the hypervisor's own."""

    code = "virt.failed"


class NoSuchDomain(VirtError):
    """The hypervisor has no domain of that server."""

    code = "virt.no_such_domain"


class HypervisorUnavailable(VirtError, Unavailable):
    """The hypervisor does not answer; whether the call had an effect is unknown. Repeat it later."""

    code = "virt.unreachable"


class Unsupported(VirtError):
    """The hypervisor or the guest does not support the operation, for example a guest without a guest agent."""

    code = "virt.unsupported"


class Capability(StrEnum):
    """Features that not every hypervisor has; the values of operations are the kinds of the jobs that need them."""

    SUSPEND = "suspend"
    RESCUE = "rescue"
    SNAPSHOT = "snapshot"
    SET_PASSWORD = "set-password"  # noqa: S105 - the name of an operation, not a password
    CRASH_DUMP = "crash-dump"
    ATTACH_INTERFACE = "attach-interface"  #: and to detach
    LIVE_MIGRATION = "live-migration"
    CONSOLE = "console"  #: `open_console`
    #: Not an operation: `DomainSpec.settings` are applied.
    GUEST_SETTINGS = "guest-settings"


@dataclass(frozen=True)
class HypervisorFacts:
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
class DomainInterface:
    """A network interface of a domain.

    The host drops what the guest sends from other addresses, unless Neutron's agent does, which `is_of_neutron`.
    """

    mac: str
    source: str  #: the name of a bridge, or of a network of the hypervisor; empty with a `device`
    is_bridge: bool
    vlan: int | None = None
    addresses: tuple[str, ...] = ()  #: IPv4, that the host lets through; empty if `is_of_neutron` or `is_dhcp`
    ovs_port: str | None = None  #: the id of the port of a Neutron, with which Open vSwitch marks the interface
    mtu: int | None = None  #: None: that of the bridge
    device: str | None = None  #: PCI address of the virtual function that is the interface

    @property
    def is_of_neutron(self) -> bool:
        """Whether Neutron's agent connects the interface, for which a guest that starts has to wait."""
        return self.ovs_port is not None or self.device is not None

    @property
    def is_dhcp(self) -> bool:
        """Whether a DHCP server gives the address."""
        return not self.addresses and not self.is_of_neutron


@dataclass(frozen=True)
class DomainSpec:
    """The definition of a server's domain."""

    uuid: str
    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int = 0  #: 0: the size of the image
    image_id: str | None = None
    #: ``dddd:bb:dd.f``, in the order in which the guest sees them; without those that are interfaces.
    pci_addresses: tuple[str, ...] = ()
    #: Names of all ancestors of the providers that the server uses. A driver prefers the NUMA nodes among them for the
    #: guest's memory.
    provider_ancestors: frozenset[str] = frozenset()
    mdev_uuids: tuple[str, ...] = ()  #: of mediated devices
    interfaces: tuple[DomainInterface, ...] = ()  #: in the order in which the guest sees them
    ephemeral_gb: int = 0
    swap_mb: int = 0
    project_id: str | None = None
    flavor: str | None = None  #: its name
    #: (name, value) of the guest's settings, sorted; see `moorage.agent.virt.domain_xml`.
    settings: tuple[tuple[str, str], ...] = ()
    #: Files of the config drive, {``openstack/latest/meta_data.json``: content}; None: an existing drive stays. The
    #: driver writes the drive when it defines the domain. Stored definitions do not contain the files, so two specs
    #: that differ only in them are equal.
    config_drive: Mapping[str, bytes] | None = field(default=None, compare=False)

    @property
    def all_pci_addresses(self) -> frozenset[str]:
        """Those of `pci_addresses`, and of interfaces that are devices."""
        return frozenset((*self.pci_addresses, *(one.device for one in self.interfaces if one.device is not None)))


@dataclass(frozen=True)
class Domain:
    """A domain that the hypervisor has, running or not."""

    spec: DomainSpec
    power: DomainPowerState
    is_rescued: bool = False


@dataclass(frozen=True)
class DiskImage:
    """A disk to upload into the image service."""

    disk_format: str  #: ``raw``, ``qcow2``
    size_bytes: int  #: required: image services refuse data of unknown length
    chunks: Iterator[bytes]
    #: Image properties that a guest needs to boot from this image.
    properties: Mapping[str, str] = field(default_factory=dict)


#: {MAC address: its addresses}, both in canonical form; without the interfaces that have none.
LearnedByMac = Mapping[str, tuple[str, ...]]

#: Data of a live migration's destination for its source. Only the driver reads it.
MigrationTarget = Mapping[str, str]


class GuestConsole(Protocol):
    """An open serial console of a guest. One thread reads and another one writes; any thread may close it."""

    def read(self) -> bytes:
        """Waits for output and returns up to 16 KiB of it; empty: the console has ended or was closed."""
        ...

    def write(self, data: bytes) -> None:
        """Types `data`. Does nothing if the console has ended."""
        ...

    def close(self) -> None:
        """Ends the console, and a `read` that waits. May be called again."""
        ...


class VirtDriver(Protocol):
    def facts(self) -> HypervisorFacts: ...

    def nodes(self) -> Sequence[str]:
        """Names of the compute nodes, the roots of the provider tree. There is one, except with bare metal."""
        ...

    def update_provider_tree(self, tree: ProviderTree) -> ProviderTree:
        """Returns the driver's providers with all their present inventories and traits.

        `tree` contains the providers that Placement has, for drivers that move inventories between providers. A
        provider that the driver does not return stays in Placement, unless this agent published it.
        """
        ...

    # ------------------------------------------------------------------------- create and destroy

    def spawn(self, spec: DomainSpec, *, start: bool = True) -> Domain:
        """Define the domain, and start it if `start`. The devices in `spec` are plugged already.

        Makes the disk from the image, `disk_gb` large. An existing domain of this uuid gets this definition and keeps
        its disk, which may grow. Does nothing if the domain has this definition and runs, or need not run.
        """
        ...

    def destroy(self, uuid: str) -> bool:
        """Stop the domain and remove it with its disk and saved memory. False: there was no such domain."""
        ...

    def rebuild(self, spec: DomainSpec, *, key: str, start: bool) -> Domain:
        """Same as `spawn`, but replaces the disk by a new one from the image of `spec`.

        Stops the guest before it removes the disk, so the devices can stay attached. A second call with the same `key`
        does not replace the disk again; it only does what `spawn` does.
        """
        ...

    # -------------------------------------------------------------------- operations on a domain

    def power(self, uuid: str, action: PowerAction) -> DomainPowerState:
        """Returns the state afterwards. Raises `NoSuchDomain`, or `VirtError` if `action` is not possible now."""
        ...

    def rescue(self, uuid: str, image_id: str, password: str) -> DomainPowerState:
        """Boot from the rescue image, with the domain's own disk beside it and its devices as they were.

        `password` is in the config drive, from which a rescue system may read it. A domain that is in rescue already is
        only started. Raises `NoSuchDomain`.
        """
        ...

    def unrescue(self, uuid: str) -> DomainPowerState:
        """Delete the rescue disk and boot the domain from its own disk. A domain that is not in rescue is only
        started.
        """
        ...

    def set_password(self, uuid: str, password: str) -> None:
        """Set the password of the guest's administrator. Raises `Unsupported` if no guest agent answers,
        `NoSuchDomain`.
        """
        ...

    def crash_dump(self, uuid: str) -> None:
        """Make the guest's kernel panic and dump, by an NMI. Raises `NoSuchDomain`."""
        ...

    def attach_interface(self, uuid: str, interface: DomainInterface) -> None:
        """Gives the domain the interface, at once if it runs, and for its next start. Does nothing if it has one with
        this MAC address. If it raises, `detach_interface` removes what may be there. Raises `NoSuchDomain`.
        """
        ...

    def detach_interface(self, uuid: str, mac: str) -> None:
        """Takes the interface from the domain. Returns when the guest does not have it any more, or never had it.

        Raises `VirtError` if the guest does not release it; the domain then keeps it. A domain that does not exist has
        none.
        """
        ...

    def snapshot(self, uuid: str) -> AbstractContextManager[DiskImage]:
        """A copy of the domain's own disk as it is now, consistent as after a power cut.

        The power state does not change. The temporary files are removed when the context ends; after a crash, the next
        call for this domain removes them. Raises `NoSuchDomain`.
        """
        ...

    # ------------------------------------------------------------------------- live migration

    def receive(self, spec: DomainSpec) -> MigrationTarget:
        """On the destination: prepares to take over the running domain, and returns the data that the source needs.

        Starts no domain. `destroy` undoes the preparation.
        """
        ...

    def hand_over(self, uuid: str, target: MigrationTarget) -> None:
        """On the source: moves the running or paused domain with its disk to `target` and removes it from this host.

        Does nothing if this host does not have the domain: an earlier call has moved it. Raises `VirtError` if the move
        fails; the domain then still runs here.
        """
        ...

    def take_over(self, uuid: str) -> DomainPowerState:
        """On the destination, after `hand_over`: returns the domain's power state. Raises `NoSuchDomain` if it is not
        here.
        """
        ...

    # ------------------------------------------------------------------------------------- read only

    def console(self, uuid: str) -> str:
        """The text that the guest wrote to its console. Raises `NoSuchDomain`."""
        ...

    def open_console(self, uuid: str) -> GuestConsole:
        """Opens the serial console of a running domain. The caller must close it.

        A domain has one at a time: a console that was opened before ends. Raises `NoSuchDomain`, or `VirtError` for a
        domain that is off.
        """
        ...

    def domains(self) -> Mapping[str, Domain]:
        """{uuid: domain} of this agent's present domains on the host."""
        ...

    def learned_addresses(self, domains: Mapping[str, Domain]) -> Mapping[str, LearnedByMac]:
        """{uuid: addresses} of those among `domains` with an interface whose address a DHCP server gives.

        A domain that is off has none. A domain that cannot be asked now is left out.
        """
        ...
