"""Recurring leases, maintenance windows and early release (B4, B5, B7)."""

from datetime import timedelta

import pytest

from moorage.core.errors import RemoteError
from tests.wire.reservation.plane import instance, lease
from tests.wire.reservation.processes import CREATE_FLAVOR
from tests.wire.reservation.test_availability import OTHER, ask, book, everything, period, search

WEEKLY = {"every_days": 7, "count": 3}
OPERATOR = {"user": "admin", "project": "ops", "roles": ("admin",)}


def series(amount=8, **more):
    return lease(instance(amount), start="2026-03-05 10:00", end="2026-03-05 18:00") | WEEKLY | more


def test_a_series_creates_one_lease_per_repetition(reserved):
    body = series(before_end_date="2026-03-05 17:30")
    made = ask(reserved, "POST", "/v1/leases/series", body, status=201)["leases"]
    assert [each["name"] for each in made] == ["lease 1/3", "lease 2/3", "lease 3/3"]
    assert [period(each)[0] for each in made] == ["2026-03-05T10:00", "2026-03-12T10:00", "2026-03-19T10:00"]
    assert [period(each)[1] for each in made] == ["2026-03-05T18:00", "2026-03-12T18:00", "2026-03-19T18:00"]
    assert [each["events"][1]["time"][:16] for each in made] == [
        "2026-03-05T17:30", "2026-03-12T17:30", "2026-03-19T17:30",
    ]  # fmt: skip
    assert {each["status"] for each in made} == {"PENDING"}
    ask(reserved, "DELETE", f"/v1/leases/{made[1]['id']}", status=204)
    assert len(ask(reserved, "GET", "/v1/leases")["leases"]) == 2


def test_a_series_is_created_completely_or_not_at_all(reserved):
    book(reserved, 1, "12 12:00", "12 13:00", **OTHER)
    before = everything(reserved)
    said = ask(reserved, "POST", "/v1/leases/series", series(), status=409)["error_message"]
    assert said.startswith("The lease that starts 2026-03-12 10:00 (one of 3): Not enough hosts available")
    assert everything(reserved)["leases"] == before["leases"]
    assert everything(reserved)["computehost_allocations"] == before["computehost_allocations"]


def test_a_dry_run_of_a_series_shows_each_lease_and_writes_nothing(reserved):
    book(reserved, 6, "12 00:00", "13 00:00", **OTHER)
    before = everything(reserved)
    body = series(2, before_end_date="2026-03-05 17:30", before_end_actions=[{"action": "snapshot"}])
    said = ask(reserved, "POST", "/v1/leases/series/dry-run", body, roles=("admin",))["leases"]
    chosen = {"resource_type": "virtual:instance", "slots": 2, "hosts": 1, "on": {"compute-1": 2}}
    assert said == [
        {
            "name": f"lease {number + 1}/3",
            "start_date": f"2026-03-{day}T10:00:00.000000",
            "end_date": f"2026-03-{day}T18:00:00.000000",
            "before_end_date": f"2026-03-{day}T17:30:00.000000",
            "before_end_actions": [{"action": "snapshot"}],
            "reservations": [chosen],
        }
        for number, day in enumerate(("05", "12", "19"))
    ]
    assert "on" not in ask(reserved, "POST", "/v1/leases/series/dry-run", body)["leases"][0]["reservations"][0]
    mail = series(1, before_end_actions=[{"action": "email", "to": "a@example.com"}])
    refused = [(series(3), 409), (mail, 400)]
    dry = [ask(reserved, "POST", "/v1/leases/series/dry-run", body, status=status) for body, status in refused]
    assert dry[0]["error_message"].startswith(
        "The lease that starts 2026-03-12 10:00 (one of 3): Not enough hosts available"
    )
    assert everything(reserved) == before
    assert dry == [ask(reserved, "POST", "/v1/leases/series", body, status=status) for body, status in refused]


def test_a_series_that_fails_in_another_service_leaves_nothing(reserved):

    def before(call):
        if call.name == CREATE_FLAVOR and failing.asked.count(CREATE_FLAVOR) == 2:
            raise RemoteError("away", status=503)

    failing = reserved.new_process(before=before)
    reserved.use(failing)
    ask(reserved, "POST", "/v1/leases/series", series(), status=503)
    reserved.use()
    reserved.run_for(90)
    assert ask(reserved, "GET", "/v1/leases") == {"leases": []}
    assert ask(reserved, "POST", "/v1/offers", search(instance(8)))["offers"][0]["start_date"].startswith("2026-03-01")


@pytest.mark.parametrize(
    "more", [{"count": 0}, {"count": 101}, {"every_days": 0}, {"end_date": "2026-03-20 10:00"}, {"every_days": "7"}]
)
def test_an_invalid_series_is_refused(shared, more):
    ask(shared, "POST", "/v1/leases/series", series(**more), status=400)


def test_a_series_must_be_within_the_calendar(reserved):
    body = series() | {"start_date": "9999-12-30 10:00", "end_date": "9999-12-30 11:00"}
    assert "9000-01-01" in ask(reserved, "POST", "/v1/leases/series", body, status=400)["error_message"]


def maintenance(*hosts, **more):
    return {"name": "repair", "start_date": "2026-03-05 00:00", "end_date": "2026-03-06 00:00", "hosts": hosts, **more}


def test_a_maintenance_reserves_whole_hosts(reserved):
    reserved.add_host("compute-2")
    reserved.register("compute-2")
    made = ask(reserved, "POST", "/v1/maintenance", maintenance("compute-1"), status=201, **OPERATOR)["lease"]
    assert made["reservations"][0]["resource_type"] == "physical:host"
    day = {"start": "2026-03-05 10:00", "end": "2026-03-05 11:00"}
    ask(reserved, "POST", "/v1/leases", lease(instance(8), **day), status=201)
    ask(reserved, "POST", "/v1/leases", lease(instance(1), **day), status=409)
    held = reserved.ask("GET", "/v1/os-hosts/1/allocation")["allocation"]["reservations"]
    assert [each["lease_id"] for each in held] == [made["id"]]


def test_a_maintenance_names_the_affected_leases(reserved):
    touched = book(reserved, 1, "05 12:00", "05 13:00", project="demo")
    book(reserved, 1, "06 00:00", "06 13:00")
    before = everything(reserved)
    said = ask(reserved, "POST", "/v1/maintenance", maintenance("compute-1"), status=409, **OPERATOR)
    assert (
        said["error_message"]
        == f"The hosts are not free in that period; leases on them: lease ({touched['id']}) of project demo"
    )
    listed = ask(reserved, "POST", "/v1/maintenance/dry-run", maintenance("compute-1"), **OPERATOR)["leases"]
    assert [(each["id"], each["project_id"], each["status"]) for each in listed] == [(touched["id"], "demo", "PENDING")]
    assert everything(reserved) == before
    ask(reserved, "POST", "/v1/maintenance", maintenance("nowhere"), status=404, **OPERATOR)
    ask(reserved, "POST", "/v1/maintenance", maintenance("compute-1"), status=403)


def test_an_early_end_frees_its_capacity_at_once(reserved):
    """B7: the capacity is free even before the servers are deleted and the end is complete."""
    made = book(reserved, 8, "01 09:30", "05 00:00")
    reserved.settle()
    flavor = made["reservations"][0]["flavor_id"]
    reserved.run_until(reserved.clock.now() + timedelta(minutes=5))
    server = reserved.boot("s", flavor)
    reserved.stop_runner()
    refused = lease(instance(8), start="2026-03-01 09:36", end="2026-03-02 00:00")
    ask(reserved, "POST", "/v1/leases", refused, status=409, **OTHER)
    ended = ask(reserved, "PUT", f"/v1/leases/{made['id']}", {"end_date": "now"})["lease"]
    assert period(ended)[1] == "2026-03-01T09:35"
    assert reserved.server(server) is not None
    ask(reserved, "POST", "/v1/leases", refused, status=201, **OTHER)
