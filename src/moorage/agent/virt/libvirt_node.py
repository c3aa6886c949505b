"""The host as libvirt describes it: facts, resource providers, and the machine type and CPU of its guests."""

from collections.abc import Collection
from dataclasses import dataclass, field

import libvirt

from moorage.agent.tree.provider_tree import ProviderTree
from moorage.agent.virt import libvirt_capabilities as capabilities
from moorage.agent.virt.domain_xml import Machine
from moorage.agent.virt.driver import Capability, HypervisorFacts
from moorage.agent.virt.libvirt_capabilities import Capabilities, HostShares
from moorage.agent.virt.libvirt_connection import VirConnect
from moorage.core.errors import StartError

HYPERVISOR_TYPE = "QEMU"


@dataclass(frozen=True)
class LibvirtSettings:
    """`virt_type`: ``auto`` uses KVM if the host has it."""

    host: str
    host_ip: str = "127.0.0.1"
    virt_type: str = "auto"
    machine: str = "q35"
    cpu_mode: str = "host-model"
    emulates_devices: bool = False
    shares: HostShares = field(default_factory=HostShares)
    shutdown_timeout_s: float = 60.0


#: Number of interfaces that can be attached to a running guest. (Each port costs it some firmware time.)
SPARE_PORTS = 8


class LibvirtNode:
    """Reads the host. `link` is an open connection of libvirt's bindings."""

    def __init__(self, settings: LibvirtSettings) -> None:
        self._settings = settings

    @property
    def name(self) -> str:
        return self._settings.host

    def facts(self, link: VirConnect, disk_gb: int, supported: frozenset[Capability]) -> HypervisorFacts:
        host = self._capabilities(link)
        return HypervisorFacts(
            name=self.name,
            hypervisor_type=HYPERVISOR_TYPE,
            hypervisor_version=link.getVersion(),  # in Nova's form already
            host_ip=self._settings.host_ip,
            vcpus=host.vcpus,
            memory_mb=host.memory_mb,
            local_gb=disk_gb,
            capabilities=supported,
        )

    def providers(self, link: VirConnect, disk_gb: int) -> ProviderTree:
        host = self._capabilities(link)
        return capabilities.providers(self.name, host, self._cpu_features(link, host), disk_gb, self._settings.shares)

    def numa_nodes_among(self, link: VirConnect, providers: Collection[str]) -> list[int]:
        """Ids of the NUMA nodes whose providers are among `providers`, a collection of names."""
        cells = self._capabilities(link).cells
        return [cell.id for cell in cells if capabilities.numa_name(self.name, cell.id) in providers]

    def machine(self, link: VirConnect) -> Machine:
        """Raises `StartError` if libvirt has no emulator of the configured type."""
        return self._machine(self._capabilities(link))

    def _machine(self, host: Capabilities) -> Machine:
        settings = self._settings
        wanted = settings.virt_type
        if wanted == "auto":
            wanted = "kvm" if "kvm" in host.virt_types else "qemu"
        if wanted not in host.virt_types:
            raise StartError(
                f"[libvirt] virt_type is {wanted}, but this host's libvirt has "
                f"{', '.join(sorted(host.virt_types)) or 'no emulator'} for {host.arch}"
            )
        cpu_mode = None if settings.cpu_mode == "none" else settings.cpu_mode
        return Machine(
            wanted,
            host.arch,
            settings.machine,
            cpu_mode,
            emulates_devices=settings.emulates_devices,
            spare_ports=SPARE_PORTS,
        )

    def _capabilities(self, link: VirConnect) -> Capabilities:
        return capabilities.read_capabilities(link.getCapabilities())

    def _cpu_features(self, link: VirConnect, host: Capabilities) -> frozenset[str]:
        """Features of the guests' CPU with ``host-model``; empty if libvirt offers no such model."""
        machine = self._machine(host)
        described = link.getDomainCapabilities(None, host.arch, machine.model, machine.virt_type)
        model = capabilities.guest_cpu(described, host.arch)
        if model is None:
            return frozenset()
        expand = libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES
        expanded = link.baselineHypervisorCPU(None, host.arch, None, machine.virt_type, [model], expand)
        return capabilities.cpu_features(expanded)
