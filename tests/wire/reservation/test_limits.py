"""Limits of reservations (B6): maximum duration, limits now and over time, an operator's own service."""

import json
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from moorage.reservation.booking.external_enforcement import DENIED
from tests.wire.reservation.plane import instance, lease
from tests.wire.reservation.test_availability import MEMBER, OTHER, ask, everything, search

DAY = {"start": "2026-03-05 00:00", "end": "2026-03-06 00:00"}


def plane_with(new_plane, **values):
    plane = new_plane(**values)
    plane.add_host()
    plane.register()
    return plane


def make(plane, amount=1, *, status=201, **values):
    answer = ask(plane, "POST", "/v1/leases", lease(instance(amount), **{**DAY, **values}), status=status)
    return answer["lease"] if status == 201 else answer["error_message"]


def test_the_duration_of_a_lease_is_limited(new_plane):
    """The limit works like MaxLeaseDurationFilter of the peer."""
    longest = {"max_lease_duration": 3600, "max_lease_duration_exempt_project_ids": "other"}
    plane = plane_with(new_plane, enforcement={"enabled_filters": "MaxLeaseDurationFilter", **longest})
    hour = {"start": "2026-03-05 00:00", "end": "2026-03-05 01:00"}
    made = make(plane, **hour)
    words = "Lease duration of 86400 seconds must be less than or equal to the maximum lease duration of 3600 seconds."
    assert make(plane, status=400) == words
    ask(plane, "POST", "/v1/leases", lease(instance(), **DAY), status=201, **OTHER)
    ask(plane, "PUT", f"/v1/leases/{made['id']}", {"end_date": "2026-03-05 02:00"}, status=400)
    ask(plane, "PUT", f"/v1/leases/{made['id']}", {"end_date": "2026-03-05 00:30"})
    ask(plane, "POST", "/v1/leases/dry-run", lease(instance(), **DAY), status=400)


def test_the_limits_apply_to_a_series_as_a_whole(new_plane):
    """The dry run checks them too, and writes no lease; both answers name the first lease beyond the limit."""
    plane = plane_with(new_plane, enforcement={"limit_hours": "VCPU=40"})
    before = everything(plane)
    series = {"every_days": 7, "count": 3}
    body = lease(instance(2), start="2026-03-05 10:00", end="2026-03-05 18:00") | series
    dry, wet = (ask(plane, "POST", f"/v1/leases/series{tail}", body, status=403) for tail in ("/dry-run", ""))
    assert dry == wet
    assert dry["error_message"].startswith(
        "The lease that starts 2026-03-19 10:00 (one of 3): The limits of the project are exceeded"
    )
    assert "0.0 are in use, and this request adds 48.0" in dry["error_message"]
    assert everything(plane)["leases"] == before["leases"]
    ask(plane, "POST", "/v1/leases/series/dry-run", body | {"count": 2})


def test_the_reserved_amount_at_any_time_is_limited(new_plane):
    plane = plane_with(new_plane, enforcement={"limits": "VCPU=4"})
    made = make(plane, 3)
    before = everything(plane)
    words = (
        "The limits of the project are exceeded: at most 4 VCPU may be reserved at any one time; from 2026-03-05 00:00 "
        "on 3 are in use, and this request adds 2. Ask for less or for another time, end or shrink other leases, or "
        "ask an administrator for a higher limit."
    )
    assert make(plane, 2, status=403) == words
    dry = ask(plane, "POST", "/v1/leases/dry-run", lease(instance(2), **DAY), status=403)
    assert dry["error_message"] == words
    assert everything(plane) == before
    make(plane, 4, start="2026-03-06 00:00", end="2026-03-07 00:00")
    ask(plane, "PUT", f"/v1/leases/{made['id']}", {"end_date": "2026-03-06 01:00"}, status=403)
    grown = {"reservations": [{"id": made["reservations"][0]["id"], "amount": 5}]}
    ask(plane, "PUT", f"/v1/leases/{made['id']}", grown, status=403)
    ask(plane, "POST", f"/v1/leases/{made['id']}/dry-run", grown, status=403)
    ask(plane, "DELETE", f"/v1/leases/{made['id']}", status=204)
    make(plane, 4)


def test_limits_over_time_count_ended_and_deleted_leases(new_plane):
    plane = plane_with(new_plane, enforcement={"limit_hours": "VCPU=48", "limit_period_days": 7})
    now = make(plane, 2, start="now", end="2026-03-02 09:30")
    plane.run_until(plane.clock.now() + timedelta(hours=12))
    ask(plane, "PUT", f"/v1/leases/{now['id']}", {"end_date": "now"})
    plane.run_for(10)
    ask(plane, "DELETE", f"/v1/leases/{now['id']}", status=204)
    assert "24.0 are in use, and this request adds 48.0" in make(plane, 2, status=403)
    make(plane, 1)
    make(plane, 2, start="2026-03-12 00:00", end="2026-03-13 00:00")


def test_an_administrator_can_set_limits_for_a_project(new_plane):
    plane = plane_with(new_plane, enforcement={"limits": "VCPU=1"})
    assert ask(plane, "GET", "/v1/limits")["limits"] == {
        "project_id": "demo", "now": {"VCPU": 1}, "hours": {}, "period_days": 30,
    }  # fmt: skip
    more = {"limits": {"now": {"VCPU": 8}}}
    assert ask(plane, "PUT", "/v1/limits/demo", more, roles=("admin",))["limits"]["now"] == {"VCPU": 8}
    make(plane, 5)
    ask(plane, "POST", "/v1/leases", lease(instance(2), **DAY), status=403, **OTHER)
    ask(plane, "PUT", "/v1/limits/demo", {"limits": None}, roles=("admin",))
    assert ask(plane, "GET", "/v1/limits")["limits"]["now"] == {"VCPU": 1}
    ask(plane, "PUT", "/v1/limits/demo", {"limits": {"now": {"VCPU": -1}}}, status=400, roles=("admin",))
    ask(plane, "PUT", "/v1/limits/demo", more, status=403)


# ------------------------------------------------------------------------------ an operator's own service


class Theirs:
    """A real HTTP server whose answers the test chooses."""

    def __init__(self):
        self.seen, self.answer = [], (204, b"")
        theirs = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                theirs.seen.append((self.path, self.headers.get("X-Auth-Token"), body))
                status, text = theirs.answer
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args):
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()

    def sections(self, **values):
        """Options of a plane that calls it; `values` are further options of [enforcement]."""
        return {
            "enforcement": {
                "enabled_filters": "ExternalServiceFilter",
                "external_service_base_endpoint": self.url,
                "external_service_token": "secret",
                **values,
            },
            "plane": {"region": "R"},
            "identity": {"keystone_url": "http://keystone/v3"},
        }


@pytest.fixture
def theirs():
    server = Theirs()
    yield server
    server.stop()


def test_an_external_service_gets_the_same_requests_as_from_blazar(new_plane, theirs):
    plane = plane_with(new_plane, **theirs.sections())
    made = make(plane, 2)
    path, token, body = theirs.seen.pop()
    assert (path, token) == ("/v1/check-create", "secret")
    assert body["context"] == {
        "user_id": "u", "project_id": "demo", "auth_url": "http://keystone/v3", "region_name": "R",
    }  # fmt: skip
    asked = body["lease"]
    assert (asked["name"], asked["start_date"], asked["end_date"]) == (
        "lease", "2026-03-05T00:00:00", "2026-03-06T00:00:00",
    )  # fmt: skip
    (reservation,) = asked["reservations"]
    assert {name: reservation[name] for name in ("resource_type", "vcpus", "memory_mb", "disk_gb", "amount")} == {
        "resource_type": "virtual:instance", "vcpus": 1, "memory_mb": 1024, "disk_gb": 10, "amount": 2,
    }  # fmt: skip
    assert [host["hypervisor_hostname"] for host in reservation["allocations"]] == ["compute-1"] * 2
    ask(plane, "PUT", f"/v1/leases/{made['id']}", {"end_date": "2026-03-07 00:00"})
    path, _, body = theirs.seen.pop()
    assert path == "/v1/check-update"
    assert (body["current_lease"]["end_date"], body["lease"]["end_date"]) == (
        "2026-03-06T00:00:00", "2026-03-07T00:00:00",
    )  # fmt: skip
    ask(plane, "PUT", f"/v1/leases/{made['id']}", {"name": "other"})
    ask(plane, "POST", "/v1/leases/dry-run", lease(instance(), **DAY))
    assert theirs.seen == [], "nothing that it would decide on"
    ask(plane, "DELETE", f"/v1/leases/{made['id']}", status=204)
    path, _, body = theirs.seen.pop()
    assert (path, body["lease"]["id"]) == ("/v1/on-end", made["id"])


def test_the_external_service_is_notified_once_of_an_end(new_plane, theirs):
    plane = plane_with(new_plane, **theirs.sections(external_service_check_create_endpoint=theirs.url + "elsewhere"))
    made = make(plane, start="now", end="2026-03-01 10:00")
    assert [path for path, _, _ in theirs.seen] == ["/v1/elsewhere"]
    plane.run_until(plane.clock.now() + timedelta(hours=1))
    assert plane.lease(made["id"])["status"] == "TERMINATED"
    ask(plane, "DELETE", f"/v1/leases/{made['id']}", status=204)
    assert [path for path, _, _ in theirs.seen] == ["/v1/elsewhere", "/v1/on-end"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((403, b'{"message": "no more hours"}'), "no more hours"),
        ((403, b"you shall not"), DENIED),
        ((403, b'["secret"]'), DENIED),
        ((500, b'{"message": "Traceback: secret"}'), DENIED),
        ((200, b""), DENIED),
        ((302, b""), DENIED),
    ],
)
def test_a_lease_refused_by_the_external_service_leaves_nothing(new_plane, theirs, answer, words):
    plane = plane_with(new_plane, **theirs.sections())
    theirs.answer = answer
    before = everything(plane)
    assert make(plane, status=400) == words
    assert everything(plane) == before


def test_a_hold_needs_the_approval_of_the_external_service(new_plane, theirs):
    """It is asked again when the hold becomes a lease, because the name and the actions may differ."""
    plane = plane_with(new_plane, **theirs.sections())
    held = ask(plane, "POST", "/v1/holds", search(instance(2)), status=201)["hold"]
    path, _, body = theirs.seen.pop()
    assert (path, body["lease"]["reservations"][0]["amount"]) == ("/v1/check-create", 2)
    ask(plane, "POST", "/v1/leases", {"name": "x", "hold_id": held["id"]}, status=201)
    assert [path for path, _, _ in theirs.seen] == ["/v1/check-create"]
    theirs.answer = (403, b'{"message": "no more hours"}')
    refused = ask(plane, "POST", "/v1/holds", search(instance(2)), status=400)
    assert refused["error_message"] == "no more hours"
    assert ask(plane, "GET", "/v1/holds") == {"holds": []}


def test_while_the_external_service_is_unavailable_leases_end_but_none_is_created(new_plane, theirs):
    plane = plane_with(new_plane, **theirs.sections())
    made = make(plane, start="now", end="2026-03-01 10:00")
    theirs.stop()
    said = make(plane, status=503)
    assert "127.0.0.1" not in said
    assert "try again" in said
    plane.run_until(plane.clock.now() + timedelta(hours=1))
    assert plane.lease(made["id"])["status"] == "TERMINATED"


def test_members_may_not_read_limits_of_other_projects(new_plane):
    plane = plane_with(new_plane)
    ask(plane, "GET", "/v1/limits/other", status=403, **MEMBER)
