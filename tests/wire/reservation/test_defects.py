"""Shows that Moorage lacks those defects of the peer (Blazar 18) that no other test covers.

docs/evidence/proof/reservations.md lists all defects with their tests.
"""

import logging
from datetime import timedelta

import pytest
import sqlalchemy as sa

from moorage.core.errors import RemoteError
from moorage.db.session import read
from moorage.reservation.capacity import host_selection
from moorage.reservation.store import host_store
from tests.wire.reservation.plane import NOW, instance, lease
from tests.wire.reservation.processes import CREATE_FLAVOR, ENSURE_CLASS, GRANT, SET_EXTRA_SPECS


def create(plane, *reservations, **values):
    return plane.ask("POST", "/v1/leases", lease(*reservations, **values), status=201)["lease"]


@pytest.fixture
def statements(reserved):
    """The statements that are executed on the reservation database after the call."""
    said = []
    sa.event.listen(reserved.engine, "before_cursor_execute", lambda *args: said.append(args[2]))
    return said


def test_capacity_is_searched_once_per_lease(reserved, monkeypatch):
    """D4: the peer searches twice for each lease, with as many queries as there are hosts and reservations."""
    searches = []
    plan = host_selection.plan
    monkeypatch.setattr(host_selection, "plan", lambda *args: searches.append(args) or plan(*args))
    create(reserved)
    assert len(searches) == 1


@pytest.mark.parametrize("level", [logging.INFO, logging.CRITICAL])
def test_the_api_answers_at_every_log_level(reserved, level):
    """D12: with INFO switched off the peer answers nothing at all."""
    logging.disable(level)
    try:
        assert reserved.ask("GET", "/v1/leases") == {"leases": []}
        create(reserved)
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("request_", [ENSURE_CLASS, CREATE_FLAVOR, SET_EXTRA_SPECS])
def test_a_lease_that_fails_at_its_second_reservation_leaves_nothing_of_the_first(reserved, request_):
    """D15: the peer deletes its rows, but keeps the first one's flavor, aggregate and class for ever."""

    def before(call):
        if call.name == request_ and failing.asked.count(request_) == 2:
            raise RemoteError("away", status=503)

    failing = reserved.new_process(before=before)
    reserved.use(failing)
    reserved.ask("POST", "/v1/leases", lease(instance(), instance(2)), status=503)
    reserved.run_for(10)
    assert failing.asked.count(request_) == 2
    assert reserved.ask("GET", "/v1/leases") == {"leases": []}
    classes = reserved.ask("GET", "/resource_classes", service="placement")["resource_classes"]
    assert [each["name"] for each in classes if each["name"].startswith("CUSTOM_RESERVATION_")] == []
    flavors = reserved.ask("GET", "/v2.1/flavors?is_public=None", service="compute")["flavors"]
    assert flavors == []
    with read(reserved.engine) as connection:
        assert host_store.live_usages(connection, NOW) == []


def test_a_failed_event_is_the_one_marked_as_failed(reserved):
    """D17: the peer's handler marks the last event that it read, and its loop ends with an UnboundLocalError."""
    leases = [create(reserved, start="2026-03-01 10:00") for _ in range(3)]
    failing = leases[1]["reservations"][0]["id"]

    def before(call):
        if call.name == GRANT and call.is_about(failing):
            raise RemoteError("away", status=503)

    reserved.stop_runner()
    reserved.run_until(NOW + timedelta(hours=1))
    reserved.new_process(before=before).runner.run_once()
    assert [reserved.lease(each["id"])["status"] for each in leases] == ["ACTIVE", "STARTING", "ACTIVE"]
    starts = [
        event["status"]
        for each in leases
        for event in reserved.lease(each["id"])["events"]
        if event["event_type"] == "start_lease"
    ]
    assert starts == ["DONE", "IN_PROGRESS", "DONE"]


def test_a_search_by_properties_prints_nothing(reserved, capsys):
    """D17: the peer prints the attributes of each host in the search."""
    create(reserved, instance(resource_properties='[">=", "$vcpus", "2"]'))
    assert capsys.readouterr() == ("", "")


def test_every_column_in_a_search_has_an_index(reserved):
    """D18: the peer has none beyond its keys on PostgreSQL and SQLite."""
    inspector = sa.inspect(reserved.engine)
    indexed = {
        (table, index["column_names"][0])
        for table in inspector.get_table_names()
        for index in inspector.get_indexes(table)
    }
    assert indexed >= {
        ("leases", "project_id"),
        ("reservations", "lease_id"),
        ("events", "lease_id"),
        ("events", "status"),
        ("computehost_allocations", "reservation_id"),
        ("computehost_allocations", "compute_host_id"),
    }


def test_the_number_of_statements_of_a_list_does_not_depend_on_its_length(reserved, statements):
    """D18: the peer needs 6 to 39 s for 10,000 leases, with queries for each of them."""
    counts = []
    for _ in range(2):
        for _ in range(3):
            create(reserved, instance(memory_mb=1, disk_gb=0), start="2026-03-05 10:00", end="2026-03-06 10:00")
        statements.clear()
        reserved.ask("GET", "/v1/leases")
        counts.append(len(statements))
    assert counts[0] == counts[1]
