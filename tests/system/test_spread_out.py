"""One plane in two processes: the agent of a host with its own state in one, all services in the other."""

import contextlib
import json
import stat
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from moorage.core.clock import SystemClock
from moorage.core.errors import StartError
from moorage.identity.first_start.first_credentials import first_credentials
from moorage.wire.transports import InProcessTransport
from moorage.wiring import build_plane
from tests.ports import free_port
from tests.servers import temporary_database, temporary_vhost
from tests.system.planes import PlaneProcess, embedded_credentials, moorage, until, without_ours, write_config

pytestmark = pytest.mark.slow

DATABASES = ("identity", "placement", "compute", "accelerator", "reservation")
SERVICES = (*DATABASES, "image")

#: Longer than any test, so that operations are quick only because of hints.
NEVER_S = 600.0


def services_process(directory, databases, hints="", **sections):
    write_config(
        directory,
        plane={"services": ",".join(SERVICES), "hints": hints, "log_file": "moorage.log"},
        server={"port": free_port()},
        database=databases,
        compute={"poll_period_s": NEVER_S if hints else 0.5},
        **sections,
    )
    return PlaneProcess(directory / "moorage.conf")


def agent_process(directory, services: PlaneProcess, hints="", **sections):
    """The process of the agent, not started; its host has joined `services`, which are running."""
    agent = agent_that_did_not_join(directory, services, hints, **sections)
    join(agent, enrol(services))
    return agent


def agent_that_did_not_join(directory, services: PlaneProcess, hints="", **sections):
    write_config(
        directory,
        plane={"services": "agent", "hints": hints, "log_file": "moorage.log"},
        server={"port": free_port()},
        endpoints={name: f"{services.url}/{name}" for name in SERVICES},
        agent={"poll_period_s": NEVER_S if hints else 0.2, "heartbeat_period_s": 1.0},
        **sections,
    )
    return PlaneProcess(directory / "moorage.conf")


def enrol(services, name="compute-1", *options):
    """The token that `moorage host enrol` prints."""
    made = moorage("host", "enrol", name, *options, "--config", services.config)
    assert made.returncode == 0, made.stderr
    return made.stdout


def join(agent, given, *, succeeds=True):
    """The command's output, with `given` on its standard input."""
    command = [sys.executable, "-c", "from moorage.cli.main import main; main()", "host", "join", "--config"]
    done = subprocess.run(
        [*command, agent.config], input=given, env=without_ours(), text=True, capture_output=True, check=False
    )
    assert (done.returncode == 0) is succeeds, done.stderr
    return done.stdout + done.stderr


@contextlib.contextmanager
def hints_by(kind, databases):
    if kind == "rabbit":
        with temporary_vhost() as url:
            yield url
    elif kind == "notify":
        yield databases["compute"]
    else:
        yield ""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            ("postgresql", "rabbit"), id="postgresql-rabbit", marks=[pytest.mark.postgresql, pytest.mark.rabbit]
        ),
        pytest.param(("postgresql", "notify"), id="postgresql-notify", marks=pytest.mark.postgresql),
        pytest.param(("mariadb", "poll"), id="mariadb-poll", marks=pytest.mark.mariadb),
    ],
)
def plane(request, tmp_path_factory):
    """(services, agent), both up."""
    database, hints = request.param
    directory: Path = tmp_path_factory.mktemp("spread-out")
    with contextlib.ExitStack() as stack:
        databases = {name: stack.enter_context(temporary_database(database)) for name in DATABASES}
        url = stack.enter_context(hints_by(hints, databases))
        services = stack.enter_context(services_process(directory / "services", databases, url))
        agent = stack.enter_context(agent_process(directory / "agent", services, url))
        yield services, agent


@pytest.fixture
def clients(plane):
    return plane[0].clients()


@pytest.fixture
def flavor(clients):
    """A flavor with a function of its own, because a region that already has the function is not programmed again."""
    function = str(uuid.uuid4())
    return clients.create_fpga_flavor(function, function)


def delete_and_wait(clients, server):
    clients.compute.request("DELETE", f"/servers/{server}")
    clients.wait_until_gone(server)
    until(lambda: not clients.allocations(server))
    until(lambda: not clients.accelerators_of(server))
    return True


def test_a_server_is_built_and_deleted_on_the_host_of_the_other_process(plane, clients, flavor):
    _, agent = plane
    agent.slow_down(program=0.05)
    server = clients.create_server(flavor=flavor)
    clients.wait_for_status(server, "ACTIVE")
    (address,) = until(lambda: clients.accelerators_of(server))
    domain = (agent.state / "host" / "domains" / f"{server}.xml").read_text()
    assert f"function='0x{address[-1]}'" in domain.replace('"', "'")
    assert clients.allocations(server)["CUSTOM_ACCELERATOR_FPGA"] == 1
    assert delete_and_wait(clients, server)
    assert not (agent.state / "host" / "domains" / f"{server}.xml").exists()


def test_the_process_of_an_agent_has_no_users_and_serves_no_api(plane):
    _, agent = plane
    for name in ("identity.db", "token.key", "credentials.json"):
        assert not (agent.state / name).exists()
    assert agent.transport("/compute").send("GET", "/", {}).status == 404


def test_an_agent_killed_during_a_build_finishes_it_after_its_restart(plane, clients, flavor):
    _, agent = plane
    agent.slow_down(program=60)
    server = clients.create_server(flavor=flavor)
    agent.wait_for_programming()
    agent.kill()
    agent.slow_down(program=0.05)
    agent.start()
    clients.wait_for_status(server, "ACTIVE", "ERROR")
    assert clients.server(server)["status"] == "ACTIVE"
    assert clients.allocations(server)["CUSTOM_ACCELERATOR_FPGA"] == 1
    assert delete_and_wait(clients, server)


def test_services_killed_during_a_build_learn_its_result_after_their_restart(plane, clients, flavor):
    services, agent = plane
    agent.slow_down(program=2)
    server = clients.create_server(flavor=flavor)
    agent.wait_for_programming()
    services.kill()
    services.start()
    clients.wait_for_status(server, "ACTIVE", "ERROR")
    assert clients.server(server)["status"] == "ACTIVE"
    agent.slow_down(program=0.05)
    assert delete_and_wait(clients, server)


def test_both_processes_stop_by_ctrl_c_in_any_order(plane):
    services, agent = plane
    assert services.stop() == 0
    assert agent.stop() == 0
    assert services.members() == agent.members() == []


def test_an_agent_repeats_its_report_until_compute_answers(tmp_path):
    with (
        services_process(tmp_path / "services", {}) as services,
        agent_process(tmp_path / "agent", services) as agent,
    ):
        clients = services.clients()
        agent.slow_down(program=0.5)
        server = clients.create_server(flavor=clients.create_fpga_flavor())
        agent.wait_for_programming()
        services.kill()
        until(lambda: "could not request a job" in agent.log)
        services.start()
        clients.wait_for_status(server, "ACTIVE", "ERROR")
        assert clients.server(server)["status"] == "ACTIVE"
        # The accelerator agent reports to its service by itself, soon after.
        assert len(until(lambda: clients.accelerators_of(server))) == 1


def test_a_starting_agent_waits_for_the_services(tmp_path):
    with services_process(tmp_path / "services", {}) as services:
        agent = agent_process(tmp_path / "agent", services)
        services.stop()
        with agent.launch():
            until(lambda: "waiting for a service" in agent.log)
            services.start()
            until(lambda: "Moorage is up" in agent.out)


def hosts_of(services):
    listed = moorage("host", "list", "--json", "--config", services.config)
    return {row["name"]: row["state"] for row in json.loads(listed.stdout)["hosts"]}


def test_a_host_joins_with_a_token_that_works_once_and_stops_when_it_is_revoked(tmp_path):
    with services_process(tmp_path / "services", {}) as services:
        agent = agent_that_did_not_join(tmp_path / "agent", services)
        with pytest.raises(pytest.fail.Exception, match="moorage host enrol compute-1"), agent:
            pass
        token = enrol(services)
        assert hosts_of(services) == {"compute-1": "invited"}
        assert "the token is for compute-2" in join(agent, enrol(services, "compute-2"), succeeds=False)
        assert "moorage host enrol compute-1" in join(agent, "compute-1:wrong\n", succeeds=False)
        join(agent, token)
        assert "moorage host enrol compute-1" in join(agent, token, succeeds=False)
        credential = agent.state / "host" / "credential.json"
        assert stat.S_IMODE(credential.stat().st_mode) == 0o600
        assert hosts_of(services) == {"compute-1": "enrolled", "compute-2": "invited"}
        with agent.start():
            clients = services.clients()
            server = clients.create_server(flavor=clients.create_fpga_flavor())
            clients.wait_for_status(server, "ACTIVE")
            revoked = moorage("host", "revoke", "compute-1", "--config", services.config)
            assert revoked.stdout == "compute-1 is revoked.\n"
            until(lambda: "moorage host enrol compute-1" in agent.log)
        assert hosts_of(services)["compute-1"] == "revoked"


def test_an_agent_with_the_password_of_a_service_user_does_not_start(tmp_path):
    with services_process(tmp_path / "services", {}) as services:
        password, project = first_credentials(services.state, "moorage")
        identity = {"username": "moorage", "password": password, "project": project}
        agent = agent_that_did_not_join(tmp_path / "agent", services, identity=identity)
        started = moorage("up", "--config", agent.config)
        assert started.returncode == 1
        assert "host compute-1 has no credential" in started.stderr
        assert "moorage host enrol compute-1" in started.stderr


def test_a_process_with_its_own_users_that_serves_an_api_must_run_identity(tmp_path):
    config = write_config(
        tmp_path, plane={"services": "placement"}, endpoints={"identity": "http://127.0.0.1:1/identity"}
    )
    with pytest.raises(StartError, match=r"serves placement must also run identity.*mode = keystone"):
        build_plane(config)


def test_the_catalogue_has_versioned_urls_of_services_in_other_processes(tmp_path):
    endpoints = {name: f"http://other:1/{name}" for name in SERVICES if name != "identity"}
    config = write_config(tmp_path, plane={"services": "identity"}, endpoints=endpoints)
    plane = build_plane(config)
    transport = InProcessTransport(plane.app, "http://127.0.0.1:8778/identity")
    tokens = embedded_credentials(transport, config.state, SystemClock())
    assert tokens.endpoint("reservation") == "http://other:1/reservation/v1"
    assert tokens.endpoint("compute") == "http://other:1/compute/v2.1"
    assert tokens.endpoint("image") == "http://other:1/image"
    assert tokens.endpoint("identity") == "http://127.0.0.1:8778/identity/v3"


def test_a_missing_service_without_an_endpoint_stops_the_start(tmp_path):
    config = write_config(tmp_path, plane={"services": "identity,compute,image"})
    with pytest.raises(StartError, match=r"moorage\.conf: placement is neither in \[plane\] services"):
        build_plane(config)
