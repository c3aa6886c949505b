"""A Neutron that answers nonsense or refuses what it must not, and tenants who write into their ports what they like."""

import json
import logging
from dataclasses import replace

import pytest

from moorage.compute.model.servers import BUILD_QUEUE
from moorage.compute.store import server_store
from moorage.db.session import write
from moorage.wire.transports import ClientResponse
from tests.wire.compute.network_plane import addresses

pytestmark = [pytest.mark.slow, pytest.mark.neutron]


def spoiled(change):
    """A handler for `Way.on`: the real answer with a changed document, or with the bytes that `change` returns."""

    def answer(_request, send):
        given = send()
        body = json.loads(given.body)
        other = change(body)
        return replace(given, body=other if isinstance(other, bytes) else json.dumps(body).encode())

    return answer


def logged(caplog):
    return " ".join(str(vars(record)) for record in caplog.records)


SPOILED = {
    "a MAC that is null": ("POST /v2.0/ports", lambda body: body["port"].update(mac_address=None), "mac_address"),
    "a MAC with a quote": (
        "POST /v2.0/ports", lambda body: body["port"].update(mac_address="52:54:00:00:00:01'/>"), "mac_address",
    ),
    "a bridge with slashes": (
        "POST /v2.0/ports", lambda body: body["port"]["binding:vif_details"].update(bridge_name="../../x"), "bridge_name",
    ),
    "an address that is none": (
        "POST /v2.0/ports", lambda body: body["port"]["fixed_ips"][0].update(ip_address="nonsense"), "nonsense",
    ),
    "no port": ("POST /v2.0/ports", lambda body: body.clear(), "'port' that cannot be used"),
    "an MTU as a text": ("GET /v2.0/networks/", lambda body: body["network"].update(mtu="1450"), "mtu"),
    "an MTU that is too large": ("GET /v2.0/networks/", lambda body: body["network"].update(mtu=10**9), "mtu"),
    "a range that is none": ("GET /v2.0/subnets", lambda body: body["subnets"][0].update(cidr="192.0.2.0/99"), "/99"),
    "no list": ("GET /v2.0/subnets", lambda body: body.update(subnets=None), "a page without a list of subnets"),
    "no document": ("GET /v2.0/subnets", lambda _body: b"<html>welcome</html>", "not JSON"),
    "the same page for ever": (
        "GET /v2.0/subnets", lambda body: body.update(subnets_links=[{"rel": "next"}]), "the same page twice",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SPOILED)
def test_an_answer_that_cannot_be_used_reaches_neither_the_database_nor_a_host(plane, host, network, caplog, what):
    request, change, said = SPOILED[what]
    plane.builds.ways["network"].on(request, spoiled(change), times=2)
    server_id = plane.boot("small", networks=[{"uuid": network.lab}])
    with caplog.at_level(logging.INFO):
        plane.settle(host)
    assert plane.show(server_id)["status"] == "BUILD"
    assert said in logged(caplog)
    assert host.built == []
    plane.builds.ways["network"].clear()
    plane.clock.sleep(600)
    host.register()
    plane.settle(host)
    assert plane.show(server_id)["status"] == "ACTIVE"
    (port,) = network.ports_of(server_id)
    assert addresses(plane, server_id) == {"lab": [port["fixed_ips"][0]["ip_address"]]}


def test_a_port_that_neutron_does_not_delete_is_freed_and_its_server_ends(plane, host, network, caplog):
    server_id = plane.boot("small", networks=[{"uuid": network.lab}, {"uuid": network.own}])
    plane.settle(host)
    kept, _ = network.ports_of(server_id)
    plane.builds.ways["network"].on(f"DELETE /v2.0/ports/{kept['id']}", in_use)
    plane.send("DELETE", f"/v2.1/servers/{server_id}")
    plane.settle(host)
    assert plane.send("GET", f"/v2.1/servers/{server_id}")[0] == 404
    assert network.ports_of(server_id) == []
    assert network.port(kept["id"])["device_id"] == ""
    assert "so it is only freed" in logged(caplog)


def in_use(_request, _send):
    fault = {"NeutronError": {"type": "PortInUseAsTrunkParent", "message": "in use", "detail": ""}}
    return ClientResponse(409, {}, json.dumps(fault).encode())


def test_a_neutron_that_ignores_filters_loses_no_port_of_another_server(plane, host, network):
    server_id, other_id = (plane.boot("small", networks=[{"uuid": network.lab}]) for _ in range(2))
    plane.settle(host)

    def everything(_request, send):
        return replace(send(), body=json.dumps(network.http.get("/v2.0/ports")).encode())

    plane.builds.ways["network"].on("GET /v2.0/ports?", everything)
    plane.send("DELETE", f"/v2.1/servers/{server_id}")
    plane.settle(host)
    assert (network.ports_of(server_id), len(network.ports_of(other_id))) == ([], 1)


def test_a_port_of_somebody_else_that_names_the_server_changes_nothing(plane, host, network):
    server_id = plane.boot("small", networks=[{"uuid": network.lab}])
    plane.settle(host)
    (own,) = network.ports_of(server_id)
    strange = network.make(
        "port", network_id=network.foreign, project_id="blue", device_id=server_id, device_owner="compute:nova"
    )["id"]
    plane.builds.ways["network"].clear()
    for name in ("network-changed", "network-vif-deleted", "network-vif-plugged"):
        event = {"name": name, "server_uuid": server_id, "tag": strange, "status": "completed"}
        assert plane.admin("POST", "/v2.1/os-server-external-events", {"events": [event]})[0] == 200
    plane.settle(host)
    assert plane.builds.ways["network"].requests == []
    path = f"/v2.1/servers/{server_id}/os-interface"
    assert [one["port_id"] for one in plane.send("GET", path)[2]["interfaceAttachments"]] == [own["id"]]
    assert plane.send("DELETE", f"{path}/{strange}")[0] == 404
    plane.send("DELETE", f"/v2.1/servers/{server_id}")
    plane.settle(host)
    assert plane.send("GET", f"/v2.1/servers/{server_id}")[0] == 404
    assert network.port(strange)["device_id"] == server_id, "it was not touched"


def test_a_port_that_was_taken_away_is_not_made_again_and_does_not_keep_the_others(plane, host, network, caplog):
    server_id = plane.boot("small", networks=[{"uuid": network.lab}, {"uuid": network.own}])
    plane.settle(host)
    gone, kept = sorted(network.ports_of(server_id), key=lambda one: one["network_id"] != network.lab)
    network.http.request("DELETE", f"/v2.0/ports/{gone['id']}")
    fixed = {"subnet_id": kept["fixed_ips"][0]["subnet_id"], "ip_address": "198.51.100.77"}
    network.http.request("PUT", f"/v2.0/ports/{kept['id']}", json={"port": {"fixed_ips": [fixed]}})
    event = {"name": "network-changed", "server_uuid": server_id, "tag": kept["id"], "status": "completed"}
    assert plane.admin("POST", "/v2.1/os-server-external-events", {"events": [event]})[0] == 200
    plane.settle(host)
    assert [one["id"] for one in network.ports_of(server_id)] == [kept["id"]]
    assert addresses(plane, server_id)["own"] == ["198.51.100.77"]
    assert "port not bound" in logged(caplog)


def test_a_neutron_that_is_slow_does_not_cost_a_builder_its_job(plane, host, network):
    """One request for many servers, whose ports take longer than the claim on the job lasts."""
    stolen = []

    def slowly(_request, send):
        plane.clock.sleep(3)
        with write(plane.engine) as connection:
            stolen.extend(server_store.BUILD_JOBS.claim(connection, BUILD_QUEUE, "other", plane.clock.now(), 60, 10))
        return send()

    plane.builds.ways["network"].on("POST /v2.0/ports", slowly)
    host.offer(VCPU=64, MEMORY_MB=65536, DISK_GB=500)
    quota = {"quota_set": {"instances": 40, "cores": 40, "ram": 65536}}
    assert plane.admin("PUT", "/v2.1/os-quota-sets/red", quota)[0] == 200
    plane.boot("small", networks=[{"uuid": network.lab}], min_count=40, max_count=40)
    plane.settle(host)
    assert stolen == []
    rows = plane.admin("GET", "/v2.1/servers/detail?all_tenants=1")[2]["servers"]
    assert [row["status"] for row in rows] == ["ACTIVE"] * 40
    assert len(network.http.get("/v2.0/ports")["ports"]) == 40


def test_the_parent_of_a_trunk_is_refused_by_name(plane, host, network):
    port_id = network.make("port", network_id=network.own, project_id="red")["id"]
    network.make("trunk", port_id=port_id, project_id="red")
    server_id = plane.boot("small", networks=[{"port": port_id}])
    plane.settle(host)
    assert plane.show(server_id)["status"] == "ERROR"
    assert plane.show(server_id)["fault"]["message"].endswith("is the parent of a trunk, which hosts cannot plug.")


def test_a_port_that_was_made_for_one_server_and_is_given_to_another_is_the_projects(plane, host, network):
    server_id = plane.boot("small", networks=[{"uuid": network.lab}])
    plane.settle(host)
    (port,) = network.ports_of(server_id)
    network.http.request("PUT", f"/v2.0/ports/{port['id']}", json={"port": {"device_id": "", "device_owner": ""}})
    plane.send("DELETE", f"/v2.1/servers/{server_id}")
    plane.settle(host)
    other_id = plane.boot("small", networks=[{"port": port["id"]}])
    plane.settle(host)
    assert plane.show(other_id)["status"] == "ACTIVE"
    plane.send("DELETE", f"/v2.1/servers/{other_id}")
    plane.settle(host)
    assert network.port(port["id"])["device_id"] == "", "freed, and not deleted"
