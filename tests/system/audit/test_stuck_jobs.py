"""Jobs that no host takes, on a whole plane: the host goes down and comes back."""

from datetime import timedelta

import pytest

from moorage.audit.model import FindingKind
from tests.system.audit.rig import AuditedPlane
from tests.system.audit.test_devices import ask_to_bind

pytestmark = pytest.mark.slow

LONG = timedelta(hours=1, minutes=1)


@pytest.fixture
def plane(tmp_path):
    with AuditedPlane(tmp_path) as plane:
        yield plane


def force_down(plane, *, is_down: bool) -> None:
    body = {"host": "compute-1", "binary": "nova-compute", "forced_down": is_down}
    plane.compute.request("PUT", "/os-services/force-down", json=body, version="2.11")


def test_an_operation_is_reported_as_stuck_while_the_servers_host_is_down(plane):
    server = plane.new_server()
    plane.compute.request("POST", f"/servers/{server}/action", json={"os-stop": None})
    plane.clock.sleep(LONG.total_seconds())
    assert plane.audit() == [], "its host lives, and may just be slow"
    force_down(plane, is_down=True)
    (found,) = plane.audit()
    assert (found.kind, found.subject, found.where, found.action) == (
        FindingKind.STUCK_SERVER,
        server,
        "compute-1",
        None,
    )
    assert found.why.startswith("it has been powering-off since 2026-03-01 12:00 UTC or longer, and compute-1 is down")
    force_down(plane, is_down=False)
    plane.settle()
    assert plane.server(server)["status"] == "SHUTOFF"
    assert plane.audit() == []


def test_an_accelerator_request_that_its_host_does_not_bind_is_reported_as_stuck(plane):
    server = plane.new_server()
    request = ask_to_bind(plane, server)
    plane.clock.sleep(LONG.total_seconds())
    found = plane.audit()
    assert [(one.kind, one.subject, one.where) for one in found] == [(FindingKind.STUCK_REQUEST, request, "compute-1")]
    plane.settle()
    assert plane.audit() == []
