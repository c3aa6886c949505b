"""The two identity modes for private machines: HTTP Basic with the users file, and no authentication."""

import base64
import json

import pytest

from moorage.core.errors import RemoteError
from moorage.identity.first_start.first_credentials import first_credentials
from moorage.wire.client import NoCredentials, ServiceClient
from moorage.wire.transports import SocketTransport
from tests.ports import free_port
from tests.system.planes import PlaneClients, PlaneProcess, SystemClock, until, write_config
from tests.system.test_up import SERVICES, moorage

pytestmark = pytest.mark.slow


class Basic:
    """Credentials as of clients with ``OS_AUTH_TYPE=http_basic``: name and password in each request."""

    def __init__(self, user, password):
        self._header = base64.b64encode(f"{user}:{password}".encode()).decode()

    def headers(self, *, renew=False):
        return {"authorization": f"Basic {self._header}"}


def a_plane(directory, mode, *, address="127.0.0.1", clock="system", **identity):
    write_config(
        directory,
        plane={"log_file": "moorage.log", "clock": clock},
        server={"port": free_port(), "address": address},
        identity={"mode": mode, **identity},
    )
    return PlaneProcess(directory / "moorage.conf")


def clients_of(plane, credentials):
    return PlaneClients(plane.transport, credentials, SystemClock())


def refusal_of(request):
    with pytest.raises(RemoteError) as refusal:
        request()
    return refusal.value.status


def a_server_with_a_function(clients):
    server = clients.create_server(flavor=clients.create_fpga_flavor())
    clients.wait_for_status(server, "ACTIVE", "ERROR")
    assert clients.server(server)["status"] == "ACTIVE", clients.server(server).get("fault")
    assert len(until(lambda: clients.accelerators_of(server))) == 1
    clients.compute.request("DELETE", f"/servers/{server}")
    clients.wait_until_gone(server)


@pytest.fixture(scope="module")
def basic_plane(tmp_path_factory):
    with a_plane(tmp_path_factory.mktemp("basic"), "http_basic") as plane:
        yield plane


def test_with_http_basic_a_server_is_built(basic_plane):
    password, _ = first_credentials(basic_plane.state, "admin")
    a_server_with_a_function(clients_of(basic_plane, Basic("admin", password)))


def test_with_http_basic_the_policy_rules_are_enforced(basic_plane):
    password, _ = first_credentials(basic_plane.state, "demo")
    demo = clients_of(basic_plane, Basic("demo", password))
    assert demo.compute.get("/servers") == {"servers": []}
    assert refusal_of(lambda: demo.placement.get("/resource_providers")) == 403
    assert refusal_of(lambda: demo.create_flavor("mine")) == 403


def _refusals(clients):
    """The statuses of the five services, each called with the credentials of one of `clients`."""
    placement, compute, accelerator, reservation, image = clients
    return [
        refusal_of(lambda: placement.placement.get("/resource_providers")),
        refusal_of(lambda: compute.compute.get("/servers")),
        refusal_of(lambda: accelerator.accelerator.get("/devices")),
        refusal_of(lambda: reservation.reservation.get("/v1/leases")),
        refusal_of(lambda: image.image.get("/v2/images")),
    ]


def test_with_http_basic_requests_without_credentials_get_401(basic_plane):
    assert _refusals([clients_of(basic_plane, NoCredentials())] * 5) == [401] * 5


#: One account for each service: a client sends each request twice, and a sixth wrong password would get 429.
WRONG = [("admin", "wrong"), ("demo", "wrong"), ("moorage", "wrong"), ("nobody", "x"), ("", "")]


@pytest.mark.parametrize("turn", [0, 2])
def test_with_http_basic_every_service_answers_401_to_wrong_credentials(basic_plane, turn):
    clients = [clients_of(basic_plane, Basic(*wrong)) for wrong in WRONG[turn:] + WRONG[:turn]]
    assert _refusals(clients) == [401] * 5


def test_with_http_basic_the_six_variables_of_moorage_env_work(basic_plane):
    assert moorage("env", "--config", basic_plane.config).returncode == 0
    basic_plane.clients().placement.get("/resource_providers")


@pytest.fixture(scope="module")
def open_plane(tmp_path_factory):
    with a_plane(tmp_path_factory.mktemp("open"), "none", clock="adjustable") as plane:
        yield plane


def test_with_mode_none_every_local_caller_is_an_administrator(open_plane):
    a_server_with_a_function(clients_of(open_plane, NoCredentials()))


def test_with_mode_none_there_is_no_identity_service(open_plane):
    assert not (open_plane.state / "credentials.json").exists()
    assert open_plane.transport("/identity").send("GET", "/v3", {}).status == 404
    done = moorage("env", "--config", open_plane.config)
    assert done.returncode == 1
    assert "mode 'none' has no users" in done.stderr


def test_with_mode_none_the_banner_names_the_services_and_warns(open_plane):
    for service in SERVICES:
        assert (f"{open_plane.url}/{service}" in open_plane.out) == (service != "identity")
    assert "moorage env" not in open_plane.out
    assert "Everyone who can reach it is an administrator" in open_plane.out


def test_with_mode_none_the_clock_is_moved_without_a_password(open_plane):
    done = moorage("clock", "--config", open_plane.config, "advance", "1s")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_mode_none_listens_beyond_loopback_only_if_an_option_allows_it(tmp_path, address):
    plane = a_plane(tmp_path / "refused", "none", address=address)
    with plane.launch():
        assert plane.process.wait(30) == 1
    assert plane.err.startswith("moorage: identity mode 'none' makes every caller admin")
    assert "allow_none_beyond_loopback" in plane.err
    with a_plane(tmp_path / "told", "none", address=address, allow_none_beyond_loopback=True) as told:
        answer = SocketTransport(f"{told.url}/placement").send("GET", "/resource_providers", {})
        assert answer.status == 200
        assert json.loads(answer.body)["resource_providers"]
        assert ServiceClient(told.transport("/compute/v2.1"), service_type="compute").get("/servers") == {"servers": []}
