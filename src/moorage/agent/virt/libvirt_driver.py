"""Runs servers as QEMU guests through libvirt. For set-up, mapping and limits see docs/guides/libvirt.md.

The driver defines a domain when the domain's files are complete; `destroy` removes the definition. The driver keeps no
state in memory: it reads libvirt's. It does not change domains that this agent did not make, and logs that they exist.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import libvirt

from moorage.agent.model import STATE_AFTER, DomainPowerState, PowerAction, is_already_done, why_impossible
from moorage.agent.tree.provider_tree import ProviderTree
from moorage.agent.virt import libvirt_domain as guest
from moorage.agent.virt.domain_xml import parse_domain, render_domain, rescue_image, shared_memory_name
from moorage.agent.virt.driver import (
    Capability,
    DiskImage,
    Domain,
    DomainInterface,
    DomainSpec,
    HypervisorFacts,
    LearnedByMac,
    MigrationTarget,
    Unsupported,
    VirtError,
)
from moorage.agent.virt.libvirt_calls import SerializedCalls
from moorage.agent.virt.libvirt_connection import LibvirtConnection, VirConnect, VirDomain
from moorage.agent.virt.libvirt_console import LibvirtConsole
from moorage.agent.virt.libvirt_domain import OwnDomains
from moorage.agent.virt.libvirt_guests import GuestFiles
from moorage.agent.virt.libvirt_node import LibvirtNode, LibvirtSettings
from moorage.core.clock import Clock
from moorage.images.base import CHUNK_BYTES

#: Number of bytes that `console` reads from the end of a guest's console.
MAX_CONSOLE_BYTES = 1 << 18
#: The driver only removes files that QEMU left there; `unlink` does not follow links.
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - nothing is created or read there
_NO_LIVE_MIGRATION = "the libvirt driver cannot migrate live; migrate the server cold, or evacuate it"

#: A guest agent that did not answer is asked again after this time: a tenant must not delay the reports of a host.
_AGENT_PAUSE = timedelta(minutes=5)

CAPABILITIES = frozenset(Capability) - {Capability.LIVE_MIGRATION}


class LibvirtDriver:
    """Thread-safe. `clock` must be the real clock even in a rehearsal with a virtual one: guests run in real time.

    `wait_for_ports`: (uuid of a server) waits until its ports are plugged; raises `VirtError`.
    """

    def __init__(
        self,
        settings: LibvirtSettings,
        connection: LibvirtConnection,
        guests: GuestFiles,
        clock: Clock,
        wait_for_ports: Callable[[str], None] = lambda _uuid: None,
    ) -> None:
        self._settings = settings
        self._node = LibvirtNode(settings)
        self._connection = connection
        self._guests = guests
        self._clock = clock
        self._wait_for_ports = wait_for_ports
        self._own_domains = OwnDomains(settings.host)
        self._guest_locks = SerializedCalls()
        #: {uuid: until when its guest agent is not asked for addresses}, because it did not answer.
        self._silent_agents: dict[str, datetime] = {}

    # ------------------------------------------------------------------------------------------- the host

    def facts(self) -> HypervisorFacts:
        with self._connection.use() as link:
            return self._node.facts(link, self._guests.disk_gb, CAPABILITIES)

    def nodes(self) -> list[str]:
        return [self._node.name]

    def update_provider_tree(self, tree: ProviderTree) -> ProviderTree:
        with self._connection.use() as link:
            return self._node.providers(link, self._guests.disk_gb)

    # ----------------------------------------------------------------------------- create and destroy

    def spawn(self, spec: DomainSpec, *, start: bool = True) -> Domain:
        with self._guest_locks.hold(spec.uuid), self._connection.use() as link:
            return self._apply_spec(link, spec, start=start)

    def rebuild(self, spec: DomainSpec, *, key: str, start: bool) -> Domain:
        with self._guest_locks.hold(spec.uuid), self._connection.use() as link:
            if not self._guests.is_rebuilt(spec.uuid, key):
                # Fetch the image first: if that fails, the server keeps its guest and its disk.
                with self._guests.hold_image(spec):
                    present = self._own_domains.find_domain(link, spec.uuid)
                    if present is not None:
                        guest.turn_off(present)
                    self._guests.replace_disk(spec, key)
            return self._apply_spec(link, spec, start=start)

    def _apply_spec(self, link: VirConnect, spec: DomainSpec, *, start: bool) -> Domain:
        """Gives the domain this definition, and starts it if `start`."""
        present = self._own_domains.find_domain(link, spec.uuid)
        if present is not None and parse_domain(guest.definition_of(present)) != spec:
            guest.turn_off(present)
        if present is None or guest.power_of(present) is DomainPowerState.SHUTOFF:
            self._guests.prepare_disks(spec)
            present = self._define(link, spec)
        if start:
            self._start(present)
        return Domain(spec, guest.power_of(present), self._guests.rescue_image_id(spec.uuid) is not None)

    def _start(self, domain: VirDomain) -> None:
        """Starts or resumes the guest. One with ports of a Neutron is paused until they are plugged."""
        interfaces = parse_domain(guest.definition_of(domain)).interfaces
        if any(one.is_of_neutron for one in interfaces) and guest.power_of(domain) is not DomainPowerState.RUNNING:
            guest.start_paused(domain)
            self._wait_for_ports(domain.UUIDString())
        guest.start(domain)

    def _define(self, link: VirConnect, spec: DomainSpec) -> VirDomain:
        """Define the domain; libvirt validates it against its schema."""
        machine = self._node.machine(link)
        cells = self._node.numa_nodes_among(link, spec.provider_ancestors)
        definition = render_domain(spec, cells, machine, self._guests.guest_paths(spec.uuid))
        return link.defineXMLFlags(definition.decode(), libvirt.VIR_DOMAIN_DEFINE_VALIDATE)

    def destroy(self, uuid: str) -> bool:
        with self._guest_locks.hold(uuid), self._connection.use() as link:
            present = self._own_domains.find_domain(link, uuid)
            if present is not None:
                addresses = parse_domain(guest.definition_of(present)).pci_addresses
                guest.turn_off(present)
                present.undefineFlags(
                    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
                    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
                    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
                    | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
                )
                if self._settings.emulates_devices:
                    for address in addresses:
                        (_SHARED_MEMORY / shared_memory_name(address)).unlink(missing_ok=True)
            self._guests.remove(uuid)
            return present is not None

    # ----------------------------------------------------------------------- operations on a domain

    def power(self, uuid: str, action: PowerAction) -> DomainPowerState:
        with self._guest_locks.hold(uuid), self._connection.use() as link:
            domain = self._own_domains.require_domain(link, uuid)
            before = guest.power_of(domain)
            if is_already_done(before, action):
                return before
            if why := why_impossible(before, action):
                raise VirtError(f"{parse_domain(guest.definition_of(domain)).name}: {why}")
            self._change_power(domain, action)
            return guest.power_of(domain)

    def _change_power(self, domain: VirDomain, action: PowerAction) -> None:
        if action in (PowerAction.STOP, PowerAction.REBOOT):
            guest.shut_down(domain, self._clock, self._settings.shutdown_timeout_s)
            guest.turn_off(domain)
        elif action is PowerAction.REBOOT_HARD:
            guest.turn_off(domain)
        elif action is PowerAction.PAUSE:
            guest.pause(domain)
        elif action is PowerAction.SUSPEND:
            guest.suspend(domain, self._clock)
        if STATE_AFTER[action] is DomainPowerState.RUNNING:
            self._start(domain)

    def rescue(self, uuid: str, image_id: str, password: str) -> DomainPowerState:
        with self._guest_locks.hold(uuid), self._connection.use() as link:
            domain = self._own_domains.require_domain(link, uuid)
            spec = parse_domain(guest.definition_of(domain))
            if self._guests.rescue_image_id(uuid) != image_id:
                guest.turn_off(domain)
                self._guests.begin_rescue(spec, image_id, password)
            return self._start_from(link, domain, spec, image_id)

    def unrescue(self, uuid: str) -> DomainPowerState:
        with self._guest_locks.hold(uuid), self._connection.use() as link:
            domain = self._own_domains.require_domain(link, uuid)
            spec = parse_domain(guest.definition_of(domain))
            if self._guests.rescue_image_id(uuid) is not None:
                guest.turn_off(domain)
                self._guests.end_rescue(uuid)
            return self._start_from(link, domain, spec, None)

    def _start_from(
        self, link: VirConnect, domain: VirDomain, spec: DomainSpec, rescue: str | None
    ) -> DomainPowerState:
        """Starts the guest from the rescue image `rescue` (None: from its own disk). The files must be ready."""
        if rescue_image(guest.definition_of(domain)) != rescue:
            guest.turn_off(domain)
            domain = self._define(link, spec)
        self._start(domain)
        return guest.power_of(domain)

    def set_password(self, uuid: str, password: str) -> None:
        with self._guest_locks.hold(uuid), self._connection.use() as link:
            guest.set_password(self._own_domains.require_domain(link, uuid), password)

    def crash_dump(self, uuid: str) -> None:
        with self._guest_locks.hold(uuid), self._connection.use() as link:
            guest.inject_nmi(self._own_domains.require_domain(link, uuid))

    def attach_interface(self, uuid: str, interface: DomainInterface) -> None:
        with self._guest_locks.hold(uuid), self._connection.use() as link:
            guest.attach_interface(self._own_domains.require_domain(link, uuid), interface)

    def detach_interface(self, uuid: str, mac: str) -> None:
        with self._guest_locks.hold(uuid), self._connection.use() as link:
            domain = self._own_domains.find_domain(link, uuid)
            if domain is not None:
                guest.detach_interface(domain, mac, self._clock)

    @contextmanager
    def snapshot(self, uuid: str) -> Iterator[DiskImage]:
        path = self._guests.snapshot(uuid)
        try:
            with self._guest_locks.hold(uuid), self._connection.use() as link:
                guest.copy_disk(
                    self._own_domains.require_domain(link, uuid), self._guests.disk_path(uuid), path, self._clock
                )
            with path.open("rb") as file:
                chunks = iter(lambda: file.read(CHUNK_BYTES), b"")
                yield DiskImage("qcow2", path.stat().st_size, chunks, self._guests.boot_properties(uuid))
        finally:
            path.unlink(missing_ok=True)

    # ----------------------------------------------------------------------------------- live migration

    def receive(self, spec: DomainSpec) -> MigrationTarget:
        raise Unsupported(_NO_LIVE_MIGRATION)

    def hand_over(self, uuid: str, target: MigrationTarget) -> None:
        raise Unsupported(_NO_LIVE_MIGRATION)

    def take_over(self, uuid: str) -> DomainPowerState:
        raise Unsupported(_NO_LIVE_MIGRATION)

    # --------------------------------------------------------------------------------------- read only

    def console(self, uuid: str) -> str:
        with self._connection.use() as link:
            self._own_domains.require_domain(link, uuid)
        return self._guests.console(uuid, MAX_CONSOLE_BYTES)

    def open_console(self, uuid: str) -> LibvirtConsole:
        return LibvirtConsole(LibvirtConnection(self._connection.uri, self._clock), self._own_domains, uuid)

    def domains(self) -> Mapping[str, Domain]:
        with self._connection.use() as link:
            return self._own_domains.all_domains(link)

    def learned_addresses(self, domains: Mapping[str, Domain]) -> Mapping[str, LearnedByMac]:
        learned: dict[str, LearnedByMac] = {}
        now = self._clock.now()
        with self._connection.use() as link:
            self._silent_agents = {uuid: until for uuid, until in self._silent_agents.items() if until > now}
            for uuid, domain in domains.items():
                macs = [one.mac.lower() for one in domain.spec.interfaces if one.is_dhcp]
                if not macs or (found := self._own_domains.find_domain(link, uuid)) is None:
                    continue
                answer = guest.learned_addresses(found, macs, ask_agent=uuid not in self._silent_agents)
                if answer.agent_failed:
                    self._silent_agents[uuid] = now + _AGENT_PAUSE
                if answer.by_mac is not None:
                    learned[uuid] = answer.by_mac
        return learned
