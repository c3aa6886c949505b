"""Flavors of bare-metal nodes with a real Ironic, its nodes being fake hardware.

`NodeAgent` does the part of Nova's Ironic driver, which Moorage does not have: it reports the nodes of Ironic to
Placement and to compute, and deploys and undeploys them when compute asks for it.
"""

import httpx
import pytest

from moorage.core.names import custom_name
from moorage.placement.client.placement_client import Inventory
from tests.ports import free_port
from tests.processes import python_of, running
from tests.system.planes import until
from tests.wire.compute.conftest import Host, Plane

pytestmark = [pytest.mark.slow, pytest.mark.ironic]

GOLD = "CUSTOM_BAREMETAL_GOLD"
ZEROS = dict.fromkeys(("resources:VCPU", "resources:MEMORY_MB", "resources:DISK_GB"), "0")


class Ironic:
    def __init__(self, url):
        headers = {"X-OpenStack-Ironic-API-Version": "1.90"}
        self.http = httpx.Client(base_url=f"{url}/v1", headers=headers, trust_env=False, timeout=60)

    def enroll(self, name, resource_class):
        """Adds a node and makes it available; returns its uuid."""
        properties = {"cpus": 8, "memory_mb": 4096, "local_gb": 100}
        body = {"name": name, "driver": "fake-hardware", "resource_class": resource_class, "properties": properties}
        uuid = self._ask("POST", "/nodes", body)["uuid"]
        self.provision(uuid, "manage", "manageable")
        self.provision(uuid, "provide", "available")
        return uuid

    def node(self, uuid):
        return self._ask("GET", f"/nodes/{uuid}")

    def deploy(self, uuid, server_id):
        image = {"image_source": "http://images/tiny", "image_checksum": "0" * 32, "root_gb": 10}
        values = {"/instance_uuid": server_id, "/instance_info": image}
        patch = [{"op": "add", "path": path, "value": value} for path, value in values.items()]
        self._ask("PATCH", f"/nodes/{uuid}", patch)
        self.provision(uuid, "active", "active")

    def provision(self, uuid, target, state):
        self._ask("PUT", f"/nodes/{uuid}/states/provision", {"target": target})
        until(lambda: self.node(uuid)["provision_state"] == state)

    def _ask(self, method, path, body=None):
        answer = self.http.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None


class NodeAgent(Host):
    """The host of one node: its name and its provider's uuid are the node's uuid."""

    def __init__(self, plane, ironic, uuid):
        self.ironic, self.node = ironic, ironic.node(uuid)
        super().__init__(plane, uuid, provider_uuid=uuid)

    def register(self):
        size = self.node["properties"]
        self.plane.agent.register_host(
            self.name, provider_uuid=self.name, hypervisor_type="ironic", hypervisor_version=1, host_ip="127.0.0.1",
            vcpus=size["cpus"], memory_mb=size["memory_mb"], local_gb=size["local_gb"], devices=0,
        )  # fmt: skip
        self.report_inventory()

    def report_inventory(self, **sizes):
        """As Nova's driver: one unit of the node's class, reserved while Ironic says that the node is not available."""
        node = self.ironic.node(self.name)
        is_usable = node["provision_state"] in ("available", "active")
        name = custom_name(node["resource_class"])
        self.plane.placement.ensure_class(name)
        generation, _ = self.plane.placement.inventories(self.name)
        units = {name: Inventory(1, reserved=0 if is_usable else 1, max_unit=1)}
        units |= {name: Inventory(total, max_unit=total) for name, total in sizes.items()}
        self.plane.placement.set_inventories(self.name, generation, units)

    def report(self, job):
        if job.kind == "build":
            self.ironic.deploy(self.name, job.payload["server"]["id"])
        elif job.kind == "destroy":
            self.ironic.provision(self.name, "deleted", "available")
        super().report(job)


@pytest.fixture(scope="module")
def ironic(tmp_path_factory):
    directory, port = tmp_path_factory.mktemp("ironic"), free_port()
    url = f"http://127.0.0.1:{port}"
    command = [python_of(".venv-ironic"), "-W", "ignore", "tests/system/compute/ironic_rig.py"]
    with running([*command, directory / "state", str(port)], f"{url}/", directory / "log"):
        yield Ironic(url)


def test_a_flavor_selects_a_node_of_ironic_by_its_resource_class(ironic, tmp_path, clock):
    """F12, F4, F6, F9 (flavor-resources): new-style flavors, and a server from before its node had a class."""
    plane = Plane(tmp_path, clock, bare_metal_period_s=600.0)
    gold, silver, older = (
        NodeAgent(plane, ironic, ironic.enroll(name, resource_class))
        for name, resource_class in (("n1", "baremetal-gold"), ("n2", "baremetal.silver"), ("n3", "baremetal-gold"))
    )
    nodes = (gold, silver, older)
    # A server of the old kind, from before its node had a class.
    generation, _ = plane.placement.inventories(older.name)
    sizes = {"VCPU": 8, "MEMORY_MB": 4096, "DISK_GB": 100}
    by_size = {name: Inventory(total, max_unit=total) for name, total in sizes.items()}
    plane.placement.set_inventories(older.name, generation, by_size)
    first = plane.boot(plane.flavor("by-size", vcpus=8, ram=4096, disk=100))
    plane.settle(*nodes)
    assert ironic.node(older.name)["instance_uuid"] == first
    older.report_inventory(**sizes)
    assert plane.service.bare_metal.migrate_servers(dry_run=False)[0][0].resource_class == GOLD
    assert plane.placement.allocations(first) == {older.name: sizes | {GOLD: 1}}
    # Servers of the new kind: the only free node of the class, then none.
    flavor = plane.flavor("gold", {f"resources:{GOLD}": "1"} | ZEROS, vcpus=8, ram=4096, disk=100)
    second, third = plane.boot(flavor), plane.boot(flavor)
    plane.settle(*nodes)
    assert sorted(plane.show(server_id)["status"] for server_id in (second, third)) == ["ACTIVE", "ERROR"]
    placed = second if plane.show(second)["status"] == "ACTIVE" else third
    node = ironic.node(gold.name)
    assert (node["provision_state"], node["instance_uuid"]) == ("active", placed)
    assert plane.placement.allocations(placed) == {gold.name: {GOLD: 1}}
    shown = plane.show(placed)["flavor"]
    assert (shown["vcpus"], shown["ram"], shown["disk"]) == (8, 4096, 100)
    assert ironic.node(silver.name)["provision_state"] == "available"
    # A deleted server's node is available again.
    plane.send("DELETE", f"/v2.1/servers/{placed}")
    plane.settle(*nodes)
    node = ironic.node(gold.name)
    assert (node["provision_state"], node["instance_uuid"]) == ("available", None)
    again = plane.boot(flavor)
    plane.settle(*nodes)
    assert ironic.node(gold.name)["instance_uuid"] == again
