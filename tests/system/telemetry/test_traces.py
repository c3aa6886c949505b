"""A server creation is one trace, in one process and in several; disabled traces cost nothing."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moorage.telemetry import logs, tracing
from tests.system.planes import VirtualPlane, until
from tests.system.telemetry.receiver import receiving
from tests.system.test_spread_out import DATABASES, agent_process, services_process

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
START = datetime(2026, 3, 1, 12, 10, tzinfo=UTC)
CREATION = ("POST compute", "/v2.1/servers")

#: The spans of a server with an accelerator, in any order.
PARTS = {
    "POST compute",
    "GET image",
    "job build",  # two spans: the builder's job and the host's job
    "GET placement",
    "PUT placement",
    "accelerators plug",
    "PUT compute",  # the host's report
}


def assert_one_tree(spans):
    """Asserts that the spans form one tree without gaps."""
    ids = {span.id for span in spans}
    roots = [span for span in spans if not span.parent]
    assert [(root.name, root.attributes["http.route"]) for root in roots] == [CREATION]
    assert [span for span in spans if span.parent and span.parent not in ids] == []
    assert {span.name for span in spans} >= PARTS
    assert sum(span.name == "job build" for span in spans) == 2


def test_a_server_creation_is_one_trace_in_one_process(tmp_path):
    with receiving() as receiver:
        with VirtualPlane(tmp_path, START, tracing={"endpoint": receiver.url}) as plane:
            flavor, image = plane.create_fpga_flavor(), plane.create_image()
            server = plane.create_server(flavor=flavor, image=image)
            plane.settle()
            assert plane.server(server)["status"] == "ACTIVE"
        assert tracing.current_tracer() is None
        assert_one_tree(receiver.trace_of(*CREATION))
        # Requests of the test began a trace; polls, heartbeats and reports of hosts did not.
        begun = {span.attributes.get("http.route") for span in receiver.spans if not span.parent}
        assert not {route for route in begun if "/agent/" in str(route)}


def test_a_server_creation_is_one_trace_across_processes(tmp_path):
    databases = {name: f"sqlite:///{tmp_path}/{name}.sqlite" for name in DATABASES}
    with receiving() as receiver:
        traces = {"endpoint": receiver.url}
        with (
            services_process(
                tmp_path / "services", databases, tracing=traces | {"service_name": "services"}
            ) as services,
            agent_process(tmp_path / "agent", services, tracing=traces | {"service_name": "agent"}) as agent,
        ):
            plane = services.clients()
            flavor, image = plane.create_fpga_flavor(), plane.create_image()
            server = plane.create_server(flavor=flavor, image=image)
            assert plane.wait_for_status(server, "ACTIVE", "ERROR") == "ACTIVE"
            assert agent.stop() == 0  # a process exports its remaining spans when it stops
            assert services.stop() == 0
            traced = [line for line in services.log.splitlines() if '"trace_id"' in line]
        spans = receiver.trace_of(*CREATION)
        assert_one_tree(spans)
        assert {span.service for span in spans} == {"services", "agent"}
        plug = next(span for span in spans if span.name == "accelerators plug")
        assert plug.service == "agent"
        assert any(spans[0].trace in line for line in traced), "the log says which trace a line belongs to"


def test_a_trace_of_the_caller_is_continued(tmp_path):
    theirs = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-00"
    with receiving() as receiver:
        with VirtualPlane(tmp_path, START, tracing={"endpoint": receiver.url, "statements": True}) as plane:
            plane.compute.request("GET", "/flavors", headers={"traceparent": theirs})
            plane.compute.request("GET", "/flavors", headers={"traceparent": unsampled})
        spans = receiver.traces()["4bf92f3577b34da6a3ce929d0e0e4736"]
        served = next(span for span in spans if span.name == "GET compute")
        assert (served.parent, served.attributes["http.response.status_code"]) == ("00f067aa0ba902b7", "200")
        statements = [span.attributes["db.query.text"] for span in spans if span.name == "SQL compute"]
        assert any("flavors" in text for text in statements)
        assert "4bf92f3577b34da6a3ce929d0e0e4737" not in receiver.traces()


def test_without_an_endpoint_the_tracing_packages_are_not_imported():
    """In a separate process, because this one has a receiver."""
    program = (
        "import sys; from pathlib import Path; from datetime import UTC, datetime;"
        "from tests.system.planes import VirtualPlane; import tempfile\n"
        "with VirtualPlane(Path(tempfile.mkdtemp()), datetime(2026, 3, 1, tzinfo=UTC)) as plane:\n"
        "    plane.compute.get('/servers')\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_without_an_endpoint_a_request_does_not_call_the_tracing_module(tmp_path):
    """Counts how often Python enters the tracing module during a request, because times would vary."""
    entered = []

    def profile(frame, event, _argument):
        if event == "call" and frame.f_code.co_filename in (tracing.__file__, logs.__file__):
            entered.append(frame.f_code.co_name)

    with VirtualPlane(tmp_path, START) as plane:
        plane.compute.get("/servers")
        sys.setprofile(profile)
        try:
            plane.compute.get("/servers")
        finally:
            sys.setprofile(None)
    assert entered == []


def test_requests_succeed_while_the_collector_is_unavailable(tmp_path):
    with receiving() as receiver:
        away = receiver.url
    with VirtualPlane(tmp_path, START, tracing={"endpoint": away}) as plane:
        assert plane.compute.get("/servers")["servers"] == []
        until(lambda: plane.compute.get("/flavors")["flavors"] is not None)
