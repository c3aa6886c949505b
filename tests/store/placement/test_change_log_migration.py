"""Migration 0002: what is there when history begins is its first entry; how far the log reaches is kept both ways.

On all three databases: the migration reads and writes rows in the words of each.
"""

import json

import sqlalchemy as sa

from moorage.core.ids import SeededIds
from moorage.db.migrations import downgrade, upgrade
from moorage.db.transactions import read, write
from moorage.placement.forest.model import Inventory
from moorage.placement.rules.allocation_writes import AllocationWrite
from moorage.placement.service.service import PlacementService
from moorage.placement.store import change_log
from moorage.placement.store.tables import change_retention
from moorage.placement.store.tables import changes as entries
from tests.store.conftest import on_every_database

CONSUMER = "00000000-0000-4000-8000-000000000001"


def started(engine, clock, seed=1):
    service = PlacementService(engine, clock, SeededIds(seed))
    service.start()
    return service


def fill(service):
    """Two hosts, one below the other, and a consumer; the uuids of the hosts."""
    parent = service.providers.create("parent", None, None).provider
    child = service.providers.create("child", None, parent.uuid).provider
    service.providers.set_inventories(child.uuid, 0, {"VCPU": Inventory(total=8, allocation_ratio=1.5)})
    service.providers.set_traits(child.uuid, 1, ["HW_CPU_X86_AVX2"])
    service.providers.set_aggregates(child.uuid, None, [CONSUMER])
    wish = AllocationWrite(CONSUMER, {child.uuid: {"VCPU": 3}}, "red", "alice", "INSTANCE")
    service.allocations.claim([wish])
    return parent.uuid, child.uuid


def rows(engine, table):
    with read(engine) as connection:
        return connection.execute(sa.select(table)).mappings().all()


@on_every_database
def test_what_is_there_is_the_first_entry_of_history(engine, clock):
    upgrade(engine, "placement")
    parent, child = fill(started(engine, clock))
    downgrade(engine, "placement", "0001")
    upgrade(engine, "placement")

    with read(engine) as connection:
        last = change_log.last_number(connection)
    found = rows(engine, entries)
    assert {row["sequence"] for row in found} == {last}
    assert [row["position"] for row in found] == [0, 1, 2]
    documents = {row["subject"]: (row["kind"], json.loads(row["document"])) for row in found}
    assert documents[parent][1]["inventories"] == {}
    assert documents[child] == (
        "provider",
        {
            "uuid": child,
            "name": "child",
            "generation": 3,
            "parent_provider_uuid": parent,
            "root_provider_uuid": parent,
            "inventories": {
                "VCPU": {
                    "total": 8,
                    "reserved": 0,
                    "min_unit": 1,
                    "max_unit": 2147483647,
                    "step_size": 1,
                    "allocation_ratio": 1.5,
                }
            },
            "traits": ["HW_CPU_X86_AVX2"],
            "aggregates": [CONSUMER],
            "usages": {"VCPU": 3},
        },
    )
    assert documents[CONSUMER] == (
        "consumer",
        {
            "generation": 1,
            "project_id": "red",
            "user_id": "alice",
            "consumer_type": "INSTANCE",
            "allocations": {child: {"VCPU": 3}},
        },
    )
    [retention] = rows(engine, change_retention)
    assert retention["first"] == last
    assert retention["since"] == found[0]["at"]


@on_every_database
def test_a_process_that_is_behind_the_migration_reads_everything_again(engine, clock):
    upgrade(engine, "placement")
    fill(started(engine, clock))
    with read(engine) as connection:
        seen = change_log.last_number(connection)
    downgrade(engine, "placement", "0001")
    upgrade(engine, "placement")
    with read(engine) as connection:
        assert change_log.provider_ids_since(connection, seen - 1) == {change_log.EVERYTHING}
        assert change_log.provider_ids_since(connection, change_log.last_number(connection)) == set()


@on_every_database
def test_going_back_keeps_what_processes_must_read_again(engine, clock):
    upgrade(engine, "placement")
    fill(started(engine, clock))
    with read(engine) as connection:
        expected = {
            (row.sequence, row.provider_id)
            for row in connection.execute(sa.select(entries))
            if row.provider_id is not None
        }
    with write(engine) as connection:
        connection.execute(sa.update(change_retention).values(first=2))
    downgrade(engine, "placement", "0001")
    with read(engine) as connection:
        found = set(connection.execute(sa.text("SELECT sequence, provider_id FROM changes")).all())
        trimmed = connection.execute(sa.text("SELECT trimmed FROM change_sequence")).scalar_one()
    assert found == expected
    assert trimmed == 2


@on_every_database
def test_an_unused_database_has_no_history_to_begin(engine, clock):
    upgrade(engine, "placement", "0001")
    upgrade(engine, "placement")
    assert rows(engine, change_retention) == []
    started(engine, clock)
    [retention] = rows(engine, change_retention)
    assert (retention["first"], retention["since"]) == (0, None)
