"""Alerts on a whole plane: each test causes a problem and scrapes the plane, and Prometheus evaluates the rules.

The metrics before the problem stand for one hour, those after it for the next hour: the alert must be silent first,
and then fire.
"""

import contextlib
import json
import threading
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

import pytest

from moorage.core.clock import VirtualClock
from moorage.core.errors import Unavailable
from moorage.jobs.background_tasks import TaskThreads, Wakeups, run_task
from moorage.jobs.wakeups import RabbitHints
from moorage.telemetry.metrics import Metrics
from tests.ports import free_port
from tests.system.planes import VirtualPlane, until
from tests.system.telemetry.judged import Case, from_scrapes, judge

pytestmark = pytest.mark.slow

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def plane(tmp_path):
    with VirtualPlane(tmp_path, START) as plane:
        yield plane


def scrape(plane):
    return plane.plane.metrics.render().decode()


def assert_fires(alert, before, after, directory, *, began=0.0):
    """Asserts that `alert` is silent on the metrics before the problem, and fires on those after it."""
    judge(
        [
            Case(alert, from_scrapes([before], alert, began=began), fires=False),
            Case(alert, from_scrapes([before, after], alert, began=began), fires=True),
        ],
        directory,
    )


def test_a_host_that_is_down_fires_an_alert(plane, tmp_path):
    before = scrape(plane)
    service = plane.compute.get("/os-services?binary=nova-compute")["services"][0]["id"]
    plane.compute.request("PUT", f"/os-services/{service}", json={"forced_down": True})
    assert_fires("MoorageHostsDown", before, scrape(plane), tmp_path)


def test_servers_that_fit_on_no_host_fire_an_alert(plane, tmp_path):
    plane.create_flavor("huge", **{"trait:HW_CPU_X86_AVX512F": "required"})
    image = plane.create_image()
    before = scrape(plane)
    for number in range(7):
        plane.create_server(flavor="huge", name=f"huge-{number}", image=image)
    plane.settle()
    after = scrape(plane)
    assert 'moorage_compute_scheduled_total{outcome="no_capacity"} 7.0' in after
    assert_fires("MoorageNoValidHost", before, after, tmp_path)


def test_a_failed_build_fires_an_alert(plane, tmp_path):
    before = scrape(plane)
    faults = {"faults": [{"operation": "spawn", "message": "no space left on the disk"}]}
    (tmp_path / "host" / "control.json").write_text(json.dumps(faults))
    plane.create_server(flavor=plane.create_flavor("tiny"))
    plane.settle()
    after = scrape(plane)
    assert 'moorage_agent_job_duration_seconds_count{kind="build",outcome="failed"} 1.0' in after
    assert_fires("MoorageAgentJobsFail", before, after, tmp_path)


def test_a_job_that_no_host_claims_fires_an_alert(plane, tmp_path):
    before = scrape(plane)
    plane.create_server(flavor=plane.create_flavor("tiny"))
    plane.clock.advance_to(START + timedelta(hours=1))  # no task runs meanwhile, as if all agents were down
    assert_fires("MoorageJobsStuck", before, scrape(plane), tmp_path)


def test_a_late_start_of_a_lease_fires_an_alert(plane, tmp_path):
    plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
    plane.create_lease(start=START + timedelta(hours=1), end=START + timedelta(hours=3), amount=1)
    before = scrape(plane)
    plane.clock.advance_to(START + timedelta(hours=2))
    assert_fires("MoorageLeaseEventsLate", before, scrape(plane), tmp_path)


def test_a_nearly_used_up_resource_class_fires_an_alert(plane, tmp_path):
    before = scrape(plane)
    ram_mb = 30_000
    plane.create_server(flavor=plane.create_flavor("wide", ram_mb=ram_mb))
    plane.settle()
    assert_fires("MoorageCapacityLow", before, scrape(plane), tmp_path)


def test_a_device_that_fails_its_health_check_fires_an_alert(plane, tmp_path):
    before = scrape(plane)
    faults = {"faults": [{"verb": "health", "kind": "sick"}]}
    (tmp_path / "accelerators" / "simulated" / "control.json").write_text(json.dumps(faults))
    plane.run_until(START + timedelta(days=2))  # the agent of this plane reports once a day
    assert_fires("MoorageDevicesFailed", before, scrape(plane), tmp_path)


def test_a_device_that_cannot_be_cleaned_fires_an_alert(plane, tmp_path):
    server = plane.create_server(flavor=plane.create_fpga_flavor())
    plane.settle()
    before = scrape(plane)
    assert plane.server(server)["status"] == "ACTIVE"
    faults = {"faults": [{"verb": "clean", "kind": "fails"}]}
    (tmp_path / "accelerators" / "simulated" / "control.json").write_text(json.dumps(faults))
    plane.compute.request("DELETE", f"/servers/{server}")
    plane.run_until(START + timedelta(days=2))
    assert_fires("MoorageDevicesWithheld", before, scrape(plane), tmp_path)


def test_an_unavailable_database_fires_an_alert(plane, tmp_path):
    for _ in range(3):
        plane.compute.get("/servers")
    before = scrape(plane)
    plane.plane.metrics._engines["compute"].dispose()
    for path in tmp_path.glob("compute.db*"):
        path.rename(tmp_path / f"away-{path.name}")
    (tmp_path / "compute.db").mkdir()
    for _ in range(3):
        with contextlib.suppress(Unavailable):
            plane.compute.get("/servers")
    after = scrape(plane)
    assert f'status="{int(HTTPStatus.SERVICE_UNAVAILABLE)}"' in after
    assert_fires("MoorageDatabaseAway", before, after, tmp_path)
    assert_fires("MoorageRequestsFail", before, after, tmp_path)


def test_a_task_that_does_not_return_fires_an_alert(tmp_path):
    metrics, wakeups, clock = Metrics(), Wakeups(), VirtualClock(START)
    stuck, let_go = threading.Event(), threading.Event()

    class Stuck:
        name = "stuck"
        rounds = 0

        def run_once(self):
            self.rounds += 1
            if self.rounds > 1:
                stuck.set()
                let_go.wait(60)
            return clock.now()

    def run_ended(done):
        metrics.count_task_run(done.task, clock.now().timestamp(), succeeded=done.succeeded, due=done.due.timestamp())

    before = metrics.render().decode()
    threads = TaskThreads(clock, wakeups, run_ended)
    threads.start([Stuck()])
    try:
        assert stuck.wait(60)
        after = metrics.render().decode()
    finally:
        let_go.set()
        threads.stop()
    assert "moorage_duty_due_timestamp_seconds{" not in before
    alert = "MoorageDutyLate"
    series = from_scrapes([after], alert, began=START.timestamp() - 60)
    judge([Case(alert, series, fires=True)], tmp_path)


def test_a_task_that_always_fails_fires_an_alert(tmp_path):
    class Broken:
        name = "broken"

        def run_once(self):
            raise ValueError("as ordered")

    metrics, clock = Metrics(), VirtualClock(START)
    metrics.count_task_run("broken", clock.now().timestamp(), succeeded=False)  # one failure must not fire the alert
    before = metrics.render().decode()
    for _ in range(30):
        done = run_task(Broken(), clock)
        metrics.count_task_run(done.task, clock.now().timestamp(), succeeded=done.succeeded)
    assert_fires("MoorageDutyFails", before, metrics.render().decode(), tmp_path)


def test_an_unavailable_broker_fires_an_alert(tmp_path):
    metrics = Metrics()
    before = metrics.render().decode()
    lost = threading.Event()

    def interrupted(role):
        metrics.hint_losses.labels(role).inc(3)  # as after more failed attempts
        if role == "sender":
            lost.set()

    hints = RabbitHints(f"amqp://guest:guest@127.0.0.1:{free_port()}/", Wakeups(), interrupted=interrupted)
    hints.send("somewhere")
    try:
        assert lost.wait(60)
        until(lambda: metrics.registry.get_sample_value("moorage_hints_interruptions_total", {"role": "listener"}))
        after = metrics.render().decode()
    finally:
        hints.close()
    assert_fires("MoorageHintsLost", before, after, tmp_path)
