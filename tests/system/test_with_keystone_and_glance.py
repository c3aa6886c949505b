"""The plane beside a real Keystone, which authenticates callers, and a real Glance, which has the images."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from moorage.accelerator.model.bitstream import Manifest, encode_manifest
from moorage.core.clock import SystemClock
from moorage.core.errors import RemoteError
from moorage.dashboard.cookies import SESSION
from moorage.identity.client import PasswordTokens
from moorage.wire.client import NoCredentials, ServiceClient
from moorage.wire.transports import SocketTransport
from tests.ports import free_port
from tests.processes import ROOT, inherited, python_of, running
from tests.system.keystone.real import PASSWORD, real_keystone
from tests.system.planes import MOORAGE, PlaneClients, PlaneProcess, until, write_config
from tests.wire.dashboard.site import Site

pytestmark = [pytest.mark.slow, pytest.mark.keystone, pytest.mark.glance]

GUIDE = ROOT / "docs" / "guides" / "bitstreams.md"
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
    (directory / "keys").mkdir()
    write_config(
        directory,
        plane={"services": ",".join((*SERVICES, "agent", "dashboard")), "log_file": "moorage.log"},
        server={"port": free_port()},
        identity={"mode": "keystone", "keystone_url": f"{keystone.url}/v3", "password": PASSWORD},
        endpoints={"image": glance_url},
        accelerator={"signature_keys": "keys"},
    )
    with PlaneProcess(directory / "moorage.conf") as plane:
        for kind, path in (("compute", "/compute/v2.1"), ("accelerator", "/accelerator/v2")):
            keystone.offer(kind, plane.url + path)
        keystone.offer("image", glance_url)
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
    """The status of a refused request."""
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


def test_users_of_keystone_sign_in_to_the_dashboard(plane):
    """With their passwords and projects of Keystone. Signing out revokes the token there."""
    site = Site(None, plane.url)
    assert site.sign_in("admin", "wrong").status_code == 401
    done = site.sign_in("admin", PASSWORD)
    assert done.status_code == 303
    token = site.http.cookies[SESSION]
    page = site.get("/", follow_redirects=True)
    assert page.status_code == 200
    assert "Sign out admin" in page.text
    assert site.post("/sign-out").status_code == 303
    site.http.cookies.set(SESSION, token, domain="127.0.0.1", path="/ui")
    assert "Your session has ended" in site.get("/", follow_redirects=True).text


def commands_of(guide: Path) -> list[str]:
    """The commands of a page in order; a line that ends in a backslash continues on the next."""
    blocks = re.findall(r"^```console\n(.*?)^```", guide.read_text(), re.MULTILINE | re.DOTALL)
    return re.findall(r"^\$ ((?:.*\\\n)*.*)$", "\n".join(blocks), re.MULTILINE)


@pytest.fixture
def shell(tmp_path, plane, keystone):
    """Runs a command as an administrator types it, with the stock clients, in one directory."""
    environment = inherited() | {
        "PATH": f"{python_of('.venv-clients').parent}:{MOORAGE.parent}:{os.environ['PATH']}",
        "KEYS": str(plane.state / "keys"),
        "OS_AUTH_URL": f"{keystone.url}/v3",
        "OS_USERNAME": "admin",
        "OS_PASSWORD": PASSWORD,
        "OS_PROJECT_NAME": "admin",
        "OS_USER_DOMAIN_ID": "default",
        "OS_PROJECT_DOMAIN_ID": "default",
    }

    def run(command):
        done = subprocess.run(
            ["bash", "-euc", command],
            check=False,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr[-2000:]}"
        return done.stdout

    return run


@pytest.mark.clients
def test_the_commands_of_the_bitstream_guide_work(shell, clients_of):
    """R32 (accelerator-attach): uploading a bitstream with its properties, by running the page."""
    commands = commands_of(GUIDE)
    assert len(commands) == 11
    said = [shell(command) for command in commands]
    assert "Bound" in said[-2]
    admin = clients_of("admin", "admin")
    (server,) = (row["id"] for row in admin.compute.get("/servers")["servers"] if row["name"] == "packer")
    assert admin.server(server)["status"] == "ACTIVE"
    assert len(until(lambda: admin.accelerators_of(server))) == 1
    assert f"for server {server}, project" in said[-1]
    admin.compute.request("DELETE", f"/servers/{server}")
    admin.wait_until_gone(server)


@pytest.mark.clients
def test_a_bitstream_of_glance_with_an_invalid_signature_is_not_programmed(shell, clients_of):
    """A signature of other data by a known key: the server's fault names the problem and the remedy."""
    admin = clients_of("admin", "admin")
    region, function = "69528db6-eb31-577a-8c36-68f9faa081f6", "0d7c6a54-2f0e-4d39-8a52-6b1b0a8f3c77"
    shell("openssl genpkey -quiet -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key.pem")
    shell('openssl pkey -in key.pem -pubout -out "$KEYS/other.pem"')
    shell("echo something else | openssl dgst -sha512 -sigopt rsa_padding_mode:pss -sign key.pem -out signature")
    image = admin.create_image(b"whole " * 99, function_uuid=function, region_uuid=region, visibility="public")
    flavor = admin.create_flavor(
        "signed",
        **{
            "resources:CUSTOM_ACCELERATOR_FPGA": "1",
            f"trait:CUSTOM_FPGA_INTEL_REGION_{region.upper().replace('-', '_')}": "required",
            "accel:function_id": function,
            "accel:bitstream_signature": "required",
        },
    )

    def refusal():
        server = admin.create_server(flavor=flavor)
        assert admin.wait_for_status(server, "ACTIVE", "ERROR") == "ERROR"
        until(lambda: not admin.allocations(server))  # the error is shown before the allocations are deleted
        until(lambda: not admin.accelerators_of(server))
        return admin.server(server)["fault"]["message"]

    assert f"image {image} (image) is not signed" in refusal()
    shell(
        f'openstack image set {image} --property img_signature="$(base64 -w 0 signature)" --property '
        "img_signature_hash_method=SHA-512 --property img_signature_key_type=RSA-PSS --property "
        "img_signature_certificate_uuid=other"
    )
    assert "covers only the data, but not region_uuid" in refusal()
    manifest = encode_manifest(Manifest("other", "0" * 128, {"function_uuid": function, "region_uuid": region}))
    shell(
        f"openstack image set {image} --property bitstream_manifest='{manifest}' "
        '--property bitstream_manifest_signature="$(base64 -w 0 signature)"'
    )
    assert "does not match this manifest and key: upload the data that was signed, or sign it again" in refusal()


def test_permissions_follow_the_roles_in_keystone(clients_of):
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
def test_every_service_refuses_requests_without_a_token_of_keystone(plane, service, token):
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
