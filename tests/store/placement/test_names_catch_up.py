"""Classes and traits that other processes create and delete: only new and deleted ones are read, however many exist.

Ids and the order of rows are tested on all three databases. The number of rows read does not depend on the database.
"""

import random

import pytest
from sqlalchemy import event

from moorage.core.clock import VirtualClock
from moorage.core.ids import SeededIds
from moorage.db.session import read
from moorage.placement.service.service import PlacementService
from moorage.placement.store import name_store
from tests.conftest import START
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database


@pytest.fixture
def engine(kind):
    with migrated_engine("placement", kind) as engine:
        yield engine


def started(engine) -> PlacementService:
    service = PlacementService(engine, VirtualClock(START), SeededIds(1))
    service.start()
    return service


@on_every_database
def test_the_names_in_memory_equal_the_table_after_another_process_creates_and_deletes_classes(engine):
    writer, reader = started(engine), started(engine)
    chance = random.Random(1)
    there: list[str] = []
    for number in range(60):
        if there and chance.random() < 0.4:
            writer.names.delete_class(there.pop(chance.randrange(len(there))))
        else:
            there.append(f"CUSTOM_N{number}")
            writer.names.ensure_class(there[-1])
        if chance.random() < 0.5:
            with read(engine) as connection:
                wanted = name_store.name_table(connection)
            for service in (reader, writer):
                assert service.providers.forest().names == wanted
                assert [one.name for one in service.names.classes()] == [*wanted.classes], "in the order of ids"


@on_every_database
def test_a_class_created_after_the_newest_one_was_deleted_is_seen_as_a_new_class(engine):
    writer, reader = started(engine), started(engine)
    writer.names.ensure_class("CUSTOM_OLD")
    assert "CUSTOM_OLD" in reader.providers.forest().names.classes
    writer.names.delete_class("CUSTOM_OLD")
    writer.names.ensure_class("CUSTOM_NEW")
    names = reader.providers.forest().names.classes
    assert "CUSTOM_NEW" in names
    assert "CUSTOM_OLD" not in names


def test_a_new_class_of_another_process_is_read_without_reading_all_classes(engine):
    writer, reader = started(engine), started(engine)
    reader.providers.forest()
    writer.names.ensure_class("CUSTOM_NEW")
    statements = []
    event.listen(engine, "before_cursor_execute", lambda *asked: statements.append(" ".join(asked[2].split())))
    assert "CUSTOM_NEW" in reader.providers.forest().names.classes
    of_names = [each for each in statements if "FROM resource_classes" in each or "FROM traits" in each]
    assert of_names
    assert all("WHERE" in each for each in of_names), of_names


def test_own_classes_are_created_and_deleted_without_reading_all_classes(engine):
    service = started(engine)
    service.names.ensure_class("CUSTOM_KEPT")
    statements = []
    event.listen(engine, "before_cursor_execute", lambda *asked: statements.append(" ".join(asked[2].split())))
    service.names.ensure_class("CUSTOM_NEW")
    assert "CUSTOM_NEW" in service.providers.forest().names.classes
    service.names.delete_class("CUSTOM_NEW")
    assert "CUSTOM_NEW" not in service.providers.forest().names.classes
    of_names = [each for each in statements if "FROM resource_classes" in each or "FROM traits" in each]
    assert all("name = " in each or each.startswith("DELETE") for each in of_names), of_names
