"""Floating IPs with a real Neutron: the four commands of the stock client, and leases with addresses."""

import json

import pytest

from moorage.core.errors import Conflict
from moorage.network.client.neutron_client import NetworkClient, NeutronPort
from moorage.wire.client import ServiceClient
from moorage.wire.transports import SocketTransport
from tests.ports import free_port
from tests.processes import openstack, python_of, running
from tests.system.planes import until
from tests.system.reservation.test_stock_clients import Lines, entry_points, of_floating_ips, plane_below

pytestmark = [pytest.mark.slow, pytest.mark.clients, pytest.mark.neutron]

NOWHERE = "00000000-0000-4000-8000-000000000000"


class Neutron:
    """An external network with free addresses in its subnet, and an internal port for a floating IP."""

    def __init__(self, url):
        self.http = ServiceClient(SocketTransport(url), service_type="network")
        self.network = self.make("network", **{"name": "public", "router:external": True})["id"]
        pool = {"start": "192.0.2.100", "end": "192.0.2.200"}
        outside = self._subnet(self.network, "192.0.2.0/24", allocation_pools=[pool])
        self.inside = self.make("network", name="inside")["id"]
        router = self.make("router", external_gateway_info={"network_id": self.network})["id"]
        subnet = self._subnet(self.inside, "10.0.0.0/24")
        self.http.request("PUT", f"/v2.0/routers/{router}/add_router_interface", json={"subnet_id": subnet})
        self.port = self.make("port", network_id=self.inside)["id"]
        self.subnet = outside

    def _subnet(self, network, cidr, **more):
        return self.make("subnet", network_id=network, cidr=cidr, ip_version=4, **more)["id"]

    def make(self, kind, **values):
        return self.http.request("POST", f"/v2.0/{kind}s", json={kind: values})[kind]

    def floating_ips(self):
        """{address: document}"""
        rows = self.http.get("/v2.0/floatingips")["floatingips"]
        return {row["floating_ip_address"]: row for row in rows}


@pytest.fixture(scope="module")
def neutron(tmp_path_factory):
    directory, port = tmp_path_factory.mktemp("neutron"), free_port()
    url = f"http://127.0.0.1:{port}"
    command = [python_of(".venv-neutron"), "-W", "ignore", "tests/system/neutron_rig.py"]
    with running([*command, directory / "state", str(port)], f"{url}/", directory / "log"):
        yield Neutron(url), url


def test_floating_ips_are_registered_reserved_and_unregistered(neutron, tmp_path):
    """One test, because a Neutron takes some seconds to start, and two processes may run the tests of a module."""
    neutron, url = neutron
    _check_the_client_against_neutron(neutron)
    with plane_below(tmp_path, endpoints={"network": url}) as plane:
        lines = Lines(plane)
        ids = _registered(neutron, lines)
        _reserved(neutron, plane, lines, ids)
        lines.openstack(*(f"floatingip delete {key}" for key in ids.values()))
        assert lines.openstack("floatingip list") == [[]]
        assert lines.without(filter(of_floating_ips, entry_points())) == set()


def _check_the_client_against_neutron(neutron):
    """Checks the answers on which the service relies: no such network, an address in use, an object that does not
    exist.
    """
    client = NetworkClient(neutron.http)
    assert client.network(NOWHERE) is None
    assert (client.network(neutron.network).is_external, client.network(neutron.inside).is_external) == (True, False)
    (subnet,) = client.subnets(neutron.network)
    assert (subnet.cidr, subnet.gateway, subnet.pools) == (
        "192.0.2.0/24",
        "192.0.2.1",
        [("192.0.2.100", "192.0.2.200")],
    )
    made = client.create_floating_ip(neutron.network, subnet.id, "192.0.2.50", project_id="p", description="d")
    assert client.floating_ips(neutron.network, [f"192.0.2.{number}" for number in range(2, 90)]) == [made]
    with pytest.raises(Conflict, match="already allocated"):
        client.create_floating_ip(neutron.network, subnet.id, "192.0.2.50", project_id="p", description="d")
    (port,) = client.ports_at(neutron.network, "192.0.2.50")
    assert isinstance(port, NeutronPort)
    assert port.owner == "network:floatingip"
    client.set_tags(made.id, {"blazar", "reservation:1"})
    (tagged,) = client.floating_ips_tagged("reservation:1")
    assert (tagged.tags, tagged.project_id) == ({"blazar", "reservation:1"}, "p")
    for _ in range(2):
        client.delete_floating_ip(made.id)
    client.dissociate(made.id)


def _registered(neutron, lines):
    made = lines.openstack(*(f"floatingip create {neutron.network} 192.0.2.{number}" for number in (7, 8, 9)))
    ids = {each["floating_ip_address"]: each["id"] for each in made}
    listed, shown = lines.openstack("floatingip list", f"floatingip show {ids['192.0.2.7']}")
    assert {each["floating_ip_address"]: each["id"] for each in listed} == ids
    assert shown == made[0]
    assert (shown["floating_network_id"], shown["subnet_id"]) == (neutron.network, neutron.subnet)
    refused = {
        f"create {neutron.network} 192.0.2.7": "is already registered",
        f"create {neutron.network} 192.0.2.150": "allocation pool 192.0.2.100 to 192.0.2.200",
        f"create {neutron.inside} 10.0.0.9": "is not external",
        f"create {NOWHERE} 192.0.2.9": f"network {NOWHERE} does not exist",
        f"show {NOWHERE}": "not found",
    }
    words = [f"reservation floatingip {line}".split() for line in refused]
    for word, said in zip(refused.values(), openstack(lines.variables, *words), strict=True):
        assert said.status != 0
        assert word in said.err
    return ids


def _reserved(neutron, plane, lines, ids):
    wanted = (
        f'resource_type=virtual:floatingip,network_id={neutron.network},amount=2,required_floatingips=["192.0.2.9"]'
    )
    (lease,) = lines.openstack(f"lease create team --reservation {wanted} --start-date now --end-date END")
    reservation = json.loads(lease["reservations"])
    assert (reservation["amount"], reservation["required_floatingips"]) == (2, ["192.0.2.9"])
    until(lambda: plane.clients().lease(lease["id"])["status"] == "ACTIVE")
    made = neutron.floating_ips()
    assert sorted(made) == ["192.0.2.7", "192.0.2.9"]
    for each in made.values():
        assert (each["project_id"], set(each["tags"])) == (
            lease["project_id"], {"blazar", f"reservation:{reservation['id']}"}
        )  # fmt: skip
    bound = {"floatingip": {"port_id": neutron.port}}
    neutron.http.request("PUT", f"/v2.0/floatingips/{made['192.0.2.9']['id']}", json=bound)
    (said,) = openstack(lines.variables, f"reservation floatingip delete {ids['192.0.2.7']}".split())
    assert "192.0.2.7 is reserved" in said.err
    lines.openstack(f"lease set team --reservation id={reservation['id']},amount=3")
    until(lambda: set(neutron.floating_ips()) == set(ids))
    lines.openstack("lease delete team")
    until(lambda: neutron.floating_ips() == {})
    assert neutron.http.get(f"/v2.0/ports/{neutron.port}")["port"]["status"]
