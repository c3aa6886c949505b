"""Options that change what the whole plane answers."""

import pytest

from moorage.core.clock import VirtualClock
from moorage.core.errors import StartError
from moorage.core.ids import SeededIds
from moorage.wire.transports import InProcessTransport
from moorage.wiring import build_plane
from tests.conftest import START
from tests.system.planes import write_config

PAGE = "https://console.example.org"


def headers_for_a_page(directory, **sections):
    """Of an answer that a page of `PAGE` gets from a plane with these options."""
    config = write_config(directory, identity={"mode": "none"}, **sections)
    plane = build_plane(config, clock=VirtualClock(START), ids=SeededIds(1))
    answer = InProcessTransport(plane.app, "http://127.0.0.1").send("GET", "/compute/", {"origin": PAGE})
    plane.stop()
    return answer.headers


def test_pages_of_listed_origins_may_call_every_service(tmp_path):
    server = {"cors_origins": f"https://other.example.org, {PAGE}"}
    assert headers_for_a_page(tmp_path, server=server)["access-control-allow-origin"] == PAGE


def test_pages_of_other_origins_may_not_unless_told_so(tmp_path):
    assert "access-control-allow-origin" not in headers_for_a_page(tmp_path)


def test_a_faulty_provider_configuration_stops_the_start_before_a_device_is_touched(tmp_path):
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


def test_a_state_directory_too_deep_for_a_socket_only_costs_the_socket(tmp_path):
    deep = tmp_path / ("deep" * 20)
    plane = build_plane(write_config(deep), clock=VirtualClock(START), ids=SeededIds(1))
    plane.prepare()
    plane.stop()
    assert (deep / "host" / "published.json").exists()


def test_a_socket_that_was_asked_for_by_a_path_too_long_stops_the_start(tmp_path):
    wanted = tmp_path / ("long" * 30)
    config = write_config(tmp_path, accelerator={"agent_socket": str(wanted)})
    plane = build_plane(config, clock=VirtualClock(START), ids=SeededIds(1))
    with pytest.raises(StartError, match="too long"):
        plane.prepare()
    plane.stop()
