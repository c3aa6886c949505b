"""Compute has the right to read and write all images; its views keep tenants from using others' images."""

import json

import pytest

from moorage.images.attributes import BASE
from tests.images import put_image

#: An image of blue's that is shared with friends, a private one of blue's, and one of red's; red is the caller.
PRIVATE, MINE = "aaaaaaaa-0000-4000-8000-000000000001", "aaaaaaaa-0000-4000-8000-000000000002"


@pytest.fixture
def images(plane):
    return plane.process.client("image")


@pytest.fixture
def private(images):
    return put_image(images, PRIVATE, "kernel of blue", owner="blue", visibility="private", data=b"secret")


def asked(plane, image_id, **options):
    body = {"server": {"name": "x", "imageRef": image_id, "flavorRef": plane.flavor("small"), "networks": "none"}}
    status, _, document = plane.send("POST", "/v2.1/servers", body, **options)
    return status, document.get("badRequest", {}).get("message", "")


@pytest.fixture
def server_id(plane, host):
    server_id = plane.boot(plane.flavor("tiny"))
    plane.settle(host)
    return server_id


@pytest.mark.parametrize(
    "action", [("createImage", {}), ("createBackup", {"backup_type": "daily", "rotation": 1})], ids=lambda it: it[0]
)
def test_image_metadata_cannot_set_a_base_attribute(plane, images, server_id, action):
    """Otherwise the service's rights would create a public image, another project's image, or one with a chosen id."""
    before = images.get("/v2/images", params={"visibility": "all"})["images"]
    for name in sorted(BASE | {"os_glance_import_task", "location", "Visibility"}):
        argument = {"name": "operators-image", "metadata": {name: "public"}, **action[1]}
        status, _, document = plane.act(server_id, action[0], argument)
        assert status == 400, name
        assert f" {name}:" in document["badRequest"]["message"]
    assert images.get("/v2/images", params={"visibility": "all"})["images"] == before
    assert plane.show(server_id)["OS-EXT-STS:task_state"] is None


def test_a_snapshot_is_created_with_the_callers_rights_and_is_private(plane, images, server_id):
    seen = []

    def noted(request, send):
        seen.append(dict(request.headers))
        return send()

    plane.process.ways["image"].on("POST /v2/images", noted)
    status, _, document = plane.act(server_id, "createImage", {"name": "copy", "metadata": {"purpose": "test"}})
    assert status == 202
    image = images.get(f"/v2/images/{document['image_id']}")
    assert (image["owner"], image["visibility"], image["purpose"]) == ("red", "private", "test")
    assert [(one["x-auth-token"], one["x-roles"], one["x-service-token"]) for one in seen] == [
        ("alice:red", "member", "moorage:service")
    ]


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"kernel_id": PRIVATE}, "kernel_id"),
        ({"ramdisk_id": PRIVATE}, "ramdisk_id"),
        ({"mappings": json.dumps([{"device": "sda", "image_id": PRIVATE}])}, "mappings"),
        ({"block_device_mapping": json.dumps([{"source_type": "image", "uuid": PRIVATE}])}, "block_device_mapping"),
    ],
)
def test_an_image_that_refers_to_another_projects_image_is_refused(
    plane, host, images, private, server_id, properties, named
):
    """Otherwise the host would read the kernel with its own rights, and the guest could read it."""
    put_image(images, MINE, "mine", visibility="private", properties=properties)
    status, message = asked(plane, MINE)
    assert status == 400
    assert PRIVATE in message
    assert named in message
    for action, argument in (("rebuild", {"imageRef": MINE}), ("rescue", {"rescue_image_ref": MINE})):
        status, _, document = plane.act(server_id, action, argument)
        assert status == 400, action
        assert named in document["badRequest"]["message"]
    assert plane.show(server_id)["OS-EXT-STS:task_state"] is None


def test_an_image_may_refer_to_a_kernel_of_its_project(plane, images):
    kernel = put_image(images, PRIVATE, "kernel of red", visibility="private")
    put_image(images, MINE, "mine", visibility="private", properties={"kernel_id": kernel, "mappings": "no JSON"})
    assert asked(plane, MINE)[0] == 202


def test_the_number_of_images_that_an_image_refers_to_is_limited(plane, images):
    """Each of them is looked up during the request."""
    many = json.dumps([{"image_id": f"aaaaaaaa-0000-4000-8000-{number:012}"} for number in range(100)])
    put_image(images, MINE, "mine", visibility="private", properties={"mappings": many})
    status, message = asked(plane, MINE)
    assert status == 400
    assert "16 other images" in message


@pytest.mark.parametrize(
    ("visibility", "status"), [("public", 202), ("community", 202), ("shared", 400), ("private", 400)]
)
@pytest.mark.parametrize("roles", ["member", "admin", "member,service"])
def test_a_server_needs_an_image_that_its_project_may_use(plane, images, visibility, status, roles):
    """An administrator sees images that the project may not use, because the host would fetch them for the project."""
    put_image(images, PRIVATE, "of blue", owner="blue", visibility=visibility)
    assert asked(plane, PRIVATE, roles=roles)[0] == status


def test_an_administrator_cannot_rebuild_a_tenants_server_with_an_image_that_the_tenant_may_not_use(
    plane, host, private, server_id
):
    for action, argument in (("rebuild", {"imageRef": private}), ("rescue", {"rescue_image_ref": private})):
        options = {"who": "root:blue", "roles": "admin"}
        assert plane.act(server_id, action, argument, **options)[0] == 400, action


def test_images_are_looked_up_with_the_callers_rights(plane, images):
    """With the user's token beside the service's, so an image that the user may not read is not read."""
    seen = []

    def noted(request, send):
        seen.append((request.method, request.headers.get("x-auth-token"), request.headers.get("x-service-token")))
        return send()

    put_image(images, MINE, "mine", visibility="private")
    plane.process.ways["image"].around = noted
    assert asked(plane, MINE)[0] == 202
    assert seen == [("GET", "alice:red", "moorage:service")]


def test_the_image_of_a_shelved_server_is_deleted_only_if_it_belongs_to_the_project(plane, host, images, server_id):
    """Otherwise a user who gives another image this id could have it deleted with the service's rights."""
    assert plane.act(server_id, "shelve")[0] == 202
    (order,) = host.claim()
    image_id = order.payload["image"]["id"]
    put_image(images, image_id, "of blue", owner="blue", visibility="private")
    host.report(order)
    plane.settle(host)
    assert plane.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    plane.settle(host)
    assert plane.show(server_id) is None
    assert images.get(f"/v2/images/{image_id}")["owner"] == "blue"
