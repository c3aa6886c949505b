"""`moorage up` as users start it: a separate process that ends by Ctrl-C, by SIGKILL, or because it cannot start."""

import os
import shlex
import signal
import socket
import subprocess
import sys

import pytest

from moorage.config import load_config
from moorage.core.clock import SystemClock
from moorage.core.errors import NotFound, Unauthorized
from moorage.identity.client import PasswordTokens
from moorage.wire.client import ServiceClient
from moorage.wire.transports import SocketTransport
from tests.ports import free_port
from tests.system.planes import MOORAGE, PlaneProcess, embedded_credentials, moorage, until, without_ours

pytestmark = pytest.mark.slow

SERVICES = ("identity", "placement", "compute", "accelerator", "reservation", "image", "network")

OWN = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}


def a_plane(directory, *options, is_warm=True):
    """A plane that was not started; its state directory and configuration do not exist yet."""
    return PlaneProcess(directory / "moorage.conf", "--port", str(free_port()), *options, is_warm=is_warm)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A running plane for tests that only read; its state directory has a space in its name."""
    with a_plane(tmp_path_factory.mktemp("plane") / "the state", is_warm=False) as plane:
        yield plane


def refused(plane):
    """The single message with which `moorage up` ends."""
    with plane.launch():
        assert plane.process.wait(30) == 1
        until(lambda: not plane.members())
    assert "Traceback" not in plane.err
    steps, mark, message = plane.err.partition("moorage: ")
    assert all(line.startswith("First start: ") for line in steps.splitlines()), plane.err
    assert mark
    assert "moorage: " not in message
    return message


# ------------------------------------------------------------------------------------------------- a running plane


def test_the_healthcheck_of_every_service_succeeds(running):
    for service in SERVICES:
        assert running.transport(f"/{service}").send("GET", "/healthcheck", {}).status == 200


def test_the_banner_names_every_url_and_the_next_command(running):
    for service in SERVICES:
        assert f"{running.url}/{service}" in running.out
    assert f"""eval "$(moorage env --config '{running.config}')\"""" in running.out


def test_the_first_start_tells_its_progress_in_lines_and_a_later_one_does_not(tmp_path):
    plane = a_plane(tmp_path, is_warm=False)
    with plane:
        steps = plane.err.splitlines()
        assert steps[0] == "First start: preparing identity (0 of 9 done)"
        assert steps[-1] == "First start: preparing the start of all services (9 of 9 done)"
        assert {line.split()[3] for line in steps} >= {*SERVICES, "agent", "dashboard"}
        assert plane.stop() == 0
        plane.start()
        assert "First start" not in plane.err


@pytest.mark.parametrize("when", ["before the first start", "after the first start"])
def test_a_file_of_two_lines_gives_the_same_plane_with_another_number_of_hosts(tmp_path, when):
    plane = a_plane(tmp_path)
    if when == "after the first start":
        with plane:
            assert plane.stop() == 0
    plane.config.write_text("[agent]\nsimulated_hosts = 2\n")
    with PlaneProcess(plane.config, "--port", str(free_port())) as plane:
        tokens = embedded_credentials(plane.transport("/identity"), plane.state, SystemClock())
        networks = ServiceClient(plane.transport("/network"), service_type="network", credentials=tokens)
        (lab,) = networks.get("/v2.0/networks")["networks"]
        assert (lab["name"], lab["shared"]) == ("lab", True)
        assert len(plane.clients().compute.get("/os-services")["services"]) == 2


def test_slots_on_a_fresh_plane_says_that_no_host_takes_leases_and_how_to_register_one(running):
    done = moorage("slots", "--hours", "1", "--config", running.config)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "no host takes leases" in said
    assert "`openstack reservation host create NAME`" in said


def test_env_of_an_unknown_user_is_refused_in_one_line_that_names_the_user_and_the_file(running):
    done = moorage("env", "--config", running.config, "--user", "nobody")
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert "nobody" in done.stderr
    assert str(running.state) in done.stderr


def variables_of(answer):
    lines = answer.stdout.splitlines()
    assert lines.pop().startswith("# In a browser: http://127.0.0.1:"), answer
    assert all(line.startswith("export ") for line in lines), answer
    return dict(shlex.split(line)[1].split("=", 1) for line in lines)


@pytest.mark.parametrize("user", ["admin", "demo"])
def test_env_prints_six_variables_that_let_a_client_in(running, user):
    variables = variables_of(moorage("env", "--config", running.config, "--user", user))
    assert set(variables) == {
        "OS_AUTH_URL",
        "OS_USERNAME",
        "OS_PASSWORD",
        "OS_PROJECT_NAME",
        "OS_USER_DOMAIN_ID",
        "OS_PROJECT_DOMAIN_ID",
    }
    tokens = PasswordTokens(
        SocketTransport(variables["OS_AUTH_URL"]),
        username=variables["OS_USERNAME"],
        password=variables["OS_PASSWORD"],
        project=variables["OS_PROJECT_NAME"],
        clock=SystemClock(),
    )
    assert tokens.endpoint("placement") == f"{running.url}/placement"
    wrong = PasswordTokens(
        SocketTransport(variables["OS_AUTH_URL"]), username=user, password="x", project="demo", clock=SystemClock()
    )
    with pytest.raises(Unauthorized):
        wrong.headers()


def test_a_shell_reads_the_output_of_env_as_the_banner_says(running):
    line = next(line for line in running.out.splitlines() if "eval" in line).split(')"')[0].strip() + ')"'
    shell = f'{line}; echo "$OS_AUTH_URL $OS_USERNAME"'
    done = subprocess.run(
        ["sh", "-c", shell],
        env=OWN | {"PATH": f"{MOORAGE.parent}:{OWN['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [f"{running.url}/identity", "admin"]


def test_files_of_the_first_start_are_readable_only_by_their_owner(running):
    for path in [running.state, *running.state.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    for name in ("identity.db", "token.key", "credentials.json", "moorage.conf", "running.conf"):
        assert (running.state / name).stat().st_mode & 0o777 == 0o600


def test_a_plane_with_the_system_clock_refuses_to_move_it(running):
    assert running.transport("/moorage/v1").send("GET", "/clock", {}).status == 404
    for words in ((), ("advance", "1h")):
        done = moorage("clock", "--config", running.config, *words)
        assert done.returncode == 1
        assert "start a rehearsal with `moorage up --adjustable-clock`" in done.stderr
        assert len(done.stderr.splitlines()) == 1


# -------------------------------------------------------------------------------------------------------- stopping


def a_lease(clients):
    clients.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
    reservation = {
        "resource_type": "virtual:instance",
        "vcpus": 1,
        "memory_mb": 64,
        "disk_gb": 1,
        "amount": 1,
        "affinity": "None",
        "resource_properties": "",
    }
    body = {"name": "later", "start_date": "2999-01-01 10:00", "end_date": "2999-01-01 11:00", "events": []}
    lease = clients.reservation.request("POST", "/v1/leases", json=body | {"reservations": [reservation]})
    return lease["lease"]["id"]


def test_all_objects_exist_after_ctrl_c_and_a_new_start(tmp_path):
    plane = a_plane(tmp_path, is_warm=False)
    with plane:
        clients = plane.clients()
        flavor = clients.create_flavor("kept", **{"resources:CUSTOM_KEPT": "1"})
        image = clients.create_image(b"kept")
        provider = clients.placement.request("POST", "/resource_providers", json={"name": "kept"})["uuid"]
        lease = a_lease(clients)
        server = clients.create_server(flavor=clients.create_flavor("plain"), image=image)
        clients.wait_for_status(server, "ERROR")  # the only host is reserved
        address = (
            load_config(plane.state / "running.conf").server.address,
            load_config(plane.state / "running.conf").server.port,
        )
        assert plane.stop() == 0
        assert plane.members() == []
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
        assert "its state is kept" in plane.err

        plane.start()
        clients = plane.clients()
        assert clients.compute.get(f"/flavors/{flavor}")["flavor"]["name"] == "kept"
        with clients.image.download(f"/v2/images/{image}/file") as chunks:
            assert b"".join(chunks) == b"kept"
        assert clients.placement.get(f"/resource_providers/{provider}")["name"] == "kept"
        assert clients.lease(lease)["status"] == "PENDING"
        assert clients.server(server)["status"] == "ERROR"


def test_ctrl_c_in_a_terminal_stops_all_processes(tmp_path):
    with a_plane(tmp_path) as plane:
        os.killpg(plane.process.pid, signal.SIGINT)
        assert plane.process.wait(10) == 0
        assert plane.members() == []


def test_ctrl_c_during_the_start_ends_it_at_once(tmp_path):
    with a_plane(tmp_path, is_warm=False).launch() as plane:
        until(lambda: len(plane.members()) == 2)
        os.killpg(plane.process.pid, signal.SIGINT)
        assert plane.process.wait(10) == 0
        assert plane.members() == []


#: Starts a plane, and sends Ctrl-C to its supervisor as soon as its worker exists.
CTRL_C_AT_THE_FORK = """
import os, signal, sys

fork = os.fork

def fork_and_interrupt():
    if child := fork():
        os.kill(os.getpid(), signal.SIGINT)
    return child

os.fork = fork_and_interrupt
from moorage.cli.main import main

sys.exit(main())
"""


def test_ctrl_c_between_the_workers_birth_and_the_supervisors_handlers_is_not_lost(tmp_path):
    words = ["up", "--config", tmp_path / "moorage.conf", "--port", str(free_port())]
    done = subprocess.run(
        [sys.executable, "-c", CTRL_C_AT_THE_FORK, *words],
        env=without_ours(), capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "Moorage has stopped; its state is kept.")


def test_a_stop_waits_for_running_jobs_at_most_10_seconds(tmp_path):
    with a_plane(tmp_path) as plane:
        plane.slow_down(program=60)
        clients = plane.clients()
        clients.create_server(flavor=clients.create_fpga_flavor())
        plane.wait_for_programming()
        plane.process.send_signal(signal.SIGINT)
        assert plane.process.wait(15) == 0
        assert plane.members() == []


@pytest.mark.parametrize("when", ["at its start", "when it is up"])
def test_the_worker_stops_when_its_supervisor_is_killed(tmp_path, when):
    plane = a_plane(tmp_path, is_warm=when != "at its start")
    with plane.launch() if when == "at its start" else plane.start():
        until(lambda: len(plane.members()) == 2)
        plane.process.kill()
        plane.process.wait(10)
        until(lambda: not plane.members())


def test_a_plane_whose_worker_was_killed_stops_and_names_its_log(tmp_path):
    with a_plane(tmp_path) as plane:
        (worker,) = set(plane.members()) - {plane.process.pid}
        os.kill(worker, signal.SIGKILL)
        assert plane.process.wait(10) == 1
        assert plane.err.endswith(f"\nmoorage: the worker process has died; see {plane.state}/moorage.log\n")


# ------------------------------------------------------------------------------------------------ starts that fail


def test_a_start_fails_with_the_name_of_a_port_in_use(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        message = refused(PlaneProcess(tmp_path / "moorage.conf", "--port", str(port)))
    assert f"127.0.0.1:{port}" in message
    assert "--port" in message


def test_a_second_plane_on_a_state_directory_is_refused(running):
    running_out, running_err = running.out, running.err
    second = subprocess.run(
        [MOORAGE, "up", "--config", running.config, "--port", str(free_port())],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env=OWN,
    )
    assert second.returncode == 1
    assert second.stderr == (
        f"moorage: {running.state} is in use by another plane, pid {running.process.pid}: stop it, or name "
        "another configuration with --config\n"
    )
    assert (running.out, running.err) == (running_out, running_err)
    assert running.transport("/placement").send("GET", "/healthcheck", {}).status == 200
    # The refused plane changed none of the files that lead to the running one.
    assert variables_of(moorage("env", "--config", running.config))["OS_AUTH_URL"] == f"{running.url}/identity"


def test_a_start_fails_with_the_name_of_an_unknown_option_and_its_file(tmp_path):
    plane = a_plane(tmp_path)
    plane.config.write_text("[plane]\nsevices = placement\n")
    message = refused(plane)
    assert f"{plane.config}: [plane] has no option 'sevices'" in message


def test_a_start_fails_with_the_name_of_an_invalid_provider_file(tmp_path):
    plane = a_plane(tmp_path)
    folder = tmp_path / "provider_config"
    folder.mkdir(mode=0o700)
    (folder / "10-broken.yaml").write_text("meta: {schema_version: '1.0'}\nproviders: [\n")
    message = refused(plane)
    assert "10-broken.yaml" in message
    assert "YAML" in message
    # After the correction the plane starts: the refusal has left nothing behind.
    (folder / "10-broken.yaml").unlink()
    plane.start()
    assert plane.stop() == 0


def test_a_start_fails_with_the_name_of_a_log_that_cannot_be_written(tmp_path):
    plane = a_plane(tmp_path)
    plane.config.write_text("[plane]\nstate_path = .\nlog_file = logs/moorage.log\n")
    message = refused(plane)
    assert f"{tmp_path}/logs/moorage.log cannot be written: No such file or directory" in message
    assert "[plane] log_file" in message


@pytest.mark.parametrize("damage", ["no database at all", "random pages"])
def test_a_damaged_database_is_named_with_the_way_back_and_a_restored_backup_starts(tmp_path, damage):
    plane = a_plane(tmp_path)
    with plane:
        assert plane.stop() == 0
    assert moorage("backup", tmp_path / "backup", "--config", plane.config).returncode == 0
    file = tmp_path / "placement.db"
    whole = file.read_bytes()
    noise = os.urandom(len(whole) - 8192)
    file.write_bytes(noise if damage == "no database at all" else whole[:8192] + noise)
    message = refused(plane)
    assert f"the database {file} is damaged" in message
    assert "`moorage restore DIRECTORY`" in message
    second = moorage("backup", tmp_path / "second", "--config", plane.config)
    if damage == "no database at all":
        assert (second.returncode, second.stderr) == (1, f"moorage: {message}")
    status = moorage("status", "--config", plane.config)
    assert "Traceback" not in status.stderr
    assert moorage("restore", tmp_path / "backup", "--config", plane.config).returncode == 0
    plane.start()
    assert plane.stop() == 0


def test_a_start_fails_with_the_name_of_a_database_that_does_not_answer(tmp_path):
    plane = a_plane(tmp_path)
    port = free_port()
    plane.config.write_text(
        "[plane]\nstate_path = .\nlog_file = moorage.log\n"
        f"[database]\nplacement = postgresql://me:secret@127.0.0.1:{port}/x\n"
    )
    message = refused(plane)
    assert str(port) in message
    assert "secret" not in message


# ------------------------------------------------------------------------------------------- an adjustable clock


def test_an_adjustable_clock_keeps_its_offset_after_a_restart(tmp_path):
    plane = a_plane(tmp_path, "--adjustable-clock")

    def clock(*words):
        done = moorage("clock", "--config", plane.config, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    with plane:
        before = clock()
        after = clock("advance", "400d")
        assert int(after[:4]) > int(before[:4])
        assert plane.stop() == 0
        plane.start()
        assert clock()[:10] >= after[:10]
        token = plane.clients("demo").placement
        with pytest.raises(NotFound):
            token.get("/nowhere")  # its token was issued before the clock moved, so the client renews it
