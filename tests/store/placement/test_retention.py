"""The task that trims the change log: which entries it deletes and keeps, and that only one process runs it.

Deletions, reads afterwards, and several concurrent processes are tested on all three databases.
"""

import threading
from datetime import timedelta

import pytest
from sqlalchemy import event, select

from moorage.core.clock import VirtualClock
from moorage.core.ids import SeededIds
from moorage.db.session import read, write
from moorage.placement.forest.change_entries import Cursor, Filter
from moorage.placement.forest.model import Inventory
from moorage.placement.rules.allocation_writes import AllocationWrite
from moorage.placement.service import event_service
from moorage.placement.service.event_service import BUSY_PAUSE, MIN_ROUND_PAUSE, RetentionTask
from moorage.placement.service.service import PlacementService
from moorage.placement.store import change_store
from moorage.placement.store import change_store as log
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
    uuid = service.providers.create_provider(name, None, None).provider.uuid
    service.providers.set_inventories(uuid, 0, {"VCPU": Inventory(total=1000)})
    return uuid


def claim(service, consumer, provider, amount, generation=None):
    wish = AllocationWrite(consumer, {provider: {"VCPU": amount}}, "red", "alice", "INSTANCE", generation)
    service.allocations.claim([wish])


def advance(clock, hours=1):
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
def test_retention_keeps_the_newest_entry_of_each_existing_provider_and_consumer(engine, service, clock):
    uuid = host(service)
    for number in range(3):
        claim(service, CONSUMERS[0], uuid, number + 1, number or None)
    claim(service, CONSUMERS[1], uuid, 5)
    service.allocations.release(CONSUMERS[1])
    gone = host(service, "gone")
    service.providers.delete_provider(gone)
    advance(clock, 2)
    trim(engine, clock, hours=1)
    assert sorted(left(engine)) == sorted([("provider", uuid), ("usages", uuid), ("consumer", CONSUMERS[0])])
    advance(clock, 2)
    assert service.history.provider_state(uuid, None).document["usages"] == {"VCPU": 3}
    assert service.history.consumer_state(CONSUMERS[0], None).document["allocations"] == {uuid: {"VCPU": 3}}


@on_every_database
def test_retention_keeps_all_entries_younger_than_the_period(engine, service, clock):
    uuid = host(service)
    claim(service, CONSUMERS[0], uuid, 1)
    advance(clock, 2)
    reached = service.events.newest_cursor()
    claim(service, CONSUMERS[0], uuid, 2, 1)
    claim(service, CONSUMERS[0], uuid, 3, 2)
    expected = service.events.read_page(reached, Filter()).entries
    trim(engine, clock, hours=1)
    assert service.events.read_page(reached, Filter()).entries == expected
    with read(engine) as connection:
        assert change_store.read_retention(connection).first == reached.sequence + 1


def test_retention_trims_a_transaction_that_is_larger_than_a_batch(engine, service, clock, monkeypatch):
    uuid = host(service)
    for generation in (None, 1):
        wishes = [
            AllocationWrite(one, {uuid: {"VCPU": 1}}, "red", "alice", "INSTANCE", generation) for one in CONSUMERS
        ]
        service.allocations.claim(wishes)
    advance(clock, 2)
    monkeypatch.setattr(event_service, "BATCH", 7)
    trim(engine, clock, hours=1)
    assert sorted(left(engine)) == sorted(
        [("provider", uuid), ("usages", uuid), *(("consumer", one) for one in CONSUMERS)]
    )


def test_another_process_continues_retention_in_the_middle_of_a_transaction(engine, service, clock, monkeypatch):
    uuid = host(service)
    for generation in (None, 1):
        wishes = [
            AllocationWrite(one, {uuid: {"VCPU": 1}}, "red", "alice", "INSTANCE", generation) for one in CONSUMERS
        ]
        service.allocations.claim(wishes)
    advance(clock, 2)
    monkeypatch.setattr(event_service, "BATCH", 50)
    soon = clock.now() + event_service.MIN_PAUSE
    assert RetentionTask(engine, clock, history=HOUR).run_once() == soon, (
        "the task must run again soon, because entries are left"
    )
    assert len(left(engine)) > 42
    trim(engine, clock, hours=1)
    assert len(left(engine)) == 42


def test_retention_runs_next_when_the_oldest_entry_exceeds_the_period(engine, service, clock):
    host(service)
    written = clock.now()
    task = RetentionTask(engine, clock, history=5 * HOUR)
    assert task.run_once() == written + 5 * HOUR
    advance(clock, 6)
    assert task.run_once() == clock.now() + 5 * HOUR, "no entry is left that could exceed the period"


@on_servers
def test_retention_does_nothing_while_another_process_runs_it(engine, service, clock):
    host(service)
    advance(clock, 2)
    with write(engine) as connection:
        assert change_store.claim_retention(connection) is not None
        assert RetentionTask(engine, clock, history=HOUR).run_once() == clock.now() + BUSY_PAUSE
        assert len(left(engine)) > 1
    trim(engine, clock, hours=1)


@on_every_database
def test_concurrent_retention_writes_and_watches_lose_no_entry_and_no_state(engine, service, clock, monkeypatch):
    """A watcher of the entries that are kept sees every change number, and states stay correct."""
    monkeypatch.setattr(event_service, "BATCH", 10)
    uuid = host(service)
    for number in range(20):
        claim(service, CONSUMERS[number], uuid, 1)
    advance(clock, 2)
    start = service.events.newest_cursor()
    failures, seen = [], []

    def work(step):
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the end of a thread: the test compares its error
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
def test_a_reader_from_before_the_oldest_entry_is_told_to_read_everything(engine, service, clock):
    host(service)
    advance(clock, 2)
    trim(engine, clock, hours=1)
    with read(engine) as connection:
        assert log.provider_ids_since(connection, 0) == {log.EVERYTHING}
        assert log.provider_ids_since(connection, log.last_number(connection)) == set()


def test_every_query_of_the_change_log_uses_an_index(engine, service, clock):
    """However long the log is, no statement reads entries that it does not need. Tested on SQLite only."""
    uuid = host(service)
    asked = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: asked.append(arguments[2:4]))
    service.history.provider_state(uuid, None)
    service.history.provider_entries(uuid, change_store.TimeRange(clock.now(), clock.now()), Cursor(1), 5)
    service.events.read_page(Cursor(1), Filter())
    service.events.read_page(Cursor(1), Filter(kinds=("usages",)))
    advance(clock, 2)
    trim(engine, clock, hours=1)
    looks = [(statement, values) for statement, values in asked if "FROM changes" in statement]
    assert len(looks) >= 7
    with engine.connect() as connection:
        for statement, values in looks:
            for given in values if isinstance(values, list) else [values]:
                plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given).all()
                assert all(row[3].startswith(("SEARCH", "USE TEMP B-TREE")) for row in plan), (statement, plan)


@on_every_database
def test_history_is_correct_when_the_clocks_of_processes_differ_by_less_than_a_minute(engine, service, clock, ids):
    """The order of the change log decides, not the times in it: the state "as of now" is the present state."""
    uuid = host(service)
    ahead = VirtualClock(clock.now() + timedelta(seconds=50))
    other = PlacementService(engine, ahead, ids)
    claim(other, CONSUMERS[0], uuid, 1)
    claim(service, CONSUMERS[0], uuid, 2, 1)
    for _ in range(5):
        advance(clock)
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


def test_the_cost_of_an_earlier_state_does_not_grow_with_the_number_of_later_changes(engine, service, clock):
    """Counts the statements: the entry is found by halving the range of change numbers, not by a scan."""
    uuid = host(service)
    at = clock.now()
    advance(clock)
    for generation in range(40):
        claim(service, CONSUMERS[0], uuid, 1, generation or None)
        advance(clock)
    asked = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: asked.append(arguments[2]))
    assert service.history.provider_state(uuid, at).document["usages"] == {}
    looks = [statement for statement in asked if "FROM changes" in statement]
    assert len(looks) <= 2 * (1 + 6), "two kinds of entries, each found by halving 43 change numbers"
