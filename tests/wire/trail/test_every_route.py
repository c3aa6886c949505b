"""Every changing route of every service writes an entry, with any answer; no other route does."""

import re

import pytest

from moorage import rehearsal
from moorage.accelerator.api import routes as accelerator
from moorage.accelerator.host import agent_api
from moorage.agent import control
from moorage.compute.api import routes as compute
from moorage.core.ids import SeededIds
from moorage.dashboard import routes as dashboard
from moorage.identity.api import routes as identity
from moorage.images import routes as images
from moorage.placement.api import routes as placement
from moorage.reservation.api import routes as reservation
from moorage.telemetry.trail import Trail, TrailFile
from moorage.wire.transports import InProcessTransport

#: {prefix: routes}
TABLES = {
    "identity": identity.API.routes,
    "placement": placement.API.routes,
    "image": images.API.routes,
    "compute": compute.API.routes,
    "accelerator": accelerator.API.routes,
    "reservation": reservation.API.routes,
    "moorage": rehearsal.API.routes,
    "ui": dashboard.ROUTES,
}
SERVICE = {"moorage": "rehearsal", "ui": "dashboard"}

ROUTES = list(
    {
        (prefix, route.method, route.path): (prefix, route) for prefix, table in TABLES.items() for route in table
    }.values()
)
CHANGES = [row for row in ROUTES if row[1].is_change]
READS = [row for row in ROUTES if not row[1].is_change]

#: Routes with changing methods that change nothing: searches, dry runs and explanations need a body, and the dashboard's
#: audit reads all services. The theme is the browser's own, and the address of a provider's page signs nobody in.
QUESTIONS = {
    "POST /moorage/v1/oidc/authorizations",
    "POST /v1/leases/dry-run",
    "POST /v1/leases/{lease_id}/dry-run",
    "POST /v1/leases/series/dry-run",
    "POST /v1/maintenance/dry-run",
    "POST /v1/offers",
    "POST /moorage/v1/explain-server",
    "POST /audit",
    "POST /theme",
}
ROUTINE = {
    "PUT /agent/v1/hosts/{host}",
    "POST /agent/v1/hosts/{host}/jobs",
    "PUT /agent/v1/hosts/{host}/domains",
    "POST /agent/v1/hosts/{host}/epoch",
    "PUT /agent/v1/hosts/{host}/device-faults",
    "PUT /agent/v1/hosts/{host}/devices",
    "PUT /agent/v1/hosts/{host}/attachments",
    "POST /agent/v1/hosts/{host}/history",
    "POST /moorage/v1/hosts/{host}/tokens",
}
ID = "0e2a6bcd-1f7c-4b0f-9d7e-6a1d6c5b4a30"


def name_of(row):
    return f"{row[0]} {row[1].method} {row[1].path}"


def version_of(prefix, route):
    """A version that has the route."""
    last = {"placement": "1.39", "compute": "2.96", "accelerator": "2.3", "reservation": "1.1"}.get(prefix)
    return str(route.until) if route.until is not None and last is not None else last


def path_of(prefix, route):
    return f"/{prefix}" + re.sub(r"\{\w+\}", ID, route.path)


def test_only_reads_and_routine_requests_of_agents_have_no_entry():
    left_out = {
        f"{route.method} {route.path}"
        for _, route in ROUTES
        if route.method not in ("GET", "HEAD") and not route.is_change
    }
    assert left_out == QUESTIONS
    assert {f"{route.method} {route.path}" for _, route in ROUTES if route.effect == "routine"} == ROUTINE


@pytest.mark.parametrize("row", CHANGES, ids=name_of)
def test_a_changing_route_writes_one_entry_with_any_answer(trailed, row):
    for user, body in ((None, {}), ("demo", {}), ("admin", {}), ("admin", {"nonsense": {}})):
        judge(trailed, *row, user, body)


def judge(trailed, prefix, route, user, body):
    if user:
        trailed.token(user)
    version = version_of(prefix, route)
    answer, noted = trailed.noted(route.method, path_of(prefix, route), body, user=user, version=version)
    (entry,) = noted
    assert entry["route"] == f"{route.method} {route.path.removesuffix('.json')}"
    assert entry["observer"]["typeURI"] == f"service/{SERVICE.get(prefix, prefix)}"
    assert entry["reason"]["reasonCode"] == str(answer.status)
    assert entry["outcome"] == ("success" if answer.status < 400 else "failure")
    assert entry["initiator"]["host"] == {"address": "127.0.0.1"}
    if route.rule is not None:
        assert route.rule in entry["action"]
        assert entry["initiator"].get("name") == user
        assert (user is None) == (answer.status == 401)
    if "{" in route.path:
        assert entry["target"]["id"] == ID


@pytest.mark.parametrize("row", READS, ids=name_of)
def test_a_reading_route_writes_no_entry(trailed, row):
    prefix, route = row
    token = trailed.token("admin")
    since = trailed.size
    if route.path == "/moorage/v1/events":  # a stream, which ends when the plane does
        answer = trailed.send("GET", f"/{prefix}{route.path}?since=nonsense", version="1.39")
    else:
        body = None if route.method in ("GET", "HEAD") else {}
        headers = {"x-subject-token": token}
        version = version_of(prefix, route)
        answer = trailed.send(route.method, path_of(prefix, route), body, version=version, headers=headers)
    assert answer.status < 500 or answer.status == 501
    noted = trailed.entries(since)
    assert [entry for entry in noted if entry["observer"]["typeURI"] == f"service/{SERVICE.get(prefix, prefix)}"] == []


LOCAL = [(api, route) for api in (control.API, agent_api.API) for route in api.routes if route.is_change]


@pytest.mark.parametrize("row", LOCAL, ids=lambda row: f"{row[0].name} {row[1].method} {row[1].path}")
def test_a_command_over_the_hosts_socket_writes_one_entry(trailed, row):
    """The socket has no authentication: only the plane's own user can open it."""
    api, route = row
    trail = Trail([TrailFile(trailed.path, rotate_bytes=1 << 30, keep=1)], trailed.plane.clock, observer="here")
    make = control.control_app if api is control.API else agent_api.wsgi_app
    app = make(trailed.plane.service("accelerators"), SeededIds(3), trail)
    path = re.sub(r"\{\w+\}", ID, route.path)
    since = trailed.size
    answer = InProcessTransport(app).send(route.method, path, {"content-type": "application/json"}, b"[]")
    (entry,) = trailed.entries(since)
    trail.close()
    assert answer.status in (400, 404)
    assert (entry["outcome"], entry["reason"]["reasonCode"]) == ("failure", str(answer.status))
    assert entry["initiator"] == {"typeURI": "service/security/account/user", "host": {"address": "127.0.0.1"}}


def test_the_list_of_changing_local_commands_is_complete():
    assert {f"{route.method} {route.path}" for _, route in LOCAL} == {
        "POST /v1/provider-config/apply",
        "POST /v1/plug",
        "POST /v1/unplug",
        "POST /v1/handles/{pci_id}/release",
    }
