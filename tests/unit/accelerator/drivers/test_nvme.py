"""NVMe drives are erased between two tenants, with proof, over a simulated drive behind the kernel's ioctl."""

import re
import threading

import pytest

from moorage.accelerator.drivers import nvme
from moorage.accelerator.drivers.base import Cleaned, DriverError, StillCleaning
from moorage.accelerator.drivers.device_spec import VFIO, DeviceSpec
from moorage.accelerator.drivers.pci import PciDriver
from moorage.accelerator.host.agent import CLEANING_PERIOD
from moorage.accelerator.model.device_history import DeviceEvent
from moorage.accelerator.model.devices import HandleState
from moorage.accelerator.model.errors import CleanFailed, NoCapacity
from tests.unit.accelerator.drivers.nvme_drive import ADDRESS, Drive
from tests.unit.accelerator.drivers.sysfs_tree import Tree
from tests.unit.accelerator.drivers.test_nested_functions import Host
from tests.unit.accelerator.rig import new_instance, rp

SPEC = DeviceSpec(vendor="1b36", type="SSD")


@pytest.fixture
def tree(tmp_path):
    tree = Tree(tmp_path / "sys")
    tree.bind_nothing_to(VFIO)
    return tree


def driver_of(tree, drive, spec=SPEC):
    return PciDriver([spec], tree.sysfs(), drive.eraser(tree.sysfs()))


def cleaned(driver, handle=ADDRESS):
    while isinstance(answer := driver.clean(handle), StillCleaning):
        continue
    return answer


@pytest.mark.parametrize(
    ("sanicap", "fna", "oacs", "order"),
    [
        (0b111, 4, 2, ("sanitize", 0, 4)),  # crypto erase of everything
        (0b110, 4, 2, ("format", 1, 2)),  # crypto erase of the namespaces
        (0b110, 0, 2, ("sanitize", 0, 2)),  # block erase
        (0b100, 0, 2, ("format", 1, 1)),  # user data erase
        (0, 0, 2, ("format", 1, 1)),
        (0, 1, 2, ("format", 0xFFFFFFFF, 1)),  # one format erases all namespaces
        (0b100, 0, 0, ("sanitize", 0, 3)),  # overwrite
    ],
)
def test_a_drive_is_erased_by_the_best_way_that_it_offers(tmp_path, tree, sanicap, fna, oacs, order):
    """R30 (accelerator-attach); issue 18.5"""
    drive = Drive(tmp_path / "dev", tree, sanicap=sanicap, fna=fna, oacs=oacs)
    proof = cleaned(driver_of(tree, drive)).proof
    assert drive.orders() == [order]
    assert not drive.has_secret
    assert "64 of 64 sampled blocks with content have changed" in proof
    assert "firmware FW 1.2.3" in proof
    assert proof.endswith("function reset by the kernel: its configuration space answers")
    if order[0] == "sanitize":
        assert re.match(r"NVMe sanitize \([a-z ]+\), status 0x0101 \(completed, nothing written since\)", proof)
    else:
        assert re.match(r"NVMe format \([a-z ]+\) of namespaces 1: status 0x000", proof)


def test_a_format_keeps_the_format_of_the_namespace(tmp_path, tree):
    drive = Drive(tmp_path / "dev", tree, sanicap=0)
    cleaned(driver_of(tree, drive))
    (cdw10,) = [cdw10 for opcode, _, cdw10 in drive.commands if opcode == 0x80]
    assert cdw10 & 0xF == 1


def test_a_drive_that_can_neither_be_sanitized_nor_formatted_is_not_clean(tmp_path, tree):
    drive = Drive(tmp_path / "dev", tree, sanicap=0, oacs=0)
    with pytest.raises(DriverError, match="can neither be sanitized nor formatted"):
        cleaned(driver_of(tree, drive))


@pytest.mark.parametrize("how", [{"sanicap": 1}, {"sanicap": 0}])
def test_a_drive_that_keeps_its_content_although_it_reports_success_is_not_clean(tmp_path, tree, how):
    drive = Drive(tmp_path / "dev", tree, **how)
    drive.keeps = True
    with pytest.raises(DriverError, match=f"{ADDRESS} was erased, but nvme0n1 still has its content at 0"):
        cleaned(driver_of(tree, drive))


def test_blocks_that_cannot_be_read_afterwards_are_not_called_changed(tmp_path, tree):
    drive = Drive(tmp_path / "dev", tree)
    drive.erase = drive.disk.unlink
    assert "0 of 64 sampled blocks with content have changed, the others cannot be read any more" in (
        cleaned(driver_of(tree, drive)).proof
    )


def test_an_erasure_that_nobody_asked_for_does_not_count_for_the_next_guest(tmp_path, tree):
    drive = Drive(tmp_path / "dev", tree)
    driver = driver_of(tree, drive)
    drive.polls = 1 << 60
    assert isinstance(driver.clean(ADDRESS), StillCleaning)
    with pytest.raises(DriverError, match="still being erased"):
        driver.prepare(ADDRESS, "instance")
    drive.left = 0
    for thread in threading.enumerate():
        if thread.name == f"erase {ADDRESS}":
            thread.join(10)
    driver.prepare(ADDRESS, "instance")
    drive.write()
    driver.release(ADDRESS)
    drive.polls = 0
    cleaned(driver)
    assert not drive.has_secret


def test_a_failed_sanitize_is_an_error_with_the_drives_status_and_is_repeated_by_the_next_clean(tmp_path, tree):
    drive = Drive(tmp_path / "dev", tree)
    drive.ends_with = 3
    driver = driver_of(tree, drive)
    with pytest.raises(DriverError, match=r"did not succeed: status 0x0003 \(failed\)"):
        cleaned(driver)
    drive.ends_with = 0x101
    assert isinstance(cleaned(driver), Cleaned)


@pytest.mark.parametrize(("opcode", "name", "how"), [(0x84, "sanitize", 1), (0x80, "format", 0), (0x06, "identify", 0)])
def test_a_refused_command_is_an_error_with_its_nvme_status(tmp_path, tree, opcode, name, how):
    drive = Drive(tmp_path / "dev", tree, sanicap=how)
    drive.refuses[opcode] = 0x286  # access denied: a guest has locked the drive
    with pytest.raises(DriverError, match=f"refused the command {name} with NVMe status 0x286"):
        cleaned(driver_of(tree, drive))


def test_reset_none_in_the_device_spec_does_not_omit_the_erasure(tmp_path, tree):
    drive = Drive(tmp_path / "dev", tree)
    proof = cleaned(driver_of(tree, drive, DeviceSpec(vendor="1b36", type="SSD", reset="none"))).proof
    assert not drive.has_secret
    assert proof.endswith('not reset: its device spec says "reset": "none"')


def test_a_drive_that_the_kernel_does_not_show_is_not_clean(tmp_path, tree, monkeypatch):
    monkeypatch.setattr(nvme, "APPEARS_S", 0.01)
    drive = Drive(tmp_path / "dev", tree)
    tree.write(drive.sysfs / "state", "dead")
    with pytest.raises(DriverError, match="its NVMe controller is dead"):
        cleaned(driver_of(tree, drive))
    assert drive.orders() == []


def test_another_storage_controller_is_not_clean(tree):
    tree.add("0000:60:00.0", "8086:2922", kind="010601")
    with pytest.raises(DriverError, match="only NVMe drives can be erased"):
        PciDriver([DeviceSpec(vendor="8086")], tree.sysfs()).clean("0000:60:00.0")


def test_a_format_fails_if_a_namespace_exists_that_it_would_not_reach(tmp_path, tree):
    drive = Drive(tmp_path / "dev", tree, sanicap=0, oacs=2 | 8)
    drive.allocated = [1, 2]
    with pytest.raises(DriverError, match="namespace 2 is not attached"):
        cleaned(driver_of(tree, drive))
    assert drive.orders() == []


# ------------------------------------------------------------------------------------------- shared drives


def shared(tmp_path, tree, **how):
    tree.add("0000:5e:00.7", "1b36:0010", kind="010802", driver="nvme")
    return Drive(tmp_path / "dev", tree, of="0000:5e:00.7", **how)


def test_of_a_virtual_function_only_its_own_namespaces_are_formatted_and_the_drive_is_not_sanitized(tmp_path, tree):
    """A sanitize, or a format of all namespaces, would erase the data of other tenants."""
    drive = shared(tmp_path, tree, sanicap=0b111, fna=4)
    drive.attached = [3]
    assert "namespaces 3" in cleaned(driver_of(tree, drive)).proof
    assert drive.orders() == [("format", 3, 2)]


@pytest.mark.parametrize(
    ("how", "namespaces", "said"),
    [
        ({"fna": 5}, {}, "cannot be formatted one by one"),
        ({"oacs": 0}, {}, "cannot be formatted one by one"),
        ({"oacs": 2 | 8}, {}, "may attach each of its namespaces"),
        ({}, {1: [8]}, "shares namespace 1 with another controller"),
    ],
)
def test_a_shared_drive_whose_erasure_would_reach_other_tenants_is_not_erased(tmp_path, tree, how, namespaces, said):
    drive = shared(tmp_path, tree, **how)
    drive.shared_with = namespaces
    with pytest.raises(DriverError, match=said):
        cleaned(driver_of(tree, drive))
    assert drive.orders() == []
    assert drive.has_secret


def test_a_drive_whose_subsystem_has_two_controllers_is_not_sanitized(tmp_path, tree):
    drive = Drive(tmp_path / "dev", tree, sanicap=0b111)
    for name in ("nvme0", "nvme1"):
        tree.write(tree.root / "class" / "nvme-subsystem" / "nvme-subsys0" / name / "state", "live")
    cleaned(driver_of(tree, drive))
    assert drive.orders() == [("format", 1, 2)]


# ------------------------------------------------------------------------------------------- with the agent


class SsdHost(Host):
    def __init__(self, directory, clock) -> None:
        super().__init__(directory, clock)
        self.drive = Drive(directory / "dev", self.tree)

    def begin(self):
        """A new process: its eraser knows nothing of the last one."""
        return self.start(PciDriver([SPEC], self.tree.sysfs(), self.drive.eraser(self.tree.sysfs())))

    def plug_ssd(self):
        instance = new_instance()
        info = {"uuid": instance, "name": "vm", "project_id": "p"}
        self.agent.plug(info, {"uuid": rp(ADDRESS)}, {"resources:CUSTOM_ACCELERATOR_SSD": "1"})
        return instance

    @property
    def state(self):
        record = self.agent.attach_state.handles.get(ADDRESS)
        return record.state if record else HandleState.FREE

    def history(self, event):
        return [one for one in self.agent.attach_state.journal.pending if one.what.event is event]


@pytest.fixture
def ssd(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(nvme, "PROGRESS_AFTER_S", 0.05)
    host = SsdHost(tmp_path, clock)
    host.begin()
    yield host
    host.drive.left = host.drive.polls = -1  # ends the threads
    host.agent.close()


def wait_for_the_drive(ssd):
    """Lets the drive finish, and ends the threads that wait for it."""
    ssd.drive.left = 0
    for thread in threading.enumerate():
        if thread.name == f"erase {ADDRESS}":
            thread.join(10)


def test_the_next_tenant_gets_an_erased_drive_and_the_history_has_the_proof(ssd):
    """R30, R42 (accelerator-attach); issue 18.5"""
    instance = ssd.plug_ssd()
    ssd.unplug(instance)
    wait_for_the_drive(ssd)
    ssd.agent.run_once()
    assert ssd.state is HandleState.FREE
    assert not ssd.drive.has_secret
    (record,) = ssd.history(DeviceEvent.CLEAN)
    assert record.what.done
    assert record.what.who.instance_uuid == instance
    assert record.what.reason.startswith("NVMe sanitize (crypto erase), status 0x0101 (completed")
    assert re.search(r"; \d+ s\Z", record.what.reason)
    assert record.at == ssd.clock.now()


def test_a_long_sanitize_goes_on_over_a_restart_and_the_drive_is_reserved_meanwhile(ssd):
    ssd.drive.polls = 1 << 60
    instance = ssd.plug_ssd()
    assert ssd.unplug(instance) == 1
    for _ in range(2):
        assert ssd.state is HandleState.CLEANING
        assert ssd.offered()[ADDRESS] == (1, 1)
        with pytest.raises(NoCapacity):
            ssd.plug_ssd()
        assert ssd.agent.run_once() == ssd.clock.now() + CLEANING_PERIOD
        ssd.begin()
    assert not ssd.history(DeviceEvent.CLEAN)
    wait_for_the_drive(ssd)
    ssd.agent.run_once()
    assert ssd.state is HandleState.FREE
    assert ssd.offered()[ADDRESS] == (1, 0)
    assert not ssd.drive.has_secret
    assert ssd.drive.orders() == [("sanitize", 0, 4)], "the restarted agent started it again"
    (record,) = ssd.history(DeviceEvent.CLEAN)
    assert record.what.who.instance_uuid == instance


def test_a_sanitize_that_exceeds_its_time_quarantines_the_drive_and_an_operator_can_repeat_it(ssd):
    ssd.drive.polls = 1 << 60
    ssd.unplug(ssd.plug_ssd())
    ssd.clock.sleep(901)
    ssd.begin()  # the time counts from the first call, not from the restart
    assert ssd.state is HandleState.QUARANTINED
    (record,) = ssd.history(DeviceEvent.QUARANTINE)
    assert re.match(r"not clean after 90\d s, 900 s are allowed", record.what.reason)
    wait_for_the_drive(ssd)
    ssd.agent.release_quarantined(ADDRESS)
    wait_for_the_drive(ssd)
    ssd.agent.run_once()
    assert ssd.state is HandleState.FREE
    assert not ssd.drive.has_secret


def test_a_drive_that_cannot_be_erased_is_withheld(ssd):
    ssd.drive.refuses[0x84] = 0x286
    instance = ssd.plug_ssd()
    with pytest.raises(CleanFailed, match="refused the command sanitize"):
        ssd.unplug(instance)
    assert ssd.state is HandleState.QUARANTINED
    assert ssd.offered()[ADDRESS] == (1, 1)
    assert ssd.drive.has_secret


def test_a_sanitize_that_a_guest_started_does_not_count(ssd):
    """It could keep blocks. The agent's own follows when the drive is ready."""
    instance = ssd.plug_ssd()
    ssd.drive.action, ssd.drive.status, ssd.drive.left = 3 | 1 << 9, 2, 2
    ssd.unplug(instance)
    wait_for_the_drive(ssd)
    ssd.agent.run_once()
    assert ssd.state is HandleState.FREE
    assert ssd.drive.orders() == [("sanitize", 0, 4)]
