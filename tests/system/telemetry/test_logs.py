"""The log of a whole plane: each line names its service and request, and none contains a secret."""

import io
import json
import logging
from datetime import UTC, datetime, timedelta

import pytest

from moorage.core.errors import MoorageError
from moorage.identity.first_start.first_credentials import first_credentials
from moorage.telemetry import logs
from tests.system.planes import VirtualPlane

pytestmark = pytest.mark.slow

START = datetime(2026, 3, 1, 12, 10, tzinfo=UTC)
SECRET = "correct-horse-battery"
REQUEST_ID = "req-11111111-2222-4333-8444-555555555555"


@pytest.fixture
def log():
    """The log of this process at level debug, in the format of a service."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    logs.set_up_logging("debug", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_the_log_contains_no_secret_and_each_line_names_its_service_and_request(tmp_path, log):
    with VirtualPlane(tmp_path, START) as plane:
        token = plane.compute._credentials.headers()["x-auth-token"]
        body = {
            "name": "secretive",
            "flavorRef": plane.create_fpga_flavor(),
            "imageRef": plane.create_image(),
            "networks": "none",
            "adminPass": SECRET,
            "metadata": {"key": SECRET},
        }
        made = plane.compute.request(
            "POST", "/servers", json={"server": body}, headers={"x-openstack-request-id": REQUEST_ID}
        )["server"]
        plane.settle()
        assert plane.server(made["id"])["status"] == "ACTIVE"
        created = plane.compute.get(f"/servers/{made['id']}/os-instance-actions")["instanceActions"][-1]
        plane.compute.request("POST", f"/servers/{made['id']}/action", json={"changePassword": {"adminPass": SECRET}})
        plane.settle()
        for wrong in ({"x-auth-token": SECRET}, {"authorization": f"Basic {SECRET}"}):
            with pytest.raises(MoorageError):
                plane.compute.request("POST", "/nowhere", json={"password": SECRET}, headers=wrong)
        with pytest.raises(MoorageError):
            plane.compute.request("POST", "/servers", json={"server": {"adminPass": SECRET, "name": 7}})
        plane.compute.request("DELETE", f"/servers/{made['id']}")
        plane.settle()
        plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
        plane.create_lease(start=START + timedelta(hours=1), end=START + timedelta(hours=2), amount=1)
        plane.run_until(START + timedelta(hours=3))
        passwords = [first_credentials(tmp_path, user)[0] for user in ("admin", "moorage")]
    written = log.getvalue()
    for secret in (token, SECRET, made.get("adminPass"), (tmp_path / "token.key").read_bytes().hex(), *passwords):
        assert not secret or secret not in written
    told = lines(log)
    assert len(told) > 10
    assert all({"time", "level", "logger", "event"} <= line.keys() for line in told)
    mine = [line for line in told if line.get("request_id") == created["request_id"] != REQUEST_ID]
    assert {line["service"] for line in mine} >= {"compute", "agent compute-1"}


def test_a_failed_request_is_logged_with_its_caller(tmp_path, log, request):
    before = logs.caller_context.set(("", ""))  # another test's requests may have set it in this thread
    request.addfinalizer(lambda: logs.caller_context.reset(before))
    with VirtualPlane(tmp_path, START) as plane:
        plane.plane.metrics._engines["compute"].dispose()
        for path in tmp_path.glob("compute.db*"):
            path.rename(tmp_path / f"away-{path.name}")
        (tmp_path / "compute.db").mkdir()
        with pytest.raises(MoorageError):
            plane.compute.request("GET", "/servers", repeatable=False)
    failed = next(line for line in lines(log) if line["event"] == "request failed")
    assert {"service", "request_id", "project", "user", "path", "method"} <= failed.keys()
    assert logs.caller_context.get() == ("", ""), "what is done afterwards is nobody's"
