"""The plane beside a real Keystone, which says who is calling, and a real Glance, which has the images."""

import pytest

from moorage.core.clock import SystemClock
from moorage.core.errors import RemoteError
from moorage.identity.client import PasswordTokens
from moorage.wire.client import NoCredentials, ServiceClient
from moorage.wire.transports import SocketTransport
from tests.processes import free_port, python_of, running
from tests.system.keystone.real import PASSWORD, real_keystone
from tests.system.planes import PlaneClients, PlaneProcess, until, write_config

pytestmark = [pytest.mark.slow, pytest.mark.keystone, pytest.mark.glance]

SERVICES = ("placement", "compute", "accelerator", "reservation")


@pytest.fixture(scope="module")
def keystone(tmp_path_factory):
    with real_keystone(tmp_path_factory.mktemp("keystone")) as keystone:
        keystone.user("glance", "service", "service")
        yield keystone


@pytest.fixture(scope="module")
def glance_url(tmp_path_factory, keystone):
    directory, port = tmp_path_factory.mktemp("glance"), free_port()
    url = f"http://127.0.0.1:{port}"
    command = [python_of(".venv-glance"), "-W", "ignore", "tests/system/images/glance_rig.py", directory / "state"]
    command += [str(port), f"{keystone.url}/v3", "glance", PASSWORD, "service"]
    with running(command, f"{url}/versions", directory / "log"):
        yield url


@pytest.fixture(scope="module")
def plane(tmp_path_factory, keystone, glance_url):
    directory = tmp_path_factory.mktemp("plane")
    write_config(
        directory,
        plane={"services": ",".join((*SERVICES, "agent")), "log_file": "moorage.log"},
        server={"port": free_port()},
        identity={"mode": "keystone", "keystone_url": f"{keystone.url}/v3", "password": PASSWORD},
        endpoints={"image": glance_url},
    )
    with PlaneProcess(directory / "moorage.conf") as plane:
        yield plane


@pytest.fixture(scope="module")
def clients_of(keystone, glance_url, plane):
    def clients_of(user, project):
        def transport(path):
            return SocketTransport(glance_url) if path == "/image" else plane.transport(path)

        tokens = PasswordTokens(
            SocketTransport(keystone.url), username=user, password=PASSWORD, project=project, clock=SystemClock()
        )
        return PlaneClients(transport, tokens, SystemClock())

    return clients_of


def refusal_of(request):
    """The status of what is refused."""
    with pytest.raises(RemoteError) as refusal:
        request()
    return refusal.value.status


def test_a_server_gets_a_function_whose_bitstream_comes_from_glance(plane, clients_of):
    admin = clients_of("admin", "admin")
    flavor = admin.create_fpga_flavor()
    server = admin.create_server(flavor=flavor)
    admin.wait_for_status(server, "ACTIVE", "ERROR")
    assert admin.server(server)["status"] == "ACTIVE", admin.server(server).get("fault")
    (address,) = until(lambda: admin.accelerators_of(server))
    domain = (plane.state / "host" / "domains" / f"{server}.xml").read_text()
    assert f"function='0x{address[-1]}'" in domain.replace('"', "'")
    assert admin.allocations(server)["CUSTOM_ACCELERATOR_FPGA"] == 1
    admin.compute.request("DELETE", f"/servers/{server}")
    admin.wait_until_gone(server)
    until(lambda: not admin.allocations(server))


def test_who_may_do_what_follows_from_the_roles_in_keystone(clients_of):
    admin, alice, reader = clients_of("admin", "admin"), clients_of("alice", "red"), clients_of("reader", "red")
    flavor = admin.create_flavor("plain")
    server = alice.create_server(flavor=flavor, image=admin.create_image(visibility="public"))
    alice.wait_for_status(server, "ACTIVE", "ERROR")
    assert alice.server(server)["status"] == "ACTIVE"
    assert [row["id"] for row in reader.compute.get("/servers")["servers"]] == [server]
    assert refusal_of(lambda: alice.placement.get("/resource_providers")) == 403
    assert refusal_of(lambda: alice.create_flavor("mine")) == 403
    assert refusal_of(lambda: reader.create_server(flavor=flavor, image="5b9bd5a4-9a3a-4b7e-8ba4-2ec1a3a5c2a1")) == 403


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("token", [None, "nonsense"])
def test_without_a_token_of_keystone_nobody_is_let_in(plane, service, token):
    path = {"placement": "/resource_providers", "compute": "/v2.1/servers", "accelerator": "/v2/devices"}
    http = ServiceClient(plane.transport(f"/{service}"), service_type=service, credentials=NoCredentials())
    headers = {"x-auth-token": token} if token else {}
    assert refusal_of(lambda: http.get(path.get(service, "/v1/leases"), headers=headers)) == 401


def test_a_revoked_token_is_refused(plane, keystone):
    http = ServiceClient(plane.transport("/placement"), service_type="placement")
    token = keystone.fresh_token("admin", "admin")
    keystone.revoke(token)
    assert refusal_of(lambda: http.get("/resource_providers", headers={"x-auth-token": token})) == 401


def test_healthchecks_need_no_token(plane):
    for service in SERVICES:
        assert plane.transport(f"/{service}").send("GET", "/healthcheck", {}).status == 200
