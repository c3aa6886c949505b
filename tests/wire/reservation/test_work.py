"""G7: leases slow down no call that does not ask for them. Counts the instructions of SQLite's virtual machine."""

from contextlib import contextmanager
from datetime import timedelta

import pytest
import sqlalchemy as sa

from moorage.core.ids import SeededIds
from moorage.db.session import write
from moorage.reservation.model.leases import EventStatus, EventType, LeaseStatus
from moorage.reservation.store.tables import (
    computehost_allocations,
    events,
    instance_reservations,
    leases,
    project_usage,
    reservations,
)
from tests.wire.reservation.plane import NOW, instance, lease
from tests.wire.reservation.test_availability import OTHER, ask, search

FEW, MANY = 50, 5000
EVERY = 100  #: number of instructions between two calls of the progress handler


def fill(plane, count, seed):
    """Writes leases of other projects on their own host: half in the past, half in the future, all within a year."""
    ids, rows = SeededIds(seed), {table: [] for table in (leases, reservations, instance_reservations, events)}
    rows |= {computehost_allocations: [], project_usage: []}
    for number in range(count):
        lease_id, reservation_id = ids.uuid(), ids.uuid()
        past = number % 2 == 0
        start = NOW + timedelta(hours=-2 * number - 4 if past else 24 + number)
        dates = {"start_date": start, "end_date": start + timedelta(hours=1)}
        made = {"created_at": NOW - timedelta(days=400) + timedelta(minutes=number)}
        rows[leases].append(
            {
                "id": lease_id, "name": f"l{number}", "user_id": "u", "project_id": f"p{number % 100}", **dates,
                "status": LeaseStatus.TERMINATED if past else LeaseStatus.PENDING, "degraded": False, **made,
            }
        )  # fmt: skip
        rows[reservations].append(
            {
                "id": reservation_id, "lease_id": lease_id, "position": 0, "resource_id": ids.uuid(),
                "resource_type": "virtual:instance", "status": "deleted" if past else "pending",
                "missing_resources": False, "resources_changed": False, **made,
            }
        )  # fmt: skip
        rows[instance_reservations].append(
            {
                "id": ids.uuid(), "reservation_id": reservation_id, "vcpus": 1, "memory_mb": 1, "disk_gb": 0,
                "amount": 1, "affinity": None, "resource_properties": "", "flavor_id": reservation_id, **made,
            }
        )  # fmt: skip
        for kind, time in ((EventType.START, dates["start_date"]), (EventType.END, dates["end_date"])):
            rows[events].append(
                {
                    "id": ids.uuid(), "lease_id": lease_id, "event_type": kind, "time": time, "attempt": 0, "epoch": 0,
                    "status": EventStatus.DONE if past else EventStatus.UNDONE, **made,
                }
            )  # fmt: skip
        usage = {"reservation_id": reservation_id, "lease_id": lease_id, "project_id": f"p{number % 100}", **dates}
        rows[project_usage].append(usage | {"amounts": {"VCPU": 1}})
        if not past:
            taken = {"VCPU": 1, "MEMORY_MB": 1}
            rows[computehost_allocations].append(
                {
                    "id": ids.uuid(), "compute_host_id": 2, "reservation_id": reservation_id, **dates,
                    "resources": taken, **made,
                }
            )  # fmt: skip
    with write(plane.engine) as connection:
        for table in (leases, reservations, instance_reservations, events, computehost_allocations, project_usage):
            connection.execute(table.insert(), rows[table])


@contextmanager
def instructions(plane):
    """[number of SQLite instructions that were executed inside this context, in units of `EVERY`]"""
    counted = [0]

    def tick():
        counted[0] += 1
        return 0

    def watch(dbapi_connection, *_):
        dbapi_connection.set_progress_handler(tick, EVERY)

    sa.event.listen(plane.engine, "checkout", watch)
    try:
        yield counted
    finally:
        sa.event.remove(plane.engine, "checkout", watch)


@pytest.fixture
def mine(plane):
    """A plane with two hosts, the second one for leases of others, and a lease of this project."""
    plane.add_host("compute-2", vcpus=64)
    plane.register("compute-1")
    plane.register("compute-2")
    body = lease(instance(resource_properties='["=", "$id", "1"]'), start="2026-03-05 10:00", end="2026-03-06 10:00")
    made = ask(plane, "POST", "/v1/leases", body, status=201)["lease"]
    fill(plane, FEW, 1)
    return plane, made


def calls(plane, made):
    """{name: call} of the calls that do not ask for all leases."""
    path = f"/v1/leases/{made['id']}"
    on_one = instance(resource_properties='["=", "$id", "1"]')
    new = lease(on_one, start="2026-03-07 10:00", end="2026-03-08 10:00")
    held = {**search(on_one), "latest_start": "2026-03-05 10:00"}

    def made_and_deleted():
        there = ask(plane, "POST", "/v1/leases", new, status=201)["lease"]
        ask(plane, "DELETE", f"/v1/leases/{there['id']}", status=204)

    def held_and_released():
        there = ask(plane, "POST", "/v1/holds", held, status=201)["hold"]
        ask(plane, "DELETE", f"/v1/holds/{there['id']}", status=204)

    return {
        "show": lambda: ask(plane, "GET", path),
        "rename": lambda: ask(plane, "PUT", path, {"name": "x"}),
        "move": lambda: [ask(plane, "PUT", path, {"end_date": f"2026-03-06 1{hour}:00"}) for hour in (1, 0)],
        "own list": lambda: ask(plane, "GET", "/v1/leases"),
        "a page of all": lambda: ask(plane, "GET", "/v1/leases?limit=5&sort_key=end_date", roles=("admin",)),
        "create and delete": made_and_deleted,
        "dry run": lambda: ask(plane, "POST", "/v1/leases/dry-run", new),
        "hold": held_and_released,
        "shortage": lambda: ask(plane, "POST", "/v1/leases", lease(instance(999)), status=409),
        "offers": lambda: ask(plane, "POST", "/v1/offers", search(on_one)),
        "hosts": lambda: ask(plane, "GET", "/v1/os-hosts", roles=("admin",)),
        "a host's allocation": lambda: ask(plane, "GET", "/v1/os-hosts/1/allocation", roles=("admin",)),
        "limits": lambda: ask(plane, "GET", "/v1/limits"),
        "runner": plane.runner.run_once,
    }


def test_the_work_of_other_calls_does_not_depend_on_the_number_of_leases(mine):
    plane, made = mine
    plane.stop_runner()

    def measured():
        taken = {}
        for what, how in calls(plane, made).items():
            how()  # the first call fills caches
            with instructions(plane) as counted:
                how()
            taken[what] = counted[0]
        return taken

    few = measured()
    fill(plane, MANY, 2)
    with plane.engine.connect() as connection:
        connection.exec_driver_sql("ANALYZE")
    many = measured()
    slower = {what: (few[what], many[what]) for what in few if many[what] > 2 * few[what] + 30}
    assert slower == {}
    ask(plane, "GET", "/v1/leases", **OTHER)
