"""The table of device history, on all three databases; invalid queries are refused before the database is asked."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Barrier

import pytest

from moorage.accelerator.model.device_history import DeviceEvent, DeviceTransition, HistoryRecord, Requester
from moorage.accelerator.model.rows import HistoryFilter, HistoryPosition
from moorage.accelerator.service.service import AcceleratorService
from moorage.accelerator.store import history_store
from moorage.core.errors import Invalid
from moorage.jobs.background_tasks import Wakeups
from moorage.jobs.store import PRUNE_BATCH_ROWS, PRUNE_SHORT_PAUSE, PruningTask
from moorage.jobs.wakeups import InProcessHints
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database

R1, GPU = "0000:3b:00.0_R1", "0000:17:00.0"
VM = "22222222-0000-4000-8000-000000000001"
EVERYTHING = HistoryFilter()


@pytest.fixture
def engine(kind):
    with migrated_engine("accelerator", kind) as engine:
        yield engine


@pytest.fixture
def service(engine, clock, ids) -> AcceleratorService:
    return AcceleratorService(engine, clock, ids, InProcessHints(Wakeups()))


def record(clock, number, event=DeviceEvent.ATTACH, deployable=R1, handle="0000:3b:00.1", who=None, **more):
    what = DeviceTransition(event, deployable, handle, who or Requester(VM, "red", "alice"), "image", "d" * 128, **more)
    return HistoryRecord(number, clock.now(), what)


def shown(service, wanted=EVERYTHING, after=None, limit=100):
    return service.history.list_entries(wanted, None, after, limit)


def numbers(service, wanted=EVERYTHING):
    return [(entry.hostname, entry.record.sequence) for entry in shown(service, wanted)]


@on_every_database
def test_a_history_record_is_read_as_it_was_reported(service, clock):
    told = [
        record(clock, 1, DeviceEvent.PROGRAM, handle="", who=Requester("", "red", "alice")),
        record(clock, 2, DeviceEvent.QUARANTINE, GPU, GPU, done=False, reason="ßöse " * 400),
    ]
    service.history.write_records("h1", told)
    assert [entry.record for entry in shown(service)] == told


@on_every_database
def test_a_history_record_that_is_reported_again_is_stored_once(service, clock):
    first, second, third = (record(clock, number) for number in (1, 2, 3))
    service.history.write_records("h1", [first, second])
    service.history.write_records("h1", [first, second, third, third])
    service.history.write_records("h2", [first])
    assert numbers(service) == [("h1", 1), ("h2", 1), ("h1", 2), ("h1", 3)]


@on_every_database
def test_concurrent_reports_of_the_same_records_store_each_record_once(service, clock):
    records = [record(clock, number) for number in range(1, 51)]
    gate = Barrier(4)

    def tell():
        gate.wait()
        service.history.write_records("h1", records)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(tell) for _ in range(4)]:
            done.result()
    assert numbers(service) == [("h1", number) for number in range(1, 51)]


def test_a_report_with_an_invalid_record_is_refused_completely(service, clock):
    good = record(clock, 1)
    for bad in (
        replace(good, sequence=0),
        replace(good, sequence=1 << 63),
        replace(good, at=clock.now().replace(tzinfo=None)),
        record(clock, 2, who=Requester("no uuid")),
        record(clock, 2, who=Requester("", "p" * 256)),
        record(clock, 2, reason="r" * 2001),
    ):
        with pytest.raises(Invalid):
            service.history.write_records("h1", [good, bad])
    assert numbers(service) == []


@on_every_database
def test_each_filter_of_the_history_finds_exactly_the_matching_records(service, clock):
    service.history.write_records(
        "h1", [record(clock, 1), record(clock, 2, DeviceEvent.CLEAN, GPU, GPU, Requester("", "blue", "bob"))]
    )
    clock.sleep(60)
    noon = clock.now()
    service.history.write_records("h2", [record(clock, 3)])
    for wanted, found in (
        (HistoryFilter(hostname="h1"), [1, 2]),
        (HistoryFilter(device="0000:3b:00.0"), [1, 3]),
        (HistoryFilter(handle=GPU), [2]),
        (HistoryFilter(instance_uuid=VM), [1, 3]),
        (HistoryFilter(project_id="blue"), [2]),
        (HistoryFilter(event="clean"), [2]),
        (HistoryFilter(since=noon), [3]),
        (HistoryFilter(until=noon), [1, 2]),
        (HistoryFilter(hostname="h1", event="clean", project_id="red"), []),
    ):
        assert [entry.record.sequence for entry in shown(service, wanted)] == found, wanted


@on_every_database
def test_the_pages_of_the_history_have_no_gap_and_no_repetition(service, clock):
    for host in ("h1", "h2", "h3"):
        service.history.write_records(host, [record(clock, number) for number in (5, 7, 9)])
    seen, after = [], None
    while page := shown(service, after=after, limit=2):
        seen += [(entry.record.sequence, entry.hostname) for entry in page]
        after = page[-1].place
    assert seen == [(number, host) for number in (5, 7, 9) for host in ("h1", "h2", "h3")]
    assert shown(service, after=HistoryPosition(9, 1 << 40)) == []


@on_every_database
def test_history_older_than_the_retention_period_is_deleted_in_batches(service, engine, clock):
    task = PruningTask(
        "history", engine, clock, history_store.delete_before, keep=timedelta(days=30), is_first=lambda _: True
    )
    with engine.begin() as connection:
        history_store.insert_records(
            connection, "h1", [record(clock, number) for number in range(1, PRUNE_BATCH_ROWS + 3)]
        )
    clock.sleep(timedelta(days=30).total_seconds())
    service.history.write_records("h1", [record(clock, PRUNE_BATCH_ROWS + 3)])
    assert (task.run_once(), len(shown(service, limit=9999))) == (
        clock.now() + task.pause,
        PRUNE_BATCH_ROWS + 3,
    )  # as old as the retention period, which is not older
    clock.sleep(1)
    assert (task.run_once(), len(shown(service, limit=9999))) == (clock.now() + PRUNE_SHORT_PAUSE, 3)
    assert (task.run_once(), numbers(service)) == (clock.now() + task.pause, [("h1", PRUNE_BATCH_ROWS + 3)])
