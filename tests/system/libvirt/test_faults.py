"""Guests, daemons, disks and images that fail: the operation fails with a clear message, and the driver continues."""

import os
import signal
import subprocess
import threading
import time

import pytest

from moorage.agent.model import DomainPowerState, PowerAction
from moorage.agent.virt.driver import HypervisorUnavailable, VirtError
from moorage.agent.virt.libvirt_calls import GuestHangs
from moorage.core.clock import SystemClock
from moorage.core.errors import MoorageError
from tests.system.libvirt.drivers import (
    CHANGED,
    FILLS,
    HIDDEN,
    LARGE,
    NOISE,
    ODD,
    TORN,
    A,
    B,
    driver_on,
    linux,
    spec,
    wait_for_console,
)
from tests.system.libvirt.servers import patiently
from tests.system.planes import until

pytestmark = pytest.mark.slow


def test_a_hanging_libvirtd_is_reported_and_used_again_when_it_answers(make, libvirtd, monkeypatch):
    from moorage.agent.virt import libvirt_connection

    monkeypatch.setattr(libvirt_connection, "KEEP_ALIVE_S", 1)  # the default takes 20 s
    driver = make()
    driver.facts()
    libvirtd.pause()
    try:
        begin = time.monotonic()
        with pytest.raises(HypervisorUnavailable, match="qemu:///system"):
            driver.facts()
        assert time.monotonic() - begin < 15
    finally:
        libvirtd.resume()
    deadline = time.monotonic() + 40
    while True:
        try:
            assert driver.facts().vcpus > 0
            return
        except HypervisorUnavailable:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_without_libvirtd_each_operation_fails_at_once(make, libvirtd, tmp_path):
    from moorage.agent.virt.libvirt_connection import LibvirtConnection

    connection = LibvirtConnection(f"qemu:///system?socket={tmp_path}/nothing", SystemClock())
    for _ in range(3):
        begin = time.monotonic()
        with pytest.raises(HypervisorUnavailable, match="check that its daemon runs"), connection.use():
            pytest.fail("there is nothing to be used")
        assert time.monotonic() - begin < 1


class SignallingClock(SystemClock):
    """Signals `slept` when the driver begins to wait."""

    def __init__(self):
        super().__init__()
        self.slept = threading.Event()

    def sleep(self, seconds):
        self.slept.set()
        super().sleep(seconds)


def test_an_operation_fails_if_libvirtd_dies_during_it(make, libvirtd):
    """The guest continues, and the operation can be repeated."""
    patient = make(shutdown_timeout_s=60.0)
    patient._clock = clock = SignallingClock()
    patient.spawn(spec())
    try:
        outcome: list[Exception] = []

        def stop():
            try:
                patient.power(A, PowerAction.STOP)
            except HypervisorUnavailable as error:
                outcome.append(error)

        stopping = threading.Thread(target=stop)
        stopping.start()
        assert clock.slept.wait(30)
        guests = libvirtd.guests()
        libvirtd.stop()
        stopping.join(30)
        assert "does not answer any more" in outcome[0].message
        assert libvirtd.guests() == guests
        libvirtd.start()
        until(lambda: power_state(patient) is DomainPowerState.RUNNING)
        assert make(shutdown_timeout_s=0.0).power(A, PowerAction.STOP) is DomainPowerState.SHUTOFF
    finally:
        patient.destroy(A)


def power_state(driver) -> DomainPowerState | None:
    """The domain's state; None while the daemon is down."""
    try:
        return driver.domains()[A].power
    except HypervisorUnavailable:
        return None


def test_a_guest_that_ignores_the_power_button_is_switched_off(driver):
    """A guest in its firmware ignores the power button."""
    driver.spawn(spec())
    assert driver.power(A, PowerAction.STOP) is DomainPowerState.SHUTOFF


def test_an_operation_on_a_hanging_guest_fails_soon_and_the_guest_can_be_deleted(driver, libvirtd, monkeypatch):
    monkeypatch.setattr("moorage.agent.virt.libvirt_calls.ANSWER_TIMEOUT_S", 0.5)
    driver.spawn(spec())
    (pid,) = libvirtd.guests()
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(GuestHangs, match="reboot the server hard, or delete it"):
        driver.power(A, PowerAction.PAUSE)
    assert driver.domains()[A].power is DomainPowerState.RUNNING
    assert driver.destroy(A)  # libvirt gives QEMU some seconds before it kills it
    assert libvirtd.guests() == []


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (HIDDEN, "refers to another file"),
        (ODD, "disk format 'vmdk'"),
        (NOISE, "not in qcow2 format"),
        (TORN, r"is damaged: \d+ of its clusters"),
        (LARGE, "needs a disk of 2 GB, but the flavor has 1 GB"),
        (CHANGED, "changed, or damaged in transit"),
        ("nowhere", "the image service does not have it"),
    ],
)
def test_an_unusable_image_is_refused_and_leaves_no_file(driver, image, why):
    """A qcow2 file can name a file of the host, which QEMU would show to the guest."""
    with pytest.raises(MoorageError, match=why):
        driver.spawn(spec(B, image_id=image, disk_gb=1))
    assert driver.domains() == {}


def test_a_rebuild_whose_image_is_unavailable_keeps_guest_and_disk(driver, libvirtd):
    driver.spawn(spec())
    disk = libvirtd.directory / "driver" / "guests" / A / "disk"
    before = disk.stat().st_ino
    for image in (TORN, "nowhere"):
        with pytest.raises(VirtError):
            driver.rebuild(spec(image_id=image), key=image, start=True)
    assert disk.stat().st_ino == before
    assert driver.domains()[A].power is DomainPowerState.RUNNING


def test_a_guest_with_a_damaged_disk_does_not_start_until_it_is_rebuilt(driver, libvirtd):
    driver.spawn(spec(), start=False)
    disk = libvirtd.directory / "driver" / "guests" / A / "disk"
    disk.write_bytes(b"\0" * disk.stat().st_size)
    with pytest.raises(VirtError, match="Image is not in qcow2 format"):
        driver.power(A, PowerAction.START)
    assert driver.domains()[A].power is DomainPowerState.SHUTOFF
    driver.rebuild(spec(), key="mended", start=True)
    assert driver.domains()[A].power is DomainPowerState.RUNNING


@pytest.fixture
def small(libvirtd, driver_images):
    """A driver whose disks are on a file system of 48 MB."""
    driver = driver_on(libvirtd, driver_images, libvirtd.directory / "small")
    yield driver
    driver.destroy(A)
    (libvirtd.directory / "small" / "filler").unlink(missing_ok=True)


def test_a_full_file_system_is_named_in_the_error_and_leaves_no_partial_files(small, libvirtd):
    filler = libvirtd.directory / "small" / "filler"
    with filler.open("wb") as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(1 << 16))
    with pytest.raises(VirtError, match=r"cannot be written below .*/small: No space left on device"):
        small.spawn(linux())
    small.destroy(A)
    filler.unlink()
    assert small.spawn(spec()).power is DomainPowerState.RUNNING


def test_a_guest_that_fills_the_hosts_disk_is_paused_until_there_is_space(small, libvirtd, caplog):
    """The guest writes 64 MB, and no data is lost."""
    small.spawn(linux(image_id=FILLS, disk_gb=1))
    patiently(lambda: small.domains()[A].power is DomainPowerState.PAUSED)
    assert any(getattr(record, "guests", None) == [A] for record in caplog.records)
    assert "FILLED" not in small.console(A)
    subprocess.run(["mount", "-o", "remount,size=160m", libvirtd.directory / "small"], check=True)
    assert small.power(A, PowerAction.UNPAUSE) is DomainPowerState.RUNNING
    wait_for_console(small, "FILLED")
