"""One check for everything that keeps capacity from others: holds, whole hosts, users, the number of leases."""

from datetime import timedelta

import pytest

from tests.wire.reservation.plane import NOW, instance, lease
from tests.wire.reservation.test_availability import MEMBER, OTHER, ask, search
from tests.wire.reservation.test_host_reservations import whole
from tests.wire.reservation.test_limits import DAY, make, plane_with

HOUR = {"start": "2026-03-05 00:00", "end": "2026-03-05 01:00"}


def hold(plane, amount=1, *, status=201, minutes=60, **who):
    answer = ask(plane, "POST", "/v1/holds", search(instance(amount), minutes=minutes), status=status, **who)
    return answer["hold"] if status == 201 else answer["error_message"]


def test_a_hold_counts_for_the_limits_as_the_lease_that_it_may_become(new_plane):
    plane = plane_with(new_plane, enforcement={"limits": "VCPU=4"})
    held = hold(plane, 3)
    assert "on 3 are in use, and this request adds 2" in hold(plane, 2, status=403)
    now = {"start": "now", "end": "2026-03-01 10:00"}
    assert "on 3 are in use, and this request adds 2" in make(plane, 2, **now, status=403)
    dry = ask(plane, "POST", "/v1/leases/dry-run", lease(instance(2), **now), status=403)
    assert "on 3 are in use" in dry["error_message"]
    made = ask(plane, "POST", "/v1/leases", {"name": "x", "hold_id": held["id"]}, status=201)["lease"]
    assert "on 3 are in use, and this request adds 2" in hold(plane, 2, status=403)
    ask(plane, "DELETE", f"/v1/leases/{made['id']}", status=204)
    hold(plane, 4)


def test_a_hold_of_whole_hosts_counts_as_all_that_they_have(new_plane):
    plane = plane_with(new_plane, enforcement={"limits": "VCPU=8"})
    plane.add_host("compute-2")
    plane.register("compute-2")
    ask(plane, "POST", "/v1/holds", search(whole(), minutes=60), status=201)
    words = make(plane, 1, start="now", end="2026-03-01 10:00", status=403)
    assert "on 8 are in use, and this request adds 1" in words


def test_a_hold_may_not_last_longer_than_a_lease(new_plane):
    plane = plane_with(new_plane, enforcement={"enabled_filters": "MaxLeaseDurationFilter", "max_lease_duration": 3600})
    hold(plane, minutes=60)
    assert "maximum lease duration of 3600 seconds" in hold(plane, minutes=61, status=400)
    assert len(ask(plane, "GET", "/v1/holds")["holds"]) == 1


@pytest.fixture
def brief(new_plane):
    """Holds last ten minutes, and a project's holds half an hour in a day."""
    return plane_with(new_plane, reservation={"hold_minutes_per_day": 30})


def test_holds_cannot_be_renewed_for_ever(brief):
    for number in range(3):
        hold(brief, 8)
        brief.run_until(NOW + timedelta(minutes=11 * (number + 1)))
    refused = hold(brief, 8, status=403)
    assert "holds may last 30 minutes together in 24 hours; 30 are used, and this one would add 10" in refused
    assert ask(brief, "GET", "/v1/holds") == {"holds": []}
    hold(brief, 8, **OTHER)
    brief.run_until(NOW + timedelta(hours=24, minutes=9))
    assert "21 are used" in hold(brief, 8, status=403)
    brief.run_until(NOW + timedelta(hours=24, minutes=10))
    hold(brief, 8)


def test_a_released_hold_counts_as_long_as_it_lasted_but_at_least_a_minute(brief):
    for _ in range(20):
        ask(brief, "DELETE", f"/v1/holds/{hold(brief)['id']}", status=204)
    hold(brief)
    assert "30 are used" in hold(brief, status=403)


def test_a_hold_that_becomes_a_lease_does_not_count(brief):
    for number in range(4):
        held = hold(brief)
        ask(brief, "POST", "/v1/leases", {"name": f"{number}", "hold_id": held["id"]}, status=201)
    hold(brief)


def test_the_holds_of_a_user_are_limited_over_all_projects(new_plane):
    plane = plane_with(new_plane, reservation={"max_holds": 2, "hold_minutes_per_day": -1})
    hold(plane)
    hold(plane, project="second")
    refused = hold(plane, project="third", status=403)
    assert refused.startswith("The limits of the user are exceeded: at most 2 holds at a time; 2 exist")


def test_a_user_is_limited_over_all_projects_and_beside_other_users(new_plane):
    plane = plane_with(new_plane, enforcement={"limits": "VCPU=6", "user_limits": "VCPU=4"})
    made = make(plane, 3)
    body = lease(instance(2), **DAY)
    for who in ({}, {"project": "second"}):
        refused = ask(plane, "POST", "/v1/leases", body, status=403, **who)["error_message"]
        assert refused.startswith("The limits of the user are exceeded: at most 4 VCPU")
        assert "3 are in use, and this request adds 2" in refused
    ask(plane, "POST", "/v1/leases", body, status=201, user="colleague")
    refused = ask(plane, "POST", "/v1/leases", body, status=403, user="colleague")["error_message"]
    assert refused.startswith("The limits of the project are exceeded: at most 6 VCPU")
    grown = {"reservations": [{"id": made["reservations"][0]["id"], "amount": 4}]}
    changed = ask(plane, "PUT", f"/v1/leases/{made['id']}", grown)["lease"]
    assert changed["reservations"][0]["amount"] == 4


def test_an_update_by_an_administrator_counts_for_the_user_of_the_lease(new_plane):
    plane = plane_with(new_plane, enforcement={"user_limits": "VCPU=4"})
    made = make(plane, 3)
    grown = {"reservations": [{"id": made["reservations"][0]["id"], "amount": 5}]}
    as_admin = {"user": "root", "project": "admin", "roles": ("admin",)}
    words = ask(plane, "PUT", f"/v1/leases/{made['id']}", grown, status=403, **as_admin)["error_message"]
    assert "3 are in use, and this request adds 2" in words


def test_an_administrator_can_set_limits_for_a_user(new_plane):
    plane = plane_with(new_plane, enforcement={"user_limits": "VCPU=1"})
    expected = {"user_id": "u", "now": {"VCPU": 1}, "hours": {}, "period_days": 30}
    assert ask(plane, "GET", "/v1/user-limits")["limits"] == expected
    more = {"limits": {"now": {"VCPU": 2}}}
    ask(plane, "PUT", "/v1/user-limits/u", more, status=403)
    ask(plane, "GET", "/v1/user-limits/x", status=403)
    assert ask(plane, "PUT", "/v1/user-limits/u", more, roles=("admin",))["limits"]["now"] == {"VCPU": 2}
    make(plane, 2)
    ask(plane, "POST", "/v1/leases", lease(instance(2), **DAY), status=403, **OTHER)
    assert ask(plane, "GET", "/v1/user-limits/u", roles=("admin",))["limits"]["now"] == {"VCPU": 2}


@pytest.mark.parametrize("name", ["VCPU", "MEMORY_MB", "DISK_GB"])
def test_whole_hosts_count_as_all_that_they_have(new_plane, name):
    size = {"VCPU": 8, "MEMORY_MB": 16384, "DISK_GB": 100}[name]
    plane = plane_with(new_plane, enforcement={"limits": f"{name}={size - 1}"})
    refused = ask(plane, "POST", "/v1/leases", lease(whole(), **DAY), status=403)["error_message"]
    assert f"0 are in use, and this request adds {size}" in refused
    ask(plane, "PUT", "/v1/limits/demo", {"limits": {"now": {name: size}}}, roles=("admin",))
    made = ask(plane, "POST", "/v1/leases", lease(whole(), **DAY), status=201)["lease"]
    ask(plane, "PUT", f"/v1/leases/{made['id']}", {"start_date": "2026-03-04 00:00"})


def test_the_hours_of_whole_hosts_are_limited_in_vcpu(new_plane):
    plane = plane_with(new_plane, enforcement={"limit_hours": "VCPU=100"})
    refused = ask(plane, "POST", "/v1/leases", lease(whole(), **DAY), status=403)["error_message"]
    assert "0.0 are in use, and this request adds 192.0" in refused


def test_the_number_of_leases_and_holds_is_limited(new_plane):
    plane = plane_with(new_plane, enforcement={"limits": "LEASES=2"})
    first = make(plane, **HOUR)
    hold(plane)
    for refused in (make(plane, **DAY, status=403), hold(plane, status=403)):
        assert refused.startswith("The limits of the project are exceeded: at most 2 leases and holds may exist")
        assert "2 exist, and this request adds 1" in refused
    dry = ask(plane, "POST", "/v1/leases/dry-run", lease(instance(), **DAY), status=403)
    assert "2 exist, and this request adds 1" in dry["error_message"]
    ask(plane, "PUT", f"/v1/leases/{first['id']}", {"end_date": "2026-03-05 02:00"})
    ask(plane, "DELETE", f"/v1/leases/{first['id']}", status=204)
    series = lease(instance(), **HOUR) | {"every_days": 7, "count": 2}
    refused = ask(plane, "POST", "/v1/leases/series", series, status=403)["error_message"]
    assert "1 exist, and this request adds 2" in refused
    make(plane, **HOUR)


def test_leases_that_have_ended_do_not_count_for_the_number(new_plane):
    plane = plane_with(new_plane, enforcement={"limits": "LEASES=1"})
    made = make(plane, start="now", end="2026-03-01 10:00")
    plane.run_until(NOW + timedelta(hours=1))
    assert plane.lease(made["id"])["status"] == "TERMINATED"
    make(plane)


def test_a_request_that_adds_nothing_is_within_a_limit_that_was_lowered(new_plane):
    plane = plane_with(new_plane)
    made = make(plane, 5)
    ask(plane, "PUT", "/v1/limits/demo", {"limits": {"now": {"VCPU": 2}}}, roles=("admin",))

    def change(body, status=200):
        return ask(plane, "PUT", f"/v1/leases/{made['id']}", body, status=status)

    reservation = made["reservations"][0]["id"]
    change({"reservations": [{"id": reservation, "amount": 4}]})
    change({"end_date": "2026-03-05 20:00"})
    change({"reservations": [{"id": reservation, "amount": 5}]}, status=403)
    change({"end_date": "2026-03-05 21:00"}, status=403)
    assert ask(plane, "GET", f"/v1/leases/{made['id']}", **MEMBER)["lease"]["reservations"][0]["amount"] == 4
