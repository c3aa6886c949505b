"""A plane whose process also serves networks, for tests of servers with networks."""

from tests.wire.compute.conftest import IMAGE, Plane

LAB = "bridge br0 subnet 192.0.2.0/24 dns 192.0.2.53 addresses 192.0.2.100-192.0.2.105"


class NetworkPlane(Plane):
    """A plane whose process also serves networks."""

    services = "placement,image,compute,network"
    builders = "compute,network"

    @property
    def to_network(self):
        return self.builds.ways["network"]

    def net(self, method, path, body=None, *, who="alice:red", roles="member"):
        answer = self.process.send(method, f"/network/v2.0{path}", body, who=who, roles=roles)
        return answer.status, answer.body

    def operate(self, method, path, body=None):
        return self.net(method, path, body, who="root:admin", roles="admin")

    def network(self, name):
        return self.operate("GET", f"/networks?name={name}")[1]["networks"][0]["id"]

    def ports(self):
        return self.operate("GET", "/ports")[1]["ports"]

    def port(self, **more):
        status, body = self.net("POST", "/ports", {"port": {"network_id": self.network("lab"), **more}})
        assert status == 201, body
        return body["port"]["id"]

    def refusal(self, networks, *, who="alice:red", version="2.96", **more):
        server = {"name": "vm", "imageRef": IMAGE, "flavorRef": "small", "networks": networks, **more}
        if networks is None:
            del server["networks"]
        status, _, document = self.send("POST", "/v2.1/servers", {"server": server}, who=who, version=version)
        return status, next(iter(document.values())).get("message")


def addresses(plane, server_id):
    """{network: addresses} of the server"""
    return {name: [row["addr"] for row in rows] for name, rows in plane.show(server_id)["addresses"].items()}
