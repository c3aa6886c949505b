"""A rebuilt server has the properties of its new image, and its host must support them."""

import pytest

ONE, TWO = "compute-1", "compute-2"


@pytest.fixture
def cloud(make_cloud):
    return make_cloud(2)


def rebuild(cloud, server_id, image):
    code, body = cloud.act(server_id, "rebuild", {"imageRef": image})
    if code == 202:
        cloud.settle()
        return None
    assert code == 400
    return body["badRequest"]["message"]


def give_trait(cloud, host, *traits):
    root = cloud.placement.provider_by_name(host).uuid
    for trait in traits:
        cloud.placement.ensure_trait(trait)
    generation, present = cloud.placement.traits(root)
    cloud.placement.set_traits(root, generation, present | set(traits))


def test_a_rebuilt_server_has_the_requirements_of_its_new_image(cloud):
    """A later move needs a host for its present image, not for its first one."""
    give_trait(cloud, ONE, "CUSTOM_FAST")
    first = cloud.make_image("first", **{"trait:CUSTOM_FAST": "required"})
    server_id = cloud.boot("small", imageRef=first)
    assert cloud.status(server_id)[2] == ONE
    cloud.admin_do(server_id, "migrate")
    assert cloud.status(server_id)[::2] == ("ACTIVE", ONE)  # there is no other suitable host
    assert rebuild(cloud, server_id, cloud.image) is None
    cloud.admin_do(server_id, "migrate")
    assert cloud.status(server_id)[::2] == ("VERIFY_RESIZE", TWO)


def test_a_rebuild_that_needs_a_trait_missing_on_the_host_is_refused(cloud):
    server_id = cloud.boot("small")
    before = cloud.show(server_id)
    cloud.placement.ensure_trait("CUSTOM_FAST")
    fast = cloud.make_image("fast", **{"trait:CUSTOM_FAST": "required"})
    assert "it requires CUSTOM_FAST, which the host of the server does not have" in rebuild(cloud, server_id, fast)
    assert cloud.show(server_id) == before
    give_trait(cloud, cloud.status(server_id)[2], "CUSTOM_FAST")
    assert rebuild(cloud, server_id, fast) is None
    assert cloud.status(server_id)[0] == "ACTIVE"


def test_a_rebuild_that_needs_dedicated_processors_is_refused(cloud):
    server_id = cloud.boot("small")
    dedicated = cloud.make_image("dedicated", hw_cpu_policy="dedicated")
    refused = "image property hw_cpu_policy=dedicated: no host can apply this"
    assert refused in rebuild(cloud, server_id, dedicated)


def test_an_image_that_is_too_large_for_the_flavor_is_refused(cloud):
    server_id = cloud.boot("small")
    large = cloud.make_image("large", min_ram=4096)
    assert "memory is too small for requested image" in rebuild(cloud, server_id, large)


def test_a_member_of_a_shared_image_may_rebuild_with_it(cloud):
    """They may use it by its id even before they accept it, as in Nova."""
    shared = cloud.make_image("shared")
    path = f"/v2/images/{shared}"
    owner = {"who": "alice:red", "roles": "member"}
    patch = [{"op": "replace", "path": "/visibility", "value": "shared"}]
    kind = {"content-type": "application/openstack-images-v2.1-json-patch"}
    assert cloud.control.send("PATCH", f"/image{path}", patch, headers=kind, **owner).status == 200
    body = {"name": "vm", "imageRef": shared, "flavorRef": "small", "networks": "none"}
    create = ("POST", "/v2.1/servers", {"server": body})
    assert cloud.send(*create, who="bob:blue")[0] == 400
    assert cloud.control.send("POST", f"/image{path}/members", {"member": "blue"}, **owner).status == 200
    assert cloud.send(*create, who="bob:blue")[0] == 202
    assert cloud.send(*create, who="eve:green")[0] == 400


def test_a_rebuild_can_change_who_partitions_the_disk(cloud):
    server_id = cloud.boot("small")
    code, body = cloud.act(server_id, "rebuild", {"imageRef": cloud.image, "OS-DCF:diskConfig": "AUTO"})
    assert (code, body["server"]["OS-DCF:diskConfig"]) == (202, "AUTO")
    cloud.settle()
    assert cloud.show(server_id)["OS-DCF:diskConfig"] == "AUTO"


def test_a_rebuild_sets_the_addresses_by_which_people_reach_the_server(cloud):
    """The request of the Compute API's sample `server-action-rebuild`; an address in another form is Nova's own."""
    server_id = cloud.boot("small")
    body = {"imageRef": cloud.image, "accessIPv4": "192.0.2.4", "accessIPv6": "2001:DB8:0:0::4"}
    code, answer = cloud.act(server_id, "rebuild", body)
    assert (code, answer["server"]["accessIPv4"], answer["server"]["accessIPv6"]) == (202, "192.0.2.4", "2001:db8::4")
    cloud.settle()
    shown = cloud.show(server_id)
    assert (shown["status"], shown["accessIPv4"], shown["accessIPv6"]) == ("ACTIVE", "192.0.2.4", "2001:db8::4")
    cloud.do(server_id, "rebuild", {"imageRef": cloud.image, "accessIPv6": ""})
    shown = cloud.show(server_id)
    assert (shown["accessIPv4"], shown["accessIPv6"]) == ("192.0.2.4", "")


@pytest.mark.parametrize(
    "wrong",
    [{"accessIPv4": "192.0.2"}, {"accessIPv4": "2001:db8::4"}, {"accessIPv6": "192.0.2.4"}, {"accessIPv6": None}],
)
def test_a_rebuild_with_something_else_than_an_address_changes_nothing(cloud, wrong):
    server_id = cloud.boot("small")
    before = cloud.show(server_id)
    code, body = cloud.act(server_id, "rebuild", {"imageRef": cloud.image, **wrong})
    assert (code, *wrong) == (400, next(name for name in wrong if name in body["badRequest"]["message"]))
    assert cloud.show(server_id) == before
