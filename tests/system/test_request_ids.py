"""One request id through all services, for which an operator can search."""

import io
import json
import logging
from datetime import UTC, datetime

import pytest

from moorage.telemetry.logs import JsonLines
from tests.system.planes import VirtualPlane

GIVEN = "req-00000000-0000-4000-8000-0000000000aa"


@pytest.fixture
def log():
    """The lines that the log file would have."""
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel("INFO")
    yield lambda: [json.loads(line) for line in lines.getvalue().splitlines()]
    root.removeHandler(handler)
    root.setLevel(level)


def test_the_log_lines_of_all_services_name_the_request_id_of_a_server_creation(tmp_path, log):
    with VirtualPlane(tmp_path, datetime(2026, 3, 1, tzinfo=UTC)) as plane:
        specs = {"resources:CUSTOM_ACCELERATOR_GPU": "1"}
        flavor = {"name": "gpu", "vcpus": 1, "ram": 64, "disk": 1, "id": "gpu"}
        plane.compute.request("POST", "/flavors", json={"flavor": flavor})
        plane.compute.request("POST", "/flavors/gpu/os-extra_specs", json={"extra_specs": specs})
        server = plane.create_server(flavor="gpu", request_id=GIVEN)
        plane.settle()
        assert plane.server(server)["status"] == "ACTIVE"
    (made,) = {line["request_id"] for line in log() if line["logger"] == "moorage.compute.scheduling.commit_selection"}
    assert made != GIVEN
    loggers = {
        line["logger"] for line in log() if {GIVEN, made} & {line.get("request_id"), line.get("global_request_id")}
    }
    assert loggers >= {
        "moorage.compute.scheduling.commit_selection",
        "moorage.agent.jobs.job_task",
        "moorage.accelerator.host.attach",
    }
    for line in log():
        assert {"time", "level", "logger", "event"} <= line.keys()
