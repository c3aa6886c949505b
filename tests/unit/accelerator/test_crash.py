"""The agent is killed at every step of plug and unplug.

Afterwards no handle has two holders, no device is lost, and the call can be repeated.

The process is killed before or after each write of the checkpoint and each call of the driver, at one point per run.
Then a new one starts with the same directory. (tests/wire/accelerator/test_killed_agent.py uses a real SIGKILL,
drivers/test_crash.py other drivers.)
"""

from contextlib import contextmanager

import pytest

from moorage.accelerator.host.checkpoint import Checkpoint
from moorage.accelerator.model.attach_state import with_providers
from moorage.accelerator.model.devices import RegionState
from moorage.core.errors import StartError
from tests.unit.accelerator.rig import (
    AES,
    HOST,
    R1,
    R3,
    SHA,
    TYPE_R1,
    TYPE_R3,
    Killed,
    Rig,
    fault,
    fpga,
    new_instance,
    rp,
)

SPECS = {
    "resources1:CUSTOM_ACCELERATOR_FPGA": "2",
    "function1": AES,
    "resources2:CUSTOM_ACCELERATOR_FPGA": "1",
    "function2": SHA,
}
SELECTED = {"1": [rp(R1)], "2": [rp(R3)]}
ANSWER = ["0000:3b:00.1", "0000:3b:00.2", "0000:af:00.0"]
ALL_FREE: dict = {}
AFTER_PROGRAMMING = f"after simulated program {R1} 1"


@pytest.fixture(params=["public", "private"])
def rig(tmp_path, request) -> Rig:
    rig = Rig(tmp_path)
    rig.image("aes", visibility=request.param, region_uuid=TYPE_R1, function_uuid=AES)
    rig.image("sha", visibility=request.param, region_uuid=TYPE_R3, function_uuid=SHA)
    return rig


def killed_at_each_point(rig, act):
    """Runs `act` with a kill at point 0, 1, 2 ... until it succeeds; restarts after each kill and yields its point."""
    point = 0
    while True:
        rig.watch.arm(point)
        try:
            act()
        except Killed:
            rig.watch.arm(None)
            rig.restart()
            yield point
        else:
            rig.watch.arm(None)
            return
        point += 1


def test_after_a_kill_at_any_point_of_plug_it_is_completed_or_undone(rig):
    """R27: a completed plug survives a SIGKILL; an interrupted one is undone and can be repeated."""
    instance = new_instance()
    points = 0
    for _ in killed_at_each_point(rig, lambda: rig.plug_groups(instance, SPECS, SELECTED)):
        points += 1
        rig.check()
        assert set(rig.held.attachments) <= {instance}
        assert all(region.state is RegionState.IDLE for region in rig.held.regions.values())
        if rig.held.attachments:  # the kill came after the last step, so the plug is complete
            assert rig.plug_groups(instance, SPECS, SELECTED) == ANSWER
        assert rig.unplug(instance) in (0, 3)
        assert rig.held.states() == ALL_FREE
        # No device is lost: another instance can plug all of it, and unplug it for the next round.
        other = new_instance()
        assert rig.plug_groups(other, SPECS, SELECTED) == ANSWER
        assert rig.unplug(other) == 3
        _blank(rig)
    assert points > 15
    assert rig.plug_groups(instance, SPECS, SELECTED) == ANSWER
    rig.check()


def test_after_a_kill_at_any_point_of_unplug_it_is_finished_by_the_next_start(rig):
    """R30: the checkpoint keeps a begun release, which the next start finishes."""
    instance = new_instance()
    rig.plug_groups(instance, SPECS, SELECTED)
    points = 0
    for _ in killed_at_each_point(rig, lambda: rig.unplug(instance)):
        points += 1
        rig.check()
        assert rig.unplug(instance) in (0, 3)
        assert rig.held.states() == ALL_FREE
        assert rig.plug_groups(instance, SPECS, SELECTED) == ANSWER
    assert points > 15
    assert rig.held.states() == ALL_FREE


def test_after_kills_at_any_point_of_the_recovery_it_is_completed(rig):
    """The recovery after a kill consists of steps, each of which may be interrupted by a kill again."""
    instance = new_instance()
    rig.order(fault("program", "dies", at=R1, times=1))
    rig.watch.arm(AFTER_PROGRAMMING)
    with pytest.raises(Killed):
        rig.plug_groups(instance, SPECS, SELECTED)
    for _ in killed_at_each_point(rig, rig.restart):
        rig.check()
    rig.check()
    rig.order()
    assert rig.plug_groups(instance, SPECS, SELECTED) == ANSWER


def test_recovery_does_not_change_the_devices_of_another_instance(rig):
    neighbour, instance = new_instance(), new_instance()
    held = rig.plug(neighbour, fpga(function=AES), R1)
    for _ in killed_at_each_point(rig, lambda: rig.plug(instance, fpga(function=AES), R1)):
        rig.check()
        assert rig.plug(neighbour, fpga(function=AES), R1) == held
        rig.unplug(instance)
    rig.check()


def test_a_bitstream_that_was_programmed_before_a_kill_is_not_programmed_again(tmp_path):
    """The kill comes after the device was programmed and before the checkpoint says so."""
    rig = Rig(tmp_path)
    rig.image("aes", region_uuid=TYPE_R1, function_uuid=AES)
    rig.watch.arm(AFTER_PROGRAMMING)
    with pytest.raises(Killed):
        rig.plug(new_instance(), fpga(function=AES), R1)
    assert rig.watch.events[-1][1] == "program", "the kill came after the device and before the checkpoint"
    rig.watch.arm(None)
    rig.restart()
    assert rig.held.states() == ALL_FREE
    assert rig.plug(new_instance(), fpga(function=AES), R1) == ["0000:3b:00.1"]
    assert rig.programs() == []


def test_a_region_that_was_half_programmed_at_a_kill_is_cleared_by_the_next_start(rig):
    """After the kill its state is `programming` on the disk and UNKNOWN for the driver; the start loads the blank."""

    def die(seconds):
        raise Killed

    sleep, rig.clock.sleep = rig.clock.sleep, die
    with pytest.raises(Killed):
        rig.plug(new_instance(), fpga(function=AES), R1)
    assert rig.simulated.identify(R1).state is RegionState.UNKNOWN
    assert b'"programming"' in (rig.directory / "sim" / "devices.json").read_bytes()
    rig.clock.sleep = sleep
    rig.restart()
    assert rig.carries(R1) == ""
    assert rig.held.states() == ALL_FREE
    rig.check()


@pytest.mark.parametrize("pieces", [0, 1])
def test_after_a_kill_while_the_image_is_fetched_nothing_is_programmed_or_attached(rig, monkeypatch, pieces):
    """The kill comes before the first piece of data or after it. Then the same plug succeeds."""

    @contextmanager
    def open_and_be_killed(view, image_id):
        def stream():
            yield from [b"aes"] * pieces
            raise Killed

        yield stream()

    instance = new_instance()
    with monkeypatch.context() as patch:
        patch.setattr(rig.images, "open", open_and_be_killed)
        with pytest.raises(Killed):
            rig.plug(instance, fpga(function=AES), R1)
    assert rig.programs() == []
    rig.restart()
    assert rig.held.states() == ALL_FREE
    assert [path.name for path in (rig.directory / "cache").iterdir()] == ["locks"]
    assert rig.plug(instance, fpga(function=AES), R1) == ["0000:3b:00.1"]
    rig.check()


def test_a_plug_with_a_full_disk_fails_and_succeeds_when_there_is_space(rig):
    """The checkpoint cannot be written."""
    checkpoint = rig.agent._checkpoint
    write = checkpoint._write
    checkpoint._write = _until_full(write, writes=3)
    instance = new_instance()
    with pytest.raises(OSError, match="No space"):
        rig.plug(instance, fpga(function=AES), R1)
    checkpoint._write = write
    assert rig.plug(instance, fpga(function=AES), R1) == ["0000:3b:00.1"]
    rig.unplug(instance)
    rig.check()


def test_a_checkpoint_that_cannot_be_read_is_a_start_error(tmp_path):
    path = tmp_path / "checkpoint.json"
    for content, words in (
        (b"{", "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"host": "compute-1"}', "cannot be read"),
        (b'{"version": 99, "host": "compute-1"}', "version 99"),
        (b'{"version": 1, "host": "other", "holdings": {}}', "belongs to host other"),
    ):
        path.write_bytes(content)
        with pytest.raises(StartError, match=words):
            Checkpoint(path, HOST)


def test_a_checkpoint_of_the_first_version_is_read_and_updated(tmp_path):
    """A file of that version contains only the document."""
    path = tmp_path / "checkpoint.json"
    path.write_bytes(b'{"version": 1, "host": "compute-1", "holdings": {"rp_uuids": {"0000:17:00.0": "one"}}}')
    checkpoint = Checkpoint(path, HOST)
    assert checkpoint.state.rp_uuids == {"0000:17:00.0": "one"}
    checkpoint.step(lambda held: with_providers(held, {"0000:17:00.0": "two"}))
    checkpoint.close()
    assert Checkpoint(path, HOST).state.rp_uuids == {"0000:17:00.0": "two"}


def test_the_checkpoint_is_readable_only_by_its_owner_and_leaves_no_temporary_file(rig):
    rig.plug(new_instance(), fpga(), R1)
    path = rig.directory / "agent" / "checkpoint.json"
    assert sorted(path.parent.iterdir()) == [path, path.with_suffix(".lock")]
    assert path.stat().st_mode & 0o777 == 0o600


def _blank(rig):
    for deployable in (R1, R3):
        rig.simulated.program(deployable, None, None)
    rig.restart()


def _until_full(write, writes):
    left = [writes]

    def write_or_fail(holdings):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        write(holdings)

    return write_or_fail
