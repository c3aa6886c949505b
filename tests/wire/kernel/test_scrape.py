"""GET /metrics: who may read it, and where a plane serves it."""

import pytest

from moorage.core.clock import VirtualClock
from moorage.jobs.background_tasks import TaskThreads, Wakeups
from moorage.telemetry.metrics import Metrics
from moorage.wire.app import mount_apps
from moorage.wire.middleware import metrics_app
from tests.conftest import START
from tests.plane import InProcessPlane


def asked(app, path="/metrics", method="GET", address="127.0.0.1", **more):
    """(status, headers, text)"""
    answers = []
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "SCRIPT_NAME": "", "REMOTE_ADDR": address} | more
    body = b"".join(app(environ, lambda status, headers: answers.append((int(status[:3]), dict(headers)))))
    return *answers[0], body.decode()


@pytest.fixture
def app():
    return mount_apps({"/metrics": metrics_app(Metrics(), beyond_loopback=False)})


@pytest.mark.parametrize("address", ["127.0.0.1", "127.3.2.1", "::1"])
def test_local_requests_read_the_metrics_without_credentials(app, address):
    status, headers, text = asked(app, address=address)
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=1.0.0")
    assert "process_cpu_seconds_total" in text


@pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::1", "", "nonsense"])
def test_requests_of_other_machines_are_refused_with_the_name_of_the_option(app, address):
    status, _, text = asked(app, address=address)
    assert status == 403
    assert "[server] metrics = everywhere" in text


@pytest.mark.parametrize("header", ["HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED", "HTTP_X_FORWARDED_PROTO"])
def test_requests_through_a_local_proxy_do_not_count_as_local(app, header):
    assert asked(app, **{header: "192.0.2.7"})[0] == 403


def test_an_option_allows_everybody_to_read_the_metrics():
    app = mount_apps({"/metrics": metrics_app(Metrics(), beyond_loopback=True)})
    assert asked(app, address="192.0.2.7")[0] == 200


def test_the_metrics_page_has_no_subpaths_and_accepts_only_get(app):
    assert asked(app, "/metrics/x")[0] == 404
    assert asked(app, method="POST")[0] == 405


def test_a_plane_serves_one_page_with_the_metrics_of_all_its_services(tmp_path):
    with InProcessPlane(tmp_path, "image,placement") as plane:
        plane.send("GET", "/placement/resource_providers")
        text = asked(plane.plane.app)[2]
        labels = {"service": "placement", "method": "GET", "route": "/resource_providers", "status": "200"}
        name = "moorage_http_request_duration_seconds_count"
        assert plane.plane.metrics.registry.get_sample_value(name, labels) == 1
        assert 'moorage_http_requests_in_flight{service="image"} 0.0' in text
        assert 'moorage_database_connections_max{service="placement"} 20.0' in text


def test_a_plane_can_disable_the_metrics_page(tmp_path):
    with InProcessPlane(tmp_path, "image,placement", server={"metrics": "off"}) as plane:
        assert asked(plane.plane.app)[0] == 404


class FailsOnce:
    """A task that fails once and then succeeds; the time of its next run identifies each round."""

    name = "restless"

    def __init__(self, clock):
        self.clock = clock
        self.rounds = 0

    def run_once(self):
        self.rounds += 1
        if self.rounds == 1:
            raise ValueError("the first one fails")
        return self.clock.now() if self.rounds < 3 else None


def test_runs_of_tasks_are_counted_with_the_time_of_the_last_success(caplog):
    clock, metrics, wakeups = VirtualClock(START), Metrics(), Wakeups()
    told = []

    def run_ended(done):
        metrics.count_task_run(done.task, clock.now().timestamp(), succeeded=done.succeeded, took_s=done.took_s)
        told.append(done.succeeded)
        if not done.succeeded:
            wakeups.wake("restless")

    task = FailsOnce(clock)
    threads = TaskThreads(clock, wakeups, run_ended)
    threads.start([task])
    while len(told) < 3:
        threads._threads[0].join(0.01)
    threads.stop()
    assert told[:3] == [False, True, True]
    assert metrics.registry.get_sample_value("moorage_duty_failures_total", {"duty": "restless"}) == 1
    assert metrics.registry.get_sample_value("moorage_duty_rounds_total", {"duty": "restless"}) >= 3
    at = metrics.registry.get_sample_value("moorage_duty_last_success_timestamp_seconds", {"duty": "restless"})
    assert at == START.timestamp()
    (failure,) = [each for each in caplog.records if each.name == "moorage.jobs.background_tasks"]
    assert (failure.task, failure.duty) == ("restless", "restless"), "the key has its former name, too"
