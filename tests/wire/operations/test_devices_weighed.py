"""The choice of a host for a server with accelerators: real agents, real Placement answers."""

import pytest

from moorage.accelerator.drivers.simulated import REGION_TYPE_CARD_0
from moorage.accelerator.model.devices import Function
from moorage.accelerator.model.naming import function_trait, region_trait
from tests.images import put_image
from tests.wire.operations.conftest import GPU

AES = "9aff21a8-3f5b-4a3c-9d0e-0f1c7d1f0a01"
FPGA = "CUSTOM_ACCELERATOR_FPGA"
#: A flavor that requests only devices, so that no other weigher prefers one of the hosts.
WITHOUT_STANDARD_RESOURCES = {f"resources:{name}": "0" for name in ("VCPU", "MEMORY_MB", "DISK_GB")}


@pytest.fixture
def cloud(make_cloud):
    """Three hosts, a bitstream with AES for the region that has two handles, and a flavor `aes` of an ordinary size."""
    cloud = make_cloud(3)
    properties = {"function_uuid": AES, "region_uuid": REGION_TYPE_CARD_0}
    put_image(cloud.client("image"), cloud.ids.uuid(), "aes", properties=properties)
    region = f"trait:{region_trait('intel', REGION_TYPE_CARD_0)}"
    cloud.flavor("aes", {f"resources:{FPGA}": "1", region: "required", f"function:{AES}": "required"})
    return cloud


def host_of(cloud, server_id):
    status, _, host = cloud.status(server_id)
    assert status == "ACTIVE", cloud.show(server_id).get("fault")
    return host


def boot_on(cloud, host, flavor):
    """Creates a server on that host, as an administrator."""
    server = {"name": "vm", "imageRef": cloud.image, "flavorRef": flavor, "networks": "none"}
    status, answer, _ = cloud.admin("POST", "/v2.1/servers", {"server": server | {"availability_zone": f"nova:{host}"}})
    assert status == 202, answer
    cloud.settle()
    assert host_of(cloud, answer["server"]["id"]) == host


def hosts_with_aes(cloud):
    """The hosts with a region that has AES now, according to Placement."""
    found = set()
    for name in cloud.hosts:
        tree = cloud.placement.tree(cloud.placement.provider_by_name(name).uuid)
        if any(function_trait("intel", Function(AES, "")) in cloud.placement.traits(one.uuid)[1] for one in tree):
            found.add(name)
    return found


def test_a_host_whose_region_already_has_the_function_is_preferred(cloud):
    """A15, R10 (accelerator-attach): that host is chosen although it has less free capacity and fewer free devices than the
    others. When its region is full the server is placed elsewhere, since no host is rejected.
    """
    first = host_of(cloud, cloud.boot("aes"))
    cloud.run_for(60)  # the resource tracker publishes the function of the region
    assert hosts_with_aes(cloud) == {first}
    boot_on(cloud, first, "gpu")
    assert host_of(cloud, cloud.boot("aes")) == first
    assert host_of(cloud, cloud.boot("aes")) != first


def test_a_function_named_by_the_image_counts_like_one_of_the_flavor(cloud):
    """The flavor names no function, and the image of the second server names AES."""
    region = f"trait:{region_trait('intel', REGION_TYPE_CARD_0)}"
    cloud.flavor("region", {f"resources:{FPGA}": "1", region: "required"})
    first = host_of(cloud, cloud.boot("aes"))
    cloud.run_for(60)
    boot_on(cloud, first, "gpu")
    image = cloud.make_image("guest", **{"accel:function_id": AES})
    assert host_of(cloud, cloud.boot("region", imageRef=image)) == first


def test_servers_that_wait_together_are_ranked_by_their_own_functions(cloud):
    """Both servers have the same query; only the second one requests AES."""
    region = f"trait:{region_trait('intel', REGION_TYPE_CARD_0)}"
    cloud.flavor("region", {f"resources:{FPGA}": "1", region: "required"})
    first = host_of(cloud, cloud.boot("aes"))
    cloud.run_for(60)
    boot_on(cloud, first, "gpu")
    servers = {}
    for flavor in ("region", "aes"):
        body = {"name": flavor, "imageRef": cloud.image, "flavorRef": flavor, "networks": "none"}
        status, answer, _ = cloud.send("POST", "/v2.1/servers", {"server": body})
        assert status == 202, answer
        servers[flavor] = answer["server"]["id"]
    cloud.settle()
    assert host_of(cloud, servers["aes"]) == first
    assert host_of(cloud, servers["region"]) != first


def test_servers_with_devices_prefer_hosts_with_many_free_devices(cloud):
    """R10 (accelerator-attach): of hosts with 1, 2 and 4 free devices, a server with a device gets the last one, and a
    server without a device the first one.
    """
    cloud.flavor("only-gpu", WITHOUT_STANDARD_RESOURCES | {f"resources:{GPU}": "1"})
    for name, amount in (("compute-1", 3), ("compute-2", 2)):
        for _ in range(amount):
            boot_on(cloud, name, "only-gpu")
    assert host_of(cloud, cloud.boot("only-gpu")) == "compute-3"
    assert host_of(cloud, cloud.boot("small")) == "compute-1"
