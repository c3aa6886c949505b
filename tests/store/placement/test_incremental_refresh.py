"""The forest is brought up to date with one statement after claims of another process, and else from the tables.

That statement, and each way to read the tables once, are tested on all three databases.
"""

import pytest
from sqlalchemy import event, update

from moorage.core.ids import SeededIds
from moorage.db.session import SingleReads, write
from moorage.placement.forest.model import Inventory
from moorage.placement.rules.allocation_writes import AllocationWrite
from moorage.placement.service.service import PlacementService
from moorage.placement.store.tables import change_retention
from moorage.placement.sync import snapshot
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database

CONSUMERS = [f"00000000-0000-4000-8000-{number:012}" for number in range(1, 9)]


@pytest.fixture
def engine(kind):
    with migrated_engine("placement", kind) as engine:
        yield engine


@pytest.fixture
def own(engine, clock, ids):
    own = PlacementService(engine, clock, ids)
    own.start()
    return own


@pytest.fixture
def other(engine, clock, own):
    return PlacementService(engine, clock, SeededIds(2))


@pytest.fixture
def hosts(own):
    hosts = [own.providers.create_provider(name, None, None).provider.uuid for name in ("one", "two")]
    for uuid in hosts:
        own.providers.set_inventories(uuid, 0, {"VCPU": Inventory(8), "DISK_GB": Inventory(8)})
    return hosts


@pytest.fixture
def reads(engine, monkeypatch):
    """The reads of the test in order: "question" for a single read, else the statement in a transaction."""
    asked = []
    ask = SingleReads.run_select
    monkeypatch.setattr(
        SingleReads, "run_select", lambda self, sql, values: asked.append("question") or ask(self, sql, values)
    )
    event.listen(engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    return asked


def claim(service, consumer, allocations, generation=None):
    service.allocations.claim([AllocationWrite(consumer, allocations, "red", "alice", "INSTANCE", generation)])


def states(service):
    return list(service.providers.forest().all_providers())


def fresh(engine, clock):
    return list(PlacementService(engine, clock, SeededIds(9)).providers.forest().all_providers())


@on_every_database
def test_claims_and_releases_of_another_process_cost_one_additional_single_read(
    engine, clock, own, other, hosts, reads
):
    one, two = hosts
    states(other)
    clock.sleep(60)
    claim(own, CONSUMERS[0], {one: {"VCPU": 2}, two: {"DISK_GB": 1}})
    claim(own, CONSUMERS[1], {one: {"VCPU": 3}})
    own.allocations.release(CONSUMERS[1])
    claim(own, CONSUMERS[0], {one: {"VCPU": 1, "DISK_GB": 4}}, 1)
    reads.clear()
    seen = states(other)
    assert reads == ["question", "question"]
    assert seen == fresh(engine, clock)
    assert other.providers.provider(one).used == {"VCPU": 1, "DISK_GB": 4}
    reads.clear()
    assert states(other) == seen
    assert reads == ["question"]


@on_every_database
def test_a_claim_after_claims_of_another_process_costs_at_most_one_single_read(engine, clock, own, other, hosts, reads):
    one, _ = hosts
    states(other)
    claim(own, CONSUMERS[0], {one: {"VCPU": 6}})
    reads.clear()
    claim(other, CONSUMERS[1], {one: {"VCPU": 2}})
    assert reads == ["question"]
    assert states(own) == states(other) == fresh(engine, clock)
    claim(own, CONSUMERS[0], {one: {"VCPU": 1}}, 1)
    reads.clear()
    claim(other, CONSUMERS[1], {one: {"VCPU": 1}}, 1)
    assert reads == [], "beside another writer, they are read with the number"
    assert states(own) == states(other) == fresh(engine, clock)


@pytest.mark.parametrize(
    "act",
    [
        lambda own, one, two: own.providers.set_traits(one, None, ["HW_CPU_X86_AVX2"]),
        lambda own, one, two: own.providers.delete_provider(two),
        lambda own, one, two: own.providers.create_provider("three", None, one),
        lambda own, one, two: own.providers.update_provider(two, "deux", one, parent_given=True, may_move=True),
        lambda own, one, two: own.names.rename_class("CUSTOM_GOLD", "CUSTOM_SILVER"),
    ],
    ids=["traits", "delete", "create", "move", "rename a class"],
)
def test_other_writes_between_the_claims_of_another_process_are_seen(engine, clock, own, other, hosts, act):
    own.names.create_class("CUSTOM_GOLD")
    one, two = hosts
    own.providers.set_inventories(one, None, {"VCPU": Inventory(8), "CUSTOM_GOLD": Inventory(8)})
    states(other)
    claim(own, CONSUMERS[0], {one: {"VCPU": 2, "CUSTOM_GOLD": 1}})
    act(own, one, two)
    claim(own, CONSUMERS[1], {one: {"VCPU": 1}})
    assert states(other) == fresh(engine, clock)
    assert other.names.classes() == own.names.classes()


def test_a_single_read_returns_one_entry_more_than_are_followed():
    """So that more than these are not taken for all."""
    assert f"LIMIT {snapshot.MAX_REFRESH_ENTRIES + 1})" in snapshot._ENTRIES_SINCE.prepared_for("sqlite").text


@on_every_database
def test_more_changes_than_one_single_read_returns_are_read_from_the_tables(engine, clock, own, hosts, monkeypatch):
    monkeypatch.setattr(snapshot, "MAX_REFRESH_ENTRIES", 2)
    other = PlacementService(engine, clock, SeededIds(2))
    states(other)
    for consumer in CONSUMERS:
        claim(own, consumer, {hosts[0]: {"VCPU": 1}})
    assert states(other) == fresh(engine, clock)


@on_every_database
def test_if_the_change_log_was_trimmed_too_far_everything_is_read_from_the_tables(engine, clock, own, other, hosts):
    """Of the two claims that `other` has not seen, the log contains only the second."""
    states(other)
    claim(own, CONSUMERS[0], {hosts[0]: {"VCPU": 1}})
    first = own.events.newest_cursor().sequence + 1
    claim(own, CONSUMERS[1], {hosts[1]: {"VCPU": 1}})
    with write(engine) as connection:
        connection.execute(update(change_retention).values(first=first))
        connection.exec_driver_sql(f"DELETE FROM changes WHERE sequence < {first}")
    assert states(other) == fresh(engine, clock)
