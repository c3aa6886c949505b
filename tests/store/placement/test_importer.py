"""Imports databases of the peer with every inconsistency that its schema allows.

Imports that succeed, are refused or are interrupted, and the correction of roots are tested on all three databases. The
search for inconsistencies does not depend on the database.
"""

import json
import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Table, select

from moorage.core.clock import VirtualClock
from moorage.core.errors import Conflict, StartError
from moorage.core.ids import SeededIds
from moorage.core.import_findings import ImportFinding
from moorage.db.importing import ImportListener, ImportReceipt
from moorage.placement.importing import placement_db
from moorage.placement.importing.importer import import_placement
from moorage.placement.importing.rules import INCOMPLETE, PlacementFindingKind
from moorage.placement.service.service import PlacementService
from moorage.placement.store import tables
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database
from tests.store.placement.peer import SOUND, THEN, Source

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


@pytest.fixture
def source(tmp_path) -> Source:
    return Source(f"sqlite:///{tmp_path}/peer.db")


@pytest.fixture
def target(kind):
    """The engine of an empty, migrated Moorage database."""
    with migrated_engine("placement", kind) as engine:
        yield engine


def import_and_check(source: Source, target) -> tuple[ImportReceipt, list[ImportFinding]]:
    """Imports after a dry run, which must report the same. Returns the receipt and all findings."""
    expected: list[ImportFinding] = []
    found: list[ImportFinding] = []
    with placement_db.open_placement_database(source.url, NOW) as peer:
        rehearsed = import_placement(None, peer, NOW, ImportListener(expected.append))
        receipt = import_placement(target, peer, NOW, ImportListener(found.append))
    assert (rehearsed, expected) == (receipt, found)
    return receipt, found


def forest(target):
    """The forest of a process that starts now."""
    return PlacementService(target, VirtualClock(NOW), SeededIds(1)).providers.forest()


def kinds(findings: list[ImportFinding]) -> list[PlacementFindingKind]:
    return [finding.kind for finding in findings]


def rows(engine, table: Table, *columns: str) -> list[tuple]:
    with engine.connect() as connection, connection.begin():
        return sorted(map(tuple, connection.execute(select(*(table.c[name] for name in columns)))), key=repr)


@on_every_database
def test_a_consistent_database_is_imported_completely_and_without_a_finding(source, target):
    receipt, findings = import_and_check(source, target)
    assert findings == []
    assert {table: (count.source, count.taken) for table, count in receipt.counts.items()} == {
        table: (len(its), len(its)) for table, its in SOUND.items()
    }
    (root, child) = forest(target).all_providers()
    assert (root.uuid, root.generation, root.parent_id, root.root_id) == ("p1", 5, None, root.id)
    assert (child.uuid, child.generation, child.parent_id, child.root_id) == ("p2", 6, root.id, root.id)
    assert (root.used, root.inventories["VCPU"].capacity, root.aggregates) == ({"VCPU": 2}, 14, {"g1"})
    assert child.traits == {"CUSTOM_A"}
    assert rows(target, tables.consumers, "uuid", "generation", "project_id", "user_id", "consumer_type") == [
        ("c1", 3, "alpha", "ann", "INSTANCE")
    ]


def test_times_are_imported_and_a_row_that_was_never_changed_gets_its_creation_time(source, target):
    changed = THEN + timedelta(days=1)
    source.update("resource_providers", 1, updated_at=changed)
    source.update("inventories", 1, created_at=None)
    import_and_check(source, target)
    assert rows(target, tables.providers, "uuid", "created_at", "updated_at") == [
        ("p1", THEN.replace(tzinfo=UTC), changed.replace(tzinfo=UTC)),
        ("p2", THEN.replace(tzinfo=UTC), THEN.replace(tzinfo=UTC)),
    ]
    assert rows(target, tables.inventories, "updated_at") == [(NOW,)]
    assert rows(target, tables.allocations, "created_at") == [(THEN.replace(tzinfo=UTC),)]


def test_a_process_that_was_running_during_the_import_shows_the_imported_providers(source, target):
    running = PlacementService(target, VirtualClock(NOW), SeededIds(1)).providers
    assert list(running.forest().all_providers()) == []
    import_and_check(source, target)
    assert [provider.name for provider in running.forest().all_providers()] == ["root", "child"]


def test_the_change_log_has_an_entry_for_each_imported_provider_and_consumer(source, target):
    import_and_check(source, target)
    log = tables.changes
    entries = {(kind, subject): document and json.loads(document)
               for kind, subject, document in rows(target, log, "kind", "subject", "document")}  # fmt: skip
    assert entries["consumer", "c1"]["allocations"] == {"p1": {"VCPU": 2}}
    assert entries["provider", "p2"]["root_provider_uuid"] == "p1"
    assert entries["provider", "p1"]["usages"] == {"VCPU": 2}
    (everything,) = [row for row in rows(target, log, "provider_id", "sequence", "kind") if row[2] == "everything"]
    assert everything[0] == -1
    assert {row[0] for row in rows(target, log, "sequence")} - {everything[1]} != {everything[1]}, "one transaction"


@on_every_database
def test_an_import_into_a_database_that_is_not_empty_is_refused_and_changes_nothing(source, target):
    import_and_check(source, target)
    before = (
        rows(target, tables.providers, "uuid", "revision"),
        rows(target, tables.changes, "sequence", "position"),
    )
    with (
        pytest.raises(Conflict, match="2 providers and 1 consumers already; an import goes into an empty database"),
        placement_db.open_placement_database(source.url, NOW) as peer,
    ):
        import_placement(target, peer, NOW, ImportListener())
    after = (
        rows(target, tables.providers, "uuid", "revision"),
        rows(target, tables.changes, "sequence", "position"),
    )
    assert after == before


@on_every_database
def test_an_interrupted_import_writes_nothing_and_can_be_repeated(source, target):
    source.add("projects", {"id": 2, "external_id": "unused"})

    def cut(_: ImportFinding) -> None:
        raise KeyboardInterrupt  # this finding is reported after the consumers were written

    with placement_db.open_placement_database(source.url, NOW) as peer, pytest.raises(KeyboardInterrupt):
        import_placement(target, peer, NOW, ImportListener(cut))
    for table in (tables.providers, tables.consumers, tables.allocations, tables.inventories):
        assert rows(target, table, table.primary_key.columns.keys()[0]) == []
    assert [row for row in rows(target, tables.changes, "kind") if row != ("names",)] == []
    import_and_check(source, target)  # the import can be repeated


def test_an_import_does_not_write_to_the_source(source, target, tmp_path):
    path = tmp_path / "peer.db"
    before = path.read_bytes()
    import_and_check(source, target)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.glob("peer.db?*")] == []


# --- inconsistencies in the source ------------------------------------------------------------------------------


def test_rows_that_refer_to_a_missing_provider_class_or_name_are_left_out(source, target):
    source.add("inventories", SOUND["inventories"][0] | {"id": 2, "resource_provider_id": 77})
    source.add("inventories", SOUND["inventories"][0] | {"id": 3, "resource_class_id": 99})
    source.add("allocations", SOUND["allocations"][0] | {"id": 2, "resource_provider_id": 78})
    source.add("allocations", SOUND["allocations"][0] | {"id": 3, "resource_class_id": 98})
    source.add("resource_provider_aggregates", {"resource_provider_id": 79, "aggregate_id": 1})
    source.add("resource_provider_aggregates", {"resource_provider_id": 1, "aggregate_id": 5})
    source.add("resource_provider_traits", {"resource_provider_id": 1, "trait_id": 9})
    receipt, findings = import_and_check(source, target)
    assert sorted(kinds(findings)) == [
        *[PlacementFindingKind.LOST_CLASS] * 2, *[PlacementFindingKind.LOST_NAME] * 2, *[PlacementFindingKind.LOST_PROVIDER] * 3
    ]  # fmt: skip
    assert receipt.counts["allocations"].taken == receipt.counts["inventories"].taken == 1
    assert rows(target, tables.allocations, "used") == [(2,)]


def test_a_consumer_without_allocations_is_left_out(source, target):
    source.add("consumers", SOUND["consumers"][0] | {"id": 2, "uuid": "c2"})
    source.add("consumers", SOUND["consumers"][0] | {"id": 3, "uuid": "c3"})
    source.add("allocations", SOUND["allocations"][0] | {"id": 2, "consumer_id": "c3", "resource_provider_id": 78})
    _, findings = import_and_check(source, target)
    assert [one.text for one in findings if one.kind is PlacementFindingKind.EMPTY_CONSUMER] == [
        "consumer c2: it has no allocations",
        "consumer c3: all its allocations are left out",
    ]
    assert rows(target, tables.consumers, "uuid") == [("c1",)]


def test_allocations_without_a_consumer_get_one_with_an_unknown_owner(source, target):
    source.add("allocations", SOUND["allocations"][0] | {"id": 2, "consumer_id": "c9", "used": 3})
    _, findings = import_and_check(source, target)
    assert kinds(findings) == [PlacementFindingKind.NO_CONSUMER]
    assert ("c9", 0, INCOMPLETE, INCOMPLETE, None) in rows(
        target, tables.consumers, "uuid", "generation", "project_id", "user_id", "consumer_type"
    )
    assert forest(target).by_uuid("p1").used == {"VCPU": 5}


def test_a_consumer_whose_owner_or_type_is_missing_gets_an_unknown_one(source, target):
    source.update("consumers", 1, project_id=55, consumer_type_id=66)
    _, findings = import_and_check(source, target)
    assert kinds(findings) == [
        PlacementFindingKind.LOST_OWNER,
        PlacementFindingKind.LOST_TYPE,
        PlacementFindingKind.UNUSED,
        PlacementFindingKind.UNUSED,
    ]
    assert rows(target, tables.consumers, "project_id", "user_id", "consumer_type") == [(INCOMPLETE, "ann", None)]


def test_incomplete_owners_are_imported_with_a_finding(source, target):
    source.update("projects", 1, external_id=INCOMPLETE)
    _, findings = import_and_check(source, target)
    assert kinds(findings) == [PlacementFindingKind.INCOMPLETE_OWNER]


def test_two_allocations_of_the_same_consumer_provider_and_class_are_added_up(source, target):
    source.add("allocations", SOUND["allocations"][0] | {"id": 2, "used": 4, "updated_at": THEN + timedelta(hours=1)})
    receipt, findings = import_and_check(source, target)
    assert kinds(findings) == [PlacementFindingKind.TWICE]
    assert rows(target, tables.allocations, "used") == [(6,)]
    assert receipt.counts["allocations"].taken == 2


@on_every_database
def test_a_wrong_root_is_replaced_by_the_root_of_the_parents(source, target):
    source.update("resource_providers", 2, root_provider_id=2)
    _, findings = import_and_check(source, target)
    assert [one.text for one in findings] == ["the root of child is root (p1), not p2"]
    root, child = forest(target).all_providers()
    assert child.root_id == root.id


def test_a_child_may_be_older_than_its_parent(source, target):
    """Providers can be moved below newer ones, so a parent may have the larger id."""
    source.add("resource_providers", {"id": 3, "uuid": "p3", "name": "new root", "generation": 0,
                                      "root_provider_id": 3, "parent_provider_id": None})  # fmt: skip
    for moved in (1, 2):
        source.update("resource_providers", moved, root_provider_id=3)
    source.update("resource_providers", 1, parent_provider_id=3)
    _, findings = import_and_check(source, target)
    assert findings == []
    assert [provider.name for provider in forest(target).all_providers()] == ["new root", "root", "child"]


def test_a_provider_in_a_loop_or_without_its_parent_becomes_a_root(source, target):
    source.update("resource_providers", 1, parent_provider_id=2)
    source.add("resource_providers", {"id": 3, "uuid": "p3", "name": "orphan", "generation": None,
                                      "root_provider_id": 3, "parent_provider_id": 44})  # fmt: skip
    _, findings = import_and_check(source, target)
    assert sorted(kinds(findings)) == [
        PlacementFindingKind.LOOP,
        PlacementFindingKind.LOST_PARENT,
        PlacementFindingKind.NO_GENERATION,
    ]
    assert {one.name: one.is_root for one in forest(target).all_providers()} == {
        "root": True, "child": False, "orphan": True
    }  # fmt: skip


def test_a_provider_without_a_usable_name_is_named_by_its_uuid(source, target):
    for number, name in enumerate((None, "x" * 201, ""), 3):
        source.add("resource_providers", {"id": number, "uuid": f"p{number}", "name": name, "generation": 0,
                                          "root_provider_id": number, "parent_provider_id": None})  # fmt: skip
    _, findings = import_and_check(source, target)
    assert kinds(findings) == [PlacementFindingKind.RENAMED] * 3
    assert [one.name for one in forest(target).all_providers()] == ["root", "p3", "p4", "p5", "child"]


def test_rows_with_too_long_texts_are_left_out_with_the_rows_that_refer_to_them(source, target):
    source.add("resource_classes", {"id": 10001, "name": "CUSTOM_" + "X" * 249})
    source.add("inventories", SOUND["inventories"][0] | {"id": 2, "resource_class_id": 10001})
    source.add("projects", {"id": 2, "external_id": "y" * 256})
    source.add("consumers", SOUND["consumers"][0] | {"id": 2, "uuid": "c2", "project_id": 2})
    source.add("allocations", SOUND["allocations"][0] | {"id": 2, "consumer_id": "c2"})
    _, findings = import_and_check(source, target)
    assert sorted(kinds(findings)) == [
        PlacementFindingKind.LOST_CLASS,
        PlacementFindingKind.TOO_LONG,
        PlacementFindingKind.TOO_LONG,
        PlacementFindingKind.UNUSED,
    ]
    assert rows(target, tables.consumers, "uuid") == [("c1",)]


def test_usage_above_capacity_and_invalid_inventories_are_imported_with_findings(source, target):
    source.update("allocations", 1, used=15)
    source.add("inventories", SOUND["inventories"][0] | {
        "id": 2, "resource_class_id": 10000, "reserved": 9, "min_unit": 5, "max_unit": 4, "step_size": 0
    })  # fmt: skip
    source.add("allocations", SOUND["allocations"][0] | {"id": 2, "resource_provider_id": 2})
    _, findings = import_and_check(source, target)
    assert kinds(findings) == [
        *[PlacementFindingKind.IMPOSSIBLE] * 3,
        PlacementFindingKind.OVER_CAPACITY,
        PlacementFindingKind.NO_INVENTORY,
    ]
    assert findings[0].text == "CUSTOM_GOLD on root: reserved 9 is more than total 8"
    assert findings[-2].text == "15 VCPU in use on root, which has a capacity of 14"
    assert findings[-1].text == "2 VCPU in use on child, which has no inventory of it"
    assert forest(target).by_uuid("p1").used == {"VCPU": 15}


def test_standard_names_of_another_release_are_imported_with_a_finding(source, target):
    source.add("resource_classes", {"id": 30, "name": "LATER_CLASS"})
    source.add("traits", {"id": 30, "name": "HW_LATER"})
    _, findings = import_and_check(source, target)
    assert kinds(findings) == [PlacementFindingKind.UNKNOWN_NAME] * 2
    assert ("LATER_CLASS", True) in [
        (name, bool(its)) for name, its in rows(target, tables.resource_classes, "name", "standard")
    ]


# --- sources that are refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("revisions", "said"),
    [
        (("422ece571366",), "of an older Placement; run `placement-manage db sync`"),
        (("ffffffffffff",), "does not support .*use a newer Moorage"),
        ((), "not a database of OpenStack Placement"),
    ],
)
def test_a_source_with_another_schema_is_refused_with_advice(source, revisions, said):
    source.set_revision(*revisions)
    with pytest.raises(StartError, match=said), placement_db.open_placement_database(source.url, NOW):
        pass


def test_a_database_of_moorage_is_refused_as_a_source(target):
    url = target.url.render_as_string()
    with (
        pytest.raises(StartError, match="not a database of OpenStack Placement"),
        placement_db.open_placement_database(url, NOW),
    ):
        pass


def test_a_missing_source_file_is_refused_and_not_created(tmp_path):
    path = tmp_path / "none.db"
    with (
        pytest.raises(StartError, match="there is no SQLite file"),
        placement_db.open_placement_database(f"sqlite:///{path}", NOW),
    ):
        pass
    assert not path.exists()


def test_a_source_file_that_is_no_database_is_refused(tmp_path):
    path = tmp_path / "text.db"
    path.write_text("not a database " * 100)
    with (
        pytest.raises(StartError, match="cannot be read: file is not a database"),
        placement_db.open_placement_database(f"sqlite:///{path}", NOW),
    ):
        pass


# --- memory -----------------------------------------------------------------------------------------------------


def test_the_memory_of_an_import_does_not_grow_with_the_number_of_consumers(source, tmp_path):
    """Twice as many consumers need no more memory."""

    def peak(first: int, last: int) -> int:
        """Adds consumers `first` to `last`; returns the highest memory use of a dry run, in bytes."""
        numbers = range(first, last)
        source.add("consumers", *(SOUND["consumers"][0] | {"id": one, "uuid": f"c{one}"} for one in numbers))
        rows = (
            SOUND["allocations"][0] | {"id": 3 * one + offset, "consumer_id": f"c{one}", "resource_class_id": offset % 2,
                                       "resource_provider_id": 1 + offset // 2}
            for one in numbers for offset in range(3)
        )  # fmt: skip
        source.add("allocations", *rows)
        tracemalloc.start()
        with placement_db.open_placement_database(source.url, NOW) as peer:
            receipt = import_placement(None, peer, NOW, ImportListener())
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert receipt.counts["consumers"].taken == last - 10 + 1
        return most

    source.update("resource_classes", 10000, id=1)
    pages = placement_db.PAGE
    peak(10, 10 + pages)  # allocates what is created only once, such as compiled statements
    once, twice = peak(10 + pages, 10 + 2 * pages), peak(10 + 2 * pages, 10 + 4 * pages)
    assert twice < 1.2 * once
