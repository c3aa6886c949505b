"""What `moorage doctor` and `moorage agent join` say about the machine of a host: one test per thing that can be missing."""

import stat

import pytest

from moorage.cli.doctor.finding import Severity
from moorage.cli.doctor.machine import HostMachine, check_machine
from moorage.core.clock import SystemClock
from tests.system.planes import write_config

PROGRAMS = ("qemu-system-x86_64", "qemu-img", "genisoimage")


@pytest.fixture
def root(tmp_path):
    """The files of a machine that has all that a host needs, except a libvirt that answers."""
    for name in PROGRAMS:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.touch(0o755)
    for directory in (
        "sys/kernel/iommu_groups/0",
        "sys/bus/pci/drivers/vfio-pci",
        "sys/bus/pci/devices",
        "dev",
        "proc",
    ):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "sys/bus/pci/drivers_probe").touch()
    (tmp_path / "dev/kvm").touch()
    return tmp_path


def findings(root, drivers="pci", **libvirt):
    config = write_config(
        root / "conf", plane={"services": "agent"}, agent={"virt_driver": "libvirt"},
        accelerator={"drivers": drivers}, libvirt={"instances_path": str(root / "instances"), **libvirt},
    )  # fmt: skip
    machine = HostMachine(root=root, search=str(root / "bin"))
    return {one.check: one for one in check_machine(config, SystemClock(), machine)}


def test_a_machine_that_has_everything_is_fine_but_for_its_libvirt(root):
    root.chmod(0o755)
    found = findings(root)
    assert {name for name, one in found.items() if one.severity is Severity.BROKEN} == {"libvirt"}
    assert {"kvm", "iommu", "vfio", "sysfs", "programs"} <= found.keys()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_missing_program_is_named_with_its_package(root, name):
    (root / "bin" / name).unlink()
    package = {"qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils"}.get(name, name)
    found = findings(root)["programs"]
    assert (found.severity, found.remedy) == (Severity.BROKEN, f"apt-get install {package}")


def test_without_ebtables_servers_with_networks_do_not_start(root):
    found = findings(root)["traffic"]
    assert (found.severity, found.remedy) == (Severity.WARNING, "apt-get install iptables")
    (root / "bin/ebtables").touch(0o755)
    assert "traffic" not in findings(root)


def test_another_program_for_config_drives_suffices(root):
    (root / "bin/genisoimage").rename(root / "bin/xorrisofs")
    assert findings(root)["programs"].severity is Severity.FINE


@pytest.mark.parametrize(
    ("flags", "virt_type", "severity", "remedy"),
    [
        ("fpu vmx", "auto", Severity.WARNING, "modprobe kvm_intel"),
        ("fpu svm", "kvm", Severity.BROKEN, "modprobe kvm_amd"),
        ("fpu", "auto", Severity.WARNING, "VT-x or AMD-V"),
        ("fpu", "qemu", Severity.FINE, ""),
    ],
)
def test_a_machine_without_kvm_is_told_how_to_get_it(root, flags, virt_type, severity, remedy):
    (root / "dev/kvm").unlink()
    (root / "proc/cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    found = findings(root, virt_type=virt_type)["kvm"]
    assert found.severity is severity
    assert remedy in found.remedy


def test_a_machine_without_an_iommu_is_told_how_to_switch_it_on(root):
    (root / "sys/kernel/iommu_groups/0").rmdir()
    found = findings(root)["iommu"]
    assert found.severity is Severity.BROKEN
    assert "intel_iommu=on" in found.remedy
    assert "iommu" not in findings(root, drivers="")


def test_missing_kernel_drivers_and_vendor_programs_are_named(root):
    (root / "sys/bus/pci/drivers/vfio-pci").rmdir()
    assert "modprobe vfio-pci" in findings(root)["vfio"].remedy
    assert "needs xbmgmt and xbutil" in findings(root, drivers="xrt")["drivers"].what
    assert "FPGA manager" in findings(root, drivers="fpga_manager")["drivers"].what


def test_a_user_who_may_not_bind_devices_is_told_so(root):
    (root / "sys/bus/pci/drivers_probe").unlink()
    found = findings(root)["sysfs"]
    assert found.severity is Severity.BROKEN
    assert "as root" in found.remedy


def test_a_libvirt_without_a_socket_is_told_what_to_install(root):
    found = findings(root)["libvirt"]
    assert found.where.endswith("run/libvirt/libvirt-sock")
    assert "apt-get install libvirt-daemon-system" in found.remedy
    named = findings(root, uri=f"qemu:///system?socket={root}/none")["libvirt"]
    assert "correct [libvirt] uri" in named.remedy


def test_a_socket_that_nobody_serves_is_reported(root):
    pytest.importorskip("libvirt", reason="libvirt's Python bindings are not installed: make .venv/.libvirt")
    (root / "socket").touch()
    found = findings(root, uri=f"qemu:///system?socket={root}/socket")["libvirt"]
    assert found.severity is Severity.BROKEN
    assert "does not answer" in found.what


def test_directories_that_qemus_user_cannot_pass_are_named(root):
    root.chmod(0o700)
    found = findings(root)["instances"]
    assert found.severity is Severity.WARNING
    assert found.remedy.startswith("chmod o+x ")
    closed = [path for path in (root, *root.parents) if not path.stat().st_mode & stat.S_IXOTH]
    assert found.where == str(closed[-1])


def test_an_accelerator_that_no_driver_offers_is_mentioned(root):
    device = root / "sys/bus/pci/devices/0000:3b:00.0"
    device.mkdir()
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    found = findings(root, drivers="")["accelerators"]
    assert (found.severity, found.where) == (Severity.FINE, device.name)
    assert "drivers = nvidia" in found.what
    assert "accelerators" not in findings(root, drivers="nvidia")


def test_a_simulated_host_needs_nothing(tmp_path):
    (one,) = check_machine(write_config(tmp_path), SystemClock(), HostMachine(root=tmp_path, search=""))
    assert one.severity is Severity.FINE
