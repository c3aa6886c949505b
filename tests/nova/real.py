"""A real Nova for tests: API, scheduler, conductor and computes with its fake virt driver."""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.processes import ROOT, end, inherited, python_of, running
from tests.servers import temporary_database, temporary_vhost

START_TIMEOUT_S = 90

CONFIGURATION = """\
[DEFAULT]
log_dir = {state}/log
concurrency_backend = threading
state_path = {state}
my_ip = 127.0.0.1
host = control
transport_url = {broker}
compute_driver = fake.FakeDriverWithoutFakeNodes
allow_resize_to_same_host = true
report_interval = 3
service_down_time = 15
update_resources_interval = 20
reserved_host_memory_mb = 0
vif_plugging_timeout = 0
vif_plugging_is_fatal = false
arq_binding_timeout = 60
[wsgi]
api_paste_config = {state}/api-paste.ini
[oslo_concurrency]
lock_path = {state}/locks
[api_database]
connection = {api_database}
[database]
connection = {cell_database}
[oslo_messaging_rabbit]
rabbit_quorum_queue = false
heartbeat_in_pthread = false
[scheduler]
workers = 1
discover_hosts_in_cells_interval = 2
[conductor]
workers = 1
[quota]
instances = -1
cores = -1
ram = -1
[glance]
region_name = RegionOne
valid_interfaces = public
api_servers = {glance}
"""

#: The sections of Nova's configuration with its credentials for other services.
ACCOUNTS = ("keystone_authtoken", "keystone", "service_user", "placement", "neutron", "cyborg")
ACCOUNT = """\
[{section}]
send_service_user_token = true
www_authenticate_uri = {keystone}
auth_url = {keystone}
auth_type = password
username = moorage
password = {password}
project_name = service
user_domain_id = default
project_domain_id = default
region_name = RegionOne
valid_interfaces = public
"""

COMPUTE = """\
[DEFAULT]
host = {host}
state_path = {state}
[compute]
provider_config_location = {provider_config}
"""


@dataclass(frozen=True)
class Around:
    """URLs of the services that Nova needs."""

    keystone: str  #: URL with its version
    password: str  #: of the user ``moorage`` in the project ``service``
    glance: str
    compute_port: int  #: the port of the Compute API, which the catalogue already names
    network_port: int


@contextlib.contextmanager
def real_nova(directory: Path, around: Around, computes: Mapping[str, str]) -> Iterator[Path]:
    """Yields the directory of its logs when all of it is up. `computes`: {host name: text of its provider configuration
    file, or nothing}.
    """
    python, rig = python_of(".venv-nova"), str(ROOT / "tests/nova/rig.py")
    state = directory / "nova"
    for name in ("log", "locks"):
        (state / name).mkdir(parents=True)
    shutil.copy(python.parents[1] / "etc" / "nova" / "api-paste.ini", state)
    with contextlib.ExitStack() as stack:
        api_database, cell_database, cell0 = (
            stack.enter_context(temporary_database("postgresql")).replace("://", "+psycopg2://", 1) for _ in range(3)
        )
        main = state / "nova.conf"
        text = CONFIGURATION.format(
            state=state,
            broker=stack.enter_context(temporary_vhost()).replace("amqp://", "rabbit://"),
            api_database=api_database,
            cell_database=cell_database,
            glance=around.glance,
        )
        accounts = [
            ACCOUNT.format(section=section, keystone=around.keystone, password=around.password) for section in ACCOUNTS
        ]
        main.write_text("".join([text, *accounts]))
        done = subprocess.run(
            [python, "-W", "ignore", rig, "prepare", main, cell0], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        network, api = around.network_port, around.compute_port
        log = state / "log"
        stack.enter_context(
            running([python, rig, "network", str(network)], f"http://127.0.0.1:{network}/", log / "network.out")
        )
        stack.enter_context(_daemon(state, "conductor", main))
        # At this level it logs when it begins and ends to schedule a server.
        stack.enter_context(_daemon(state, "scheduler", main, arguments=["--debug"]))
        stack.enter_context(
            running([python, "-W", "ignore", rig, "api", main, str(api)], f"http://127.0.0.1:{api}/", log / "api.out")
        )
        for host, provider_config in computes.items():
            stack.enter_context(_compute(state, main, host, provider_config))
        yield log


@contextlib.contextmanager
def _compute(state: Path, main: Path, host: str, provider_config: str) -> Iterator[None]:
    own = state / host
    (own / "provider_config").mkdir(parents=True)
    if provider_config:
        (own / "provider_config" / "10-host.yaml").write_text(provider_config)
    (own / "compute.conf").write_text(COMPUTE.format(host=host, state=own, provider_config=own / "provider_config"))
    with _daemon(state, "compute", main, own / "compute.conf", name=host):
        yield


@contextlib.contextmanager
def _daemon(
    state: Path, program: str, *configuration: Path, name: str = "", arguments: Sequence[str] = ()
) -> Iterator[None]:
    """Starts one of Nova's own commands; returns when its log says that it has started."""
    out = state / "log" / f"{name or program}.out"
    command = [python_of(".venv-nova").with_name(f"nova-{program}")]
    command += [word for file in configuration for word in ("--config-file", str(file))]
    command += arguments
    command += ["--log-file", str(state / "log" / f"{name or program}.log")]
    with out.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env=inherited(), start_new_session=True)
    try:
        time.sleep(1)
        if process.poll() is not None:
            pytest.fail(f"nova-{program} did not start:\n{out.read_text()[-3000:]}", pytrace=False)
        yield
    finally:
        end(process, 15)
