"""Interfaces that are attached to servers and detached while they exist: answers as Nova's, the host's jobs, kills, and
what a member can do with another project's networks and ports.
"""

import json

import pytest

from moorage.compute.servers.interface_service import RELEASE_AFTER
from moorage.core.errors import Unavailable
from tests.plane import Killed, failing
from tests.wire.compute.conftest import IMAGE, Host, Plane
from tests.wire.compute.network_plane import LAB, NetworkPlane, addresses

OTHER = "vlan 5 on br0 subnet 198.51.100.0/24"


class InterfacePlane(NetworkPlane):
    def attach(self, server_id, *, version="2.96", who="alice:red", roles="member", **attachment):
        """(status, the attachment, or the message)"""
        path, body = f"/v2.1/servers/{server_id}/os-interface", {"interfaceAttachment": attachment}
        status, _, document = self.send("POST", path, body, who=who, roles=roles, version=version)
        return status, _inner(document)

    def detach(self, server_id, port_id, *, who="alice:red", roles="member"):
        path = f"/v2.1/servers/{server_id}/os-interface/{port_id}"
        status, _, document = self.send("DELETE", path, who=who, roles=roles)
        return status, _inner(document)

    def interfaces(self, server_id):
        return self.send("GET", f"/v2.1/servers/{server_id}/os-interface")[2]["interfaceAttachments"]

    def states(self, server_id):
        """{port id: state}"""
        return {one["port_id"]: one["port_state"] for one in self.interfaces(server_id)}

    def task(self, server_id):
        return self.show(server_id)["OS-EXT-STS:task_state"]

    def put(self, server_id, **values):
        with self.engine.begin() as connection:
            for column, value in values.items():
                connection.exec_driver_sql(f"UPDATE servers SET {column} = ? WHERE id = ?", (value, server_id))


def _inner(document):
    if not document:
        return None
    (inner,) = document.values()
    return inner.get("message", inner) if isinstance(inner, dict) else inner


@pytest.fixture
def plane(tmp_path, clock):
    plane = InterfacePlane(tmp_path / "plane", clock, network={"lines": {"lab": LAB, "other": OTHER}, "quota_ports": 5})
    plane.flavor("small")
    return plane


@pytest.fixture
def server_id(plane, host):
    server_id = plane.boot("small", networks=[{"uuid": plane.network("lab")}])
    plane.settle(host)
    return server_id


def test_a_network_is_attached_and_detached_while_the_server_runs(plane, host, server_id):
    other = plane.network("other")
    status, made = plane.attach(server_id, net_id=other, tag="second")
    port = next(one for one in plane.ports() if one["network_id"] == other)
    assert (status, made) == (
        200,
        {
            "net_id": other, "port_id": port["id"], "mac_addr": port["mac_address"], "port_state": "DOWN",
            "fixed_ips": port["fixed_ips"], "tag": "second",
        },
    )  # fmt: skip
    assert (port["device_id"], port["binding:host_id"]) == (server_id, "compute-1")
    assert plane.task(server_id) == "networking"
    (job,) = host.claim()
    assert job.kind == "attach-interface"
    assert job.payload["interface"]["mac"] == port["mac_address"]
    assert [one["kind"] for one in job.payload["server"]["interfaces"]] == ["flat", "vlan"]
    host.report(job)
    assert plane.task(server_id) is None
    assert plane.states(server_id)[port["id"]] == "ACTIVE"
    assert addresses(plane, server_id) == {"lab": ["192.0.2.100"], "other": ["198.51.100.2"]}
    assert plane.detach(server_id, port["id"]) == (202, None)
    assert (plane.task(server_id), len(plane.interfaces(server_id))) == ("networking", 2)
    (job,) = host.claim()
    assert (job.kind, [one["kind"] for one in job.payload["server"]["interfaces"]]) == ("detach-interface", ["flat"])
    plane.builder.run_once()
    assert len(plane.ports()) == 2, "the guest still has the address"
    host.report(job)
    assert (plane.task(server_id), addresses(plane, server_id)) == (None, {"lab": ["192.0.2.100"]})
    plane.builder.run_once()
    assert len(plane.ports()) == 1
    actions = plane.send("GET", f"/v2.1/servers/{server_id}/os-instance-actions")[2]["instanceActions"]
    assert [one["action"] for one in actions] == ["detach_interface", "attach_interface", "create"]


def test_a_port_of_the_project_is_attached_and_free_afterwards(plane, host, server_id):
    port = plane.port(fixed_ips=[{"ip_address": "192.0.2.104"}])
    assert plane.attach(server_id, port_id=port)[1]["fixed_ips"][0]["ip_address"] == "192.0.2.104"
    plane.settle(host)
    assert plane.attach(server_id, port_id=port) == (409, f"Port {port} is still in use.")
    assert plane.detach(server_id, port)[0] == 202
    plane.settle(host)
    shown = plane.net("GET", f"/ports/{port}")[1]["port"]
    assert (shown["device_id"], shown["status"]) == ("", "DOWN")


def test_an_address_can_be_chosen(plane, host, server_id):
    lab = plane.network("lab")
    assert plane.attach(server_id, net_id=lab, fixed_ips=[{"ip_address": "192.0.2.103"}])[0] == 200
    plane.settle(host)
    assert addresses(plane, server_id) == {"lab": ["192.0.2.100", "192.0.2.103"]}
    status, message = plane.attach(server_id, net_id=lab, fixed_ips=[{"ip_address": "192.0.2.103"}])
    assert (status, "already allocated" in message) == (409, True)
    assert plane.attach(server_id, net_id=lab, fixed_ips=[{"ip_address": "192.0.2.9"}])[0] == 403
    assert plane.attach(server_id, net_id=lab, fixed_ips=[{"ip_address": "203.0.113.9"}])[0] == 400
    plane.settle(host)
    assert len(plane.ports()) == 2


def test_several_are_attached_and_detached_one_after_another_without_waiting(plane, host, server_id):
    ids = [plane.attach(server_id, net_id=plane.network(name))[1]["port_id"] for name in ("lab", "other")]
    assert plane.detach(server_id, ids[0])[0] == 202
    assert plane.detach(server_id, ids[0])[0] == 202
    jobs = []
    while claimed := host.claim():
        jobs += [job.kind for job in claimed]
        for job in claimed:
            assert plane.task(server_id) == "networking"
            host.report(job)
    assert jobs == ["attach-interface", "attach-interface", "detach-interface"]
    assert plane.task(server_id) is None
    plane.settle(host)
    assert addresses(plane, server_id) == {"lab": ["192.0.2.100"], "other": ["198.51.100.2"]}
    assert len(plane.ports()) == 2


@pytest.mark.parametrize(
    ("attachment", "version", "status", "message"),
    [
        ({"net_id": IMAGE, "port_id": IMAGE}, "2.96", 400, "Must not input both network_id and port_id"),
        ({"fixed_ips": [{"ip_address": "192.0.2.9"}]}, "2.96", 400, "Must input network_id when request IP address"),
        (
            {"port_id": IMAGE, "fixed_ips": [{"ip_address": "192.0.2.9"}]}, "2.1", 400,
            "Must input network_id when request IP address",
        ),
        ({"net_id": IMAGE}, "2.1", 404, f"Network {IMAGE} could not be found."),
        ({"port_id": IMAGE}, "2.1", 404, f"Port id {IMAGE} could not be found."),
        ({}, "2.1", 400, "Multiple possible networks found, use a Network ID to be more specific."),
        ({"net_id": IMAGE, "tag": "x"}, "2.48", 400, None),
        ({"net_id": IMAGE, "tag": "a,b"}, "2.49", 400, None),
        ({"net_id": "lab"}, "2.1", 400, None),
        ({"port_id": None, "net_id": IMAGE}, "2.1", 400, None),
        ({"net_id": IMAGE, "fixed_ips": []}, "2.1", 400, None),
        ({"net_id": IMAGE, "fixed_ips": [{"ip_address": "192.0.2.9"}, {"ip_address": "192.0.2.8"}]}, "2.1", 400, None),
        ({"net_id": IMAGE, "fixed_ips": [{"ip_address": "192.0.2.9", "subnet_id": IMAGE}]}, "2.1", 400, None),
        ({"net_id": IMAGE, "x": 1}, "2.1", 400, None),
    ],
)  # fmt: skip
def test_a_request_that_nova_refuses_is_refused_with_its_status(plane, server_id, attachment, version, status, message):
    """Statuses and messages of Nova 34.0.0."""
    got = plane.attach(server_id, version=version, **attachment)
    assert got[0] == status
    assert message is None or got[1] == message
    assert len(plane.ports()) == 1


def test_servers_and_interfaces_that_do_not_exist_are_not_found(plane, host, server_id):
    lab = plane.network("lab")
    assert plane.attach(IMAGE, net_id=lab)[0] == 404
    assert plane.detach(IMAGE, IMAGE)[0] == 404
    assert plane.detach(server_id, IMAGE) == (404, f"Instance {server_id} does not have a port with id {IMAGE}")


@pytest.mark.parametrize("state", ["building", "suspended", "rescued", "resized", "error", "shelved", "soft-delete"])
def test_a_server_in_another_state_refuses(plane, host, server_id, state):
    (port,) = plane.states(server_id)
    plane.put(server_id, vm_state=state)
    expected = f"instance {server_id} while it is in vm_state {state}"
    assert plane.attach(server_id, net_id=plane.network("lab")) == (409, f"Cannot 'attach_interface' {expected}")
    assert plane.detach(server_id, port) == (409, f"Cannot 'detach_interface' {expected}")


def test_a_busy_or_locked_server_refuses(plane, host, server_id):
    plane.act(server_id, "os-stop")
    status, message = plane.attach(server_id, net_id=plane.network("lab"))
    assert (status, "task_state powering-off" in message) == (409, True)
    plane.settle(host)
    plane.act(server_id, "lock")
    assert plane.attach(server_id, net_id=plane.network("lab"))[0] == 409
    assert plane.detach(server_id, next(iter(plane.states(server_id))))[0] == 409
    assert len(plane.ports()) == 1


def test_while_the_host_attaches_other_operations_wait_and_a_deletion_does_not(plane, host, server_id):
    plane.attach(server_id, net_id=plane.network("other"))
    assert plane.act(server_id, "reboot", {"type": "SOFT"})[0] == 409
    assert plane.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    plane.settle(host)
    assert (plane.show(server_id), plane.ports()) == (None, [])


def test_a_stopped_server_keeps_its_state(plane, host, server_id):
    plane.act(server_id, "os-stop")
    plane.settle(host)
    port = plane.attach(server_id, net_id=plane.network("other"))[1]["port_id"]
    plane.settle(host)
    assert plane.show(server_id)["status"] == "SHUTOFF"
    plane.detach(server_id, port)
    plane.settle(host)
    assert (plane.show(server_id)["status"], plane.task(server_id)) == ("SHUTOFF", None)


def test_a_hypervisor_that_cannot_do_it_is_named_and_nothing_is_bound(plane, host, server_id):
    plane.agent.register_host(
        "compute-1", provider_uuid=host.provider.uuid, hypervisor_type="simulated", hypervisor_version=1,
        host_ip="127.0.0.1", vcpus=16, memory_mb=32768, local_gb=500, devices=0, capabilities=[],
    )  # fmt: skip
    refusal = (400, f"The hypervisor of instance {server_id} does not support 'attach_interface'.")
    assert plane.attach(server_id, net_id=plane.network("other")) == refusal
    assert len(plane.ports()) == 1


def test_an_interface_that_could_not_be_attached_is_gone_with_its_port(plane, host, server_id):
    host.fails = {"attach-interface": "no free slot"}
    plane.attach(server_id, net_id=plane.network("other"))
    plane.settle(host)
    assert addresses(plane, server_id) == {"lab": ["192.0.2.100"]}
    assert (plane.task(server_id), plane.show(server_id)["status"], len(plane.ports())) == (None, "ACTIVE", 1)


def test_an_interface_that_the_guest_may_have_keeps_its_port(plane, host, server_id):
    port = plane.attach(server_id, net_id=plane.network("other"))[1]["port_id"]
    (job,) = host.claim()
    plane.agent.report_job(job.id, job.epoch, "failed", {"error": "lost", "code": "virt.failed", "is_left": True})
    plane.settle(host)
    assert plane.states(server_id)[port] == "ACTIVE"
    assert plane.detach(server_id, port)[0] == 202
    plane.settle(host)
    assert len(plane.ports()) == 1


def test_an_interface_that_the_guest_does_not_release_stays(plane, host, server_id):
    (port,) = plane.states(server_id)
    host.fails = {"detach-interface": "the guest did not release the interface"}
    plane.detach(server_id, port)
    plane.settle(host)
    assert (plane.states(server_id), plane.task(server_id)) == ({port: "ACTIVE"}, None)
    assert plane.ports()[0]["device_id"] == server_id
    assert plane.detach(server_id, port)[0] == 202
    plane.settle(host)
    assert plane.ports() == []


def test_a_server_has_at_most_32_interfaces(plane, host, server_id):
    many = [{"port_id": f"p{at}", "network_id": "n", "is_made": True} for at in range(32)]
    plane.put(server_id, interfaces=json.dumps(many))
    status, message = plane.attach(server_id, net_id=plane.network("other"))
    assert (status, message) == (400, "A server has at most 32 interfaces; detach one first.")
    assert len(plane.ports()) == 1


# ------------------------------------------------------------------------------------------------------------- kills


def dead(plane, server_id, **attachment):
    with pytest.raises(Killed):
        plane.attach(server_id, **attachment)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["net_id", "port_id"])
def test_a_request_killed_while_it_binds_leaves_no_port(plane, host, server_id, when, kind):
    mine = plane.port()
    attachment = {"net_id": plane.network("lab")} if kind == "net_id" else {"port_id": mine}
    plane.to_network.on("PUT", _killed(when))
    dead(plane, server_id, **attachment)
    plane.to_network.clear()
    assert plane.task(server_id) is None
    plane.settle(host)
    plane.clock.sleep(RELEASE_AFTER.total_seconds() + 1)
    host.register()
    plane.settle(host)
    assert sorted(one["device_id"] for one in plane.ports()) == ["", server_id]
    assert len(plane.interfaces(server_id)) == 1
    assert plane.attach(server_id, **attachment)[0] == 200


def _killed(when):
    def around(request, send):
        if when == "before":
            raise Killed(request)
        send()
        raise Killed(request)

    return around


def test_a_request_killed_after_its_commit_is_carried_out(plane, host, server_id):
    plane.hints.is_deadly = True
    dead(plane, server_id, net_id=plane.network("other"))
    plane.hints.is_deadly = False
    plane.clock.sleep(RELEASE_AFTER.total_seconds() + 1)
    host.register()
    plane.settle(host)
    assert addresses(plane, server_id) == {"lab": ["192.0.2.100"], "other": ["198.51.100.2"]}
    assert len(plane.ports()) == 2


def test_a_refused_request_frees_the_port_at_once(plane, host, server_id):
    mine = plane.port()

    def delete_meanwhile(request, send):
        answer = send()
        plane.send("DELETE", f"/v2.1/servers/{server_id}")
        return answer

    plane.to_network.on("PUT", delete_meanwhile, times=1)
    assert plane.attach(server_id, port_id=mine)[0] == 409
    plane.settle(host)
    assert [(one["id"], one["device_id"]) for one in plane.ports()] == [(mine, "")]


def test_without_an_answer_of_the_network_service_nothing_is_attached(plane, host, server_id):
    plane.to_network.on("PUT", failing(Unavailable("network does not answer")))
    assert plane.attach(server_id, net_id=plane.network("other"))[0] == 503
    plane.to_network.clear()
    plane.settle(host)
    assert (len(plane.ports()), len(plane.interfaces(server_id)), plane.task(server_id)) == (1, 1, None)


def test_a_request_that_took_too_long_attaches_nothing(plane, host, server_id):
    def slowly(request, send):
        answer = send()
        plane.clock.sleep(RELEASE_AFTER.total_seconds() + 1)
        plane.builder.run_once()
        return answer

    plane.to_network.on("PUT", slowly, times=1)
    status, message = plane.attach(server_id, net_id=plane.network("other"))
    assert (status, "took too long" in message) == (409, True)
    plane.settle(host)
    assert len(plane.ports()) == 1


def test_of_two_requests_with_one_port_the_second_is_refused(plane, host, server_id):
    mine = plane.port()
    answers = []

    def twice(request, send):
        answers.append(plane.attach(server_id, port_id=mine))
        return send()

    plane.to_network.on("PUT", twice, times=1)
    assert plane.attach(server_id, port_id=mine)[0] == 200
    assert answers == [(409, f"Port {mine} is still in use.")]
    plane.settle(host)
    assert plane.states(server_id)[mine] == "ACTIVE"


def test_a_host_that_dies_during_the_job_does_it_again(plane, host, server_id):
    port = plane.attach(server_id, net_id=plane.network("other"))[1]["port_id"]
    host.claim()
    plane.clock.sleep(600)
    host.register()
    plane.settle(host)
    assert plane.states(server_id)[port] == "ACTIVE"


def test_a_server_that_is_evacuated_gets_what_was_asked_for(plane, host, server_id):
    (first,) = plane.states(server_id)
    second = Host(plane, "compute-2")
    second.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    added = plane.attach(server_id, net_id=plane.network("other"))[1]["port_id"]
    plane.detach(server_id, first)
    with plane.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE hosts SET forced_down = 1 WHERE name = 'compute-1'")
    assert plane.act(server_id, "evacuate", {}, who="root:admin", roles="admin")[0] == 200
    for _ in range(4):
        plane.settle(second)
    assert plane.states(server_id) == {added: "ACTIVE"}
    (port,) = plane.ports()
    assert (port["id"], port["binding:host_id"]) == (added, "compute-2")


# ------------------------------------------------------------------------------------------- what a member can try


def test_a_member_attaches_nothing_of_another_project(plane, host, server_id):
    private = {"provider:network_type": "flat", "provider:physical_network": "br7", "project_id": "blue"}
    network = plane.operate("POST", "/networks", {"network": private})[1]["network"]["id"]
    subnet = {"subnet": {"network_id": network, "cidr": "203.0.113.0/24", "ip_version": 4}}
    assert plane.operate("POST", "/subnets", subnet)[0] == 201
    body = {"port": {"network_id": network}}
    theirs = plane.net("POST", "/ports", body, who="bob:blue")[1]["port"]["id"]
    assert plane.attach(server_id, net_id=network) == (404, f"Network {network} could not be found.")
    assert plane.attach(server_id, port_id=theirs) == (404, f"Port id {theirs} could not be found.")
    assert plane.attach(server_id, who="bob:blue", port_id=theirs)[0] == 404, "the server is not bob's"
    admin = {"who": "root:admin", "roles": "admin"}
    assert plane.attach(server_id, **admin, net_id=network)[0] == 404, "the server's project may not use it"
    assert plane.attach(server_id, **admin, port_id=theirs)[0] == 400
    assert plane.net("GET", f"/ports/{theirs}", who="bob:blue")[1]["port"]["device_id"] == ""


def test_a_member_detaches_nothing_of_another_project(plane, host, server_id):
    (port,) = plane.states(server_id)
    assert plane.detach(server_id, port, who="bob:blue")[0] == 404
    theirs = plane.boot("small", who="bob:blue")
    plane.settle(host)
    assert plane.detach(theirs, port, who="bob:blue")[0] == 404
    assert plane.detach(server_id, port, roles="reader")[0] == 403
    assert plane.attach(server_id, roles="reader", net_id=plane.network("lab"))[0] == 403
    plane.settle(host)
    assert plane.states(server_id) == {port: "ACTIVE"}


def test_an_administrator_attaches_to_the_servers_project(plane, host, server_id):
    made = plane.attach(server_id, who="root:admin", roles="admin", net_id=plane.network("other"))[1]
    port = next(one for one in plane.ports() if one["id"] == made["port_id"])
    assert port["project_id"] == "red"


def test_a_port_of_another_server_stays_there(plane, host, server_id):
    mine = plane.port()
    second = plane.boot("small", "second", networks=[{"port": mine}])
    plane.settle(host)
    assert plane.attach(server_id, port_id=mine) == (409, f"Port {mine} is still in use.")
    assert plane.detach(server_id, mine)[0] == 404
    assert list(plane.states(second)) == [mine]


def test_a_port_that_is_taken_between_lookup_and_bind_stays_with_its_server(plane, host, server_id):
    mine = plane.port()
    second = plane.boot("small", "second", networks=[{"port": mine}])
    assert plane.attach(server_id, port_id=mine)[0] == 200, "nobody has it yet"
    plane.settle(host)
    assert plane.show(second)["status"] == "ERROR"
    assert plane.states(server_id)[mine] == "ACTIVE"


def test_a_port_that_is_deleted_between_lookup_and_bind_is_not_made_again(plane, host, server_id):
    mine = plane.port()

    def delete_first(request, send):
        assert plane.net("DELETE", f"/ports/{mine}")[0] == 204
        return send()

    plane.to_network.on("PUT", delete_first, times=1)
    assert plane.attach(server_id, port_id=mine) == (404, f"Port {mine} could not be found.")
    plane.settle(host)
    assert (len(plane.ports()), plane.task(server_id)) == (1, None)


def test_the_quota_of_ports_holds(plane, host, server_id):
    for _ in range(4):
        assert plane.attach(server_id, net_id=plane.network("other"))[0] == 200
    assert plane.attach(server_id, net_id=plane.network("other")) == (403, "Maximum number of ports exceeded")
    plane.settle(host)
    assert len(plane.ports()) == 5


def test_without_a_network_service_the_routes_say_so(tmp_path, clock):
    plane = Plane(tmp_path / "plain", clock)
    plane.flavor("small")
    host = Host(plane, "compute-1")
    host.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    server_id = plane.boot("small")
    plane.settle(host)
    path = f"/v2.1/servers/{server_id}/os-interface"
    assert plane.send("POST", path, {"interfaceAttachment": {"net_id": IMAGE}})[0] == 501
    assert plane.send("DELETE", f"{path}/{IMAGE}")[0] == 404
