"""The task that trims the change log: which entries it deletes and keeps, and that only one process runs it.

On all three databases: deletions, reads afterwards, and several processes at once. Unit tests show when the task runs
again and where a batch ends.
"""

import threading
from datetime import timedelta

import pytest
from sqlalchemy import event, select

from moorage.core.clock import VirtualClock
from moorage.core.ids import SeededIds
from moorage.db.session import read, write
from moorage.placement.forest.change_events import Cursor, Filter
from moorage.placement.forest.model import Inventory
from moorage.placement.rules.allocation_writes import AllocationWrite
from moorage.placement.service import retention
from moorage.placement.service.retention import MIN_ROUND_PAUSE, RetentionTask
from moorage.placement.service.service import PlacementService
from moorage.placement.store import change_log as log
from moorage.placement.store import change_store
from moorage.placement.store.tables import changes
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database, on_servers

CONSUMERS = [f"00000000-0000-4000-8000-{number:012}" for number in range(40)]
HOUR = timedelta(hours=1)


@pytest.fixture
def engine(kind):
    with migrated_engine("placement", kind) as engine:
        yield engine


@pytest.fixture
def service(engine, clock, ids):
    service = PlacementService(engine, clock, ids)
    service.start()
    return service


def host(service, name="host"):
    uuid = service.providers.create(name, None, None).provider.uuid
    service.providers.set_inventories(uuid, 0, {"VCPU": Inventory(total=1000)})
    return uuid


def claim(service, consumer, provider, amount, generation=None):
    wish = AllocationWrite(consumer, {provider: {"VCPU": amount}}, "red", "alice", "INSTANCE", generation)
    service.allocations.claim([wish])


def passes(clock, hours=1):
    clock.advance_to(clock.now() + hours * HOUR)


def trim(engine, clock, *, hours):
    task = RetentionTask(engine, clock, history=hours * HOUR)
    while task.run_once() < clock.now() + MIN_ROUND_PAUSE:
        pass
    return task


def left(engine):
    """[(kind, subject)] in the order of the log."""
    with read(engine) as connection:
        rows = connection.execute(select(changes).order_by(changes.c.sequence, changes.c.position))
        return [(row.kind, row.subject) for row in rows]


@on_every_database
def test_of_each_subject_what_its_state_rests_on_is_left(engine, service, clock):
    uuid = host(service)
    for number in range(3):
        claim(service, CONSUMERS[0], uuid, number + 1, number or None)
    claim(service, CONSUMERS[1], uuid, 5)
    service.allocations.release(CONSUMERS[1])
    gone = host(service, "gone")
    service.providers.delete(gone)
    passes(clock, 2)
    trim(engine, clock, hours=1)
    assert sorted(left(engine)) == sorted([("provider", uuid), ("usages", uuid), ("consumer", CONSUMERS[0])])
    passes(clock, 2)
    assert service.history.provider_state(uuid, None).document["usages"] == {"VCPU": 3}
    assert service.history.consumer_state(CONSUMERS[0], None).document["allocations"] == {uuid: {"VCPU": 3}}


@on_every_database
def test_what_is_younger_stays_whole(engine, service, clock):
    uuid = host(service)
    claim(service, CONSUMERS[0], uuid, 1)
    passes(clock, 2)
    reached = service.events.newest_cursor()
    claim(service, CONSUMERS[0], uuid, 2, 1)
    claim(service, CONSUMERS[0], uuid, 3, 2)
    expected = service.events.read_page(reached, Filter()).entries
    trim(engine, clock, hours=1)
    assert service.events.read_page(reached, Filter()).entries == expected
    with read(engine) as connection:
        assert change_store.read_retention(connection).first == reached.sequence + 1


def test_a_transaction_larger_than_a_batch_is_gone_through_to_its_end(engine, service, clock, monkeypatch):
    uuid = host(service)
    for generation in (None, 1):
        wishes = [
            AllocationWrite(one, {uuid: {"VCPU": 1}}, "red", "alice", "INSTANCE", generation) for one in CONSUMERS
        ]
        service.allocations.claim(wishes)
    passes(clock, 2)
    monkeypatch.setattr(retention, "BATCH", 7)
    trim(engine, clock, hours=1)
    assert sorted(left(engine)) == sorted(
        [("provider", uuid), ("usages", uuid), *(("consumer", one) for one in CONSUMERS)]
    )


def test_a_process_that_begins_in_the_middle_of_a_transaction_finishes_it(engine, service, clock, monkeypatch):
    uuid = host(service)
    for generation in (None, 1):
        wishes = [
            AllocationWrite(one, {uuid: {"VCPU": 1}}, "red", "alice", "INSTANCE", generation) for one in CONSUMERS
        ]
        service.allocations.claim(wishes)
    passes(clock, 2)
    monkeypatch.setattr(retention, "BATCH", 50)
    soon = clock.now() + retention.MIN_PAUSE
    assert RetentionTask(engine, clock, history=HOUR).run_once() == soon, "there is more"
    assert len(left(engine)) > 42
    trim(engine, clock, hours=1)
    assert len(left(engine)) == 42


def test_the_next_round_is_when_the_oldest_entry_gets_old(engine, service, clock):
    host(service)
    written = clock.now()
    task = RetentionTask(engine, clock, history=5 * HOUR)
    assert task.run_once() == written + 5 * HOUR
    passes(clock, 6)
    assert task.run_once() == clock.now() + 5 * HOUR, "nothing is left that could get old"


@on_servers
def test_who_finds_another_process_at_it_lets_it_be(engine, service, clock):
    host(service)
    passes(clock, 2)
    with write(engine) as connection:
        assert change_store.claim_retention(connection) is not None
        assert RetentionTask(engine, clock, history=HOUR).run_once() == clock.now() + MIN_ROUND_PAUSE
        assert len(left(engine)) > 1
    trim(engine, clock, hours=1)


@on_every_database
def test_nothing_is_lost_while_several_processes_trim_and_others_write_and_watch(engine, service, clock, monkeypatch):
    """A watcher of the kept part sees every number; states stay right; a watcher too far behind is told."""
    monkeypatch.setattr(retention, "BATCH", 10)
    uuid = host(service)
    for number in range(20):
        claim(service, CONSUMERS[number], uuid, 1)
    passes(clock, 2)
    start = service.events.newest_cursor()
    failures, seen = [], []

    def work(step):
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the test checks it
            failures.append(error)

    def write_more():
        own = PlacementService(engine, clock, SeededIds(7))
        for number in range(20):
            claim(own, CONSUMERS[number], uuid, 2, 1)

    def watch():
        cursor = start
        while len(seen) < 40:
            page = service.events.read_page(cursor, Filter())
            seen.extend(page.entries)
            cursor = page.reached

    threads = [
        threading.Thread(target=work, args=(step,))
        for step in (write_more, watch, *[lambda: trim(engine, clock, hours=1)] * 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [change.cursor for change in seen] == sorted(change.cursor for change in seen)
    assert len({change.cursor.sequence for change in seen}) == 20
    assert service.history.provider_state(uuid, None).document["usages"] == {"VCPU": 40}


@on_every_database
def test_a_process_behind_the_log_reads_everything_again(engine, service, clock):
    host(service)
    passes(clock, 2)
    trim(engine, clock, hours=1)
    with read(engine) as connection:
        assert log.provider_ids_since(connection, 0) == {log.EVERYTHING}
        assert log.provider_ids_since(connection, log.last_number(connection)) == set()


def test_every_look_at_the_log_is_a_search_of_an_index(engine, service, clock):
    """However long the log is, no statement reads entries that it does not need. Tested on one database."""
    uuid = host(service)
    asked = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: asked.append(arguments[2:4]))
    service.history.provider_state(uuid, None)
    service.history.provider_entries(uuid, change_store.TimeRange(clock.now(), clock.now()), Cursor(1), 5)
    service.events.read_page(Cursor(1), Filter())
    service.events.read_page(Cursor(1), Filter(kinds=("usages",)))
    passes(clock, 2)
    trim(engine, clock, hours=1)
    looks = [(statement, values) for statement, values in asked if "FROM changes" in statement]
    assert len(looks) >= 7
    with engine.connect() as connection:
        for statement, values in looks:
            for given in values if isinstance(values, list) else [values]:
                plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given).all()
                assert all(row[3].startswith(("SEARCH", "USE TEMP B-TREE")) for row in plan), (statement, plan)


@on_every_database
def test_clocks_of_processes_may_differ_a_little(engine, service, clock, ids):
    """The order of the log decides, not the clocks: "as of now" is the present state."""
    uuid = host(service)
    ahead = VirtualClock(clock.now() + timedelta(seconds=50))
    other = PlacementService(engine, ahead, ids)
    claim(other, CONSUMERS[0], uuid, 1)
    claim(service, CONSUMERS[0], uuid, 2, 1)
    for _ in range(5):
        passes(clock)
        claim(service, CONSUMERS[1], uuid, 1)
        service.allocations.release(CONSUMERS[1])
    assert service.history.consumer_state(CONSUMERS[0], None).document["allocations"] == {uuid: {"VCPU": 2}}
    assert service.history.provider_state(uuid, None).document["usages"] == {"VCPU": 2}
    written = service.history.consumer_entries(CONSUMERS[0], change_store.TimeRange(), Cursor(0), 5)
    assert [change.at for change in written] == [ahead.now(), clock.now() - 5 * HOUR]
    at = ahead.now()
    assert service.history.consumer_state(CONSUMERS[0], at).document["allocations"] == {uuid: {"VCPU": 2}}
    between = change_store.TimeRange(clock.now() - 5 * HOUR, at)
    assert service.history.consumer_entries(CONSUMERS[0], between, Cursor(0), 5) == written[1:]


def test_a_state_costs_as_much_after_very_many_changes(engine, service, clock):
    """Counts statements and rows read: there is no scan of later entries."""
    uuid = host(service)
    at = clock.now()
    passes(clock)
    for generation in range(40):
        claim(service, CONSUMERS[0], uuid, 1, generation or None)
        passes(clock)
    asked = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: asked.append(arguments[2]))
    assert service.history.provider_state(uuid, at).document["usages"] == {}
    looks = [statement for statement in asked if "FROM changes" in statement]
    assert len(looks) <= 2 * (1 + 6), "two kinds, each after halving 43 numbers"
