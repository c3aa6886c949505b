"""A real Nova above Moorage's placement, reservation and accelerator services, for all tests of this directory.

Opt-in, `make test-nova`: it takes minutes, most of them Nova's own.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from moorage.core.clock import SystemClock
from moorage.identity.client import PasswordTokens
from moorage.wire.transports import SocketTransport
from tests.nova.real import Around, real_nova
from tests.processes import free_port, openstack, python_of, running
from tests.system.keystone.real import PASSWORD, real_keystone
from tests.system.planes import PlaneClients, PlaneProcess, write_config

HOSTS = ("mole", "quay")
#: Nova's own form of such a file: a list, and a version in quotes.
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
    """A Nova and what it stands on."""

    keystone_url: str
    clients: PlaneClients  #: an administrator's; `compute` is Nova
    logs: Path  #: Nova's

    def openstack(self, *commands):
        """Unmodified commands of an administrator, one after the other."""
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
    directory = tmp_path_factory.mktemp("cloud")
    with real_keystone(directory) as keystone:
        keystone.user("glance", "service", "service")
        ports = {name: free_port() for name in ("compute", "plane", "image", "network")}
        at = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        keystone.offer("compute", f"{at['compute']}/v2.1")
        keystone.offer("placement", f"{at['plane']}/placement")
        keystone.offer("accelerator", f"{at['plane']}/accelerator/v2")
        keystone.offer("reservation", f"{at['plane']}/reservation/v1")
        keystone.offer("image", at["image"])
        keystone.offer("network", at["network"])
        write_config(
            directory / "plane",
            plane={"services": "placement,accelerator,reservation,accelerator-agent", "log_file": "moorage.log"},
            agent={"host": HOSTS[0], "update_period_s": 2.0, "poll_period_s": 1.0},
            server={"port": ports["plane"]},
            identity={"mode": "keystone", "keystone_url": f"{keystone.url}/v3", "password": PASSWORD},
            endpoints={"image": at["image"], "compute": at["compute"]},
        )
        glance = [python_of(".venv-glance"), "-W", "ignore", "tests/system/images/glance_rig.py", directory / "glance"]
        glance += [str(ports["image"]), f"{keystone.url}/v3", "glance", PASSWORD, "service"]
        around = Around(f"{keystone.url}/v3", PASSWORD, at["image"], ports["compute"], ports["network"])
        with (
            running(glance, f"{at['image']}/versions", directory / "glance.log"),
            PlaneProcess(directory / "plane" / "moorage.conf") as plane,
            real_nova(directory, around, {HOSTS[0]: CUSTOM_X, HOSTS[1]: ""}) as logs,
        ):
            outside = {"/compute/v2.1": f"{at['compute']}/v2.1", "/image": at["image"]}

            def transport(path):
                return SocketTransport(outside[path]) if path in outside else plane.transport(path)

            tokens = PasswordTokens(
                SocketTransport(keystone.url),
                username="admin",
                password=PASSWORD,
                project="admin",
                clock=SystemClock(),
            )
            yield Cloud(keystone.url, PlaneClients(transport, tokens, SystemClock()), logs)
