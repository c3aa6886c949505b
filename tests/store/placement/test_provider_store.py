"""Placement's tables: generations, revisions, the change log, and what other processes see.

Writing, and reading by other processes, also under concurrency, are tested on all three databases. Decisions on the
state that was read do not depend on the database.
"""

import threading
from collections import Counter

import pytest
from sqlalchemy import delete, select, text, update

from moorage.core.errors import ConcurrentUpdate, Conflict, Invalid, NotFound, Unavailable
from moorage.core.ids import SeededIds
from moorage.db.migrations import upgrade
from moorage.db.session import read, write
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Inventory
from moorage.placement.rules.allocation_writes import AllocationWrite
from moorage.placement.rules.inventory_writes import NewInventories
from moorage.placement.rules.write_set import WriteSet
from moorage.placement.service.service import PlacementService
from moorage.placement.store import change_store, name_store, provider_store
from moorage.placement.store.tables import allocations, change_retention, providers
from tests.databases import Schema
from tests.group_commits import until_waiting
from tests.migrated import engine_with, migrated_engine
from tests.store.conftest import on_every_database, on_mariadb


@pytest.fixture
def engine(kind):
    with migrated_engine("placement", kind) as engine:
        yield engine


@pytest.fixture
def service(engine, clock, ids):
    service = PlacementService(engine, clock, ids)
    service.start()
    return service


@pytest.fixture
def other(engine, clock, service):
    """Another process on the same database."""
    return PlacementService(engine, clock, SeededIds(2))


def host(service, name="host", **inventories):
    provider = service.providers.create_provider(name, None, None).provider
    offered = {resource: Inventory(total=total) for resource, total in inventories.items()}
    return service.providers.set_inventories(provider.uuid, 0, offered)


def wish(consumer, allocations, generation=None, **fields):
    fields = {"project_id": "red", "user_id": "alice", "consumer_type": "INSTANCE"} | fields
    return AllocationWrite(consumer, allocations, generation=generation, **fields)


def counters(engine, uuid):
    """(generation, revision)"""
    with read(engine) as connection:
        row = connection.execute(select(providers).where(providers.c.uuid == uuid)).one()
    return row.generation, row.revision


CONSUMER = "00000000-0000-4000-8000-000000000001"
OTHER = "00000000-0000-4000-8000-000000000002"


@on_every_database
def test_every_write_increases_the_revision_and_the_generation_changes_as_in_openstack_placement(engine, service):
    uuid = host(service, VCPU=8).uuid
    seen = [counters(engine, uuid)]

    def after(act):
        act()
        seen.append(counters(engine, uuid))
        return tuple(new - old for old, new in zip(seen[-2], seen[-1], strict=True))

    aggregate = "11111111-1111-4111-8111-111111111111"
    assert after(lambda: service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 2}})])) == (1, 1)
    assert after(lambda: service.allocations.release(CONSUMER)) == (0, 1)
    assert after(lambda: service.providers.set_aggregates(uuid, None, [aggregate])) == (0, 1)
    assert after(lambda: service.providers.set_aggregates(uuid, seen[-1][0], [])) == (1, 1)
    assert after(lambda: service.providers.set_traits(uuid, seen[-1][0], ["HW_CPU_X86_AVX2"])) == (1, 1)
    assert after(lambda: service.providers.set_traits(uuid, seen[-1][0], ["HW_CPU_X86_AVX2"])) == (0, 0)
    assert after(lambda: service.providers.add_inventory(uuid, "DISK_GB", Inventory(total=5))) == (1, 1)
    assert after(lambda: service.providers.delete_inventory(uuid, "DISK_GB")) == (1, 1)
    assert after(lambda: service.providers.update_provider(uuid, "new", None, parent_given=False, may_move=True)) == (
        0,
        1,
    )


@on_every_database
def test_a_failed_write_changes_neither_generation_nor_revision(engine, service):
    uuid = host(service, VCPU=2).uuid
    before = counters(engine, uuid)
    with pytest.raises(Conflict, match="exceed the capacity"):
        service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 3}})])
    with pytest.raises(ConcurrentUpdate):
        service.providers.set_inventories(uuid, 99, {})
    with pytest.raises(Invalid, match="No such trait"):
        service.providers.set_traits(uuid, before[0], ["CUSTOM_UNKNOWN"])
    assert counters(engine, uuid) == before
    assert service.allocations.consumer_allocations(CONSUMER) == (None, [])


@on_every_database
def test_another_process_sees_each_write_at_its_next_read(service, other):
    assert list(other.providers.forest().all_providers()) == []
    uuid = host(service, VCPU=4).uuid
    assert other.providers.provider(uuid).inventories == {"VCPU": Inventory(total=4)}
    service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 3}})])
    assert other.providers.provider(uuid).used == {"VCPU": 3}
    service.allocations.release(CONSUMER)
    service.providers.delete_provider(uuid)
    with pytest.raises(NotFound):
        other.providers.provider(uuid)


@on_every_database
def test_a_claim_that_was_decided_on_an_old_state_is_decided_again(service, other):
    """The other process still has the host as empty (or full) in memory; its claim is decided again when it writes."""
    uuid = host(service, VCPU=2).uuid
    other.providers.provider(uuid)
    service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 2}})])
    with pytest.raises(Conflict, match="exceed the capacity"):
        other.allocations.claim([wish(OTHER, {uuid: {"VCPU": 1}})])
    service.allocations.release(CONSUMER)
    other.allocations.claim([wish(OTHER, {uuid: {"VCPU": 1}})])
    assert service.providers.provider(uuid).used == {"VCPU": 1}


def test_after_its_own_claim_a_process_does_not_read_the_provider_again(service):
    uuid = host(service, VCPU=2).uuid
    service.providers.provider(uuid)
    service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 2}})])
    held = service.providers.deps.snapshot.cached()
    assert held.by_uuid(uuid).used == {"VCPU": 2}
    assert held is service.providers.forest(), "the forest must not be read again"


def test_an_older_write_that_is_recorded_later_does_not_replace_the_newer_state(service):
    """Two threads commit in one order and update the snapshot in the other."""
    uuid = host(service, VCPU=4).uuid
    old = service.providers.provider(uuid)
    service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 2}})])
    snapshot = service.providers.deps.snapshot
    snapshot.record_write(WriteSet(Forest(), old.updated_at, providers={old.id: old}))
    assert snapshot.cached().by_uuid(uuid).used == {"VCPU": 2}
    service.allocations.release(CONSUMER)
    service.providers.delete_provider(uuid)
    service.providers.forest()
    snapshot.record_write(WriteSet(Forest(), old.updated_at, providers={old.id: old}))
    assert snapshot.cached().by_uuid(uuid) is None, "an older write must not bring back a deleted provider"


@on_every_database
def test_a_process_that_is_behind_the_trimmed_change_log_reads_everything_again(engine, service, other):
    other.providers.forest()
    made = [host(service, f"host{number}", VCPU=1).uuid for number in range(4)]
    with write(engine) as connection:  # as retention does
        last = change_store.last_number(connection)
        connection.execute(delete(change_store.changes).where(change_store.changes.c.sequence < last))
        connection.execute(update(change_retention).values(first=last))
    with read(engine) as connection:
        assert change_store.provider_ids_since(connection, 1) == {change_store.EVERYTHING}
        assert change_store.provider_ids_since(connection, last - 1) != {change_store.EVERYTHING}
    assert {provider.uuid for provider in other.providers.forest().all_providers()} == set(made)


def test_a_claim_for_several_consumers_is_written_completely_or_not_at_all(service):
    uuid = host(service, VCPU=4).uuid
    with pytest.raises(Conflict):
        service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 3}}), wish(OTHER, {uuid: {"VCPU": 2}})])
    assert service.allocations.consumer_allocations(CONSUMER)[0] is None
    assert service.providers.provider(uuid).used == {}


def test_usage_above_capacity_may_decrease_but_not_increase(service):
    provider = host(service, VCPU=8)
    service.allocations.claim([wish(CONSUMER, {provider.uuid: {"VCPU": 6}})])
    service.allocations.claim([wish(OTHER, {provider.uuid: {"VCPU": 2}})])
    generation = service.providers.provider(provider.uuid).generation
    service.providers.set_inventories(provider.uuid, generation, {"VCPU": Inventory(total=4)})
    service.allocations.claim([wish(CONSUMER, {provider.uuid: {"VCPU": 5}}, generation=1)])
    with pytest.raises(Conflict, match="exceed the capacity"):
        service.allocations.claim([wish(CONSUMER, {provider.uuid: {"VCPU": 6}}, generation=2)])
    # Swapping between consumers leaves the sum as it is.
    swap = [
        wish(CONSUMER, {provider.uuid: {"VCPU": 2}}, generation=2),
        wish(OTHER, {provider.uuid: {"VCPU": 5}}, generation=1),
    ]
    service.allocations.claim(swap)
    assert service.providers.provider(provider.uuid).used == {"VCPU": 7}


def test_a_consumer_is_deleted_with_its_last_allocation(service):
    uuid = host(service, VCPU=4).uuid
    service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 1}})])
    with pytest.raises(ConcurrentUpdate, match="expected 1 but got None"):
        service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 1}})])
    service.allocations.claim([wish(CONSUMER, {}, generation=1)])
    service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 1}})])
    consumer, _ = service.allocations.consumer_allocations(CONSUMER)
    assert consumer.generation == 1


@on_every_database
def test_a_claim_replaces_the_owner_and_type_of_its_consumer(service):
    uuid = host(service, VCPU=4).uuid
    service.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 1}})])
    service.allocations.claim(
        [wish(CONSUMER, {uuid: {"VCPU": 2}}, generation=1, project_id="blue", user_id="bob", consumer_type="MIGRATION")]
    )
    assert service.allocations.usages("red", None) == ([], {})
    assert service.allocations.usages("blue", "bob") == ([("MIGRATION", "VCPU", 2)], {"MIGRATION": 1})


def test_an_inventory_or_provider_in_use_cannot_be_deleted(service):
    provider = host(service, VCPU=4, DISK_GB=10)
    service.allocations.claim([wish(CONSUMER, {provider.uuid: {"VCPU": 1}})])
    generation = service.providers.provider(provider.uuid).generation
    with pytest.raises(Conflict, match="in use"):
        service.providers.set_inventories(provider.uuid, generation, {})
    with pytest.raises(Conflict, match="has allocations"):
        service.providers.delete_provider(provider.uuid)
    service.providers.set_inventories(provider.uuid, generation, {"VCPU": Inventory(total=1)})
    assert set(service.providers.provider(provider.uuid).inventories) == {"VCPU"}


@on_every_database
def test_moving_a_provider_changes_the_root_of_its_whole_subtree(service, other):
    create = service.providers.create_provider
    first, second = create("first", None, None).provider.uuid, create("second", None, None).provider.uuid
    numa = create("numa", None, first).provider.uuid
    device = create("device", None, numa).provider.uuid
    other.providers.forest()

    def move(uuid, name, parent):
        return service.providers.update_provider(uuid, name, parent, parent_given=True, may_move=True)

    move(numa, "numa", second)
    assert {other.providers.view(uuid).root_uuid for uuid in (numa, device)} == {second}
    with pytest.raises(Invalid, match="loop"):
        move(second, "second", device)
    move(numa, "numa", None)
    assert {other.providers.view(uuid).root_uuid for uuid in (numa, device)} == {numa}
    with pytest.raises(Conflict, match="child resource providers"):
        service.providers.delete_provider(numa)


@on_every_database
def test_a_reshape_moves_inventory_and_allocations_together(service, other):
    root = host(service, "root", VCPU=4, VGPU=2)
    child = service.providers.create_provider("child", None, root.uuid).provider
    service.allocations.claim([wish(CONSUMER, {root.uuid: {"VCPU": 1, "VGPU": 1}})])
    generation = service.providers.provider(root.uuid).generation
    new = {
        root.uuid: NewInventories(generation, {"VCPU": Inventory(total=4)}),
        child.uuid: NewInventories(0, {"VGPU": Inventory(total=2)}),
    }
    with pytest.raises(Conflict, match="in use"):
        service.allocations.reshape(new, [])
    moved = wish(CONSUMER, {root.uuid: {"VCPU": 1}, child.uuid: {"VGPU": 1}}, generation=1)
    service.allocations.reshape(new, [moved])
    assert service.providers.provider(child.uuid).used == other.providers.provider(child.uuid).used == {"VGPU": 1}
    assert set(other.providers.provider(root.uuid).inventories) == {"VCPU"}
    with pytest.raises(ConcurrentUpdate, match="given: 0"):
        service.allocations.reshape({child.uuid: NewInventories(0, {})}, [])


@on_every_database
def test_standard_names_are_those_of_the_libraries_and_cannot_be_deleted(service, other):
    import os_resource_classes
    import os_traits

    assert {one.name for one in service.names.classes()} == set(os_resource_classes.STANDARDS)
    assert {one.name for one in service.names.traits()} == set(os_traits.get_traits())
    other.start()
    assert len(service.names.traits()) == len(os_traits.get_traits())
    with pytest.raises(Invalid, match="standard"):
        service.names.delete_class("VCPU")
    with pytest.raises(Invalid, match="standard"):
        service.names.delete_trait("HW_CPU_X86_AVX2")


TABLES_ONLY = Schema("placement-without-names", lambda engine: upgrade(engine, "placement"))


@on_every_database
def test_several_processes_can_start_concurrently_on_a_new_database(kind, clock):
    with engine_with(TABLES_ONLY, kind) as engine:
        start_at_once(engine, clock)


def start_at_once(engine, clock):
    services = [PlacementService(engine, clock, SeededIds(number)) for number in range(4)]
    barrier = threading.Barrier(len(services))
    started = []

    def start(service):
        barrier.wait()
        service.start()
        started.append(service)

    threads = [threading.Thread(target=start, args=(service,)) for service in services]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(started) == len(services)
    assert len({len(service.names.traits()) for service in services}) == 1


@on_every_database
def test_a_custom_class_is_created_once_renamed_and_not_deleted_while_in_use(service, other):
    assert service.names.ensure_class("CUSTOM_GOLD") is True
    assert other.names.ensure_class("CUSTOM_GOLD") is False
    uuid = host(service, CUSTOM_GOLD=1).uuid
    with pytest.raises(Conflict, match="in use"):
        other.names.delete_class("CUSTOM_GOLD")
    other.names.rename_class("CUSTOM_GOLD", "CUSTOM_SILVER")
    assert set(service.providers.provider(uuid).inventories) == {"CUSTOM_SILVER"}
    service.allocations.claim([wish(CONSUMER, {uuid: {"CUSTOM_SILVER": 1}})])
    with pytest.raises(Invalid, match="No such resource class CUSTOM_GOLD"):
        service.allocations.claim([wish(OTHER, {uuid: {"CUSTOM_GOLD": 1}})])


@on_every_database
def test_a_new_provider_does_not_get_the_data_of_a_deleted_one(service):
    """SQLite would reuse the id of the deleted provider, under which the forest had the old uuid."""
    old = host(service, "old", VCPU=1).uuid
    service.providers.forest()
    service.providers.delete_provider(old)
    new = service.providers.create_provider("new", None, None).provider
    assert service.providers.provider(new.uuid).inventories == {}
    with pytest.raises(NotFound):
        service.providers.provider(old)


@on_every_database
@pytest.mark.slow
def test_concurrent_claims_of_two_services_never_exceed_the_capacity(engine, service, other, clock):
    hosts = [host(service, f"host{number}", VCPU=5).uuid for number in range(3)]
    outcomes = Counter()
    lock = threading.Lock()

    def claims(worker):
        placement = (service, other)[worker % 2]
        for number in range(6):
            consumer = f"00000000-0000-4000-8000-{worker:06d}{number:06d}"
            try:
                placement.allocations.claim([wish(consumer, {hosts[(worker + number) % 3]: {"VCPU": 1}})])
                outcome = "claimed"
                if number % 3 == 2:
                    placement.allocations.release(consumer)
                    outcome = "released"
            except Conflict as error:
                outcome = error.error_code
            with lock:
                outcomes[outcome] += 1

    threads = [threading.Thread(target=claims, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with read(engine) as connection:
        rows = connection.execute(select(allocations.c.provider_id, allocations.c.used)).all()
    used = Counter()
    for provider_id, units in rows:
        used[provider_id] += units
    assert sum(outcomes.values()) == 36, outcomes
    assert "placement.concurrent_update" not in outcomes, "a claim must be repeated instead of refused"
    assert outcomes["claimed"] == len(rows)
    assert max(used.values()) <= 5
    for placement in (service, other):
        assert Counter({p.id: p.used["VCPU"] for p in placement.providers.forest().all_providers() if p.used}) == used


@on_every_database
def test_concurrent_first_claims_of_a_consumer_create_it_once(service, other):
    """Both insert the consumer. The slower one is decided again, finds the consumer, and is refused."""
    uuid = host(service, VCPU=9).uuid
    results = []
    barrier = threading.Barrier(2)

    def claim(placement):
        barrier.wait()
        try:
            placement.allocations.claim([wish(CONSUMER, {uuid: {"VCPU": 1}})])
            results.append("claimed")
        except ConcurrentUpdate as error:
            results.append(error.error_code)

    threads = [threading.Thread(target=claim, args=(placement,)) for placement in (service, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["claimed", "placement.concurrent_update"]
    assert service.providers.provider(uuid).used == {"VCPU": 1}


@on_every_database
def test_claims_that_wait_for_a_commit_are_committed_together(service):
    """Of 20 claims, only the one that is too large fails."""
    uuids = [host(service, f"host{number}", VCPU=8).uuid for number in range(4)]
    service.providers.forest()
    before = service.providers.forest().sequence
    outcomes = {}

    def claim(number):
        consumer = f"00000000-0000-4000-8000-{number:012d}"
        units = 9 if number == 7 else 1
        try:
            service.allocations.claim([wish(consumer, {uuids[number % 4]: {"VCPU": units}})])
            outcomes[number] = "claimed"
        except Conflict as error:
            outcomes[number] = error.error_code

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(20)]
    writer = service.allocations.deps.committer
    with writer._turn:
        for number, thread in enumerate(threads, 1):
            thread.start()
            until_waiting(writer._queue, number)
    for thread in threads:
        thread.join()
    assert service.providers.forest().sequence == before + 1
    assert Counter(outcomes.values()) == {"claimed": 19, "moorage.conflict": 1}
    assert outcomes[7] == "moorage.conflict"
    assert sum(service.providers.provider(uuid).used["VCPU"] for uuid in uuids) == 19
    assert sum(service.providers.provider(uuid).generation for uuid in uuids) == 19 + 4


@on_every_database
def test_a_provider_may_have_all_traits_or_none(engine, service, clock):
    """The database returns the traits of a provider as one text, which must not be cut off."""
    full, empty = host(service, "full"), host(service, "empty")
    traits = sorted(trait.name for trait in service.names.traits())
    service.providers.set_traits(full.uuid, full.generation, traits)
    later = PlacementService(engine, clock, SeededIds(3))
    later.start()
    assert len(traits) > 300
    assert later.providers.provider(full.uuid).traits == frozenset(traits)
    assert later.providers.provider(empty.uuid).traits == frozenset()


@on_mariadb
def test_traits_that_mariadb_cuts_off_are_an_error(engine, service):
    full = host(service)
    traits = sorted(trait.name for trait in service.names.traits())
    service.providers.set_traits(full.uuid, full.generation, traits)
    with read(engine) as connection:
        known = name_store.name_table(connection)
        connection.execute(text("SET SESSION group_concat_max_len = 100"))
        with pytest.raises(Unavailable, match="increase group_concat_max_len"):
            provider_store.all_providers(connection, known)
        connection.execute(text("SET SESSION group_concat_max_len = DEFAULT"))
