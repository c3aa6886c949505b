"""Checks what the agent of a host needs from its machine: KVM, IOMMU, libvirt, programs, rights on devices.

Reads only. Remedies name Debian's packages. Nothing is needed for a simulated host.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from moorage.accelerator.drivers import opae, xrt
from moorage.cli.doctor.finding import CheckFinding, broken, fine, warning
from moorage.config import Config, comma_separated
from moorage.core.clock import Clock

#: {alternative programs: Debian's package of the first}
PROGRAMS: Mapping[tuple[str, ...], str] = {
    ("qemu-system-x86_64",): "qemu-system-x86",
    ("qemu-img",): "qemu-utils",
    ("genisoimage", "mkisofs", "xorrisofs"): "genisoimage",
}

#: Sockets of libvirt's daemons for ``qemu:///system``: the one for everything, and that for QEMU only.
SOCKETS = ("run/libvirt/libvirt-sock", "run/libvirt/virtqemud-sock")

#: Drivers whose devices go to guests through VFIO.
_THROUGH_VFIO = frozenset({"pci", "nvidia", "qat", "fpga_dfl", "opae", "xrt"})

#: {(vendor, first digits of the PCI class): (what it is, driver)}
_ACCELERATORS = {
    ("10de", "03"): ("an NVIDIA GPU", "nvidia"),
    ("8086", "0b40"): ("a QuickAssist device", "qat"),
    ("8086", "1200"): ("an Intel accelerator", "fpga_dfl"),
    ("10ee", "1200"): ("a Xilinx accelerator", "xrt"),
}


@dataclass(frozen=True)
class HostMachine:
    """`root`: the directory with ``/dev``, ``/proc``, ``/run`` and ``/sys``. `search`: directories of programs."""

    root: Path = Path("/")
    search: str = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"

    def has_program(self, *names: str) -> bool:
        return any(shutil.which(name, path=self.search) for name in names)

    @property
    def has_systemd(self) -> bool:
        """Whether systemd is this machine's service manager (sd_booted(3))."""
        return (self.root / "run/systemd/system").is_dir()


def check_machine(config: Config, clock: Clock, machine: HostMachine | None = None) -> Iterator[CheckFinding]:
    machine = machine or HostMachine()
    drivers = [name for name in comma_separated(config.accelerator.drivers) if name != "simulated"]
    if "agent" in config.runs and config.agent.virt_driver == "libvirt":
        yield _kvm(config, machine)
        yield from _libvirt(config, clock, machine)
    elif "agent" in config.runs:
        yield fine("host", "the guests of this host are simulated, which needs nothing of the machine")
    if drivers and config.runs & {"agent", "accelerator-agent"}:
        yield from _accelerators(frozenset(drivers), machine)
    if "agent" in config.runs and config.agent.virt_driver == "libvirt":
        yield from _not_offered(frozenset(drivers), machine)


def _kvm(config: Config, machine: HostMachine) -> CheckFinding:
    device = machine.root / "dev/kvm"
    if config.libvirt.virt_type == "qemu":
        return fine("kvm", "not used: [libvirt] virt_type is qemu, software emulation")
    if os.access(device, os.R_OK | os.W_OK):
        return fine("kvm", "guests run on the processor", device)
    level = broken if config.libvirt.virt_type == "kvm" else warning
    slow = "" if level is broken else ": guests run in software emulation, which is much slower"
    if device.exists():
        return level(
            "kvm", f"this user cannot use KVM{slow}", device, "run as root, or join its group: adduser USER kvm"
        )
    flags = _flags(machine)
    if module := "kvm_intel" if "vmx" in flags else "kvm_amd" if "svm" in flags else "":
        remedy = f"modprobe {module}; if that fails, switch virtualisation on in the firmware"
        return level("kvm", f"the kernel's module {module} is not loaded{slow}", device, remedy)
    remedy = (
        "switch VT-x or AMD-V on in the firmware; if this machine is itself a guest, allow nested virtualisation on "
        "its host; or set [libvirt] virt_type = qemu"
    )
    return level("kvm", f"the processor shows no virtualisation{slow}", device, remedy)


def _flags(machine: HostMachine) -> frozenset[str]:
    table = machine.root / "proc/cpuinfo"
    lines = table.read_text(errors="replace").splitlines() if table.exists() else []
    return frozenset(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), []))


def _libvirt(config: Config, clock: Clock, machine: HostMachine) -> Iterator[CheckFinding]:
    missing = {package: names[0] for names, package in PROGRAMS.items() if not machine.has_program(*names)}
    if missing:
        yield broken(
            "programs", f"not installed: {', '.join(missing.values())}", "", f"apt-get install {' '.join(missing)}"
        )
    else:
        yield fine("programs", "QEMU and the programs for disks and config drives are installed")
    if not machine.has_program("ebtables"):
        what = "ebtables is not installed, with which libvirt filters traffic: servers with networks do not start"
        yield warning("traffic", what, "", "apt-get install iptables")
    yield _daemon(config, clock, machine)
    yield from _instances(config)


def _daemon(config: Config, clock: Clock, machine: HostMachine) -> CheckFinding:
    uri = config.libvirt.uri
    named = parse_qs(urlsplit(uri).query).get("socket", [])
    sockets = [Path(name) for name in named] or [machine.root / name for name in SOCKETS]
    found = [path for path in sockets if path.exists()]
    if not found:
        remedy = "apt-get install libvirt-daemon-system, then systemctl enable --now libvirtd"
        if named:
            remedy = "start the daemon of that socket, or correct [libvirt] uri"
        return broken("libvirt", "libvirt does not run here: it has no socket", sockets[0], remedy)
    if not any(os.access(path, os.R_OK | os.W_OK) for path in found):
        remedy = "run as root, or join its group: adduser USER libvirt"
        return broken("libvirt", "this user may not use libvirt's socket", found[0], remedy)
    try:
        from moorage.agent.virt.driver import VirtError
        from moorage.agent.virt.libvirt_connection import LibvirtConnection
    except ModuleNotFoundError as error:
        remedy = "pip install 'moorage[libvirt]', or apt-get install python3-libvirt if Moorage uses Debian's Python"
        return broken("libvirt", f"Python has no module {error.name}", found[0], remedy)
    connection = LibvirtConnection(uri, clock)
    try:
        with connection.use() as link:
            version = link.getVersion()
    except VirtError as error:
        remedy = "see `systemctl status libvirtd` and `journalctl --unit libvirtd`"
        return broken("libvirt", error.message, uri, remedy)
    finally:
        connection.close()
    said = f"libvirt answers, with QEMU {version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"
    return fine("libvirt", said, uri)


def _instances(config: Config) -> Iterator[CheckFinding]:
    """QEMU runs as a user of its own, who must pass through every directory above the disks."""
    directory = Path(config.libvirt.instances_path or config.state / "host" / "instances")
    closed = [path for path in (directory, *directory.parents) if path.is_dir() and not path.stat().st_mode & 0o001]
    if closed:
        remedy = f"chmod o+x {closed[-1]}, or set [libvirt] instances_path elsewhere; not needed if QEMU runs as root"
        yield warning("instances", "QEMU's user cannot reach the disks of guests", closed[-1], remedy)
    else:
        yield fine("instances", "QEMU's user can reach the disks of guests", directory)


def _accelerators(drivers: frozenset[str], machine: HostMachine) -> Iterator[CheckFinding]:
    if drivers & _THROUGH_VFIO:
        yield _iommu(machine)
        yield _vfio(machine)
    probe = machine.root / "sys/bus/pci/drivers_probe"
    if os.access(probe, os.W_OK):
        yield fine("sysfs", "this user can bind devices to drivers", probe)
    else:
        remedy = "run the agent as root; in a container, mount /sys writable"
        yield broken("sysfs", "this user cannot bind devices to drivers", probe, remedy)
    yield from _vendor_programs(drivers)
    if "fpga_manager" in drivers and not _entries(machine.root / "sys/class/fpga_manager"):
        remedy = "load the module of the board's FPGA manager (modprobe), or remove fpga_manager from drivers"
        yield broken("drivers", "the kernel has no FPGA manager", machine.root / "sys/class/fpga_manager", remedy)


def _iommu(machine: HostMachine) -> CheckFinding:
    groups = machine.root / "sys/kernel/iommu_groups"
    if count := len(_entries(groups)):
        return fine("iommu", f"the kernel has {count} IOMMU groups", groups)
    remedy = (
        "switch VT-d or AMD-Vi on in the firmware; on Intel also add intel_iommu=on to GRUB_CMDLINE_LINUX_DEFAULT in "
        "/etc/default/grub, run update-grub and restart the machine"
    )
    return broken("iommu", "the kernel has no IOMMU groups: no device can be given to a guest", groups, remedy)


def _vfio(machine: HostMachine) -> CheckFinding:
    driver = machine.root / "sys/bus/pci/drivers/vfio-pci"
    if driver.is_dir():
        return fine("vfio", "the kernel's driver vfio-pci is loaded", driver)
    remedy = "modprobe vfio-pci; echo vfio-pci > /etc/modules-load.d/vfio-pci.conf keeps it over a restart"
    return broken("vfio", "the kernel's driver vfio-pci is not loaded", driver, remedy)


def _vendor_programs(drivers: frozenset[str]) -> Iterator[CheckFinding]:
    needed = {"opae": (opae.PATH, ("fpgainfo", "fpgaconf")), "xrt": (xrt.PATH, ("xbmgmt", "xbutil"))}
    for driver, (path, names) in needed.items():
        missing = [name for name in names if shutil.which(name, path=path) is None]
        if driver in drivers and missing:
            yield broken(
                "drivers", f"the driver {driver} needs {' and '.join(missing)}", path,
                f"install the vendor's runtime, or remove {driver} from [accelerator] drivers",
            )  # fmt: skip


def _not_offered(drivers: frozenset[str], machine: HostMachine) -> Iterator[CheckFinding]:
    """Accelerators that no configured driver looks for. This is no fault: the host may need them itself."""
    for device in _entries(machine.root / "sys/bus/pci/devices"):
        vendor, kind = (_hexadecimal(device / name) for name in ("vendor", "class"))
        for (its_vendor, its_kind), (name, driver) in _ACCELERATORS.items():
            if vendor == its_vendor and kind.startswith(its_kind) and not drivers & {driver, "pci", "opae"}:
                said = f"{name} is not offered to guests; [accelerator] drivers = {driver} would offer it"
                yield fine("accelerators", said, device.name)


def _hexadecimal(path: Path) -> str:
    try:
        return path.read_text().strip().removeprefix("0x")
    except OSError:
        return ""


def _entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []
