"""Offers, holds, dry runs and prolongations on the wire (U9, B1, B2, B3)."""

from datetime import timedelta

import pytest

from moorage.db.session import read
from moorage.reservation.store import hold_store
from tests.wire.reservation.plane import NOW, instance, lease

MEMBER = {"user": "u", "roles": ("member",)}
OTHER = {"user": "x", "project": "other", "roles": ("member",)}


def ask(plane, method, path, body=None, *, status=200, **who):
    return plane.ask(method, path, body, status=status, version="1.1", **{**MEMBER, **who})


def search(*reservations, minutes=120, **more):
    return {"duration_minutes": minutes, "reservations": list(reservations) or [instance(4)], **more}


def book(plane, amount, start, end, **who):
    body = lease(instance(amount), start=f"2026-03-{start}", end=f"2026-03-{end}")
    return ask(plane, "POST", "/v1/leases", body, status=201, **who)["lease"]


@pytest.fixture
def busy(new_plane):
    """A plane where 6 of 8 CPUs are reserved on 2 March, and all of them on 3 March."""
    return new_plane(_busy)


@pytest.fixture(scope="module")
def shared_busy(new_shared):
    """Like `busy`; one plane per module, for tests that only search for offers."""
    return new_shared(_busy)


def _busy(plane):
    plane.add_host()
    plane.register()
    book(plane, 6, "02 00:00", "03 00:00", project="other")
    book(plane, 8, "03 00:00", "04 00:00", project="other")


def period(offer):
    return offer["start_date"][:16], offer["end_date"][:16]


def test_the_next_slot_is_offered(shared_busy):
    found = ask(shared_busy, "POST", "/v1/offers", search(minutes=24 * 60))
    assert [period(each) for each in found["offers"]] == [("2026-03-04T00:00", "2026-03-05T00:00")]
    assert found["earliest_start"]["free"] == 2
    assert "4 instances" in found["earliest_start"]["reason"]


def test_an_offer_that_starts_at_once_has_no_reason(shared_busy):
    found = ask(shared_busy, "POST", "/v1/offers", search())
    assert [period(each) for each in found["offers"]] == [("2026-03-01T09:30", "2026-03-01T11:30")]
    assert "earliest_start" not in found


def test_several_offers_do_not_overlap(shared_busy):
    found = ask(shared_busy, "POST", "/v1/offers", search(minutes=12 * 60, limit=3, earliest_start="2026-03-01 11:00"))
    assert [period(each)[0] for each in found["offers"]] == ["2026-03-01T11:00", "2026-03-04T00:00", "2026-03-04T12:00"]


@pytest.mark.parametrize(
    ("wanted", "offers"),
    [
        (search(earliest_start="2026-03-02 00:00", latest_start="2026-03-03 23:59"), []),
        (search(instance(9)), []),
        (search(instance(2, affinity=False)), []),
        (search(instance(2, resource_properties='["=", "$id", "7"]')), []),
        (search(instance(2), earliest_start="2026-03-02 00:00"), ["2026-03-02T00:00"]),
        (search(instance(1), instance(2), earliest_start="2026-03-02 00:00"), ["2026-03-04T00:00"]),
    ],
)
def test_offers_are_within_the_requested_period(shared_busy, wanted, offers):
    found = ask(shared_busy, "POST", "/v1/offers", wanted)
    assert [period(each)[0] for each in found["offers"]] == offers


@pytest.mark.parametrize(
    "wanted",
    [
        {"reservations": [instance()]},
        search(minutes=0),
        search(minutes="60"),
        search(minutes=10**9),
        search() | {"reservations": []},
        search(limit=1000),
        search(earliest_start="soon"),
        search(earliest_start="2026-03-05 00:00", latest_start="2026-03-04 00:00"),
        search(latest_start="2030-01-01 00:00"),
        search(instance(vcpus=0, memory_mb=0, disk_gb=0)),
        search(colour="red"),
    ],
)
def test_an_invalid_search_is_refused(shared_busy, wanted):
    assert ask(shared_busy, "POST", "/v1/offers", wanted, status=400)["error_message"]


def test_a_hold_reserves_its_slot_until_it_expires(busy):
    held = ask(busy, "POST", "/v1/holds", search(instance(8), minutes=60), status=201)["hold"]
    assert period(held) == ("2026-03-01T09:30", "2026-03-01T10:30")
    assert held["expires_at"] == "2026-03-01T09:40:20.000000"
    found = ask(busy, "POST", "/v1/offers", search(instance(1)), **OTHER)
    assert period(found["offers"][0])[0] == "2026-03-01T10:30"
    refused = ask(busy, "POST", "/v1/leases", lease(instance(1), end="2026-03-01 10:00"), status=409, **OTHER)
    assert "from 2026-03-01 10:30 on" in refused["error_message"]
    busy.run_until(NOW + timedelta(minutes=11))
    found = ask(busy, "POST", "/v1/offers", search(instance(1)), **OTHER)
    assert period(found["offers"][0])[0] == "2026-03-01T09:41"
    assert ask(busy, "GET", "/v1/holds") == {"holds": []}
    ask(busy, "GET", f"/v1/holds/{held['id']}", status=404)
    late = {"name": "late", "hold_id": held["id"]}
    assert "not found" in ask(busy, "POST", "/v1/leases", late, status=404)["error_message"]


def test_a_hold_becomes_a_lease(busy):
    held = ask(busy, "POST", "/v1/holds", search(instance(8), minutes=60), status=201)["hold"]
    made = ask(busy, "POST", "/v1/leases", {"name": "course", "hold_id": held["id"]}, status=201)["lease"]
    assert (made["name"], *period(made)) == ("course", *period(held))
    assert made["reservations"][0]["amount"] == 8
    with read(busy.engine) as connection:
        assert hold_store.usages(connection, busy.clock.now()) == []
    ask(busy, "POST", "/v1/leases", {"name": "again", "hold_id": held["id"]}, status=404)
    assert len(ask(busy, "GET", "/v1/leases")["leases"]) == 1
    refused = ask(busy, "POST", "/v1/leases", lease(instance(1), end="2026-03-01 10:00"), status=409, **OTHER)
    assert "0 fit" in refused["error_message"]


def test_a_hold_may_be_used_after_its_start(busy):
    held = ask(busy, "POST", "/v1/holds", search(instance(8), minutes=60), status=201)["hold"]
    busy.run_until(NOW + timedelta(minutes=5))
    made = ask(busy, "POST", "/v1/leases", {"name": "course", "hold_id": held["id"]}, status=201)["lease"]
    assert period(made) == ("2026-03-01T09:35", "2026-03-01T10:30")


def test_a_hold_can_be_released(busy):
    held = ask(busy, "POST", "/v1/holds", search(instance(8)), status=201)["hold"]
    assert [each["id"] for each in ask(busy, "GET", "/v1/holds")["holds"]] == [held["id"]]
    ask(busy, "DELETE", f"/v1/holds/{held['id']}", status=204)
    found = ask(busy, "POST", "/v1/offers", search(instance(8)), **OTHER)
    assert period(found["offers"][0])[0] == "2026-03-01T09:30"


def test_the_holds_of_a_project_are_limited(busy):
    for _ in range(10):
        ask(busy, "POST", "/v1/holds", search(instance(memory_mb=1, disk_gb=0)), status=201)
    refused = ask(busy, "POST", "/v1/holds", search(instance()), status=403)
    assert "10 holds" in refused["error_message"]
    ask(busy, "POST", "/v1/holds", search(instance()), status=201, **OTHER)
    busy.run_until(NOW + timedelta(minutes=11))
    ask(busy, "POST", "/v1/holds", search(instance()), status=201)


def test_a_refused_hold_has_a_reason(busy):
    refused = ask(busy, "POST", "/v1/holds", search(instance(9)), status=409)
    assert "9 instances" in refused["error_message"]


def test_only_its_project_can_see_and_use_a_hold(busy):
    """LP#2120655"""
    held = ask(busy, "POST", "/v1/holds", search(), status=201)["hold"]
    assert ask(busy, "GET", "/v1/holds", **OTHER) == {"holds": []}
    for method, path, body in (
        ("GET", f"/v1/holds/{held['id']}", None),
        ("DELETE", f"/v1/holds/{held['id']}", None),
        ("POST", "/v1/leases", {"name": "x", "hold_id": held["id"]}),
    ):
        ask(busy, method, path, body, status=404, **OTHER)
    ask(busy, "POST", "/v1/holds", search(), status=403, roles=("reader",))


def everything(plane):
    with read(plane.engine) as connection:
        tables = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars().all()
        return {name: connection.exec_driver_sql(f"SELECT * FROM {name}").all() for name in tables}


def test_a_dry_run_shows_the_chosen_hosts_and_writes_nothing(busy):
    body = lease(instance(2), start="2026-03-02 10:00", end="2026-03-02 12:00")
    wet = ask(busy, "POST", "/v1/leases", body | {"reservations": [instance(3)]}, status=409)
    before = everything(busy)
    said = ask(busy, "POST", "/v1/leases/dry-run", body)["lease"]
    assert said == {
        "name": "lease",
        "start_date": "2026-03-02T10:00:00.000000",
        "end_date": "2026-03-02T12:00:00.000000",
        "before_end_date": "2026-03-02T11:00:00.000000",
        "before_end_actions": [],
        "reservations": [{"resource_type": "virtual:instance", "slots": 2, "hosts": 1}],
    }
    operator = ask(busy, "POST", "/v1/leases/dry-run", body, roles=("admin",))["lease"]
    assert operator["reservations"][0]["on"] == {"compute-1": 2}
    dry = ask(busy, "POST", "/v1/leases/dry-run", body | {"reservations": [instance(3)]}, status=409)
    assert dry == wet
    assert "2 fit" in dry["error_message"]
    ask(busy, "POST", "/v1/leases/dry-run", body | {"end_date": "2026-03-01 10:00"}, status=400)
    assert everything(busy) == before


def test_a_dry_run_of_an_update(busy):
    made = book(busy, 2, "02 10:00", "02 12:00")
    before = everything(busy)
    path, reservation = f"/v1/leases/{made['id']}/dry-run", made["reservations"][0]["id"]
    assert ask(busy, "POST", path, {"name": "other"})["lease"]["reservations"] == []
    said = ask(busy, "POST", path, {"reservations": [{"id": reservation, "amount": 1}]})["lease"]
    assert said["reservations"][0] | {"id": ""} == {
        "id": "",
        "resource_type": "virtual:instance",
        "slots": 1,
        "hosts": 1,
        "added": {"slots": 0, "hosts": 0},
        "removed": {"slots": 1, "hosts": 1},
    }
    ask(busy, "POST", path, {"end_date": "2026-03-03 10:00"}, status=409)
    ask(busy, "POST", path, {"start_date": "2026-02-02 10:00"}, status=400)
    ask(busy, "POST", path, {"name": "x"}, status=403, **OTHER)
    assert everything(busy) == before


def test_the_latest_possible_end_of_a_lease_is_shown(busy):
    made = book(busy, 2, "02 10:00", "02 12:00")
    path = f"/v1/leases/{made['id']}"
    found = ask(busy, "GET", f"{path}/prolongation")["prolongation"]
    assert found == {
        "end_date": "2026-03-02T12:00:00.000000",
        "latest_end_date": "2026-03-03T00:00:00.000000",
        "limited": True,
    }
    ask(busy, "PUT", path, {"end_date": "2026-03-03 00:01"}, status=409)
    ask(busy, "PUT", path, {"end_date": "2026-03-03 00:00"})
    assert ask(busy, "GET", f"{path}/prolongation")["prolongation"]["latest_end_date"] == "2026-03-03T00:00:00.000000"
    free = book(busy, 2, "05 10:00", "05 12:00")
    found = ask(busy, "GET", f"/v1/leases/{free['id']}/prolongation")["prolongation"]
    assert (found["limited"], found["latest_end_date"]) == (False, "2026-06-03T12:00:00.000000")
    ask(busy, "GET", f"{path}/prolongation", status=403, **OTHER)


def test_these_routes_do_not_exist_before_1_1(busy):
    for method, path in (("POST", "/v1/offers"), ("GET", "/v1/holds"), ("POST", "/v1/holds")):
        assert busy.answer(method, path, search(), **MEMBER)[0] == 404
    made = book(busy, 1, "02 10:00", "02 12:00")
    assert busy.answer("GET", f"/v1/leases/{made['id']}/prolongation", **MEMBER)[0] == 404
    status, answer = busy.answer("POST", "/v1/leases", {"name": "x", "hold_id": "y"}, **MEMBER)
    assert (status, answer["error_message"]) == (400, "Missing parameter start_date, end_date")
