"""TLS by the server itself: services and an agent in processes of their own, the stock clients, and our commands."""

import json
import shutil
import signal
import socket
import ssl

import pytest

from moorage.core.errors import Unavailable
from moorage.wire.transports import SocketTransport
from tests.certificates import make_certificates
from tests.ports import free_port
from tests.processes import openstack
from tests.system.planes import PlaneProcess, moorage, until, write_config
from tests.system.test_spread_out import SERVICES, enrol, join

pytestmark = pytest.mark.slow

#: A file that contains no authority of ours.
OTHER_CA = {"OS_CACERT": ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """(services, agent), both up; the services are reached over TLS only."""
    directory = tmp_path_factory.mktemp("tls")
    state = directory / "services"
    state.mkdir()
    make_certificates(state)
    write_config(
        state,
        plane={"services": ",".join(SERVICES), "log_file": "moorage.log"},
        server={"port": free_port(), "certificate_file": "moorage.crt", "key_file": "moorage.key"},
        endpoints={"ca_file": "ca.crt"},
        compute={"poll_period_s": 0.5},
    )
    with PlaneProcess(state / "moorage.conf") as services:
        assert services.url.startswith("https://")
        write_config(
            directory / "agent",
            plane={"services": "agent", "log_file": "moorage.log"},
            server={"port": free_port()},
            endpoints={name: f"{services.url}/{name}" for name in SERVICES} | {"ca_file": str(state / "ca.crt")},
            agent={"poll_period_s": 0.2, "heartbeat_period_s": 1.0},
        )
        with_agent = PlaneProcess(directory / "agent" / "moorage.conf")
        join(with_agent, enrol(services))
        with with_agent as agent:
            yield services, agent


@pytest.fixture
def services(plane):
    return plane[0]


@pytest.fixture
def variables(services):
    """What `moorage env` prints."""
    return json.loads(moorage("env", "--json", "--config", services.config).stdout)


def test_a_server_is_built_by_an_agent_that_reaches_the_services_over_tls(services):
    clients = services.clients()
    until(lambda: any(row["state"] == "up" for row in clients.compute.get("/os-services")["services"]))
    server = clients.create_server(flavor=clients.create_flavor("small"))
    clients.wait_for_status(server, "ACTIVE")


def test_the_stock_clients_verify_the_certificate(variables):
    assert variables["OS_AUTH_URL"].startswith("https://")
    assert variables["OS_CACERT"].endswith("ca.crt")
    cacert = variables.pop("OS_CACERT")
    trusting, refusing = openstack(
        variables,
        ["--os-cacert", cacert, "flavor", "list", "-f", "json"],
        ["--os-cacert", OTHER_CA["OS_CACERT"], "flavor", "list", "-f", "json"],
    )
    assert trusting.status == 0, trusting.err
    assert refusing.status != 0
    assert "certificate verify failed" in refusing.err


def test_links_and_the_catalogue_have_https_urls(services):
    answer = services.transport("/placement").send("GET", "/", {})
    assert answer.status == 200
    found = services.transport("/identity").send("GET", "/v3", {}).body.decode()
    assert f"{services.url}/identity/v3/" in found


def test_commands_verify_the_certificate_and_name_the_option_if_they_cannot(services):
    fine = moorage("status", "--json", "--config", services.config)
    assert fine.returncode == 0, fine.stderr
    found = json.loads(fine.stdout)
    assert {row["state"] for row in found["services"]} == {"ok"}
    assert found["duties"], "they are read from /metrics"
    with pytest.raises(Unavailable, match=r"set \[endpoints\] ca_file \(or OS_CACERT\) to a file"):
        SocketTransport(services.url).send("GET", "/identity/healthcheck", {})


def test_doctor_checks_the_certificate_and_the_mode_of_the_key(services):
    key = services.state / "moorage.key"
    key.chmod(0o644)
    said = moorage("doctor", "--config", services.config).stdout
    assert "the certificate is valid until" in said
    assert "other users can read or write moorage.key" in said
    key.chmod(0o600)
    assert "moorage.key" not in moorage("doctor", "--config", services.config).stdout


def test_sighup_replaces_the_certificate_without_ending_connections(services):
    old = (services.state / "ca.crt").read_bytes()
    trust = ssl.create_default_context(cadata=old.decode())
    port = int(services.url.rpartition(":")[2])

    def serial(trust):
        with trust.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost") as sock:
            return sock.getpeercert()["serialNumber"]

    kept = trust.wrap_socket(socket.create_connection(("127.0.0.1", port), 30), server_hostname="localhost")
    before = serial(trust)
    backup = services.state / "backup"
    backup.mkdir()
    names = ["ca.crt", "moorage.crt", "moorage.key"]
    for name in names:
        shutil.copy(services.state / name, backup / name)
    make_certificates(services.state)
    trust.load_verify_locations(services.state / "ca.crt")
    services.process.send_signal(signal.SIGHUP)
    until(lambda: serial(trust) != before)
    kept.sendall(b"GET /identity/healthcheck HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert kept.recv(65536).startswith(b"HTTP/1.1 200 ")
    kept.close()
    for name in names:
        shutil.copy(backup / name, services.state / name)
    services.process.send_signal(signal.SIGHUP)
    until(lambda: serial(trust) == before)


def test_a_plane_with_the_wrong_key_does_not_start_and_says_why(tmp_path):
    state, other = tmp_path / "state", tmp_path / "other"
    state.mkdir()
    other.mkdir()
    make_certificates(state)
    make_certificates(other)
    write_config(
        state,
        plane={"services": "identity,placement"},
        server={
            "port": free_port(),
            "certificate_file": str(state / "moorage.crt"),
            "key_file": str(other / "moorage.key"),
        },
    )
    with PlaneProcess(state / "moorage.conf").launch() as plane:
        assert plane.process.wait(60) != 0
        assert "is not the key of the certificate" in plane.err


def test_a_certificate_without_a_key_is_refused(tmp_path):
    state = tmp_path / "state"
    path = state / "moorage.conf"
    state.mkdir()
    path.write_text("[plane]\nstate_path = .\n[server]\ncertificate_file = moorage.crt\n")
    done = moorage("up", "--config", path)
    assert done.returncode != 0
    assert "certificate_file and key_file belong together" in done.stderr
