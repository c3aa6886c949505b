"""All services in another project's WSGI server: a stock gunicorn with forked workers."""

import contextlib
import subprocess
import sys

import httpx
import pytest

from moorage.identity.first_start.first_credentials import first_credentials
from tests.ports import free_port
from tests.processes import inherited, running
from tests.system.planes import PlaneProcess, let_in, until, write_config
from tests.wire.dashboard.site import Site

pytestmark = pytest.mark.slow

SERVICES = ("identity", "placement", "compute", "accelerator", "reservation", "image")


def gunicorn(service: str, port: int, *options: str) -> list[str]:
    return [
        sys.executable, "-m", "gunicorn", f"moorage.wsgi.{service}:application",
        "--bind", f"127.0.0.1:{port}", "--threads", "8", "--graceful-timeout", "2", *options,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def ports(tmp_path_factory):
    """{service: port} of running services; the state is in ``services`` below the directory of `ports`."""
    directory = tmp_path_factory.mktemp("wsgi")
    ports = {service: free_port() for service in (*SERVICES, "dashboard")}
    urls = {service: f"http://127.0.0.1:{ports[service]}/{service}" for service in SERVICES}
    config = write_config(directory / "services", endpoints=urls, compute={"poll_period_s": 0.5})
    with contextlib.ExitStack() as stack:
        for service, port in ports.items():
            # Two workers of one service: one of them runs its tasks. A third service is forked after the application
            # was imported. Either worker of the dashboard accepts forms from the other's pages, because it keeps no
            # state.
            two = ("--workers", "2")
            options = {"placement": two, "compute": ("--preload",), "dashboard": two}.get(service, ())
            path = "ui" if service == "dashboard" else service
            stack.enter_context(
                running(
                    gunicorn(service, port, *options),
                    f"http://127.0.0.1:{port}/{path}/healthcheck",
                    directory / f"{service}.log",
                    MOORAGE_CONFIG=str(config.source),
                )
            )
        yield directory, ports, urls


@pytest.fixture(scope="module")
def agent(ports):
    directory, _, urls = ports
    config = write_config(
        directory / "agent",
        plane={"services": "agent", "log_file": "moorage.log"},
        server={"port": free_port()},
        endpoints=urls,
        agent={"poll_period_s": 0.2, "heartbeat_period_s": 1.0},
    )
    let_in(config, directory / "services")
    with PlaneProcess(config.source) as agent:
        yield agent


@pytest.fixture(scope="module")
def clients(ports, agent):
    from moorage.core.clock import SystemClock
    from moorage.wire.transports import SocketTransport
    from tests.system.planes import PlaneClients, embedded_credentials

    directory, numbers, _ = ports

    def transport(path):
        service = path.split("/")[1]
        return SocketTransport(f"http://127.0.0.1:{numbers[service]}{path}")

    tokens = embedded_credentials(transport("/identity"), directory / "services", SystemClock(), "admin")
    return PlaneClients(transport, tokens, SystemClock())


def test_a_server_with_an_accelerator_is_built_and_freed(clients):
    server = clients.create_server(flavor=clients.create_fpga_flavor())
    clients.wait_for_status(server, "ACTIVE", "ERROR")
    assert clients.server(server)["status"] == "ACTIVE"
    assert clients.allocations(server)["CUSTOM_ACCELERATOR_FPGA"] == 1
    clients.compute.request("DELETE", f"/servers/{server}")
    clients.wait_until_gone(server)
    until(lambda: not clients.allocations(server))


def test_the_dashboard_shows_objects_of_the_other_services(ports, clients):
    directory, numbers, _ = ports
    site = Site(None, f"http://127.0.0.1:{numbers['dashboard']}")
    for _ in range(4):
        assert site.sign_in("admin", first_credentials(directory / "services", "admin")[0]).status_code == 303
        assert ">compute-1</a>" in site.get("/map").text
        assert "Leases" in site.get("/leases").text
        assert site.post("/sign-out").headers["location"] == "/ui/sign-in"
    assert site.get("/map").headers["location"].startswith("/ui/sign-in")


def test_the_tasks_of_a_service_run_in_one_of_its_workers(ports):
    _, numbers, _ = ports

    def rounds():
        """{worker: whether it runs tasks}, of the workers that answered."""
        answers = [httpx.get(f"http://127.0.0.1:{numbers['placement']}/metrics", trust_env=False) for _ in range(40)]
        started = {}
        for answer in answers:
            lines = answer.text.splitlines()
            key = next(line for line in lines if line.startswith("process_start_time_seconds "))
            pid = next((line for line in lines if line.startswith("moorage_duty_last_success")), None)
            started[key] = pid is not None
        return started

    until(lambda: True in rounds().values())


def test_an_application_mounted_below_its_name_needs_no_prefix(ports):
    """As mounted by a server that removes the name from the path (SCRIPT_NAME)."""
    directory, _, _ = ports
    script = (
        "from moorage.wsgi.placement import application\n"
        "from wsgiref.util import setup_testing_defaults\n"
        "import sys, os\n"
        "for root, path in (('/cloud/placement', '/'), ('', '/placement/')):\n"
        "    environ = {'SCRIPT_NAME': root, 'PATH_INFO': path}\n"
        "    setup_testing_defaults(environ)\n"
        "    print(root, b''.join(application(environ, lambda status, headers: print(status))).decode()[:40])\n"
        "sys.stdout.flush(); os._exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=inherited() | {"MOORAGE_CONFIG": str(directory / "services/moorage.conf")},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.count("200 OK") == 2, done.stdout


@pytest.mark.parametrize("waits_s", [0, 2])
def test_an_application_has_no_threads_and_open_files_while_its_server_forks(tmp_path, waits_s):
    """Otherwise the new process would inherit a lock that a thread holds at the fork. Before and after the tasks
    started.
    """
    config = write_config(tmp_path / "state", endpoints=dict.fromkeys(SERVICES, "http://127.0.0.1:9/"))
    script = (
        "import os, sys, threading, time\n"
        "state = os.path.dirname(os.environ['MOORAGE_CONFIG'])\n"
        "def opened():\n"
        "    links = [f'/proc/self/fd/{name}' for name in os.listdir('/proc/self/fd')]\n"
        "    return [os.readlink(link) for link in links if os.path.islink(link) and state in os.readlink(link)]\n"
        "def look():\n"
        "    print('at the fork:', [thread.name for thread in threading.enumerate()], opened(), flush=True)\n"
        # Callbacks run in the reverse order of their registration.
        "os.register_at_fork(before=look)\n"
        "from moorage.wsgi.compute import application\n"
        "time.sleep(float(sys.argv[1]))\n"
        "print('before it:', threading.active_count() > 1, bool(opened()), flush=True)\n"
        "from wsgiref.util import setup_testing_defaults\n"
        "environ = {'PATH_INFO': '/compute/'}\n"
        "setup_testing_defaults(environ)\n"
        "if (child := os.fork()) == 0:\n"
        "    print('child:', application(environ, lambda status, headers: print(status)) != [], flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(waits_s)], env=inherited() | {"MOORAGE_CONFIG": str(config.source)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "before it: True True" in done.stdout
    assert "at the fork: ['MainThread'] []" in done.stdout
    assert "child: True" in done.stdout
    assert ("now runs the tasks of this state directory" in done.stderr) is (waits_s > 0), done.stderr


def test_a_forked_worker_runs_the_tasks_before_its_first_request(tmp_path):
    config = write_config(tmp_path / "state", endpoints=dict.fromkeys(SERVICES, "http://127.0.0.1:9/"))
    script = (
        "import os, threading, time\n"
        "from moorage.wsgi.compute import application\n"
        "if (child := os.fork()) == 0:\n"
        "    end = time.monotonic() + 30\n"
        "    while 'compute.build' not in (names := [each.name for each in threading.enumerate()]):\n"
        "        time.sleep(0.1)\n"
        "        if time.monotonic() > end:\n"
        "            break\n"
        "    print('child:', names, flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print('parent:', [each.name for each in threading.enumerate()])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=inherited() | {"MOORAGE_CONFIG": str(config.source)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    child, parent = done.stdout.splitlines()
    assert "'compute.build'" in child
    assert parent == "parent: ['MainThread']"


def test_an_application_without_a_configuration_says_what_is_missing():
    done = subprocess.run(
        [sys.executable, "-c", "import moorage.wsgi.image"], env=inherited(), capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert "MOORAGE_CONFIG is not set; set it to the configuration file of image" in done.stderr
