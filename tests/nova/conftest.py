"""A real Nova above Moorage's placement, reservation and accelerator services, for all tests of this directory.

It runs only with `make test-nova`, because it takes minutes, most of them in Nova itself.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from moorage.core.clock import SystemClock
from moorage.identity.client import PasswordTokens
from moorage.wire.transports import SocketTransport
from tests.nova.real import Around, real_nova
from tests.ports import free_port
from tests.processes import openstack, python_of, running
from tests.servers import temporary_database
from tests.system.keystone.real import PASSWORD, real_keystone
from tests.system.planes import PlaneClients, PlaneProcess, write_config

HOSTS = ("mole", "quay")
#: A provider configuration file in the form that Nova accepts: a list, and a version in quotes.
CUSTOM_X = """\
meta: {schema_version: '1.0'}
providers:
  - identification: {uuid: $COMPUTE_NODE}
    inventories: {additional: [{CUSTOM_X: {total: 4, max_unit: 2}}]}
    traits: {additional: [CUSTOM_TIDAL]}
"""


def pytest_collection_modifyitems(items):
    if os.environ.get("MOORAGE_TEST_NOVA"):
        return
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.skip(reason="a real Nova takes minutes: make test-nova"))


@dataclass(frozen=True)
class Cloud:
    """A Nova with the services that it needs."""

    keystone_url: str
    compute_url: str
    clients: PlaneClients  #: clients of an administrator; `compute` is Nova
    logs: Path  #: the directory of Nova's logs

    def openstack(self, *commands):
        """Runs unmodified commands as an administrator, in order."""
        variables = {
            "OS_AUTH_URL": f"{self.keystone_url}/v3",
            "OS_USERNAME": "admin",
            "OS_PASSWORD": PASSWORD,
            "OS_PROJECT_NAME": "admin",
            "OS_USER_DOMAIN_ID": "default",
            "OS_PROJECT_DOMAIN_ID": "default",
        }
        return openstack(variables, *commands)


@pytest.fixture(scope="session")
def cloud(tmp_path_factory):
    with a_cloud(tmp_path_factory.mktemp("cloud")) as cloud:
        yield cloud


@contextlib.contextmanager
def a_cloud(directory: Path, *, real_placement: bool = False) -> Iterator[Cloud]:
    """`real_placement`: use the real Placement; then only the reservation service is Moorage's."""
    with contextlib.ExitStack() as stack:
        keystone = stack.enter_context(real_keystone(directory))
        keystone.user("glance", "service", "service")
        ports = {name: free_port() for name in ("compute", "plane", "image", "network", "placement")}
        at = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        placement = at["placement"] if real_placement else f"{at['plane']}/placement"
        keystone.offer("compute", f"{at['compute']}/v2.1")
        keystone.offer("placement", placement)
        keystone.offer("accelerator", f"{at['plane']}/accelerator/v2")
        keystone.offer("reservation", f"{at['plane']}/reservation/v1")
        keystone.offer("image", at["image"])
        keystone.offer("network", at["network"])
        services = "reservation" if real_placement else "placement,accelerator,reservation,accelerator-agent"
        elsewhere = {"placement": placement} if real_placement else {}
        write_config(
            directory / "plane",
            plane={"services": services, "log_file": "moorage.log"},
            agent={"host": HOSTS[0], "update_period_s": 2.0, "poll_period_s": 1.0},
            server={"port": ports["plane"]},
            identity={"mode": "keystone", "keystone_url": f"{keystone.url}/v3", "password": PASSWORD},
            endpoints={"image": at["image"], "compute": at["compute"], **elsewhere},
            reservation={"watch_period_s": 2.0},
        )
        if real_placement:
            database = stack.enter_context(temporary_database("postgresql"))
            (directory / "placement").mkdir()
            rig = [python_of(".venv-conformance"), "-W", "ignore", "-m", "tests.nova.placement_rig"]
            rig += [str(ports["placement"]), directory / "placement", database, f"{keystone.url}/v3", PASSWORD]
            stack.enter_context(running(rig, placement, directory / "placement.log"))
        glance = [python_of(".venv-glance"), "-W", "ignore", "tests/system/images/glance_rig.py", directory / "glance"]
        glance += [str(ports["image"]), f"{keystone.url}/v3", "glance", PASSWORD, "service"]
        around = Around(f"{keystone.url}/v3", PASSWORD, at["image"], ports["compute"], ports["network"])
        stack.enter_context(running(glance, f"{at['image']}/versions", directory / "glance.log"))
        plane = stack.enter_context(PlaneProcess(directory / "plane" / "moorage.conf"))
        logs = stack.enter_context(real_nova(directory, around, {HOSTS[0]: CUSTOM_X, HOSTS[1]: ""}))
        outside = {"/compute/v2.1": f"{at['compute']}/v2.1", "/image": at["image"]}
        outside |= {f"/{name}": url for name, url in elsewhere.items()}

        def transport(path):
            return SocketTransport(outside[path]) if path in outside else plane.transport(path)

        tokens = PasswordTokens(
            SocketTransport(keystone.url), username="admin", password=PASSWORD, project="admin", clock=SystemClock()
        )
        yield Cloud(keystone.url, outside["/compute/v2.1"], PlaneClients(transport, tokens, SystemClock()), logs)
