"""Options that change the answers of the whole plane."""

import contextlib

import pytest

from moorage.core.clock import VirtualClock
from moorage.core.errors import StartError
from moorage.core.ids import SeededIds
from moorage.wiring import build_plane
from tests.conftest import START
from tests.plane import Bearer, InProcessPlane
from tests.system.planes import write_config

PAGE = "https://console.example.org"


def headers_for_a_page(directory, **sections):
    """The headers of an answer to a request from the page `PAGE`, by a plane with these options."""
    with InProcessPlane(directory, "placement,image,compute", **sections) as plane:
        return plane.send("GET", "/compute/", headers={"origin": PAGE}).headers


def test_pages_of_listed_origins_may_call_every_service(tmp_path):
    server = {"cors_origins": f"https://other.example.org, {PAGE}"}
    assert headers_for_a_page(tmp_path, server=server)["access-control-allow-origin"] == PAGE


def test_pages_of_other_origins_may_not_call_a_service_by_default(tmp_path):
    assert "access-control-allow-origin" not in headers_for_a_page(tmp_path)


def test_an_invalid_provider_configuration_stops_the_start_before_any_device_is_used(tmp_path):
    config = write_config(tmp_path)
    file = tmp_path / "provider_config" / "10-broken.yaml"
    file.write_text("meta: [")
    file.chmod(0o600)
    plane = build_plane(config, clock=VirtualClock(START), ids=SeededIds(1))
    with pytest.raises(StartError, match=r"10-broken\.yaml:2"):
        plane.prepare()
    plane.stop()
    assert not list((tmp_path / "accelerators" / "simulated").iterdir())
    assert not (tmp_path / "os-acc.sock").exists()


def test_a_plane_starts_without_its_socket_if_the_state_directory_is_too_deep(tmp_path):
    deep = tmp_path / ("deep" * 20)
    plane = build_plane(write_config(deep), clock=VirtualClock(START), ids=SeededIds(1))
    plane.prepare()
    plane.stop()
    assert (deep / "host" / "published.json").exists()


def test_a_configured_socket_path_that_is_too_long_stops_the_start(tmp_path):
    wanted = tmp_path / ("long" * 30)
    config = write_config(tmp_path, accelerator={"agent_socket": str(wanted)})
    plane = build_plane(config, clock=VirtualClock(START), ids=SeededIds(1))
    with pytest.raises(StartError, match="too long"):
        plane.prepare()
    plane.stop()


def test_a_change_log_that_is_too_short_to_serve_is_refused_at_the_start(tmp_path):
    with pytest.raises(StartError, match="history_s is 59; it must be at least 60"):
        InProcessPlane(tmp_path, "placement", placement={"history_s": 59})


@pytest.mark.parametrize(("watchers", "threads", "held"), [(2, 8, 2), (50, 4, 3), (2, 1, 0), (-1, 8, 0)])
def test_watchers_never_use_all_threads_of_a_server(tmp_path, watchers, threads, held):
    """A watcher beyond the limit gets the entries so far, and is told to return in two seconds."""
    options = {"server": {"threads": threads}, "placement": {"watchers": watchers}}
    with InProcessPlane(tmp_path, "placement", **options) as plane, contextlib.ExitStack() as stack:
        begun = []
        for _ in range(held + 2):
            events = plane.transport().stream("GET", "/placement/moorage/v1/events", Bearer().headers())
            _, _, chunks = stack.enter_context(events)
            begun.append(next(chunks).startswith(b"retry: 500"))
    assert begun == [True] * held + [False] * 2
