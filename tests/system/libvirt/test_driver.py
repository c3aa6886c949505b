"""The virt driver against a real libvirt, without a plane: refusals, foreign domains, and repeated calls."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.agent.model import DomainPowerState, PowerAction
from moorage.agent.tree.provider_tree import ProviderTree
from moorage.agent.virt.driver import DomainInterface, NoSuchDomain, VirtError
from tests.system.libvirt.drivers import LINUX, RESCUE, A, B, pids_of, spec
from tests.system.libvirt.namespaces import BRIDGE
from tests.system.libvirt.servers import patiently

pytestmark = pytest.mark.slow


def test_the_hosts_capacity_is_that_of_libvirt(driver):
    facts = driver.facts()
    root = driver.update_provider_tree(ProviderTree())["metal-2"]
    assert facts.hypervisor_type == "QEMU"
    assert facts.hypervisor_version >= 7_000_000
    assert root.inventories["VCPU"].total == facts.vcpus > 0
    assert root.inventories["MEMORY_MB"].total == facts.memory_mb > 0
    assert "HW_CPU_X86_SSE2" in root.traits


def test_a_domain_defines_its_device_and_the_start_fails_with_libvirts_reason(driver, libvirtd):
    """Without an IOMMU libvirt accepts and keeps the definition, and refuses the start with that reason."""
    function = DomainInterface("fa:16:3e:00:00:04", "", is_bridge=False, vlan=100, device="0000:00:03.0")
    passed = spec(
        pci_addresses=("0000:00:02.0",),
        mdev_uuids=("c2177883-f1bb-47f0-914d-32a22e3a8804",),
        interfaces=(function,),
    )
    kept = driver.spawn(passed, start=False)
    assert kept.power is DomainPowerState.SHUTOFF
    assert driver.domains()[A].spec == passed
    with pytest.raises(VirtError, match=r"(?i)passthrough|vfio|mdev|mediated|iommu"):
        driver.spawn(passed)
    assert driver.domains()[A].power is DomainPowerState.SHUTOFF
    assert driver.destroy(A)


def test_every_operation_may_be_repeated(make, driver):
    driver.spawn(spec())
    pids = pids_of(driver)
    driver.spawn(spec())
    assert make().spawn(spec()).power is DomainPowerState.RUNNING  # as the next start of the agent does
    assert pids_of(driver) == pids
    for action, state in (
        (PowerAction.PAUSE, "paused"), (PowerAction.UNPAUSE, "running"), (PowerAction.SUSPEND, "suspended"),
        (PowerAction.RESUME, "running"), (PowerAction.STOP, "shutoff"), (PowerAction.START, "running"),
    ):  # fmt: skip
        assert driver.power(A, action) == state
        assert driver.power(A, action) == state
        assert driver.domains()[A].power == state
    assert driver.power(A, PowerAction.REBOOT_HARD) == "running"
    assert driver.destroy(A)
    assert not driver.destroy(A)
    with pytest.raises(NoSuchDomain):
        driver.power(A, PowerAction.START)


def test_an_interface_is_attached_to_and_detached_from_a_running_guest(bridged_driver, bridged_make):
    """The guest boots Linux, which releases the device. Each call may be repeated."""
    driver, make = bridged_driver, bridged_make
    lab, other, third, fourth = (DomainInterface(f"fa:16:3e:00:00:0{at}", BRIDGE, is_bridge=True) for at in range(4))
    linux = spec(image_id=LINUX, memory_mb=256, interfaces=(lab,))
    driver.spawn(linux)
    patiently(lambda: "READY" in driver.console(A))
    pids = pids_of(driver)
    for one in (driver, make(), driver):
        one.attach_interface(A, other)
        assert driver.domains()[A].spec.interfaces == (lab, other)
        assert macs(driver, A) == {lab.mac, other.mac}
    for more in (third, fourth):
        driver.attach_interface(A, more)
    for more in (third, fourth):
        driver.detach_interface(A, more.mac)
    for one in (driver, make(), driver):
        one.detach_interface(A, lab.mac)
        assert driver.domains()[A].spec.interfaces == (other,)
        assert macs(driver, A) == {other.mac}
    assert pids_of(driver) == pids, "it ran all the time"
    driver.power(A, PowerAction.PAUSE)
    with pytest.raises(VirtError, match="paused, so it cannot release"):
        driver.detach_interface(A, other.mac)
    driver.power(A, PowerAction.UNPAUSE)
    driver.power(A, PowerAction.STOP)
    driver.detach_interface(A, other.mac)
    driver.attach_interface(A, lab)
    assert driver.domains()[A].spec.interfaces == (lab,)
    driver.destroy(A)
    driver.detach_interface(A, lab.mac)
    with pytest.raises(NoSuchDomain):
        driver.attach_interface(A, lab)


def test_a_guest_that_does_not_release_an_interface_keeps_it(bridged_driver, monkeypatch):
    driver = bridged_driver
    monkeypatch.setattr("moorage.agent.virt.libvirt_domain._RELEASE_TIMEOUT_S", 2)
    lab = DomainInterface("fa:16:3e:00:00:01", BRIDGE, is_bridge=True)
    driver.spawn(spec(interfaces=(lab,)))  # its guest stays in its firmware
    with pytest.raises(VirtError, match="did not release the interface within 2 s"):
        driver.detach_interface(A, lab.mac)
    assert driver.domains()[A].spec.interfaces == (lab,)
    with pytest.raises(VirtError, match="did not release the interface"):
        driver.detach_interface(A, lab.mac)


def macs(driver, uuid):
    """The MAC addresses of the running guest."""
    with driver._connection.use() as link:
        text = link.lookupByUUIDString(uuid).XMLDesc()
    return set(re.findall(r"<mac address='([^']+)'", text))


def test_a_suspended_domain_cannot_be_paused(driver):
    driver.spawn(spec())
    driver.power(A, PowerAction.SUSPEND)
    with pytest.raises(VirtError, match="cannot go from suspended to paused"):
        driver.power(A, PowerAction.PAUSE)


def test_servers_of_one_image_share_a_base_that_is_deleted_with_the_last_one(driver, libvirtd):
    base = libvirtd.directory / "driver" / "base"
    driver.spawn(spec(A), start=False)
    driver.spawn(spec(B, disk_gb=1), start=False)
    assert len(list(base.iterdir())) == 1
    driver.destroy(A)
    assert len(list(base.iterdir())) == 1
    driver.destroy(B)
    assert list(base.iterdir()) == []


def test_a_rebuild_with_the_same_key_makes_the_disk_only_once(driver, libvirtd):
    driver.spawn(spec(), start=False)
    disk = libvirtd.directory / "driver" / "guests" / A / "disk"
    marked = disk.stat().st_ino
    driver.rebuild(spec(), key="one", start=False)
    made = disk.stat().st_ino
    assert made != marked
    driver.rebuild(spec(), key="one", start=True)
    assert disk.stat().st_ino == made
    assert driver.domains()[A].power is DomainPowerState.RUNNING


def test_a_resize_grows_the_disk_and_replaces_the_domains_definition(driver):
    driver.spawn(spec(disk_gb=1))
    larger = spec(disk_gb=2, memory_mb=96, swap_mb=1, ephemeral_gb=1)
    assert driver.spawn(larger).power is DomainPowerState.RUNNING
    assert driver.domains()[A].spec == larger
    with driver._connection.use() as link:
        sizes = [link.lookupByUUIDString(A).blockInfo(name)[0] for name in ("vda", "vdb", "vdc")]
    assert sizes == [2 << 30, 1 << 30, 1 << 20]


def test_rescue_boots_the_rescue_image_with_the_servers_disk_as_the_second_one(driver):
    driver.spawn(spec(config_drive={"openstack/latest/meta_data.json": b'{"uuid": "x"}'}))
    assert driver.rescue(A, RESCUE, "secret") is DomainPowerState.RUNNING
    assert driver.rescue(A, RESCUE, "secret") is DomainPowerState.RUNNING
    assert driver.domains()[A].is_rescued
    with driver._connection.use() as link:
        definition = link.lookupByUUIDString(A).XMLDesc()
    names = [name for name in ("disk.rescue'", "/disk'", "disk.config.rescue'") if name in definition]
    assert names == ["disk.rescue'", "/disk'", "disk.config.rescue'"]
    assert driver.unrescue(A) is DomainPowerState.RUNNING
    assert driver.unrescue(A) is DomainPowerState.RUNNING
    assert not driver.domains()[A].is_rescued


def test_the_disk_can_be_copied_in_every_state_and_the_copy_is_deleted_after_its_upload(driver, libvirtd):
    driver.spawn(spec(disk_gb=1))
    for action in (PowerAction.PAUSE, PowerAction.UNPAUSE, PowerAction.STOP):
        driver.power(A, action)
        with driver.snapshot(A) as image:
            data = b"".join(image.chunks)
        assert (image.disk_format, len(data)) == ("qcow2", image.size_bytes)
        assert data.startswith(b"QFI\xfb")
        assert int.from_bytes(data[24:32], "big") == 1 << 30
        assert int.from_bytes(data[8:16], "big") == 0  # the copy has no backing file
        assert not (libvirtd.directory / "driver" / "guests" / A / "snapshot").exists()


def test_domains_that_the_driver_did_not_create_are_not_touched(driver, libvirtd, caplog):
    theirs = f"""<domain type='qemu'><name>theirs</name><uuid>{B}</uuid><memory unit='MiB'>16</memory>
        <os><type arch='x86_64'>hvm</type></os></domain>"""
    with driver._connection.use() as link:
        domain = link.defineXML(theirs)
    try:
        assert driver.domains() == {}
        driver.domains()
        assert len([record for record in caplog.records if getattr(record, "domains", None) == ["theirs"]]) == 1
        for change in (driver.destroy, lambda uuid: driver.spawn(spec(uuid))):
            with pytest.raises(VirtError, match="this agent did not make it"):
                change(B)
        assert domain.name() == "theirs"
    finally:
        domain.undefine()


def test_the_libvirt_driver_is_imported_only_if_it_is_configured():
    """Hosts without the bindings start as usual."""
    source = Path(__file__).parents[3] / "src"
    script = "import sys, moorage.wiring; sys.exit('libvirt' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": str(source)}, check=False).returncode == 0
