"""Creating a server, from the POST to ACTIVE, and every other result."""

import pytest

from tests.wire.compute.conftest import IMAGE, SECRET_IMAGE, Host


def test_a_server_goes_from_build_to_active(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    building = plane.show(server_id)
    assert (building["status"], building["OS-EXT-STS:task_state"]) == ("BUILD", "scheduling")
    assert building["OS-EXT-SRV-ATTR:host"] is None
    plane.builder.run_once()
    assert plane.show(server_id)["OS-EXT-STS:task_state"] == "spawning"
    host.work()
    active = plane.show(server_id)
    assert (active["status"], active["OS-EXT-STS:task_state"]) == ("ACTIVE", None)
    assert active["OS-EXT-SRV-ATTR:host"] == "compute-1"
    assert active["OS-EXT-STS:power_state"] == 1
    assert active["OS-SRV-USG:launched_at"] is not None


def test_a_build_without_problems_sends_two_requests_to_placement(plane, host):
    plane.flavor("small")
    plane.builder.run_once()
    plane.to_placement.clear()
    plane.boot("small")
    plane.builder.run_once()
    host.work()
    asked = [(request.method, request.resource.split("/")[1]) for request in plane.to_placement.requests]
    assert asked == [("GET", "allocation_candidates"), ("PUT", "allocations")]


def test_f1_and_f5_a_custom_class_is_requested_and_allocated(plane, host):
    """F1, F5 (flavor-resources): `resources:$CUSTOM_CLASS=$N` is added to the request; the allocation equals it."""
    host.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500, CUSTOM_LLC=8)
    server_id = plane.boot(plane.flavor("llc", {"resources:CUSTOM_LLC": "2", "resources:VCPU": "0"}, vcpus=4))
    plane.settle(host)
    allocations = plane.placement.allocations(server_id)
    assert allocations == {host.provider.uuid: {"CUSTOM_LLC": 2, "DISK_GB": 1, "MEMORY_MB": 512}}


def test_f2_the_flavor_still_shows_its_own_fields(plane, host):
    """F2 (flavor-resources): a class with 0 is not requested, but still displayed."""
    plane.flavor("bm", {"resources:VCPU": "0", "resources:CUSTOM_GOLD": "1"}, vcpus=8)
    host.offer(VCPU=1, MEMORY_MB=32768, DISK_GB=500, CUSTOM_GOLD=1)
    server_id = plane.boot("bm")
    plane.settle(host)
    assert plane.show(server_id)["status"] == "ACTIVE"
    assert plane.show(server_id)["flavor"]["vcpus"] == 8
    assert plane.send("GET", "/v2.1/flavors/bm")[2]["flavor"]["vcpus"] == 8


def test_f4_only_the_custom_class_is_allocated(plane, host):
    """F4 (flavor-resources): three zeros and a custom class ask for exactly the custom class."""
    host.offer(CUSTOM_GOLD=1)
    zeros = {f"resources:{name}": "0" for name in ("VCPU", "MEMORY_MB", "DISK_GB")}
    server_id = plane.boot(plane.flavor("bm", zeros | {"resources:CUSTOM_GOLD": "1"}, vcpus=8, ram=65536, disk=100))
    plane.settle(host)
    assert plane.placement.allocations(server_id) == {host.provider.uuid: {"CUSTOM_GOLD": 1}}


def test_the_hosts_job_contains_the_selected_provider_of_each_group(plane, host):
    host.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500, CUSTOM_LLC=8)
    server_id = plane.boot(plane.flavor("llc", {"resources_L:CUSTOM_LLC": "1"}))
    plane.settle(host)
    payload = host.built[0]
    assert payload["selected_rp"] == {"": [host.provider.uuid], "_L": [host.provider.uuid]}
    resources = {"CUSTOM_LLC": 1, "DISK_GB": 1, "MEMORY_MB": 512, "VCPU": 1}
    assert payload["allocations"] == {host.provider.uuid: {"resources": resources}}
    assert payload["server"]["id"] == server_id
    assert payload["server"]["image_id"] == IMAGE
    assert payload["server"]["flavor"]["extra_specs"] == {"resources_L:CUSTOM_LLC": "1"}


def test_no_valid_host_gives_its_reason_in_the_fault_and_the_event(plane, host):
    host.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500, CUSTOM_GOLD=1)
    flavor = plane.flavor("gold", {"resources:CUSTOM_GOLD": "1"})
    first, second = plane.boot(flavor, "first"), plane.boot(flavor, "second")
    plane.settle(host)
    assert plane.show(first)["status"] == "ACTIVE"
    failed = plane.send("GET", f"/v2.1/servers/{second}")[2]["server"]
    assert failed["status"] == "ERROR"
    assert failed["fault"]["message"].startswith("No valid host was found. ")
    assert "CUSTOM_GOLD" in failed["fault"]["message"]
    assert "details" not in failed["fault"]
    assert "resources=CUSTOM_GOLD:1" in plane.show(second)["fault"]["details"]
    action = plane.send("GET", f"/v2.1/servers/{second}/os-instance-actions")[2]["instanceActions"][0]
    path = f"/v2.1/servers/{second}/os-instance-actions/{action['request_id']}"
    event = plane.send("GET", path)[2]["instanceAction"]["events"][0]
    assert (event["result"], event["details"]) == ("Error", failed["fault"]["message"])
    assert plane.placement.allocations(second) == {}


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "a\x01b", "a\nb", "a\x9bb", "a\u2028b", "\u202eb", "a\uffff"])
def test_a_name_with_invisible_characters_is_refused(plane, host, name):
    """A host could not write it into the server's definition, and a terminal would show something else."""
    server = {"name": name, "imageRef": IMAGE, "flavorRef": plane.flavor("small"), "networks": "none"}
    assert plane.send("POST", "/v2.1/servers", {"server": server})[0] == 400
    server_id = plane.boot("small", "n\u00e4me \u65e5\u672c \U0001f600")
    plane.settle(host)
    path = f"/v2.1/servers/{server_id}"
    assert plane.send("PUT", path, {"server": {"name": name}})[0] == 400
    for action in ({"createImage": {"name": name}}, {"rebuild": {"imageRef": IMAGE, "name": name}}):
        assert plane.send("POST", f"{path}/action", action)[0] == 400
    group = {"server_group": {"name": name, "policy": "affinity"}}
    assert plane.send("POST", "/v2.1/os-server-groups", group)[0] == 400
    assert plane.show(server_id)["status"] == "ACTIVE"


def test_the_fault_counts_the_reasons_of_filters_without_host_names(plane, host):
    plane.clock.sleep(120)  # the heartbeats of the hosts expire
    server_id = plane.boot(plane.flavor("small"))
    plane.settle()
    fault = plane.send("GET", f"/v2.1/servers/{server_id}")[2]["server"]["fault"]
    assert fault["message"] == (
        "No valid host was found. Placement has capacity, but: 1 host: its compute service is down."
    )
    assert plane.show(server_id)["fault"]["details"].splitlines()[1:] == [
        "service_is_up: 1 -> 0",
        "compute-1: its compute service is down",
    ]


def test_a_host_that_never_registered_gets_no_servers(plane):
    provider = plane.placement.create_provider("stranger")
    from moorage.placement.client.placement_client import Inventory

    inventories = {name: Inventory(total=1000) for name in ("VCPU", "MEMORY_MB", "DISK_GB")}
    plane.placement.set_inventories(provider.uuid, provider.generation, inventories)
    server_id = plane.boot(plane.flavor("small"))
    plane.settle()
    assert "no compute service has registered it" in plane.show(server_id)["fault"]["message"]


def test_the_fault_names_a_class_that_no_host_has_any_more(plane, host):
    plane.placement.ensure_class("CUSTOM_NOWHERE")
    server_id = plane.boot(plane.flavor("odd", {"resources:CUSTOM_NOWHERE": "1"}))
    plane.settle(host)
    fault = plane.show(server_id)["fault"]["message"]
    assert fault.startswith("No valid host was found. ")
    assert "CUSTOM_NOWHERE" in fault


def test_a_failed_build_ends_in_error_and_releases_its_allocation(plane, host):
    host.fails["build"] = "two bitstreams provide function F: b1 and b2"
    server_id = plane.boot(plane.flavor("small"))
    plane.settle(host)
    server = plane.show(server_id)
    assert server["status"] == "ERROR"
    assert server["fault"]["message"] == "two bitstreams provide function F: b1 and b2"
    assert plane.placement.allocations(server_id) == {}


def test_a_reserved_host_accepts_only_flavors_of_reservations(plane, host):
    """A13 (instance-reservation)."""
    reservation = "CUSTOM_RESERVATION_4D17D41A_830D_47B2_91C7_4F9FC0AE611E"
    host.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500, **{reservation: 1})
    plane.builder.run_once()  # writes the trait to Placement
    generation, traits = plane.placement.traits(host.provider.uuid)
    plane.placement.set_traits(host.provider.uuid, generation, traits | {"CUSTOM_RESERVATION_HOST"})
    ordinary = plane.boot(plane.flavor("small"), "ordinary")
    reserved = plane.boot(plane.flavor("reserved", {f"resources:{reservation}": "1"}), "reserved")
    plane.settle(host)
    assert plane.show(reserved)["status"] == "ACTIVE"
    assert plane.show(ordinary)["status"] == "ERROR"
    assert "enabled and not under reservation left 0" in plane.show(ordinary)["fault"]["message"]


def test_the_emptier_host_is_chosen(plane, host):
    other = Host(plane, "compute-2")
    other.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    servers = [plane.boot(plane.flavor("big", ram=8192, vcpus=4), f"vm{index}") for index in range(1)]
    servers += [plane.boot("big", f"vm{index}") for index in range(1, 4)]
    plane.settle(host, other)
    on = [plane.show(server_id)["OS-EXT-SRV-ATTR:host"] for server_id in servers]
    assert sorted(on) == ["compute-1", "compute-1", "compute-2", "compute-2"]


def test_an_availability_zone_and_a_forced_host_are_respected(plane, host):
    other = Host(plane, "compute-2")
    other.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    body = {"aggregate": {"name": "east", "availability_zone": "east"}}
    aggregate = plane.admin("POST", "/v2.1/os-aggregates", body)[2]["aggregate"]
    plane.admin("POST", f"/v2.1/os-aggregates/{aggregate['id']}/action", {"add_host": {"host": "compute-2"}})
    plane.flavor("small")
    in_zone = plane.boot("small", "in-zone", availability_zone="east")
    forced = plane.boot("small", "forced", availability_zone="nova:compute-1", who="root:admin", roles="admin")
    nowhere = plane.boot("small", "nowhere", availability_zone="nova:compute-2", who="root:admin", roles="admin")
    plane.settle(host, other)
    assert plane.show(in_zone)["OS-EXT-SRV-ATTR:host"] == "compute-2"
    assert plane.show(in_zone)["OS-EXT-AZ:availability_zone"] == "east"
    assert plane.show(forced)["OS-EXT-SRV-ATTR:host"] == "compute-1"
    message = plane.show(nowhere)["fault"]["message"]
    assert message == (
        "No valid host was found. 2 hosts considered; the requested host left 1; availability zone nova left 0."
    )


def test_an_invalid_request_is_refused_at_once(plane, host):
    plane.flavor("small")

    def refusal(**more):
        body = {"server": {"name": "vm", "imageRef": IMAGE, "flavorRef": "small", "networks": "none", **more}}
        status, _, document = plane.send("POST", "/v2.1/servers", body)
        return status, next(iter(document.values()))["message"]

    assert refusal(flavorRef="nope") == (400, "Flavor nope could not be found.")
    assert refusal(imageRef="nope") == (400, "Can not find requested image: nope")
    assert refusal(imageRef=SECRET_IMAGE) == (400, f"Can not find requested image: {SECRET_IMAGE}")
    assert refusal(imageRef="")[0] == 400
    assert refusal(availability_zone="west") == (400, "The requested availability zone is not available")
    assert refusal(availability_zone="nova:compute-1")[0] == 403
    assert refusal(key_name="nope") == (400, "Invalid key_name provided.")
    assert refusal(min_count=3, max_count=2)[0] == 400
    assert refusal(surprise=1)[0] == 400
    # Silence would leave a server open that its owner believes to be protected.
    unprotected = (400, "Security group web not found: there are no security groups here. Name none, or default.")
    assert refusal(security_groups=[{"name": "default"}, {"name": "web"}]) == unprotected
    assert refusal(networks=[{"uuid": IMAGE}])[0] == 501
    assert refusal(block_device_mapping_v2=[{"source_type": "blank", "destination_type": "volume"}])[0] == 501
    body = {"server": {"name": "vm", "imageRef": IMAGE, "flavorRef": "small"}}
    assert plane.send("POST", "/v2.1/servers", body)[0] == 400  # networks are required from 2.37 on
    assert plane.send("POST", "/v2.1/servers", body, version="2.36")[0] == 202


def test_the_body_that_the_command_line_sends_is_accepted(plane, host):
    """The body of `openstack server create --flavor F --image I --nic none`, from reference/compute-cli-trace.txt."""
    plane.flavor("small")
    disk = {
        "uuid": IMAGE,
        "boot_index": 0,
        "source_type": "image",
        "destination_type": "local",
        "delete_on_termination": True,
    }
    body = {
        "server": {
            "block_device_mapping_v2": [disk],
            "name": "tr1",
            "min_count": 1,
            "max_count": 1,
            "networks": "none",
            "flavorRef": "small",
            "imageRef": IMAGE,
        }
    }
    status, headers, document = plane.send("POST", "/v2.1/servers", body)
    assert status == 202
    assert headers["location"].endswith(f"/compute/v2.1/servers/{document['server']['id']}")
    assert set(document["server"]) == {"id", "links", "OS-DCF:diskConfig", "security_groups", "adminPass"}


def test_several_servers_in_one_request(plane, host):
    plane.flavor("small")
    body = {
        "server": {"name": "vm", "imageRef": IMAGE, "flavorRef": "small", "networks": "none", "min_count": 3},
    }
    plane.send("POST", "/v2.1/servers", body)
    plane.settle(host)
    listed = plane.send("GET", "/v2.1/servers/detail")[2]["servers"]
    assert {server["name"]: server["status"] for server in listed} == dict.fromkeys(("vm-1", "vm-2", "vm-3"), "ACTIVE")


def test_a_host_name_may_have_a_domain_since_2_94(plane, host):
    plane.flavor("small")

    def created(name, version):
        body = {"name": "vm", "imageRef": IMAGE, "flavorRef": "small", "networks": "none", "hostname": name}
        status, _, document = plane.send("POST", "/v2.1/servers", {"server": body}, version=version)
        return document["server"]["id"] if status == 202 else status

    assert created("web.example.org", "2.93") == 400
    assert [created(name, "2.94") for name in ("web..org", "-web.org", f"{'x' * 64}.org", "w" * 256)] == [400] * 4
    server_id = created("web.example.org", "2.94")
    path = f"/v2.1/servers/{server_id}"

    def host_name():
        return plane.admin("GET", path)[2]["server"]["OS-EXT-SRV-ATTR:hostname"]

    assert host_name() == "web.example.org"
    assert plane.send("PUT", path, {"server": {"hostname": "db.example.org"}}, version="2.93")[0] == 400
    assert plane.send("PUT", path, {"server": {"hostname": "db.example.org"}}, version="2.94")[0] == 200
    assert host_name() == "db.example.org"


def test_an_answer_has_the_requests_id_in_both_of_novas_headers(plane):
    _, headers, _ = plane.send("GET", "/v2.1/servers")
    assert headers["x-compute-request-id"] == headers["x-openstack-request-id"]


@pytest.mark.parametrize("query", ["all_tenants", "all_tenants=", "all_tenants=1", "all_tenants=True"])
def test_administrators_list_the_servers_of_all_projects(plane, host, query):
    server_id = plane.boot(plane.flavor("small"))
    for path in ("/v2.1/servers", "/v2.1/servers/detail"):
        assert [row["id"] for row in plane.admin("GET", f"{path}?{query}")[2]["servers"]] == [server_id]
        assert plane.send("GET", f"{path}?{query}")[0] == 403
    assert plane.admin("GET", "/v2.1/servers?all_tenants=0")[2]["servers"] == []
