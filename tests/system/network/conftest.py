"""`moorage up` with two networks and a simulated host, and credentials for the clients."""

import json

import pytest

from tests.ports import free_port
from tests.system.planes import PlaneProcess, write_config

LINES = {
    "lab": "bridge br0 subnet 192.0.2.0/24 dns 192.0.2.53 addresses 192.0.2.100-192.0.2.199",
    "small": "vlan 5 on br0 subnet 198.51.100.0/30",
}


@pytest.fixture(scope="module")
def variables(tmp_path_factory):
    """The environment of the operator's clients."""
    directory = tmp_path_factory.mktemp("networks")
    config = write_config(
        directory,
        plane={"services": "identity,placement,compute,accelerator,image,agent,network"},
        network={"lines": LINES},
    )
    with PlaneProcess(config.source, "--port", str(free_port())) as plane:
        yield client_variables(plane)


def client_variables(plane):
    """The environment of the first administrator's clients."""
    kept = json.loads((plane.state / "credentials.json").read_text())["admin"]
    return {
        "OS_AUTH_URL": f"{plane.url}/identity",
        "OS_USERNAME": "admin",
        "OS_PASSWORD": kept["password"],
        "OS_PROJECT_NAME": kept["project"],
        "OS_USER_DOMAIN_ID": "default",
        "OS_PROJECT_DOMAIN_ID": "default",
        "OS_IDENTITY_API_VERSION": "3",
        "OS_COMPUTE_API_VERSION": "2.96",
    }
