"""Extra specs over HTTP: refusals when a flavor is created or changed, and the resulting queries to Placement."""

import pytest

from moorage.placement.client.placement_client import Inventory


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
        ({"hw:cpu_policy": "mixed"}, "needs hw:cpu_dedicated_mask"),
        ({"trait:CUSTOM_T": "maybe"}, "trait:CUSTOM_T=maybe: a trait is either"),
        ({"resources1:VGPU": "1", "resources2:VGPU": "1"}, "the groups 1, 2 need group_policy"),
    ],
)
def test_specs_that_no_host_could_satisfy_are_refused_at_every_microversion(plane, version, specs, said):
    plane.flavor("small")
    status, message = refusal(plane, specs, version)
    assert (status, said in message) == (400, True)
    assert plane.send("GET", "/v2.1/flavors/small/os-extra_specs")[2] == {"extra_specs": {}}


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


def test_dedicated_processors_are_allocated_as_pcpu(plane, host):
    host.offer(VCPU=16, PCPU=4, MEMORY_MB=32768, DISK_GB=500)
    server_id = plane.boot(plane.flavor("pinned", {"hw:cpu_policy": "dedicated"}, vcpus=2))
    plane.settle(host)
    assert plane.placement.allocations(server_id) == {host.provider.uuid: {"DISK_GB": 1, "MEMORY_MB": 512, "PCPU": 2}}
