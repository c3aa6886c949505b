"""Deleted leases can be read for a time, by their project and by administrators."""

from datetime import timedelta

import pytest

from moorage.core.errors import RemoteError
from tests.plane import failing
from tests.wire.reservation.plane import NOW, instance, lease
from tests.wire.reservation.test_availability import OTHER, ask
from tests.wire.reservation.test_host_reservations import whole
from tests.wire.reservation.test_limits import DAY, make


def gone(plane, lease_id, status=200, **who):
    return ask(plane, "GET", f"/v1/deleted-leases/{lease_id}", status=status, **who)


def listed(plane, query="", **who):
    return [each["id"] for each in ask(plane, "GET", f"/v1/deleted-leases{query}", **who)["leases"]]


@pytest.mark.parametrize("reservation", [instance(3), whole(), instance(2, affinity=True)])
def test_a_deleted_lease_shows_who_held_what_and_its_timeline(reserved, reservation):
    body = lease(reservation, start="now", end="2026-03-01 12:00", name="course")
    made = ask(reserved, "POST", "/v1/leases", body, status=201)["lease"]
    reserved.run_for(5)
    before = ask(reserved, "GET", f"/v1/leases/{made['id']}")["lease"]
    assert before["status"] == "ACTIVE"
    ask(reserved, "DELETE", f"/v1/leases/{made['id']}", status=204)
    reserved.run_for(5)
    shown = gone(reserved, made["id"])
    for name in ("id", "name", "user_id", "project_id", "start_date", "end_date"):
        assert shown["lease"][name] == before[name]
    unchanging = {"status", "updated_at", "missing_resources", "resources_changed"}
    for then, now in zip(before["reservations"], shown["lease"]["reservations"], strict=True):
        assert {key: now[key] for key in then.keys() - unchanging} == {
            key: then[key] for key in then.keys() - unchanging
        }
    assert shown["lease"]["status"] == "DELETED"
    assert shown["lease"]["deleted_at"].startswith("2026-03-01 09:30:")
    events = {event["event_type"]: event for event in shown["timeline"]}
    assert events["start_lease"]["status"] == events["delete_lease"]["status"] == "DONE"
    assert events["start_lease"]["steps"]
    assert [event["event_type"] for event in shown["timeline"]][:2] == ["create_lease", "start_lease"]


def test_clients_of_leases_see_nothing_of_deleted_ones(reserved):
    made = make(reserved)
    ask(reserved, "DELETE", f"/v1/leases/{made['id']}", status=204)
    for version in ("1.0", "1.1"):
        who = {"version": version, "roles": ("member",)}
        assert reserved.ask("GET", "/v1/leases", **who)["leases"] == []
        reserved.ask("GET", f"/v1/leases/{made['id']}", status=404, **who)
    reserved.ask("GET", f"/v1/deleted-leases/{made['id']}", status=404, version="1.0")


def test_strangers_do_not_find_a_deleted_lease(reserved):
    made = make(reserved)
    gone(reserved, made["id"], status=404)
    ask(reserved, "DELETE", f"/v1/leases/{made['id']}", status=204)
    gone(reserved, made["id"], status=404, **OTHER)
    assert listed(reserved, **OTHER) == []
    assert listed(reserved, "?project_id=demo", **OTHER) == []
    as_admin = {"user": "root", "project": "admin", "roles": ("admin",)}
    assert gone(reserved, made["id"], **as_admin)["lease"]["user_id"] == "u"
    assert listed(reserved, **as_admin) == [made["id"]]
    assert listed(reserved, "?project_id=other", **as_admin) == []


def test_deleted_leases_are_listed_in_pages_the_last_one_first(reserved):
    ids = [make(reserved)["id"] for _ in range(3)]
    for lease_id in ids:
        ask(reserved, "DELETE", f"/v1/leases/{lease_id}", status=204)
        reserved.run_for(1)
    first = ask(reserved, "GET", "/v1/deleted-leases?limit=2")
    assert [each["id"] for each in first["leases"]] == [ids[2], ids[1]]
    assert f"marker={ids[1]}" in first["leases_links"][0]["href"]
    assert listed(reserved, f"?limit=2&marker={ids[1]}") == [ids[0]]
    ask(reserved, "GET", "/v1/deleted-leases?marker=nothing", status=400)


def test_deleted_leases_are_kept_for_the_configured_days(new_plane):
    plane = new_plane(reservation={"keep_deleted_days": 2})
    plane.add_host()
    plane.register()
    old, young = make(plane), make(plane)
    ask(plane, "DELETE", f"/v1/leases/{old['id']}", status=204)
    plane.run_until(NOW + timedelta(days=1, hours=23))
    gone(plane, old["id"])
    plane.run_until(NOW + timedelta(days=2, minutes=1))
    gone(plane, old["id"], status=404)
    assert listed(plane) == []
    ask(plane, "DELETE", f"/v1/leases/{young['id']}", status=204)
    assert listed(plane) == [young["id"]]


def test_a_lease_whose_creation_failed_was_never_held(reserved):
    error = RemoteError("no", status=500)
    reserved.cloud.ways["compute"].on("POST /v2.1/flavors", failing(error), times=99)
    ask(reserved, "POST", "/v1/leases", lease(instance(), **DAY), status=503)
    reserved.run_for(600)
    assert listed(reserved) == []
