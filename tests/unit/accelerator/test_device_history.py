"""The history of a host's devices: one record per attachment, release or programming, kept in the checkpoint."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from moorage.accelerator.model import attach_state as h
from moorage.accelerator.model import device_history
from moorage.accelerator.model.device_history import MAX_PENDING_RECORDS, DeviceEvent, DeviceTransition, Journal
from moorage.accelerator.model.errors import CleanFailed, ProgramFailed
from moorage.durable import DurableDocument
from moorage.jobs.contract import ProgramJob
from tests.unit.accelerator.rig import (
    AES,
    GPU,
    PROJECT,
    R1,
    SHA,
    TYPE_R1,
    Killed,
    Rig,
    fault,
    fpga,
    gpu,
    new_instance,
    rp,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def rig(tmp_path) -> Rig:
    return Rig(tmp_path)


def pending_events(rig):
    """[(event, handle or deployable, done)] of the pending records, in the order of the journal."""
    return [
        (str(one.what.event), one.what.handle or one.what.deployable, one.what.done) for one in rig.held.journal.pending
    ]


def pending(rig, event):
    return [one.what for one in rig.held.journal.pending if one.what.event == event]


def test_plug_and_unplug_record_programming_attach_detach_and_clean(rig):
    image, instance = rig.image(region_uuid=TYPE_R1, function_uuid=AES), new_instance()
    info = {"uuid": instance, "name": "vm", "project_id": PROJECT, "user_id": "alice"}
    rig.agent.plug(info, {"": [rp(R1)]}, fpga(function=AES))
    attached_at = rig.clock.now()
    rig.clock.sleep(60)
    rig.unplug(instance)
    handle = "0000:3b:00.1"
    assert pending_events(rig) == [
        ("program", R1, True), ("attach", handle, True), ("detach", handle, True), ("clean", handle, True)
    ]  # fmt: skip
    digest = rig.directory_of_images.image(image).sha512
    for record in rig.held.journal.pending:
        assert record.what.who == device_history.Requester(instance, PROJECT, "alice")
        assert (record.what.image_id, record.what.digest, record.device) == (image, digest, "0000:3b:00.0")
    assert [record.at < attached_at + timedelta(seconds=60) for record in rig.held.journal.pending] == [
        True, True, False, False
    ]  # fmt: skip


def test_quarantine_and_release_of_a_handle_that_cannot_be_cleaned_are_recorded(rig):
    instance = new_instance()
    rig.plug(instance, gpu(), GPU)
    rig.order(fault("clean"))
    with pytest.raises(CleanFailed):
        rig.unplug(instance)
    with pytest.raises(CleanFailed):
        rig.agent.release_quarantined(GPU)
    rig.order()
    rig.agent.release_quarantined(GPU)
    assert [event for event, *_ in pending_events(rig)] == [
        "attach", "detach", "quarantine", "release", "quarantine", "release", "clean"
    ]  # fmt: skip
    first, second = pending(rig, DeviceEvent.QUARANTINE)
    assert (first.done, bool(first.reason), first.who.instance_uuid) == (False, True, instance)
    assert second.who.instance_uuid == ""


def test_failed_programming_is_recorded_with_its_reason_and_its_repair_once(rig):
    rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    instance = new_instance()
    rig.order(fault("program", "dies"))
    with pytest.raises(ProgramFailed):
        rig.plug(instance, fpga(function=AES), R1)
    for _ in range(3):
        rig.agent.nodes()  # each round tries to repair the region
    failed, mended = pending(rig, DeviceEvent.PROGRAM)
    assert (failed.done, failed.who.instance_uuid) == (False, instance)
    assert "the region's content is now unknown" in failed.reason
    assert (mended.done, mended.digest, mended.who) == (False, "", device_history.Requester())
    rig.order()
    rig.agent.nodes()
    assert pending(rig, DeviceEvent.PROGRAM)[2:] == [DeviceTransition(DeviceEvent.PROGRAM, R1)]


def test_a_failed_prepare_is_recorded_as_a_failed_attach(rig):
    rig.order(fault("prepare"))
    with pytest.raises(ProgramFailed, match="cannot be prepared"):
        rig.plug(new_instance(), gpu(), GPU)
    assert pending_events(rig) == [("attach", GPU, False), ("clean", GPU, True)]
    assert "cannot be prepared" in pending(rig, DeviceEvent.ATTACH)[0].reason


def test_after_a_kill_the_record_of_a_programming_names_who_ordered_it(rig):
    image = rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    order = ProgramJob(deployable=R1, image_id=image, project_id=PROJECT, user_id="root")
    rig.watch.arm(f"after simulated program {R1} 1")  # before the next step of the order
    with pytest.raises(Killed):
        rig.agent.program_region(order)
    rig.watch.arm(None)
    assert (rig.carries(R1), pending_events(rig)) == (image, [])
    rig.restart()
    (programmed,) = pending(rig, DeviceEvent.PROGRAM)
    assert (programmed.who, programmed.done, programmed.image_id) == (
        device_history.Requester("", PROJECT, "root"),
        True,
        image,
    )


def test_after_a_kill_at_any_point_the_history_agrees_with_the_state(rig):
    """The last record of a handle names its holder, and the last record of programming names the loaded bitstream."""
    rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    rig.image("sha", region_uuid=TYPE_R1, function_uuid=SHA)
    instance, kills, point = new_instance(), 0, 0
    for act in (partial(rig.plug, instance, fpga(2, function=AES), R1), partial(rig.unplug, instance)):
        point = 0
        while True:
            rig.watch.arm(point)
            try:
                act()
            except Killed:
                rig.watch.arm(None)
                rig.restart()
                kills += 1
                check_history(rig)
                if act.func == rig.unplug and instance not in rig.held.attachments:
                    rig.plug(instance, fpga(2, function=AES), R1)
                point += 1
            else:
                rig.watch.arm(None)
                check_history(rig)
                break
    assert kills > 20


def check_history(rig):
    records = rig.held.journal.pending
    assert [one.sequence for one in records] == sorted({one.sequence for one in records})
    holders = {}
    for record in records:
        what = record.what
        match what.event:
            case DeviceEvent.ATTACH if what.done:
                assert what.handle not in holders, "attached twice"
                holders[what.handle] = what.who.instance_uuid
            case DeviceEvent.DETACH:
                assert holders.pop(what.handle) == what.who.instance_uuid
            case DeviceEvent.CLEAN:
                assert what.handle not in holders, "cleaned while it is attached"
    assert holders == {one.pci_id: uuid for uuid, held in rig.held.attachments.items() for one in held.handles}
    last = [one.what for one in records if one.what.event is DeviceEvent.PROGRAM and one.what.done][-1:]
    assert rig.carries(R1) == (last[0].image_id if last else "")


# -------------------------------------------------------------------------------------------------- the journal


def test_sequence_numbers_increase_even_when_the_clock_goes_back():
    journal = Journal()
    for at in (NOW, NOW, NOW - timedelta(days=1), NOW + timedelta(seconds=1)):
        journal = device_history.append_transitions(journal, [DeviceTransition(DeviceEvent.CLEAN, R1)] * 2, at)
    numbers = [record.sequence for record in journal.pending]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == int(NOW.timestamp() * 1e6)
    assert device_history.append_transitions(journal, [], NOW) is journal


def test_a_full_journal_keeps_the_newest_records_and_the_number_of_lost_ones():
    journal = Journal()
    for number in range(MAX_PENDING_RECORDS + 30):
        journal = device_history.append_transitions(
            journal, [DeviceTransition(DeviceEvent.CLEAN, R1, str(number))], NOW
        )
    gap, *kept = journal.pending
    assert (gap.what.event, gap.what.done) == (DeviceEvent.GAP, False)
    assert gap.what.reason.startswith("30 records")
    assert [one.what.handle for one in kept] == [str(number) for number in range(30, MAX_PENDING_RECORDS + 30)]
    assert gap.sequence == kept[0].sequence - 1
    journal = device_history.drop_records(journal, kept[9].sequence)
    assert (len(journal.pending), journal.lost, journal.last) == (MAX_PENDING_RECORDS - 10, 0, kept[-1].sequence)


def test_long_texts_in_a_record_are_cut_to_the_maximum_length():
    what = DeviceTransition(
        DeviceEvent.ATTACH, R1, GPU, device_history.Requester("", "p" * 999, "u" * 999), reason="r" * 9999
    )
    (record,) = device_history.append_transitions(Journal(), [what], NOW).pending
    assert (len(record.what.who.project_id), len(record.what.who.user_id)) == (255, 255)
    assert len(record.what.reason) == 2000


def test_a_checkpoint_without_a_journal_is_read_with_an_empty_one(rig):
    rig.plug(new_instance(), gpu(), GPU)
    path = rig.directory / "agent" / "checkpoint.json"
    import msgspec

    document = msgspec.json.decode(DurableDocument(path).read())
    del document["holdings"]["journal"]
    path.write_bytes(msgspec.json.encode(document))
    rig.restart()
    assert (rig.held.journal, len(rig.held.attachments)) == (h.AttachState().journal, 1)
