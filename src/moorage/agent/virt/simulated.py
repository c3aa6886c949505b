"""A hypervisor that keeps domains as files instead of running them: for `moorage up`, rehearsals and tests.

Its directory contains ``domains/<uuid>.xml`` (libvirt's form), ``domains/<uuid>.power``, ``consoles/<uuid>.log`` and
``disks/`` (`SimulatedDisks`). A domain keeps "running" while the agent is down, as a real one does; its files survive
a kill of the agent, not necessarily a power cut. Live migration moves its files into the directory of the other host,
which is on the same machine.
"""

import contextlib
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from moorage.agent.model.power import (
    REBOOTS,
    STATE_AFTER,
    DomainPowerState,
    PowerAction,
    is_already_done,
    why_impossible,
)
from moorage.agent.tree.provider_tree import ProviderNode, ProviderTree
from moorage.agent.virt.driver import (
    Capability,
    DiskImage,
    Domain,
    DomainSpec,
    HostFacts,
    NoSuchDomain,
    Target,
    VirtError,
)
from moorage.agent.virt.fault_injection import CONTROL_FILE, FaultInjection
from moorage.agent.virt.host_description import HostDescription
from moorage.agent.virt.xml.domain_xml import parse_domain, render_domain
from moorage.core.clock import Clock
from moorage.core.ids import is_uuid
from moorage.core.inventories import Inventory
from moorage.durable import write_atomically

HYPERVISOR_VERSION = 1_000_000


class SimulatedDriver:
    """Thread-safe. `faults` delays operations or lets them fail; None: ``control.json`` in `directory` does."""

    def __init__(
        self, description: HostDescription, directory: Path, clock: Clock, script: FaultInjection | None = None
    ) -> None:
        self._host = description
        self._domains = directory / "domains"
        self._consoles = directory / "consoles"
        self._disks = SimulatedDisks(directory / "disks")
        self._clock = clock
        self.faults = script or FaultInjection(control=directory / CONTROL_FILE)
        self._lock = threading.Lock()
        for path in (self._domains, self._consoles):
            path.mkdir(parents=True, exist_ok=True)

    def facts(self) -> HostFacts:
        host = self._host
        return HostFacts(
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
        self._pass_time("spawn", spec.name)
        with self._lock:
            self._disks.keep(spec)
            self._disks.keep_config_drive(spec)
            return self._define(spec, start=start)

    def rebuild(self, spec: DomainSpec, *, key: str, start: bool) -> Domain:
        self._pass_time("rebuild", spec.name)
        with self._lock:
            if not self._disks.is_of(spec.uuid, key):
                self._set_power(spec.uuid, DomainPowerState.SHUTOFF)
                self._disks.make(spec, key=key)
                self._disks.keep_config_drive(spec)
            return self._define(spec, start=start)

    def _define(self, spec: DomainSpec, *, start: bool) -> Domain:
        present = self._read(spec.uuid)
        self._refuse_shared_devices(spec)
        if present is None or present.spec != spec:
            if self._power_of(spec.uuid) is not DomainPowerState.SHUTOFF:
                self._set_power(spec.uuid, DomainPowerState.SHUTOFF)
            write_atomically(self._xml(spec.uuid), render_domain(spec, self._numa_nodes(spec)))
        elif present.power is DomainPowerState.RUNNING or not start:
            return present
        if not start:
            return Domain(spec, DomainPowerState.SHUTOFF)
        self._set_power(spec.uuid, DomainPowerState.RUNNING)
        self._boot(spec)
        return Domain(spec, DomainPowerState.RUNNING)

    def destroy(self, uuid: str) -> bool:
        present = self._read(uuid)
        if present is not None:
            self._pass_time("destroy", present.spec.name)
        with self._lock:
            self._forget(uuid)
        return present is not None

    def _forget(self, uuid: str) -> None:
        """Remove the definition first: a domain without one does not exist, and a later call removes the remains of a
        crash.
        """
        for path in (self._xml(uuid), self._power(uuid), self._console(uuid)):
            path.unlink(missing_ok=True)
        self._disks.forget(_checked(uuid))

    def power(self, uuid: str, action: PowerAction) -> DomainPowerState:
        spec = self._domain(uuid).spec
        self._pass_time(action, spec.name)
        with self._lock:
            before, after = self._domain(uuid).power, STATE_AFTER[action]
            if is_already_done(before, action):
                return before
            if why := why_impossible(before, action):
                raise VirtError(f"{spec.name}: {why}")
            self._set_power(uuid, after)
            if action in REBOOTS or before is DomainPowerState.SHUTOFF:
                self._boot(spec)
            else:
                self._write_console(uuid, [f"[{self._moment()}] {action}: {before} -> {after}"])
            return after

    def rescue(self, uuid: str, image_id: str, password: str) -> DomainPowerState:
        spec = self._domain(uuid).spec
        self._pass_time("rescue", spec.name)
        with self._lock:
            if not self._disks.is_rescued(_checked(uuid)):
                self._set_power(uuid, DomainPowerState.SHUTOFF)
                self._disks.begin_rescue(_checked(uuid), image_id)
                self._write_console(uuid, [f"[{self._moment()}] rescue system {image_id}"])
            return self._run(spec)

    def unrescue(self, uuid: str) -> DomainPowerState:
        spec = self._domain(uuid).spec
        self._pass_time("unrescue", spec.name)
        with self._lock:
            if self._disks.is_rescued(_checked(uuid)):
                self._set_power(uuid, DomainPowerState.SHUTOFF)
                self._disks.end_rescue(_checked(uuid))
            return self._run(spec)

    def _run(self, spec: DomainSpec) -> DomainPowerState:
        if self._power_of(spec.uuid) is not DomainPowerState.RUNNING:
            self._set_power(spec.uuid, DomainPowerState.RUNNING)
            self._boot(spec)
        return DomainPowerState.RUNNING

    def set_password(self, uuid: str, password: str) -> None:
        spec = self._domain(uuid).spec
        self._pass_time("set-password", spec.name)
        self._write_console(uuid, [f"[{self._moment()}] the administrator has a new password"])

    def crash_dump(self, uuid: str) -> None:
        spec = self._domain(uuid).spec
        self._pass_time("crash-dump", spec.name)
        self._write_console(uuid, [f"[{self._moment()}] Kernel panic - not syncing: NMI; dumping memory"])

    def snapshot(self, uuid: str) -> AbstractContextManager[DiskImage]:
        spec = self._domain(uuid).spec
        self._pass_time("snapshot", spec.name)
        return self._disks.image(_checked(uuid))

    def receive(self, spec: DomainSpec) -> Target:
        self._pass_time("receive", spec.name)
        with self._lock:
            self._refuse_shared_devices(spec)
            return {"domains": str(self._domains), "disks": str(self._disks.path(spec.uuid).parent)}

    def hand_over(self, uuid: str, target: Target) -> None:
        present = self._read(uuid)
        if present is not None:
            self._pass_time("hand-over", present.spec.name)
        with self._lock:
            if present is not None:
                disk = self._disks.path(_checked(uuid))
                shutil.copy(disk, Path(target["disks"]) / disk.name)
                # The definition is written last there and removed first here: it alone makes a domain exist.
                for path in (self._power(uuid), self._xml(uuid)):
                    write_atomically(Path(target["domains"]) / path.name, path.read_bytes())
            self._forget(uuid)

    def take_over(self, uuid: str) -> DomainPowerState:
        domain = self._domain(uuid)
        self._pass_time("take-over", domain.spec.name)
        return domain.power

    def console(self, uuid: str) -> str:
        if not self._xml(uuid).exists():
            raise self._no_such_domain(uuid)
        try:
            return self._console(uuid).read_text("utf-8")
        except FileNotFoundError:
            return ""

    def domains(self) -> Mapping[str, Domain]:
        found = (self._read(path.stem) for path in sorted(self._domains.glob("*.xml")))
        return {domain.spec.uuid: domain for domain in found if domain is not None}

    def _pass_time(self, operation: str, name: str) -> None:
        self._clock.sleep(self.faults.operation_latency_s(operation))
        self.faults.check(operation, name)

    def _refuse_shared_devices(self, spec: DomainSpec) -> None:
        """Refuse PCI devices of another running domain, as libvirt does."""
        if not spec.pci_addresses:
            return  # without a look at all domains, which are read from their files
        for other in self.domains().values():
            shared = sorted(set(spec.pci_addresses).intersection(other.spec.pci_addresses))
            if shared and other.spec.uuid != spec.uuid and other.power is not DomainPowerState.SHUTOFF:
                raise VirtError(f"PCI device {shared[0]} is in use by domain {other.spec.name}")

    def _numa_nodes(self, spec: DomainSpec) -> list[int]:
        return [node for node in range(self._host.numa_nodes) if self._host.numa_name(node) in spec.near]

    def _boot(self, spec: DomainSpec) -> None:
        lines = [f"[{self._moment()}] {spec.name}: booting, {spec.vcpus} vcpus, {spec.memory_mb} MB of memory"]
        lines.append(f"vda: {spec.disk_gb} GB, from image {spec.image_id}")
        lines += [f"pci {address}: attached" for address in spec.pci_addresses]
        self._write_console(spec.uuid, [*lines, f"{spec.name} login:"])

    def _write_console(self, uuid: str, lines: list[str]) -> None:
        with self._console(uuid).open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    def _moment(self) -> str:
        return self._clock.now().isoformat(timespec="seconds")

    def _domain(self, uuid: str) -> Domain:
        domain = self._read(uuid)
        if domain is None:
            raise self._no_such_domain(uuid)
        return domain

    def _no_such_domain(self, uuid: str) -> NoSuchDomain:
        return NoSuchDomain(f"there is no server {uuid} on host {self._host.name}")

    def _read(self, uuid: str) -> Domain | None:
        try:
            spec = parse_domain(self._xml(uuid).read_bytes())
        except FileNotFoundError:
            return None
        return Domain(spec, self._power_of(uuid), self._disks.is_rescued(_checked(uuid)))

    def _power_of(self, uuid: str) -> DomainPowerState:
        """The power state; a domain that was defined but not started before a crash is off."""
        try:
            return DomainPowerState(self._power(uuid).read_text("utf-8").strip())
        except (FileNotFoundError, ValueError):
            return DomainPowerState.SHUTOFF

    def _set_power(self, uuid: str, state: DomainPowerState) -> None:
        write_atomically(self._power(uuid), f"{state}\n".encode())

    def _xml(self, uuid: str) -> Path:
        return self._domains / f"{_checked(uuid)}.xml"

    def _power(self, uuid: str) -> Path:
        return self._domains / f"{_checked(uuid)}.power"

    def _console(self, uuid: str) -> Path:
        return self._consoles / f"{_checked(uuid)}.log"


def _inventory_of_all(total: int, ratio: float, reserved: int = 0) -> Inventory:
    """An inventory of which one server may have everything."""
    return Inventory(total=total, reserved=reserved, max_unit=total, allocation_ratio=ratio)


def _checked(uuid: str) -> str:
    """`uuid` as part of a file name. Raises `NoSuchDomain` unless it is a uuid."""
    if not is_uuid(uuid):
        raise NoSuchDomain(f"{uuid!r} is not the uuid of a server")
    return uuid.lower()


_FORMAT = "raw"


class SimulatedDisks:
    """Disks of simulated domains: small files with a description of the real disk.

    ``disks/<uuid>.raw`` begins with a line that names the image, the key of the rebuild that made it, and its size. The
    guest's data follows it and is part of a snapshot. ``disks/<uuid>.rescue`` exists while a domain is in rescue.
    The caller ensures that `uuid` is a uuid, because it names files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def make(self, spec: DomainSpec, *, key: str = "") -> None:
        """Makes the disk from the image of `spec`; replaces an existing one."""
        write_atomically(self.path(spec.uuid), _disk_header(spec, key))

    def keep(self, spec: DomainSpec) -> None:
        """Keep an existing disk, in the size of `spec`; make one if there is none."""
        try:
            header, _, written = self.path(spec.uuid).read_bytes().partition(b"\n")
        except FileNotFoundError:
            self.make(spec)
            return
        image, key, _ = header.decode().split("\t")
        kept = f"{image}\t{key}\t{spec.disk_gb} GB\n".encode() + written
        if kept != header + b"\n" + written:
            write_atomically(self.path(spec.uuid), kept)

    def is_of(self, uuid: str, key: str) -> bool:
        """Whether the rebuild `key` made this disk."""
        with contextlib.suppress(FileNotFoundError):
            return self.path(uuid).read_bytes().partition(b"\n")[0].split(b"\t")[1] == key.encode()
        return False

    def keep_config_drive(self, spec: DomainSpec) -> None:
        """Write the config drive as plain files, since no guest boots here that could read a drive."""
        for name, content in (spec.config_drive or {}).items():
            path = self.config_drive(spec.uuid) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def config_drive(self, uuid: str) -> Path:
        return self._directory / f"{uuid}.config"

    def forget(self, uuid: str) -> None:
        for path in (self.path(uuid), self._rescue(uuid)):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.config_drive(uuid), ignore_errors=True)

    @contextlib.contextmanager
    def image(self, uuid: str) -> Iterator[DiskImage]:
        data = self.path(uuid).read_bytes()
        yield DiskImage(_FORMAT, len(data), iter((data,)))

    def is_rescued(self, uuid: str) -> bool:
        return self._rescue(uuid).exists()

    def begin_rescue(self, uuid: str, image_id: str) -> None:
        write_atomically(self._rescue(uuid), f"{image_id}\n".encode())

    def end_rescue(self, uuid: str) -> None:
        self._rescue(uuid).unlink(missing_ok=True)

    def path(self, uuid: str) -> Path:
        return self._directory / f"{uuid}.raw"

    def _rescue(self, uuid: str) -> Path:
        return self._directory / f"{uuid}.rescue"


def _disk_header(spec: DomainSpec, key: str) -> bytes:
    return f"image {spec.image_id or '-'}\t{key}\t{spec.disk_gb} GB\n".encode()
