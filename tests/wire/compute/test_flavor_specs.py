"""Extra specs over HTTP: refusals when a flavor is created or changed, and the resulting queries to Placement."""

import itertools

import pytest

from moorage.compute.store import flavor_store
from moorage.placement.client.placement_client import Inventory
from tests.wire.compute.conftest import IMAGE


def refusal(plane, specs, version="2.96"):
    status, _, document = plane.admin(
        "POST", "/v2.1/flavors/small/os-extra_specs", {"extra_specs": specs}, version=version
    )
    return status, document.get("badRequest", {}).get("message", "")


@pytest.mark.parametrize("version", ["2.1", "2.85", "2.86", "2.96"])
@pytest.mark.parametrize(
    ("specs", "said"),
    [
        ({"resources:CUSTOM_A": "-1"}, "resources:CUSTOM_A=-1: an amount is a whole number"),
        ({"resources:PCPU": "3"}, "the flavor has 1 vcpus"),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0"}, "some but not all of the processors"),
        ({"hw:cpu_policy": "shared", "hw:cpu_dedicated_mask": "0"}, "needs hw:cpu_policy=mixed"),
        ({"trait:CUSTOM_T": "maybe"}, "trait:CUSTOM_T=maybe: a trait is either"),
        ({"resources:VCPU": "1", "resources:PCPU": "1"}, "exclude each other"),
    ],
)
def test_specs_that_no_host_could_satisfy_are_refused_at_every_microversion(plane, version, specs, said):
    plane.flavor("small")
    status, message = refusal(plane, specs, version)
    assert (status, said in message) == (400, True)
    assert plane.send("GET", "/v2.1/flavors/small/os-extra_specs")[2] == {"extra_specs": {}}


@pytest.mark.parametrize(
    "specs",
    [
        {"resources1:VGPU": "1", "trait1:HW_GPU_API_VULKAN": "required"},
        {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0"},
        {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require", "hw:emulator_threads_policy": "isolate"},
        {"resources1:VGPU": "1", "resources2:VGPU": "1", "group_policy": "none"},
        {"resources_A:VGPU": "1", "resources_B:VGPU": "1", "group_policy": "none", "same_subtree": "_A,_B"},
        {"resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:DISK_GB": "0", "resources:CUSTOM_B": "1"},
    ],
)
def test_keys_are_set_and_removed_one_by_one_in_any_order(plane, specs):
    """As in Nova. A key that remains alone prevents no later one."""
    plane.flavor("small", vcpus=2)
    path = "/v2.1/flavors/small/os-extra_specs"
    for order in itertools.permutations(specs):
        for key in order:
            assert plane.admin("PUT", f"{path}/{key}", {key: specs[key]})[0] == 200
        for key in order:
            assert plane.admin("DELETE", f"{path}/{key}")[0] == 200
            assert plane.admin("PUT", f"{path}/a:b", {"a:b": "1"})[0] == 200


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        ({"resources:CUSTOM_A": "1", "trait1:HW_GPU_API_VULKAN": "required"}, "requests no resources"),
        ({"resources1:VGPU": "1", "resources2:VGPU": "1"}, "the groups 1, 2 need group_policy"),
        ({"resources_A:VGPU": "1", "same_subtree": "_A,_B"}, "there is no group with the suffix '_B'"),
    ],
)
def test_an_incomplete_set_is_refused_when_a_server_uses_it(plane, host, specs, said):
    other = plane.boot(plane.flavor("plain"))
    plane.settle(host)
    body = {"server": {"name": "vm", "imageRef": IMAGE, "flavorRef": plane.flavor("odd", specs), "networks": "none"}}
    status, _, document = plane.send("POST", "/v2.1/servers", body)
    assert (status, said in document["badRequest"]["message"]) == (400, True)
    status, _, document = plane.send("POST", f"/v2.1/servers/{other}/action", {"resize": {"flavorRef": "odd"}})
    assert (status, said in document["badRequest"]["message"]) == (400, True)


def test_a_contradiction_does_not_prevent_its_correction(plane):
    plane.flavor("small")
    with plane.engine.begin() as connection:
        flavor_store.set_extra_specs(connection, "small", {"resources:VCPU": "1", "resources:PCPU": "1"})
    assert refusal(plane, {"resources:CUSTOM_A": "1"}) == (200, "")
    assert refusal(plane, {"resources:CUSTOM_B": "-1"})[0] == 400
    assert plane.admin("DELETE", "/v2.1/flavors/small/os-extra_specs/resources:PCPU")[0] == 200
    assert refusal(plane, {"resources:PCPU": "1"})[0] == 400


def test_unknown_specs_for_hypervisors_are_refused_from_2_86_on(plane):
    """As in Nova: clients of lower microversions may use any key."""
    plane.flavor("small")
    assert refusal(plane, {"hw:cpu_sockets": "none"}, "2.85") == (200, "")
    assert refusal(plane, {"hw:cpu_sockets": "none"}, "2.86")[0] == 400
    assert refusal(plane, {"hw:unknown": "1"}, "2.86") == (
        400, "hw:unknown: there is no such extra spec; see the reference of flavor extra specs",
    )  # fmt: skip
    path = "/v2.1/flavors/small/os-extra_specs/hw:cpu_sockets"
    assert plane.admin("PUT", path, {"hw:cpu_sockets": "0"}, version="2.86")[0] == 400


def test_devices_of_one_subtree_are_claimed_below_one_numa_node(plane, host):
    """`same_subtree`: both devices come from the node that has both, though each kind also exists elsewhere."""
    for name in ("CUSTOM_NIC", "CUSTOM_FPGA"):
        plane.placement.ensure_class(name)
    plane.placement.ensure_trait("CUSTOM_NODE")
    devices = {}
    for node, names in (("n0", ["CUSTOM_NIC"]), ("n1", ["CUSTOM_FPGA", "CUSTOM_NIC"])):
        parent = plane.placement.create_provider(node, parent_uuid=host.provider.uuid)
        plane.placement.set_traits(parent.uuid, parent.generation, {"CUSTOM_NODE"})
        for name in names:
            device = plane.placement.create_provider(f"{node}-{name}", parent_uuid=parent.uuid)
            plane.placement.set_inventories(device.uuid, device.generation, {name: Inventory(total=2)})
            devices[node, name] = device.uuid
    specs = {
        "resources_N:CUSTOM_NIC": "1",
        "resources_F:CUSTOM_FPGA": "1",
        "trait_S:CUSTOM_NODE": "required",
        "group_policy": "none",
        "same_subtree": "_N,_F,_S",
    }
    for number in range(2):
        server_id = plane.boot(plane.flavor(f"near-{number}", specs))
        plane.settle(host)
        held = plane.placement.allocations(server_id)
        assert held[devices["n1", "CUSTOM_NIC"]] == {"CUSTOM_NIC": 1}
        assert held[devices["n1", "CUSTOM_FPGA"]] == {"CUSTOM_FPGA": 1}


def test_a_required_trait_of_the_root_provider_limits_the_hosts(plane, host):
    plane.placement.ensure_trait("CUSTOM_RACK_1")
    server_id = plane.boot(plane.flavor("rack", {"root_required": "CUSTOM_RACK_1"}))
    plane.settle(host)
    assert "CUSTOM_RACK_1" in plane.show(server_id)["fault"]["message"]
    generation, traits = plane.placement.traits(host.provider.uuid)
    plane.placement.set_traits(host.provider.uuid, generation, traits | {"CUSTOM_RACK_1"})
    server_id = plane.boot("rack")
    plane.settle(host)
    assert plane.show(server_id)["status"] == "ACTIVE"
