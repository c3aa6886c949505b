"""Ports and servers that contradict each other, on a whole plane: found, and repaired where that is safe."""

import json

import pytest

from moorage.audit.model import FindingKind
from moorage.core.errors import RemoteError
from moorage.network.client.moorage_ports import MoorageServerPorts
from moorage.wire.client import ServiceClient
from moorage.wire.transports import InProcessTransport
from tests.system.audit.rig import AuditedPlane
from tests.system.planes import embedded_credentials

GONE = "0f6e1f0a-95cc-4c2b-8d5e-3a1f0c9d7e21"


@pytest.fixture
def plane(tmp_path):
    with AuditedPlane(tmp_path) as plane:
        yield plane


class Networks:
    def __init__(self, plane, credentials=None):
        transport = InProcessTransport(plane.plane.app, "http://127.0.0.1/network")
        credentials = credentials or plane.placement._credentials
        self.http = ServiceClient(transport, service_type="network", credentials=credentials, clock=plane.clock)
        self.lab = self.http.get("/v2.0/networks")["networks"][0]["id"]

    def port(self, port_id):
        return next(iter(self.http.get("/v2.0/ports", params=[("id", port_id)])["ports"]), None)

    def ports_of(self, server):
        return [row["id"] for row in self.http.get("/v2.0/ports", params=[("device_id", server)])["ports"]]

    def new_port(self):
        return self.http.request("POST", "/v2.0/ports", json={"port": {"network_id": self.lab}})["port"]["id"]


@pytest.fixture
def networks(plane):
    return Networks(plane)


def server_on_lab(plane):
    flavor = plane.create_flavor("small")
    body = {"name": "web", "flavorRef": flavor, "imageRef": plane.create_image(), "networks": "auto"}
    server = plane.compute.request("POST", "/servers", json={"server": body})["server"]["id"]
    plane.settle()
    assert plane.server(server)["status"] == "ACTIVE"
    return server


def bind(plane, port, server):
    """By SQL: no request makes this contradiction."""
    return plane.broken(
        f"UPDATE ports SET device_id = '{server}', host = 'compute-1' WHERE id = '{port}'", service="network"
    )


def kinds(found):
    return [(one.kind, one.subject) for one in found]


def test_ports_that_agree_cost_one_request_and_give_no_finding(plane, networks):
    server_on_lab(plane)
    asked = []
    plane.answers["network"] = plane.answers["compute"] = asked.append
    plane.pass_grace()
    assert plane.audit() == []
    assert [path for path in asked if "/ports" in path or "os-interface" in path] == ["/v2.0/ports"]


def test_a_port_of_a_server_that_is_gone_is_released_and_the_receipt_undoes_it(plane, networks):
    port = networks.new_port()
    with bind(plane, port, GONE):
        assert plane.audit() == []
        plane.pass_grace()
        found = plane.audit()
        assert kinds(found) == [(FindingKind.PORT_WITHOUT_SERVER, port)]
        (outcome,) = plane.fix(found)
        assert outcome.is_done, outcome
        assert networks.port(port)["device_id"] == ""
        assert plane.audit() == []
        before, _ = map(json.loads, plane.receipt_path.read_text().splitlines())
        (undo,) = before["undo"]
        with pytest.raises(RemoteError, match="403"):
            networks.http.request(undo["method"], undo["path"], json=undo["body"])
        of_services = embedded_credentials(plane.transport("/identity"), plane.state, plane.clock, "moorage")
        Networks(plane, of_services).http.request(undo["method"], undo["path"], json=undo["body"])
        assert networks.port(port)["device_id"] == GONE


def test_a_port_made_for_a_server_that_is_gone_is_deleted(plane, networks):
    server = server_on_lab(plane)
    (port,) = networks.ports_of(server)
    with plane.broken(f"UPDATE ports SET device_id = '{GONE}' WHERE id = '{port}'", service="network"):
        plane.pass_grace()
        found = plane.audit()
        assert sorted(kinds(found)) == sorted(
            [(FindingKind.PORT_WITHOUT_SERVER, port), (FindingKind.SERVER_WITHOUT_PORT, server)]
        )
        (outcome,) = plane.fix(found)
        assert outcome.is_done, outcome
        assert networks.port(port) is None
        assert kinds(plane.audit()) == [(FindingKind.SERVER_WITHOUT_PORT, server)]


def test_a_port_that_its_server_does_not_list_is_released_only_by_name(plane, networks):
    server, port = server_on_lab(plane), networks.new_port()
    with bind(plane, port, server):
        plane.pass_grace()
        found = plane.audit()
        assert kinds(found) == [(FindingKind.UNLISTED_PORT, port)]
        assert plane.fix(found) == []
        plane.receipt_path.unlink()
        (outcome,) = plane.fix(found, port)
        assert outcome.is_done, outcome
        assert networks.port(port)["device_id"] == ""
        assert plane.audit() == []


def test_a_port_that_changes_before_its_repair_is_left_alone(plane, networks):
    port, server = networks.new_port(), server_on_lab(plane)
    with bind(plane, port, GONE):
        plane.pass_grace()
        found = plane.audit()

        def give_back():
            MoorageServerPorts(networks.http).release_port(GONE, port)
            networks.http.request("PUT", f"/v2.0/ports/{port}", json={"port": {"name": "mine"}})

        plane.before["GET", "network", "/v2.0/ports?id="] = give_back
        (outcome,) = plane.fix(found)
        assert (outcome.is_done, outcome.text) == (False, "left alone: it changed meanwhile")
        assert networks.port(port)["name"] == "mine"
        assert networks.ports_of(server)


def test_with_a_neutron_ports_are_not_compared(plane, networks):
    port = networks.new_port()
    with bind(plane, port, GONE):
        plane.pass_grace()
        for status in (401, 404):
            plane.refused["network"] = {"/moorage/v1/openapi.json": status}
            assert plane.audit() == []
            assert plane.snapshot.ports is None
        plane.refused["network"] = {}
        assert kinds(plane.audit()) == [(FindingKind.PORT_WITHOUT_SERVER, port)]


def test_the_undo_asks_for_no_address_that_a_dhcp_server_gave(plane, networks):
    port = networks.new_port()

    def as_learned(path):
        if not path.startswith("/v2.0/ports"):
            return None
        rows = networks.http.get(path)["ports"]
        for row in rows:
            row["binding:vif_details"] = {"learned_addresses": [one["ip_address"] for one in row["fixed_ips"]]}
        return json.dumps({"ports": rows}).encode()

    with bind(plane, port, GONE):
        plane.pass_grace()
        plane.answers["network"] = as_learned
        (outcome,) = plane.fix(plane.audit())
    assert outcome.is_done
    before, _ = map(json.loads, plane.receipt_path.read_text().splitlines())
    assert before["undo"][0]["body"]["ports"][0]["address"] is None
