"""Regions that several instances share, regions of one project, and regions that fail."""

import pytest

from moorage.accelerator.model import errors as e
from tests.unit.accelerator.rig import (
    AES,
    R1,
    R2,
    SHA,
    TYPE_R1,
    TYPE_R2,
    Rig,
    fault,
    fpga,
    in_threads,
    new_instance,
    rp,
)


@pytest.fixture
def rig(tmp_path) -> Rig:
    return Rig(tmp_path)


def test_a_private_bitstream_is_cleared_only_after_its_last_use(rig):
    rig.image(visibility="private", region_uuid=TYPE_R1, function_uuid=AES)
    first, second = new_instance(), new_instance()
    for instance in (first, second):
        rig.plug(instance, fpga(function=AES), R1)
    rig.unplug(first)
    assert rig.programs() == [R1], "the other instance still uses it"
    rig.unplug(second)
    assert rig.programs() == [R1, R1]
    assert rig.carries(R1) == ""


def test_a_private_bitstream_is_not_used_by_another_project(rig):
    rig.image(visibility="private", region_uuid=TYPE_R1, function_uuid=AES)
    rig.plug(new_instance(), fpga(function=AES), R1)
    stranger = {"uuid": new_instance(), "name": "x", "project_id": "2" * 32}
    with pytest.raises(e.ConflictingBitstreams, match="another project"):
        rig.agent.plug(stranger, {"": [rp(R1)]}, fpga())
    secret = rig.image("secret", visibility="private", region_uuid=TYPE_R2, function_uuid=AES)
    with pytest.raises(e.BitstreamNotFound) as caught:
        rig.agent.plug(stranger, {"": [rp(R2)]}, fpga(function=AES))
    assert secret not in caught.value.message, "images of other projects must not be mentioned"


def test_parallel_plugs_of_one_function_program_its_region_once(rig):
    rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    answers = in_threads([lambda: rig.plug(new_instance(), fpga(function=AES), R1) for _ in range(6)])
    assert sum(isinstance(answer, list) for answer in answers) == 2
    assert sum(isinstance(answer, e.NoCapacity) for answer in answers) == 4
    assert rig.programs() == [R1]
    rig.check()


def test_parallel_plugs_of_two_functions_succeed_for_only_one_of_them(rig):
    for name, identity in (("aes", AES), ("sha", SHA)):
        rig.image(name, region_uuid=TYPE_R1, function_uuid=identity)
    wanted = [AES, SHA] * 3
    answers = in_threads([lambda one=one: rig.plug(new_instance(), fpga(function=one), R1) for one in wanted])
    winners = {one for one, answer in zip(wanted, answers, strict=True) if isinstance(answer, list)}
    assert len(winners) == 1
    assert all(isinstance(a, list | e.NoCapacity | e.ConflictingBitstreams) for a in answers)
    rig.check()


def test_a_region_that_refuses_to_be_programmed_keeps_its_bitstream(rig):
    first = rig.image("aes", region_uuid=TYPE_R1, function_uuid=AES)
    second = rig.image("sha", region_uuid=TYPE_R1, function_uuid=SHA)
    instance = new_instance()
    rig.plug(instance, fpga(bitstream=first), R1)
    rig.unplug(instance)
    rig.order(fault("program", at=R1, times=1))
    with pytest.raises(e.ProgramFailed, match="could not be programmed"):
        rig.plug(instance, fpga(bitstream=second), R1)
    assert rig.carries(R1) == first
    rig.check()
    assert rig.plug(instance, fpga(bitstream=second), R1)


def test_a_region_whose_programming_is_interrupted_is_cleared(rig):
    image_id = rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    rig.order(fault("program", "dies", at=R1, times=1))
    with pytest.raises(e.ProgramFailed, match="died half-way"):
        rig.plug(new_instance(), fpga(bitstream=image_id), R1)
    assert rig.carries(R1) == ""
    rig.check()


def test_a_region_that_cannot_be_cleared_is_reserved_until_it_can_be_cleared(rig):
    image_id = rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    rig.order(fault("program", "dies", at=R1, times=3))
    with pytest.raises(e.ProgramFailed):
        rig.plug(new_instance(), fpga(bitstream=image_id), R1)
    with pytest.raises(e.NoCapacity, match="unknown"):
        rig.plug(new_instance(), fpga(), R1)
    assert rig.node(R1).inventories["CUSTOM_ACCELERATOR_FPGA"].reserved == 2  # this round tries to clear it, and fails
    assert rig.node(R1).inventories["CUSTOM_ACCELERATOR_FPGA"].reserved == 0  # this round succeeds
    assert rig.plug(new_instance(), fpga(bitstream=image_id), R1)
    rig.check()


def test_a_region_that_cannot_be_cleared_does_not_wake_the_agent_and_is_logged_once(rig, caplog):
    """Each wake-up attempts to clear the region. If the attempt woke the agent, it would repeat it without a pause."""
    rig.order(fault("program", "dies", at=R1))
    with pytest.raises(e.ProgramFailed):
        rig.plug(new_instance(), fpga(bitstream=rig.image(region_uuid=TYPE_R1, function_uuid=AES)), R1)
    before = rig.changes
    for _ in range(3):
        assert rig.node(R1).inventories["CUSTOM_ACCELERATOR_FPGA"].reserved == 2
    assert rig.changes == before
    rig.order()
    assert rig.node(R1).inventories["CUSTOM_ACCELERATOR_FPGA"].reserved == 0  # every round tries to clear it
    assert rig.changes > before
    assert [record.message for record in caplog.records].count("region cannot be repaired") == 1
