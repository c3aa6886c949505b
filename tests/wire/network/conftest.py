"""A plane that serves networks alone."""

import pytest

from tests.plane import InProcessPlane

LAB = "bridge br0 subnet 192.0.2.0/24 dns 192.0.2.53 addresses 192.0.2.100-192.0.2.102"
NAT = "libvirt default subnet 192.168.122.0/24 addresses dhcp"


class NetworkWire:
    """The routes as clients of several projects see them: a status and a body."""

    def __init__(self, plane):
        self.plane = plane

    def send(self, method, path, body=None, *, who="alice:red", roles="member"):
        answer = self.plane.send(method, f"/network{path}", body, who=who, roles=roles)
        return answer.status, answer.body

    def operate(self, method, path, body=None):
        return self.send(method, path, body, who="root:admin", roles="admin")

    def serve(self, method, path, body=None):
        return self.send(method, path, body, who="nova:service", roles="service")

    def id_of(self, name, **options):
        _, body = self.send("GET", f"/v2.0/networks?name={name}", **options)
        return body["networks"][0]["id"]

    def port(self, network="lab", **body):
        who = body.pop("who", "alice:red")
        roles = body.pop("roles", "member")
        return self.send(
            "POST", "/v2.0/ports", {"port": {"network_id": self.id_of(network), **body}}, who=who, roles=roles
        )

    def provide(self, *ports):
        return self.serve("PUT", "/moorage/v1/server-ports", {"ports": list(ports)})


@pytest.fixture
def plane(tmp_path, clock, ids):
    with InProcessPlane(
        tmp_path, "network", clock=clock, ids=ids, network={"lines": {"lab": LAB, "nat": NAT}, "quota_ports": 5}
    ) as plane:
        yield plane


@pytest.fixture
def wire(plane):
    return NetworkWire(plane)
