"""Hosts have rights on all images, but touch only those of the server's project."""

import pytest

from moorage.core.errors import NotFound, Unavailable
from moorage.wire.transports import ClientResponse
from tests.images import put_image


@pytest.fixture
def server_id(cloud):
    return cloud.boot("gpu")


def backup(cloud, server_id, name, rotation=2):
    made = cloud.do(server_id, "createBackup", {"name": name, "backup_type": "daily", "rotation": rotation})
    cloud.clock.sleep(3600)
    cloud.run_for(1)
    return made["image_id"]


def test_images_of_another_project_do_not_count_as_backups(cloud, server_id):
    """Anybody can give an image these properties; otherwise others could make a tenant's backups be rotated away."""
    alike = {"instance_uuid": server_id, "image_type": "backup", "backup_type": "daily"}
    mine = [backup(cloud, server_id, "first")]
    forged = [
        put_image(cloud.client("image"), cloud.ids.uuid(), owner="blue", visibility=visibility, properties=alike)
        for visibility in ("private", "shared", "community", "public")
    ]
    mine.append(backup(cloud, server_id, "second"))
    assert [cloud.image_record(image_id) is not None for image_id in mine] == [True, True]
    mine.append(backup(cloud, server_id, "third"))
    assert [cloud.image_record(image_id) is not None for image_id in mine] == [False, True, True]
    assert all(cloud.image_record(image_id) for image_id in forged), "another project's images are not rotated"


def test_a_host_does_not_upload_to_an_image_of_another_project(cloud, server_id):
    """The id is known before the host creates the image, so somebody else could create one with it."""

    def refused(request, send):
        raise Unavailable("the image service does not answer")

    cloud.compute.ways["image"].on("POST /v2/images", refused)
    status, body = cloud.act(server_id, "createImage", {"name": "copy"})
    assert status == 202
    image_id = put_image(cloud.client("image"), body["image_id"], owner="blue", visibility="private", data=None)
    cloud.settle()
    theirs = cloud.image_record(image_id)
    assert (theirs.owner, theirs.status) == ("blue", "queued")
    assert cloud.actions(server_id)[0] == ("createImage", {"compute_snapshot_instance": "Error"})
    assert cloud.status(server_id)[:2] == ("ACTIVE", None)


def test_an_image_deleted_during_its_upload_stays_deleted(cloud, server_id):
    status, body = cloud.act(server_id, "createImage", {"name": "copy"})
    assert status == 202
    cloud.client("image").request("DELETE", f"/v2/images/{body['image_id']}")
    cloud.settle()
    with pytest.raises(NotFound):
        cloud.client("image").get(f"/v2/images/{body['image_id']}")
    assert cloud.actions(server_id)[0] == ("createImage", {"compute_snapshot_instance": "Error"})
    assert cloud.status(server_id)[:2] == ("ACTIVE", None)


def test_a_snapshot_over_the_projects_image_quota_fails_with_the_reason(cloud, server_id):
    def full(request, send):
        return ClientResponse(
            413, {"content-type": "application/json"}, b'{"message": "Image quota exceeded: project red"}'
        )

    for plane in cloud.compute.cloud.planes:
        plane.ways["image"].on("POST /v2/images", full)
    assert cloud.act(server_id, "createImage", {"name": "copy"})[0] == 202
    cloud.settle()
    assert cloud.actions(server_id)[0] == ("createImage", {"compute_snapshot_instance": "Error"})
    assert cloud.status(server_id)[:2] == ("ACTIVE", None)
