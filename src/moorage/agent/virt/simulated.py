"""A hypervisor that stores domains as files instead of running them: for `moorage up`, rehearsals and tests.

Its directory contains ``domains/<uuid>.xml`` (libvirt's form, and the power state in a comment behind it),
``consoles/<uuid>.log``, ``disks/`` (`SimulatedDisks`) and, if somebody wrote it, ``leases.json`` (`learned_addresses`).
A domain stays in the state "running" while the agent is down, as a real one does. The files survive a kill of the
agent, but not necessarily a power cut. Live migration moves a domain's files into the directory of the other host,
which is on the same machine.
"""

import contextlib
import json
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from moorage.agent.model import (
    REBOOTS,
    STATE_AFTER,
    DomainPowerState,
    PowerAction,
    is_already_done,
    why_impossible,
)
from moorage.agent.tree.provider_tree import ProviderNode, ProviderTree
from moorage.agent.virt.domain_xml import parse_domain, render_domain
from moorage.agent.virt.driver import (
    Capability,
    DiskImage,
    Domain,
    DomainInterface,
    DomainSpec,
    HypervisorFacts,
    LearnedByMac,
    MigrationTarget,
    NoSuchDomain,
    VirtError,
)
from moorage.agent.virt.fault_injection import CONTROL_FILE, FaultInjection
from moorage.agent.virt.host_description import HostDescription
from moorage.agent.virt.simulated_console import SimulatedConsole
from moorage.core.clock import Clock
from moorage.core.ids import is_uuid
from moorage.core.inventories import Inventory
from moorage.durable import write_atomically

HYPERVISOR_VERSION = 1_000_000

_POWER_MARK, _POWER_END = b"<!-- power: ", b" -->\n"


class SimulatedDriver:
    """Thread-safe. `faults` delays operations and lets them fail; None: it reads ``control.json`` in `directory`."""

    def __init__(
        self, description: HostDescription, directory: Path, clock: Clock, faults: FaultInjection | None = None
    ) -> None:
        self._host = description
        self._domains = directory / "domains"
        self._consoles = directory / "consoles"
        self.leases = directory / "leases.json"
        self._disks = SimulatedDisks(directory / "disks")
        self._clock = clock
        self.faults = faults or FaultInjection(control=directory / CONTROL_FILE)
        self._lock = threading.Lock()
        #: {uuid: its open console}
        self._open_consoles: dict[str, SimulatedConsole] = {}
        for path in (self._domains, self._consoles):
            path.mkdir(parents=True, exist_ok=True)

    def facts(self) -> HypervisorFacts:
        host = self._host
        return HypervisorFacts(
            name=host.name,
            hypervisor_type="simulated",
            hypervisor_version=HYPERVISOR_VERSION,
            host_ip=host.host_ip,
            vcpus=host.vcpus,
            memory_mb=host.memory_mb,
            local_gb=host.disk_gb,
            capabilities=frozenset(Capability),
        )

    def nodes(self) -> list[str]:
        return [self._host.name]

    def update_provider_tree(self, tree: ProviderTree) -> ProviderTree:
        host = self._host
        root = ProviderNode(
            name=host.name,
            inventories={
                "VCPU": _inventory_of_all(host.vcpus, host.cpu_allocation_ratio),
                "MEMORY_MB": _inventory_of_all(host.memory_mb, host.ram_allocation_ratio, host.reserved_memory_mb),
                "DISK_GB": _inventory_of_all(host.disk_gb, host.disk_allocation_ratio),
            },
            traits=frozenset(host.traits) | {"COMPUTE_ACCELERATORS"},
            uuid=host.uuid,
        )
        numa = [
            ProviderNode(host.numa_name(node), parent=host.name, traits=frozenset({"HW_NUMA_ROOT"}))
            for node in range(host.numa_nodes)
        ]
        return ProviderTree([root, *numa])

    def spawn(self, spec: DomainSpec, *, start: bool = True) -> Domain:
        self._inject_faults("spawn", spec.name)
        with self._lock:
            self._disks.keep_or_make(spec)
            self._disks.keep_config_drive(spec)
            return self._define(spec, start=start)

    def rebuild(self, spec: DomainSpec, *, key: str, start: bool) -> Domain:
        self._inject_faults("rebuild", spec.name)
        with self._lock:
            if not self._disks.is_rebuilt(spec.uuid, key):
                if self._read_domain(spec.uuid) is not None:
                    self._set_power(spec.uuid, DomainPowerState.SHUTOFF)
                self._disks.make(spec, key=key)
                self._disks.keep_config_drive(spec)
            return self._define(spec, start=start)

    def _define(self, spec: DomainSpec, *, start: bool) -> Domain:
        present = self._read_domain(spec.uuid)
        self._refuse_shared_devices(spec)
        if present is not None and present.spec == spec and (present.power is DomainPowerState.RUNNING or not start):
            return present
        power = DomainPowerState.RUNNING if start else DomainPowerState.SHUTOFF
        self._write_domain(spec.uuid, render_domain(spec, self._host_nodes(spec)), power)
        if start:
            self._write_boot_messages(spec)
        return Domain(spec, power)

    def destroy(self, uuid: str) -> bool:
        present = self._read_domain(uuid)
        if present is not None:
            self._inject_faults("destroy", present.spec.name)
        with self._lock:
            self._remove_files(uuid)
        return present is not None

    def _remove_files(self, uuid: str) -> None:
        """Removes the definition first: without it the domain does not exist. After a crash in between, the next call
        removes the other files.
        """
        for path in (self._xml_path(uuid), self._console_path(uuid)):
            path.unlink(missing_ok=True)
        self._end_console(uuid)
        self._disks.remove(_checked_uuid(uuid))

    def power(self, uuid: str, action: PowerAction) -> DomainPowerState:
        spec = self._domain(uuid).spec
        self._inject_faults(action, spec.name)
        with self._lock:
            before, after = self._domain(uuid).power, STATE_AFTER[action]
            if is_already_done(before, action):
                return before
            if why := why_impossible(before, action):
                raise VirtError(f"{spec.name}: {why}")
            self._set_power(uuid, after)
            if action in REBOOTS or before is DomainPowerState.SHUTOFF:
                self._write_boot_messages(spec)
            else:
                self._write_console(uuid, [f"[{self._timestamp()}] {action}: {before} -> {after}"])
            return after

    def rescue(self, uuid: str, image_id: str, password: str) -> DomainPowerState:
        spec = self._domain(uuid).spec
        self._inject_faults("rescue", spec.name)
        with self._lock:
            if not self._disks.is_rescued(_checked_uuid(uuid)):
                self._set_power(uuid, DomainPowerState.SHUTOFF)
                self._disks.begin_rescue(_checked_uuid(uuid), image_id)
                self._write_console(uuid, [f"[{self._timestamp()}] rescue system {image_id}"])
            return self._ensure_running(spec)

    def unrescue(self, uuid: str) -> DomainPowerState:
        spec = self._domain(uuid).spec
        self._inject_faults("unrescue", spec.name)
        with self._lock:
            if self._disks.is_rescued(_checked_uuid(uuid)):
                self._set_power(uuid, DomainPowerState.SHUTOFF)
                self._disks.end_rescue(_checked_uuid(uuid))
            return self._ensure_running(spec)

    def _ensure_running(self, spec: DomainSpec) -> DomainPowerState:
        if self._domain(spec.uuid).power is not DomainPowerState.RUNNING:
            self._set_power(spec.uuid, DomainPowerState.RUNNING)
            self._write_boot_messages(spec)
        return DomainPowerState.RUNNING

    def set_password(self, uuid: str, password: str) -> None:
        spec = self._domain(uuid).spec
        self._inject_faults("set-password", spec.name)
        self._write_console(uuid, [f"[{self._timestamp()}] the administrator has a new password"])

    def crash_dump(self, uuid: str) -> None:
        spec = self._domain(uuid).spec
        self._inject_faults("crash-dump", spec.name)
        self._write_console(uuid, [f"[{self._timestamp()}] Kernel panic - not syncing: NMI; dumping memory"])

    def attach_interface(self, uuid: str, interface: DomainInterface) -> None:
        self._inject_faults("attach-interface", self._domain(uuid).spec.name)
        with self._lock:
            spec = self._domain(uuid).spec
            if all(one.mac != interface.mac for one in spec.interfaces):
                self._change_interfaces(spec, (*spec.interfaces, interface), f"{interface.mac}: attached")

    def detach_interface(self, uuid: str, mac: str) -> None:
        present = self._read_domain(uuid)
        if present is None:
            return
        self._inject_faults("detach-interface", present.spec.name)
        with self._lock:
            spec = self._domain(uuid).spec
            left = tuple(one for one in spec.interfaces if one.mac != mac)
            if left != spec.interfaces:
                self._change_interfaces(spec, left, f"{mac}: detached")

    def _change_interfaces(self, spec: DomainSpec, interfaces: tuple[DomainInterface, ...], message: str) -> None:
        changed = replace(spec, interfaces=interfaces)
        power = self._domain(spec.uuid).power
        self._write_domain(spec.uuid, render_domain(changed, self._host_nodes(changed)), power)
        self._write_console(spec.uuid, [f"[{self._timestamp()}] interface {message}"])

    def snapshot(self, uuid: str) -> AbstractContextManager[DiskImage]:
        spec = self._domain(uuid).spec
        self._inject_faults("snapshot", spec.name)
        return self._disks.open_image(_checked_uuid(uuid))

    def receive(self, spec: DomainSpec) -> MigrationTarget:
        self._inject_faults("receive", spec.name)
        with self._lock:
            self._refuse_shared_devices(spec)
            return {"domains": str(self._domains), "disks": str(self._disks.path(spec.uuid).parent)}

    def hand_over(self, uuid: str, target: MigrationTarget) -> None:
        present = self._read_domain(uuid)
        if present is not None:
            self._inject_faults("hand-over", present.spec.name)
        with self._lock:
            if present is not None:
                disk = self._disks.path(_checked_uuid(uuid))
                shutil.copy(disk, Path(target["disks"]) / disk.name)
                # A domain exists where its definition is. So write that last there, and remove it first here.
                path = self._xml_path(uuid)
                write_atomically(Path(target["domains"]) / path.name, path.read_bytes())
            self._remove_files(uuid)

    def take_over(self, uuid: str) -> DomainPowerState:
        domain = self._domain(uuid)
        self._inject_faults("take-over", domain.spec.name)
        return domain.power

    def console(self, uuid: str) -> str:
        if not self._xml_path(uuid).exists():
            raise self._no_such_domain(uuid)
        try:
            return self._console_path(uuid).read_text("utf-8")
        except FileNotFoundError:
            return ""

    def open_console(self, uuid: str) -> SimulatedConsole:
        self._inject_faults("console", self._domain(uuid).spec.name)
        with self._lock:
            domain = self._domain(uuid)
            if domain.power is DomainPowerState.SHUTOFF:
                raise VirtError(f"{domain.spec.name} is off, so it has no console")
            self._end_console(uuid)
            console = self._open_consoles[uuid] = SimulatedConsole(domain.spec.name, self._host.name)
            return console

    def _end_console(self, uuid: str) -> None:
        if (console := self._open_consoles.pop(uuid, None)) is not None:
            console.close()

    def domains(self) -> Mapping[str, Domain]:
        found = (self._read_domain(path.stem) for path in sorted(self._domains.glob("*.xml")))
        return {domain.spec.uuid: domain for domain in found if domain is not None}

    def learned_addresses(self, domains: Mapping[str, Domain]) -> Mapping[str, LearnedByMac]:
        """Reads the file ``leases.json``, {MAC address: addresses}, which stands for the leases of a DHCP server."""
        leases: dict[str, list[str]] = json.loads(self.leases.read_text()) if self.leases.exists() else {}
        learned: dict[str, LearnedByMac] = {}
        for uuid, domain in domains.items():
            if macs := [one.mac for one in domain.spec.interfaces if one.is_dhcp]:
                is_on = domain.power is not DomainPowerState.SHUTOFF
                learned[uuid] = {mac: tuple(leases[mac]) for mac in macs if is_on and leases.get(mac)}
        return learned

    def _inject_faults(self, operation: str, name: str) -> None:
        self._clock.sleep(self.faults.operation_latency_s(operation))
        self.faults.check(operation, name)

    def _refuse_shared_devices(self, spec: DomainSpec) -> None:
        """Raises `VirtError` if another running domain has one of the PCI devices, as libvirt does."""
        if not spec.all_pci_addresses:
            return  # saves reading the files of all domains
        for other in self.domains().values():
            shared = sorted(spec.all_pci_addresses & other.spec.all_pci_addresses)
            if shared and other.spec.uuid != spec.uuid and other.power is not DomainPowerState.SHUTOFF:
                raise VirtError(f"PCI device {shared[0]} is in use by domain {other.spec.name}")

    def _host_nodes(self, spec: DomainSpec) -> list[int]:
        return [node for node in range(self._host.numa_nodes) if self._host.numa_name(node) in spec.provider_ancestors]

    def _write_boot_messages(self, spec: DomainSpec) -> None:
        lines = [f"[{self._timestamp()}] {spec.name}: booting, {spec.vcpus} vcpus, {spec.memory_mb} MB of memory"]
        lines.append(f"vda: {spec.disk_gb} GB, from image {spec.image_id}")
        lines += [f"pci {address}: attached" for address in spec.pci_addresses]
        self._write_console(spec.uuid, [*lines, f"{spec.name} login:"])

    def _write_console(self, uuid: str, lines: list[str]) -> None:
        with self._console_path(uuid).open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    def _timestamp(self) -> str:
        return self._clock.now().isoformat(timespec="seconds")

    def _domain(self, uuid: str) -> Domain:
        domain = self._read_domain(uuid)
        if domain is None:
            raise self._no_such_domain(uuid)
        return domain

    def _no_such_domain(self, uuid: str) -> NoSuchDomain:
        return NoSuchDomain(f"there is no server {uuid} on host {self._host.name}")

    def _read_domain(self, uuid: str) -> Domain | None:
        try:
            definition, power = self._read_definition(uuid)
        except FileNotFoundError:
            return None
        return Domain(parse_domain(definition), power, self._disks.is_rescued(_checked_uuid(uuid)))

    def _read_definition(self, uuid: str) -> tuple[bytes, DomainPowerState]:
        definition, _, power = self._xml_path(uuid).read_bytes().rpartition(_POWER_MARK)
        return definition, DomainPowerState(power.removesuffix(_POWER_END).decode())

    def _set_power(self, uuid: str, state: DomainPowerState) -> None:
        """Writes the power state of a domain that exists."""
        definition, _ = self._read_definition(uuid)
        self._write_domain(uuid, definition, state)

    def _write_domain(self, uuid: str, definition: bytes, power: DomainPowerState) -> None:
        if power is DomainPowerState.SHUTOFF:
            self._end_console(uuid)
        write_atomically(self._xml_path(uuid), definition + _POWER_MARK + power.encode() + _POWER_END)

    def _xml_path(self, uuid: str) -> Path:
        return self._domains / f"{_checked_uuid(uuid)}.xml"

    def _console_path(self, uuid: str) -> Path:
        return self._consoles / f"{_checked_uuid(uuid)}.log"


def _inventory_of_all(total: int, ratio: float, reserved: int = 0) -> Inventory:
    """An inventory that one server may use completely."""
    return Inventory(total=total, reserved=reserved, max_unit=total, allocation_ratio=ratio)


def _checked_uuid(uuid: str) -> str:
    """`uuid` as part of a file name. Raises `NoSuchDomain` unless it is a uuid."""
    if not is_uuid(uuid):
        raise NoSuchDomain(f"{uuid!r} is not the uuid of a server")
    return uuid.lower()


_FORMAT = "raw"


class SimulatedDisks:
    """Disks of simulated domains: small files with a description of the real disk.

    ``disks/<uuid>.raw`` begins with a line that names the image, the key of the rebuild that made the disk, and its
    size. The guest's data follows and is part of a snapshot. ``disks/<uuid>.rescue`` exists while a domain is in
    rescue. The methods use `uuid` in file names, so callers check before that it is a uuid.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def make(self, spec: DomainSpec, *, key: str = "") -> None:
        """Makes the disk from the image of `spec`; replaces an existing one."""
        write_atomically(self.path(spec.uuid), _disk_header(spec, key))

    def keep_or_make(self, spec: DomainSpec) -> None:
        """Gives an existing disk the size of `spec`; makes a disk if there is none."""
        try:
            header, _, written = self.path(spec.uuid).read_bytes().partition(b"\n")
        except FileNotFoundError:
            self.make(spec)
            return
        image, key, _ = header.decode().split("\t")
        kept = f"{image}\t{key}\t{spec.disk_gb} GB\n".encode() + written
        if kept != header + b"\n" + written:
            write_atomically(self.path(spec.uuid), kept)

    def is_rebuilt(self, uuid: str, key: str) -> bool:
        """Whether the rebuild `key` made this disk."""
        with contextlib.suppress(FileNotFoundError):
            return self.path(uuid).read_bytes().partition(b"\n")[0].split(b"\t")[1] == key.encode()
        return False

    def keep_config_drive(self, spec: DomainSpec) -> None:
        """Writes the config drive as plain files, because no guest runs here that could read a drive."""
        for name, content in (spec.config_drive or {}).items():
            path = self.config_drive(spec.uuid) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def config_drive(self, uuid: str) -> Path:
        return self._directory / f"{uuid}.config"

    def remove(self, uuid: str) -> None:
        for path in (self.path(uuid), self._rescue_path(uuid)):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.config_drive(uuid), ignore_errors=True)

    @contextlib.contextmanager
    def open_image(self, uuid: str) -> Iterator[DiskImage]:
        data = self.path(uuid).read_bytes()
        yield DiskImage(_FORMAT, len(data), iter((data,)))

    def is_rescued(self, uuid: str) -> bool:
        return self._rescue_path(uuid).exists()

    def begin_rescue(self, uuid: str, image_id: str) -> None:
        write_atomically(self._rescue_path(uuid), f"{image_id}\n".encode())

    def end_rescue(self, uuid: str) -> None:
        self._rescue_path(uuid).unlink(missing_ok=True)

    def path(self, uuid: str) -> Path:
        return self._directory / f"{uuid}.raw"

    def _rescue_path(self, uuid: str) -> Path:
        return self._directory / f"{uuid}.rescue"


def _disk_header(spec: DomainSpec, key: str) -> bytes:
    return f"image {spec.image_id or '-'}\t{key}\t{spec.disk_gb} GB\n".encode()
