"""Hypervisors, services, zones, aggregates; limits, quotas, usage."""

import pytest

from moorage.compute.hosts import HostService
from tests.wire.compute.conftest import Host


def services(plane, version="2.69"):
    return plane.admin("GET", "/v2.1/os-services?binary=None&host=None", version=version)[2]["services"]


def test_a_service_is_up_while_its_host_sends_heartbeats(plane, host):
    assert [(row["host"], row["binary"], row["state"]) for row in services(plane)] == [
        ("compute-1", "nova-compute", "up")
    ]
    plane.clock.sleep(61)
    assert services(plane)[0]["state"] == "down"
    host.register()
    assert services(plane)[0]["state"] == "up"


def test_a_view_of_servers_reads_only_their_hosts(plane, host, monkeypatch):
    """Clients poll servers. A view that read all hosts would read all servers, so each poll would cost more and
    more.
    """
    body = {"aggregate": {"name": "east", "availability_zone": "east"}}
    aggregate = plane.admin("POST", "/v2.1/os-aggregates", body)[2]["aggregate"]["id"]
    plane.admin("POST", f"/v2.1/os-aggregates/{aggregate}/action", {"add_host": {"host": "compute-1"}})
    server_id = plane.boot(plane.flavor("small"))
    plane.settle(host)
    monkeypatch.setattr(HostService, "hosts", lambda _: pytest.fail("all hosts were read"))
    listed = plane.admin("GET", "/v2.1/servers/detail?all_tenants=1")[2]["servers"]
    for shown in (plane.show(server_id), *listed):
        assert (shown["OS-EXT-AZ:availability_zone"], shown["host_status"]) == ("east", "UP")
    assert len(listed) == 1
    assert plane.admin("GET", f"/v2.1/servers/{server_id}/diagnostics")[0] == 200


def test_a_disabled_service_gets_the_trait_and_no_servers(plane, host):
    path = f"/v2.1/os-services/{services(plane)[0]['id']}"
    row = plane.admin("PUT", path, {"status": "disabled", "disabled_reason": "x"})[2]["service"]
    assert (row["status"], row["disabled_reason"]) == ("disabled", "x")
    server_id = plane.boot(plane.flavor("small"))
    plane.settle(host)
    assert "COMPUTE_STATUS_DISABLED" in plane.placement.traits(host.provider.uuid)[1]
    assert plane.show(server_id)["status"] == "ERROR"
    plane.admin("PUT", path, {"status": "enabled"})
    plane.settle(host)
    assert "COMPUTE_STATUS_DISABLED" not in plane.placement.traits(host.provider.uuid)[1]
    server_id = plane.boot("small")
    plane.settle(host)
    assert plane.show(server_id)["status"] == "ACTIVE"


def test_a_disabled_host_is_filtered_before_placement_has_the_trait(plane, host):
    server_id = plane.boot(plane.flavor("small"))  # this job is older than the one that writes the trait
    plane.admin("PUT", f"/v2.1/os-services/{services(plane)[0]['id']}", {"status": "disabled"})
    plane.builder.run_once()
    assert "1 host: its compute service is disabled" in plane.show(server_id)["fault"]["message"]


def test_foreign_traits_are_kept_when_a_service_is_disabled(plane, host):
    plane.placement.ensure_trait("CUSTOM_OTHERS")
    generation, _ = plane.placement.traits(host.provider.uuid)
    plane.placement.set_traits(host.provider.uuid, generation, {"CUSTOM_OTHERS"})
    plane.admin("PUT", f"/v2.1/os-services/{services(plane)[0]['id']}", {"status": "disabled"})
    plane.builder.run_once()
    assert plane.placement.traits(host.provider.uuid)[1] == {"CUSTOM_OTHERS", "COMPUTE_STATUS_DISABLED"}


def test_a_service_that_is_forced_down_is_down(plane, host):
    path = f"/v2.1/os-services/{services(plane)[0]['id']}"
    assert plane.admin("PUT", path, {"forced_down": True})[2]["service"]["state"] == "down"
    assert plane.admin("PUT", path, {"forced_down": False})[2]["service"]["state"] == "up"
    assert plane.admin("PUT", path, {})[0] == 400
    assert plane.admin("PUT", "/v2.1/os-services/nope", {"status": "enabled"})[0] == 400
    nobody = "00000000-0000-4000-8000-000000000000"
    assert plane.admin("PUT", f"/v2.1/os-services/{nobody}", {"status": "enabled"})[0] == 404
    assert plane.send("PUT", path, {"status": "disabled"})[0] == 403


def test_a_hypervisor_is_found_by_name_in_two_steps(plane, host):
    """The command line does this: the name is no id, so it reads the list and then uses the id."""
    assert plane.admin("GET", "/v2.1/os-hypervisors/compute-1", version="2.88")[0] == 400
    assert plane.admin("GET", "/v2.1/os-hypervisors/compute-1", version="2.52")[0] == 404
    listed = plane.admin("GET", "/v2.1/os-hypervisors", version="2.88")[2]["hypervisors"]
    assert [row["hypervisor_hostname"] for row in listed] == ["compute-1"]
    shown = plane.admin("GET", f"/v2.1/os-hypervisors/{listed[0]['id']}", version="2.88")[2]["hypervisor"]
    assert (shown["service"]["host"], shown["id"]) == ("compute-1", host.provider.uuid)


def test_a_hypervisor_shows_its_servers_and_their_usage(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.settle(host)
    path = "/v2.1/os-hypervisors/detail?hypervisor_hostname_pattern=comp&with_servers=true"
    row = plane.admin("GET", path, version="2.87")[2]["hypervisors"][0]
    assert row["servers"] == [{"name": "vm", "uuid": server_id}]
    used = (row["vcpus_used"], row["memory_mb_used"], row["free_ram_mb"], row["running_vms"])
    assert used == (1, 512, 32768 - 512, 1)
    assert plane.admin("GET", "/v2.1/os-hypervisors?hypervisor_hostname_pattern=zzz")[0] == 404
    total = plane.admin("GET", "/v2.1/os-hypervisors/statistics", version="2.87")[2]["hypervisor_statistics"]
    assert (total["count"], total["vcpus"], total["vcpus_used"]) == (1, 16, 1)
    assert plane.admin("GET", "/v2.1/os-hypervisors/statistics", version="2.88")[0] == 404


def test_hypervisors_are_listed_in_pages(plane, host):
    Host(plane, "compute-2")
    first = plane.admin("GET", "/v2.1/os-hypervisors?limit=1", version="2.53")[2]
    assert [row["hypervisor_hostname"] for row in first["hypervisors"]] == ["compute-1"]
    rest = first["hypervisors_links"][0]["href"].partition("/compute")[2]
    assert [row["hypervisor_hostname"] for row in plane.admin("GET", rest, version="2.53")[2]["hypervisors"]] == [
        "compute-2"
    ]
    assert "hypervisors_links" in plane.admin("GET", "/v2.1/os-hypervisors?limit=1", version="2.33")[2]
    both = "/v2.1/os-hypervisors?limit=1&hypervisor_hostname_pattern=comp"
    assert plane.admin("GET", both, version="2.53")[0] == 400
    assert plane.admin("GET", "/v2.1/os-hypervisors?marker=nope", version="2.53")[0] == 400
    assert plane.admin("GET", "/v2.1/os-hypervisors?colour=red", version="2.53")[0] == 400
    assert plane.admin("GET", "/v2.1/os-hypervisors?colour=red", version="2.52")[0] == 200


def test_services_are_changed_by_action_routes_before_2_53(plane, host):
    def put(action, **more):
        body = {"host": "compute-1", "binary": "nova-compute", **more}
        status, _, document = plane.admin("PUT", f"/v2.1/os-services/{action}", body, version="2.52")
        return document.get("service", status)

    assert put("disable") == {"host": "compute-1", "binary": "nova-compute", "status": "disabled"}
    assert plane.admin("PUT", "/v2.1/os-services/disable-log-reason", {"host": "compute-1", "binary": "nova-compute"},
                       version="2.52")[0] == 400  # fmt: skip
    assert put("disable-log-reason", disabled_reason="why")["disabled_reason"] == "why"
    assert services(plane, "2.52")[0]["disabled_reason"] == "why"
    assert put("enable")["status"] == "enabled"
    assert put("force-down", forced_down=True)["forced_down"] is True
    assert services(plane, "2.52")[0]["state"] == "down"
    assert (
        plane.admin("PUT", "/v2.1/os-services/explode", {"host": "a", "binary": "nova-compute"}, version="2.1")[0]
        == 404
    )
    assert (
        plane.admin("PUT", "/v2.1/os-services/enable", {"host": "a", "binary": "nova-compute"}, version="2.1")[0] == 404
    )
    assert plane.admin("PUT", "/v2.1/os-services/enable", {"host": "a", "binary": "nova-api"}, version="2.1")[0] == 400


def test_deleting_a_service_removes_its_host_from_aggregates_and_placement(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.settle(host)
    made = plane.admin("POST", "/v2.1/os-aggregates", {"aggregate": {"name": "ag"}})[2]["aggregate"]
    plane.admin("POST", f"/v2.1/os-aggregates/{made['id']}/action", {"add_host": {"host": "compute-1"}})
    child = plane.placement.create_provider("child", parent_uuid=host.provider.uuid)
    path = f"/v2.1/os-services/{services(plane)[0]['id']}"
    assert plane.admin("DELETE", path)[0] == 409
    plane.send("DELETE", f"/v2.1/servers/{server_id}")
    plane.settle(host)
    assert plane.admin("DELETE", "/v2.1/os-services/nope")[0] == 400
    assert plane.admin("DELETE", path)[0] == 204
    plane.builder.run_once()
    assert plane.admin("DELETE", path)[0] == 404
    assert services(plane) == []
    assert plane.admin("GET", f"/v2.1/os-aggregates/{made['id']}")[2]["aggregate"]["hosts"] == []
    assert plane.placement.provider(child.uuid) is plane.placement.provider(host.provider.uuid) is None


def test_a_host_that_registers_again_during_its_deletion_keeps_its_provider(plane, host):
    plane.admin("DELETE", f"/v2.1/os-services/{services(plane)[0]['id']}")
    plane.clock.sleep(4)  # heartbeats are collected for some seconds and written together
    host.register()
    plane.builder.run_once()
    assert plane.placement.provider(host.provider.uuid) is not None


def test_availability_zones_are_those_of_aggregates(plane, host):
    Host(plane, "compute-2")
    body = {"aggregate": {"name": "ag1", "availability_zone": "az1"}}
    made = plane.admin("POST", "/v2.1/os-aggregates", body, version="2.81")[2]["aggregate"]
    assert "hosts" not in made
    action = f"/v2.1/os-aggregates/{made['id']}/action"
    aggregate = plane.admin("POST", action, {"add_host": {"host": "compute-2"}}, version=None)[2]["aggregate"]
    assert (aggregate["hosts"], aggregate["metadata"]) == (["compute-2"], {"availability_zone": "az1"})
    zones = plane.send("GET", "/v2.1/os-availability-zone")[2]["availabilityZoneInfo"]
    assert [(zone["zoneName"], zone["zoneState"], zone["hosts"]) for zone in zones] == [
        ("az1", {"available": True}, None),
        ("nova", {"available": True}, None),
    ]
    assert plane.send("GET", "/v2.1/os-availability-zone/detail")[0] == 403
    detail = plane.admin("GET", "/v2.1/os-availability-zone/detail")[2]["availabilityZoneInfo"]
    assert list(detail[0]["hosts"]) == ["compute-2"]


def test_a_host_joins_its_aggregate_in_placement_although_others_write_to_its_provider(plane, host):
    """Otherwise the job waited a second, and a server that was created meanwhile found no host in the aggregate."""
    writes = []

    def overtaken(_request, send):
        writes.append(f"CUSTOM_{len(writes)}")
        plane.placement.ensure_trait(writes[-1])
        plane.placement.put_trait(host.provider.uuid, writes[-1], wanted=True)
        return send()

    plane.process.ways["placement"].on("PUT /resource_providers/", overtaken, times=1)
    made = plane.admin("POST", "/v2.1/os-aggregates", {"aggregate": {"name": "ag"}}, version="2.81")[2]["aggregate"]
    plane.admin("POST", f"/v2.1/os-aggregates/{made['id']}/action", {"add_host": {"host": "compute-1"}})
    server_id = plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    assert writes == ["CUSTOM_0"]
    shown = plane.admin("GET", f"/v2.1/os-aggregates/{made['id']}", version="2.81")[2]["aggregate"]
    assert shown["uuid"] in plane.placement.aggregates(host.provider.uuid)[1]
    assert plane.show(server_id)["OS-EXT-SRV-ATTR:host"] == "compute-1"


def test_a_host_leaves_an_aggregate_in_placement_that_is_deleted_at_once(plane, host):
    """The reservation service does so when a lease of whole hosts ends. Aggregates of others stay."""
    (generation, before), others = plane.placement.aggregates(host.provider.uuid), plane.ids.uuid()
    plane.placement.set_aggregates(host.provider.uuid, generation, {*before, others})
    made = plane.admin("POST", "/v2.1/os-aggregates", {"aggregate": {"name": "ag"}}, version="2.81")[2]["aggregate"]
    action = f"/v2.1/os-aggregates/{made['id']}/action"
    plane.admin("POST", action, {"add_host": {"host": "compute-1"}})
    plane.builder.run_once()
    shown = plane.admin("GET", f"/v2.1/os-aggregates/{made['id']}", version="2.81")[2]["aggregate"]
    assert plane.placement.aggregates(host.provider.uuid)[1] == {*before, others, shown["uuid"]}
    plane.admin("POST", action, {"remove_host": {"host": "compute-1"}})
    assert plane.admin("DELETE", f"/v2.1/os-aggregates/{made['id']}")[0] == 200
    plane.builder.run_once()
    assert plane.placement.aggregates(host.provider.uuid)[1] == {*before, others}


def test_invalid_changes_of_aggregates_are_refused(plane, host):
    def make(name, zone=None):
        body = {"aggregate": {"name": name, "availability_zone": zone}}
        status, _, document = plane.admin("POST", "/v2.1/os-aggregates", body)
        return document["aggregate"]["id"] if status == 200 else status

    def act(aggregate, action):
        status, _, document = plane.admin("POST", f"/v2.1/os-aggregates/{aggregate}/action", action)
        return document["aggregate"] if status == 200 else status

    first, second = make("first", "az1"), make("second", "az2")
    add = {"add_host": {"host": "compute-1"}}
    assert make("first") == 409
    assert act(first, {"add_host": {"host": "nope"}}) == 404
    assert act(first, add)["hosts"] == ["compute-1"]
    assert act(first, add) == 409
    assert act(second, add) == 409  # a host may be in one zone only
    assert plane.admin("DELETE", f"/v2.1/os-aggregates/{first}")[0] == 400
    assert act(first, {"set_metadata": {"metadata": {"p": "q"}}})["metadata"] == {"availability_zone": "az1", "p": "q"}
    assert act(first, {"set_metadata": {"metadata": {"p": None}}})["metadata"] == {"availability_zone": "az1"}
    plane.boot(plane.flavor("small"))
    plane.settle(host)
    move = {"aggregate": {"availability_zone": "az3"}}
    assert (
        plane.admin("PUT", f"/v2.1/os-aggregates/{first}", move)[0] == 409
    )  # the zone of an aggregate with servers cannot change
    renamed = plane.admin("PUT", f"/v2.1/os-aggregates/{first}", {"aggregate": {"name": "new"}})[2]["aggregate"]
    assert renamed["name"] == "new"
    assert plane.admin("GET", "/v2.1/os-aggregates/new")[0] == 404
    assert act(first, {"remove_host": {"host": "compute-1"}})["hosts"] == []
    assert act(first, {"remove_host": {"host": "compute-1"}}) == 404
    assert plane.admin("DELETE", f"/v2.1/os-aggregates/{first}")[0] == 200
    assert plane.send("GET", "/v2.1/os-aggregates")[0] == 403


def test_limits_quotas_and_usage_count_existing_servers(plane, host):
    plane.boot(plane.flavor("small", vcpus=2))
    plane.settle(host)
    plane.clock.sleep(3600)
    absolute = plane.send("GET", "/v2.1/limits?reserved=False&tenant_id=None", version=None)[2]["limits"]["absolute"]
    assert (absolute["totalInstancesUsed"], absolute["totalCoresUsed"], absolute["maxTotalCores"]) == (1, 2, -1)
    assert plane.send("GET", "/v2.1/limits?tenant_id=blue")[0] == 403
    quota = plane.send("GET", "/v2.1/os-quota-sets/red", version="2.56")[2]["quota_set"]
    assert (quota["id"], quota["cores"]) == ("red", -1)
    detail = plane.send("GET", "/v2.1/os-quota-sets/red/detail")[2]["quota_set"]
    assert detail["instances"] == {"limit": -1, "in_use": 1, "reserved": 0}
    assert plane.send("GET", "/v2.1/os-quota-sets/blue")[0] == 403
    tomorrow = "end=2026-03-02T09:30:00.000000"  # the command line uses this end: a time that has no usage yet
    usage = plane.admin("GET", f"/v2.1/os-simple-tenant-usage?detailed=True&{tomorrow}", version="2.75")[2][
        "tenant_usages"
    ]
    assert [(row["tenant_id"], row["total_hours"], row["total_vcpus_usage"]) for row in usage] == [("red", 1.0, 2.0)]
    own = plane.send("GET", "/v2.1/os-simple-tenant-usage/red")[2]["tenant_usage"]
    assert own["server_usages"][0]["hours"] == 1.0
    assert plane.admin("GET", "/v2.1/os-simple-tenant-usage/")[0] == 404
