"""The simulated hypervisor: suspend, rebuild, rescue, snapshot and live migration."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from moorage.agent.model import DomainPowerState, PowerAction
from moorage.agent.virt.driver import Capability, DomainInterface, DomainSpec, NoSuchDomain, VirtError
from moorage.agent.virt.host_description import HostDescription
from moorage.agent.virt.simulated import SimulatedDriver
from moorage.core.clock import VirtualClock

A = "aaaaaaaa-0000-4000-8000-000000000000"
SPEC = DomainSpec(A, "web", 2, 2048, 20, "image-1", ("0000:3b:00.1",))


@pytest.fixture
def clock():
    return VirtualClock(datetime(2030, 1, 1, tzinfo=UTC))


@pytest.fixture
def driver(tmp_path, clock):
    return SimulatedDriver(HostDescription(), tmp_path / "one", clock)


@pytest.fixture
def other(tmp_path, clock):
    return SimulatedDriver(HostDescription(name="compute-2"), tmp_path / "two", clock)


def write(driver, text):
    """Writes to the disk of the domain, as its guest does."""
    with disk_of(driver).open("a") as disk:
        disk.write(text)


def disk_of(driver):
    return driver._disks.path(A)


def content(driver):
    with driver.snapshot(A) as image:
        data = b"".join(image.chunks)
    assert image.size_bytes == len(data)
    return data.decode()


def test_the_simulated_driver_has_every_capability(driver):
    assert driver.facts().capabilities == frozenset(Capability)


def test_an_interface_is_attached_and_detached_once(driver):
    lab = DomainInterface("fa:16:3e:00:00:01", "br0", is_bridge=True, addresses=("192.0.2.5",))
    other = DomainInterface("fa:16:3e:00:00:02", "br0", is_bridge=True, vlan=5)
    driver.spawn(replace(SPEC, interfaces=(lab,)))
    for _ in range(2):
        driver.attach_interface(A, other)
        assert driver.domains()[A].spec == replace(SPEC, interfaces=(lab, other))
    assert driver.domains()[A].power is DomainPowerState.RUNNING
    for _ in range(2):
        driver.detach_interface(A, lab.mac)
        assert driver.domains()[A].spec.interfaces == (other,)
    assert driver.console(A).count("booting") == 1
    driver.destroy(A)
    driver.detach_interface(A, other.mac)
    with pytest.raises(NoSuchDomain):
        driver.attach_interface(A, other)


def test_the_device_of_a_suspended_domain_cannot_be_used_by_another_domain(driver):
    driver.spawn(SPEC)
    assert driver.power(A, PowerAction.SUSPEND) is DomainPowerState.SUSPENDED
    with pytest.raises(VirtError, match=r"0000:3b:00\.1 is in use by domain web"):
        driver.spawn(replace(SPEC, uuid=A.replace("a", "b")))
    assert driver.power(A, PowerAction.RESUME) is DomainPowerState.RUNNING
    assert driver.console(A).count("booting") == 1


def test_a_hard_reboot_drops_saved_memory(driver):
    driver.spawn(SPEC)
    driver.power(A, PowerAction.SUSPEND)
    assert driver.power(A, PowerAction.REBOOT_HARD) is DomainPowerState.RUNNING
    assert driver.console(A).count("booting") == 2


def test_spawn_without_start_defines_a_stopped_domain(driver):
    assert driver.spawn(SPEC, start=False).power is DomainPowerState.SHUTOFF
    assert driver.domains()[A].power is DomainPowerState.SHUTOFF
    assert driver.spawn(SPEC).power is DomainPowerState.RUNNING


def test_spawning_with_another_definition_keeps_the_disk_and_resizes_it(driver):
    driver.spawn(SPEC)
    write(driver, "precious\n")
    driver.spawn(replace(SPEC, disk_gb=40))
    assert content(driver) == "image image-1\t\t40 GB\nprecious\n"


def test_a_rebuild_creates_a_new_disk_once_per_key(driver):
    driver.spawn(SPEC)
    write(driver, "old\n")
    built = replace(SPEC, image_id="image-2")
    assert driver.rebuild(built, key="k", start=True).power is DomainPowerState.RUNNING
    assert content(driver) == "image image-2\tk\t20 GB\n"
    write(driver, "new\n")
    driver.rebuild(built, key="k", start=True)
    assert content(driver).endswith("new\n")
    assert driver.console(A).count("booting") == 2
    driver.rebuild(built, key="k2", start=False)
    assert "new" not in content(driver)
    assert driver.domains()[A].power is DomainPowerState.SHUTOFF


def test_rescue_boots_another_image_and_does_not_change_the_disk(driver):
    driver.spawn(SPEC)
    write(driver, "precious\n")
    for _ in range(2):
        assert driver.rescue(A, "rescue-image", "secret") is DomainPowerState.RUNNING
    assert driver.domains()[A].is_rescued
    assert driver.console(A).count("booting") == 2
    assert "secret" not in driver.console(A)
    assert content(driver).endswith("precious\n")
    for _ in range(2):
        assert driver.unrescue(A) is DomainPowerState.RUNNING
    assert not driver.domains()[A].is_rescued
    assert driver.console(A).count("booting") == 3


def test_a_crash_dump_is_shown_on_the_console_and_a_password_is_not(driver):
    driver.spawn(SPEC)
    driver.set_password(A, "secret")
    driver.crash_dump(A)
    assert "Kernel panic" in driver.console(A)
    assert "secret" not in driver.console(A)
    assert driver.domains()[A] == driver.spawn(SPEC)


def test_a_live_migration_moves_the_domain_its_power_state_and_its_disk(driver, other):
    driver.spawn(SPEC)
    driver.power(A, PowerAction.PAUSE)
    write(driver, "precious\n")
    target = other.receive(SPEC)
    assert other.domains() == {}
    for _ in range(2):
        driver.hand_over(A, target)
    assert driver.domains() == {}
    assert other.take_over(A) is DomainPowerState.PAUSED
    assert content(other).endswith("precious\n")


def test_a_domain_that_was_not_handed_over_cannot_be_taken_over(driver, other):
    other.receive(SPEC)
    with pytest.raises(NoSuchDomain):
        other.take_over(A)
    assert not other.destroy(A)


@pytest.mark.parametrize("call", ["unrescue", "crash_dump", "snapshot", "take_over"])
def test_an_operation_on_a_missing_domain_is_no_such_domain(driver, call):
    with pytest.raises(NoSuchDomain, match="there is no server"):
        getattr(driver, call)(A)
