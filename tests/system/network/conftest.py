"""`moorage up` with two networks and a simulated host, and credentials for the clients; or a plane in this process with
a real Neutron.
"""

import json

import pytest

from moorage.wire.client import ServiceClient
from moorage.wire.transports import SocketTransport
from tests.ports import free_port
from tests.processes import python_of, running
from tests.system.planes import PlaneProcess, write_config
from tests.wire.compute.conftest import Host, Plane

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


class Neutron:
    """A Neutron with a network for all, one of red's own, and one of blue's."""

    def __init__(self, url):
        self.http = ServiceClient(SocketTransport(url), service_type="network")
        self.lab = self.network("lab", "192.0.2.0/24", shared=True)
        self.own = self.network("own", "198.51.100.0/24", project_id="red")
        self.foreign = self.network("foreign", "203.0.113.0/24", project_id="blue")

    def network(self, name, cidr, **more):
        network_id = self.make("network", name=name, mtu=1450, **more)["id"]
        self.make("subnet", network_id=network_id, cidr=cidr, ip_version=4, dns_nameservers=["192.0.2.53"])
        return network_id

    def make(self, kind, **values):
        return self.http.request("POST", f"/v2.0/{kind}s", json={kind: values})[kind]

    def port(self, port_id):
        return self.http.get(f"/v2.0/ports/{port_id}")["port"]

    def ports_of(self, server_id):
        return self.http.get("/v2.0/ports", params=[("device_id", server_id)])["ports"]


@pytest.fixture(scope="module")
def neutron(tmp_path_factory):
    directory, port = tmp_path_factory.mktemp("neutron"), free_port()
    url = f"http://127.0.0.1:{port}"
    command = [python_of(".venv-neutron"), "-W", "ignore", "tests/system/neutron_rig.py"]
    with running(
        [*command, directory / "state", str(port), "--host", "compute-1", "--host", "compute-2"],
        f"{url}/",
        directory / "log",
    ):
        yield Neutron(url), url


@pytest.fixture
def network(neutron):
    """Without ports at the end: the servers of the next test have the same ids."""
    network = neutron[0]
    yield network
    for trunk in network.http.get("/v2.0/trunks")["trunks"]:
        network.http.request("DELETE", f"/v2.0/trunks/{trunk['id']}")
    for port in network.http.get("/v2.0/ports")["ports"]:
        network.http.request("DELETE", f"/v2.0/ports/{port['id']}")


@pytest.fixture
def plane(tmp_path, clock, neutron):
    plane = Plane(tmp_path / "plane", clock, endpoints={"network": neutron[1]}, reach=SocketTransport)
    plane.flavor("small")
    return plane


@pytest.fixture
def host(plane):
    host = Host(plane, "compute-1")
    host.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    return host
