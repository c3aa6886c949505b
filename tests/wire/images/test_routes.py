"""The Image API v2 as clients see it. The answers of Glance 33 were measured with the same requests."""

import errno
import hashlib
import json
import os

import pytest

from moorage import durable
from moorage.wire.transports import InProcessTransport
from tests.plane import URL
from tests.wire.images.conftest import PATCH, Wire

ADMIN = {"who": "root:ops", "roles": "admin,member"}
OTHER = {"who": "bob:blue", "roles": "member"}


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "is full: free some space"), (errno.EIO, "fails"), (errno.EROFS, "is read-only")],
)
def test_an_upload_to_a_full_disk_is_503_and_can_be_repeated(wire, monkeypatch, caplog, number, said):
    image = wire.create()

    class Disk:
        """Accepts no more writes."""

        def __getattr__(self, name):
            return getattr(os, name)

        def open(self, path, *options):
            raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as broken:
        broken.setattr(durable, "os", Disk())
        status, headers, answer = wire.upload(image["id"], b"data")
    assert (status, headers["retry-after"]) == (503, "2")
    assert said in json.dumps(answer)
    assert image["id"] not in json.dumps(answer), "where it lies is for the log"
    assert any(image["id"] in record.reason for record in caplog.records if record.msg == "the disk fails")
    assert wire.send("GET", f"/v2/images/{image['id']}")[2]["status"] == "queued"
    assert wire.upload(image["id"], b"data")[0] == 204


@pytest.mark.parametrize(("path", "status"), [("", 300), ("/", 300), ("/versions", 200), ("/v2", 200), ("/v2/", 200)])
def test_versions_need_no_token(wire, path, status):
    answer, _, document = wire.send("GET", path, who=None)
    assert answer == status
    assert document["versions"][0] == {
        "id": "v2.17",
        "status": "CURRENT",
        "links": [{"rel": "self", "href": f"{URL}/image/v2/"}],
    }


def test_all_other_routes_need_a_token(wire):
    for method, path in (("GET", "/v2/images"), ("POST", "/v2/images"), ("GET", "/v2/schemas/image"), ("GET", "/v2/x")):
        assert wire.send(method, path, who=None)[0] == 401


def test_a_created_image_is_queued_and_private_to_its_project(wire):
    status, headers, image = wire.send(
        "POST", "/v2/images", {"name": "gzip", "accel:function_id": "f1", "tags": ["FPGA", "FPGA"], "min_ram": 1}
    )
    assert status == 201
    assert headers["location"] == f"{URL}/image/v2/images/{image['id']}"
    assert image["status"] == "queued"
    assert image["visibility"] == "shared"
    assert image["owner"] == "red"
    assert image["accel:function_id"] == "f1"
    assert image["tags"] == ["FPGA"]
    assert image["size"] is image["checksum"] is image["os_hash_value"] is None
    assert image["created_at"] == "2026-03-01T09:30:00Z"
    assert image["self"] == f"/v2/images/{image['id']}"
    assert image["file"] == f"/v2/images/{image['id']}/file"
    assert wire.send("GET", f"/v2/images/{image['id']}")[2] == image


def test_an_id_can_be_chosen_only_once(wire):
    chosen = "11111111-1111-4111-8111-111111111111"
    assert wire.create(id=chosen)["id"] == chosen
    status, _, document = wire.send("POST", "/v2/images", {"id": chosen})
    assert status == 409
    assert document["message"] == f"Image ID {chosen} already exists!"


def test_the_id_of_a_deleted_image_cannot_be_chosen_again(wire):
    """As measured on Glance: 409, also for the project that had the image."""
    chosen = "abcdefab-1111-4111-8111-abcdefabcdef"
    assert wire.create(id=chosen.upper())["id"] == chosen
    assert wire.send("DELETE", f"/v2/images/{chosen.upper()}")[0] == 204
    for who in ("alice:red", "bob:blue"):
        for spelled in (chosen, chosen.upper()):
            assert wire.send("POST", "/v2/images", {"id": spelled}, who=who)[0] == 409


@pytest.mark.parametrize("name", ["os_glance_import_task", "location", "deleted", "deleted_at"])
def test_clients_cannot_set_properties_reserved_by_glance(wire, name):
    assert wire.send("POST", "/v2/images", {name: "x"})[0] == 403
    image = wire.create()
    assert wire.patch(image["id"], {"op": "add", "path": f"/{name}", "value": "x"})[0] == 403


def test_a_list_by_id_ignores_the_case(wire):
    chosen = "abcdefab-1111-4111-8111-abcdefabcdef"
    wire.create(id=chosen, name="it")
    assert wire.names(f"?id={chosen.upper()}") == ["it"]
    assert wire.names(f"?marker={chosen.upper()}") == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": 1}, 400),
        ({"prop": 3}, 400),
        ({"id": "nope"}, 400),
        ({"id": "../../../etc/passwd"}, 400),
        ({"visibility": "odd"}, 400),
        ({"disk_format": "odd"}, 400),
        ({"tags": ["x" * 300]}, 400),
        ({"min_ram": -1}, 400),
        ({"x" * 300: "y"}, 400),
        ([], 400),
        ({"size": 3}, 403),
        ({"status": "active"}, 403),
        ({"owner": "blue"}, 403),
        ({"visibility": "public"}, 403),
    ],
    ids=str,
)
def test_an_invalid_image_cannot_be_created(wire, body, status):
    answer, _, document = wire.send("POST", "/v2/images", body)
    assert answer == status
    assert document["code"].startswith(str(status))
    assert document["message"]


def test_errors_are_json_if_the_client_accepts_it_and_html_otherwise(wire):
    status, headers, body = wire.send("GET", "/v2/images/nope", accept="")
    assert status == 404
    assert headers["content-type"] == "text/html; charset=UTF-8"
    assert b"<h1>404 Not Found</h1>" in body
    assert wire.send("GET", "/v2/images/nope")[2] == {
        "message": "No image found with ID nope",
        "code": "404 Not Found",
        "title": "Not Found",
    }
    assert b"<script>" not in wire.send("GET", "/v2/images/<script>", accept="")[2]


def test_an_upload_sets_size_and_digests_and_a_download_returns_the_same_bytes(wire):
    image = wire.create()
    data = bytes(range(256)) * 5000
    assert wire.upload(image["id"], data)[0] == 204
    image = wire.send("GET", f"/v2/images/{image['id']}")[2]
    assert image["status"] == "active"
    assert image["size"] == len(data)
    assert image["checksum"] == hashlib.md5(data).hexdigest()
    assert image["os_hash_algo"] == "sha512"
    assert image["os_hash_value"] == hashlib.sha512(data).hexdigest()
    status, headers, body = wire.send("GET", f"/v2/images/{image['id']}/file")
    assert (status, body) == (200, data)
    assert headers["content-md5"] == image["checksum"]
    assert headers["content-length"] == str(len(data))
    assert headers["content-type"] == "application/octet-stream"


def test_downloading_an_image_without_data_is_204(wire):
    assert wire.send("GET", f"/v2/images/{wire.create()['id']}/file")[0] == 204


def test_a_second_upload_is_409_and_changes_nothing(wire):
    image = wire.create()
    wire.upload(image["id"], b"first")
    status, _, document = wire.upload(image["id"], b"second")
    assert status == 409
    assert document["message"] == "Image status transition from active to saving is not allowed"
    assert wire.send("GET", f"/v2/images/{image['id']}/file")[2] == b"first"


def test_an_upload_needs_formats_and_the_right_media_type(wire):
    image = wire.create(disk_format=None)
    status, _, document = wire.upload(image["id"], b"x")
    assert status == 400
    assert document["message"] == "Properties disk_format must be set prior to saving data."
    assert wire.send("PUT", f"/v2/images/{image['id']}/file", b"x", kind="application/json")[0] == 415


def test_a_chunked_upload_needs_no_length(wire):
    for length in ({}, {"x_openstack_image_size": "4"}):
        image = wire.create()
        assert wire.upload(image["id"], iter([b"ab", b"", b"cd"]), **length)[0] == 204
        assert wire.send("GET", f"/v2/images/{image['id']}/file")[2] == b"abcd"
        assert wire.send("GET", f"/v2/images/{image['id']}")[2]["size"] == 4


def test_a_chunked_upload_needs_a_length_where_the_server_does_not_report_a_broken_body(plane):
    def server(environ, start_response):
        return plane.plane.app({**environ, "wsgi.input_terminated": False}, start_response)

    wire = Wire(InProcessTransport(server))
    image = wire.create()["id"]
    status, _, refused = wire.upload(image, iter([b"ab", b"cd"]))
    assert (status, "send the data with Content-Length or X-OpenStack-Image-Size" in refused["message"]) == (400, True)
    assert wire.send("GET", f"/v2/images/{image}")[2]["status"] == "queued"


def test_a_chunked_upload_whose_sender_dies_leaves_the_image_queued(wire):
    image = wire.create()["id"]

    def dying():
        yield b"half"
        raise ConnectionError("the sender died")

    assert wire.upload(image, dying())[0] == 500
    assert wire.send("GET", f"/v2/images/{image}")[2]["status"] == "queued"
    assert wire.upload(image, iter([b"all"]))[0] == 204


def test_a_chunked_upload_has_the_rights_of_its_caller(wire):
    image = wire.create(visibility="community")["id"]
    read = []

    def data():
        read.append(1)
        yield b"x"

    assert wire.upload(image, data(), who=None)[0] == 401
    assert wire.upload(image, data(), who="bob:blue")[0] == 403
    assert wire.upload(image, data(), roles="reader")[0] == 403
    assert read == [], "a refused body is not read"
    assert wire.upload(image, data())[0] == 204


@pytest.mark.parametrize(("announced", "status"), [("5", 400), ("3", 413), ("x", 400), ("-1", 400)])
def test_an_interrupted_upload_leaves_the_image_queued_without_data(wire, announced, status):
    image = wire.create()
    assert wire.upload(image["id"], iter([b"ab", b"cd"]), x_openstack_image_size=announced)[0] == status
    image = wire.send("GET", f"/v2/images/{image['id']}")[2]
    assert image["status"] == "queued"
    assert image["size"] is None
    assert wire.send("GET", f"/v2/images/{image['id']}/file")[0] == 204
    assert wire.upload(image["id"], b"again")[0] == 204


def test_patch_changes_attributes_properties_and_tags(wire, clock):
    image = wire.create(name="old", p="1")
    clock.sleep(10)
    status, _, changed = wire.patch(
        image["id"],
        {"op": "replace", "path": "/name", "value": "new"},
        {"op": "add", "path": "/q~1r", "value": "2"},
        {"op": "remove", "path": "/p"},
        {"op": "replace", "path": "/tags", "value": ["b", "a", "a"]},
        {"op": "replace", "path": "/protected", "value": True},
    )
    assert status == 200
    del image["p"]
    expected = {"name": "new", "q/r": "2", "tags": ["a", "b"], "protected": True, "updated_at": "2026-03-01T09:30:10Z"}
    assert changed == image | expected


@pytest.mark.parametrize(
    ("operation", "status"),
    [
        ({"op": "replace", "path": "/size", "value": 1}, 403),
        ({"op": "replace", "path": "/status", "value": "active"}, 403),
        ({"op": "replace", "path": "/nope", "value": "1"}, 409),
        ({"op": "remove", "path": "/nope"}, 409),
        ({"op": "remove", "path": "/name"}, 403),
        ({"op": "add", "path": "/x/y", "value": "1"}, 400),
        ({"op": "add", "path": "x", "value": "1"}, 400),
        ({"op": "test", "path": "/x", "value": "1"}, 400),
        ({"op": "add", "path": "/x", "value": 1}, 400),
        ({"op": "add", "path": "/x"}, 400),
        ({"op": "replace", "path": "/visibility", "value": "public"}, 403),
        ({"op": "replace", "path": "/owner", "value": "blue"}, 403),
        (1, 400),
    ],
    ids=str,
)
def test_a_refused_patch_changes_nothing(wire, operation, status):
    image = wire.create()
    answer, _, document = wire.patch(image["id"], {"op": "add", "path": "/fine", "value": "1"}, operation)
    assert answer == status, document
    assert wire.send("GET", f"/v2/images/{image['id']}")[2] == image


def test_a_patch_must_be_a_list_in_its_own_media_type(wire):
    image = wire.create()
    assert wire.send("PATCH", f"/v2/images/{image['id']}", [], kind="application/json")[0] == 415
    assert wire.send("PATCH", f"/v2/images/{image['id']}", {"op": "add"}, kind=PATCH)[0] == 400
    assert wire.send("PATCH", f"/v2/images/{image['id']}", b"{nope", kind=PATCH)[0] == 400


def test_formats_are_fixed_once_there_is_data(wire):
    image = wire.create()
    wire.upload(image["id"], b"x")
    assert wire.patch(image["id"], {"op": "replace", "path": "/disk_format", "value": "qcow2"})[0] == 403


def test_a_deleted_image_is_not_found(wire):
    image = wire.create()
    wire.upload(image["id"], b"x")
    assert wire.send("DELETE", f"/v2/images/{image['id']}")[0] == 204
    assert wire.send("GET", f"/v2/images/{image['id']}")[0] == 404
    assert wire.send("DELETE", f"/v2/images/{image['id']}")[0] == 404


def test_a_protected_image_cannot_be_deleted(wire):
    image = wire.create(protected=True)
    status, _, document = wire.send("DELETE", f"/v2/images/{image['id']}")
    assert status == 403
    assert document["message"] == f"Image {image['id']} is protected and cannot be deleted."


def test_an_image_has_no_tasks(wire):
    path = f"/v2/images/{wire.create()['id']}/tasks"
    assert wire.send("GET", path)[::2] == (200, {"tasks": []})
    assert wire.send("GET", path, **OTHER)[0] == 404


def test_images_of_other_projects_are_not_found(wire):
    for visibility in ("private", "shared"):
        image = wire.create(visibility=visibility, name=visibility)
        path = f"/v2/images/{image['id']}"
        assert wire.send("GET", path, **OTHER)[0] == 404
        assert wire.send("GET", f"{path}/file", **OTHER)[0] == 404
        assert wire.send("DELETE", path, **OTHER)[0] == 404
        assert wire.upload(image["id"], b"x", **OTHER)[0] == 404
        assert wire.patch(image["id"], {"op": "add", "path": "/x", "value": "1"}, **OTHER)[0] == 404
        assert wire.send("PUT", f"{path}/tags/t", **OTHER)[0] == 404
    assert wire.names(**OTHER) == []
    assert sorted(wire.names(**ADMIN)) == ["private", "shared"]


def test_public_and_community_images_may_be_used_but_not_changed_by_others(wire):
    public = wire.create(visibility="public", name="public", **ADMIN)
    community = wire.create(visibility="community", name="community")
    for image in (public, community):
        path = f"/v2/images/{image['id']}"
        assert wire.send("GET", path, **OTHER)[0] == 200
        assert wire.send("DELETE", path, **OTHER)[0] == 403
        assert wire.upload(image["id"], b"x", **OTHER)[0] == 403
        assert wire.patch(image["id"], {"op": "add", "path": "/x", "value": "1"}, **OTHER)[0] == 403
        assert wire.send("DELETE", f"{path}/tags/t", **OTHER)[0] == 403
    assert wire.names(**OTHER) == ["public"]
    assert wire.names("?visibility=community", **OTHER) == ["community"]
    assert sorted(wire.names("?visibility=all", **OTHER)) == ["community", "public"]


def test_a_reader_may_read_but_not_change(wire):
    image = wire.create()
    reader = {"roles": "reader"}
    assert wire.send("GET", f"/v2/images/{image['id']}", **reader)[0] == 200
    assert wire.send("POST", "/v2/images", {}, **reader)[0] == 403
    assert wire.upload(image["id"], b"x", **reader)[0] == 403
    assert wire.send("DELETE", f"/v2/images/{image['id']}", **reader)[0] == 403
    assert wire.send("GET", "/v2/images", roles="")[0] == 403


@pytest.fixture
def shelf(wire, clock):
    """Four images, one second apart: a (active), b, c, d."""
    images = {}
    for number, name in enumerate("abcd"):
        images[name] = wire.create(
            name=name,
            **{"accel:function_id": "f1" if number < 2 else "f2", "region_uuid": "r1", "tags": ["FPGA", name]},
        )
        clock.sleep(1)
    wire.upload(images["a"]["id"], b"data")
    return images


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", "dcba"),
        ("?name=b", "b"),
        ("?name=None", "dcba"),
        ("?name=in:a,c", "ca"),
        ("?status=active", "a"),
        ("?status=queued", "dcb"),
        ("?accel:function_id=f1", "ba"),
        ("?accel:function_id=f1&region_uuid=r1&status=active", "a"),
        ("?accel:function_id=f1&region_uuid=r2", ""),
        ("?accel:function_id=f3", ""),
        ("?tag=FPGA", "dcba"),
        ("?tag=FPGA&tag=b", "b"),
        ("?owner=red", "dcba"),
        ("?owner=blue", ""),
        ("?visibility=shared", "dcba"),
        ("?visibility=public", ""),
        ("?protected=false", "dcba"),
        ("?os_hidden=true", ""),
        ("?size_min=1&size_max=4", "a"),
        ("?size_min=5", ""),
        ("?sort=name:asc", "abcd"),
        ("?sort_key=name&sort_dir=asc", "abcd"),
        ("?sort=status:asc,name:asc", "abcd"),
        ("?sort=created_at:asc", "abcd"),
        ("?sort_key=size&sort_dir=desc&limit=1", "a"),
        ("?limit=2", "dc"),
        ("?limit=0", ""),
        ("?created_at=gt:2026-03-01T09:30:01Z", "dc"),
        ("?created_at=lte:2026-03-01T09:30:01Z", "ba"),
        ("?member_status=all", "dcba"),
    ],
)
def test_images_are_filtered_and_sorted(wire, shelf, query, names):
    assert "".join(wire.names(query)) == names


def test_images_are_listed_by_ids(wire, shelf):
    ids = ",".join(shelf[name]["id"] for name in "bd")
    assert wire.names(f"?id=in:{ids}&sort=name:asc") == ["b", "d"]


def test_each_page_links_to_the_next_one(wire, shelf):
    seen, path = [], "/v2/images?limit=3&tag=FPGA&sort=name:asc"
    first = wire.send("GET", path)[2]
    assert first["first"] == "/v2/images?limit=3&tag=FPGA&sort=name%3Aasc"
    while path:
        document = wire.send("GET", path)[2]
        seen += [row["name"] for row in document["images"]]
        path = document.get("next")
    assert seen == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("marker=nope", "No image found with ID nope"),
        ("limit=x", "limit param must be an integer"),
        ("limit=-1", "limit param must be positive"),
        ("visibility=odd", "Invalid visibility value: odd"),
        (
            "sort=nope",
            (
                "Invalid sort key: nope. It must be one of the following: name, status, container_format, disk_format, "
                "size, id, created_at, updated_at."
            ),
        ),
        ("sort=name:up", "Invalid sort direction: up"),
        ("sort_dir=up", "Invalid sort direction: up"),
        ("os_hidden=x", "Invalid value 'x' for 'os_hidden' filter. Valid values are 'true' or 'false'."),
        ("protected=x", "Invalid value 'x' for 'protected' filter. Valid values are 'true' or 'false'."),
        ("size_min=x", "Unable to filter on a range with a non-numeric value."),
        ("created_at=foo", 'Bad "created_at" query filter format. Use ISO 8601 DateTime notation.'),
    ],
)
def test_invalid_list_parameters_are_refused_with_glances_messages(wire, query, message):
    status, _, document = wire.send("GET", f"/v2/images?{query}")
    assert (status, document["message"]) == (400, message)


def test_another_projects_image_cannot_be_the_marker(wire, shelf):
    assert wire.send("GET", f"/v2/images?marker={shelf['a']['id']}", **OTHER)[0] == 400


def test_tags_are_added_and_removed(wire):
    path = f"/v2/images/{wire.create()['id']}"
    assert wire.send("PUT", f"{path}/tags/FPGA")[0] == 204
    assert wire.send("GET", path)[2]["tags"] == ["FPGA"]
    assert wire.send("DELETE", f"{path}/tags/FPGA")[0] == 204
    assert wire.send("DELETE", f"{path}/tags/FPGA")[0] == 404


def test_only_admins_may_download_a_deactivated_image(wire):
    """The owner and administrators may deactivate an image, as with Glance's defaults."""
    image = wire.create(visibility="community")
    path = f"/v2/images/{image['id']}"
    assert wire.send("POST", f"{path}/actions/deactivate", **ADMIN)[0] == 403  # the image is still queued
    wire.upload(image["id"], b"x")
    assert wire.send("POST", f"{path}/actions/deactivate", **OTHER)[0] == 403
    assert wire.send("POST", f"{path}/actions/deactivate")[0] == 204
    assert wire.send("GET", path)[2]["status"] == "deactivated"
    assert wire.send("GET", f"{path}/file")[0] == 403
    assert wire.send("GET", f"{path}/file", **ADMIN)[0] == 200
    assert wire.send("POST", f"{path}/actions/reactivate", **OTHER)[0] == 403
    assert wire.send("POST", f"{path}/actions/reactivate")[0] == 204
    assert wire.send("GET", f"{path}/file")[0] == 200


def test_a_shared_image_is_visible_to_its_members_only(wire):
    """Members may use it by its id at once, and see it in lists after they have accepted it; others cannot see it."""
    image = wire.create()["id"]
    path = f"/v2/images/{image}/members"
    assert wire.send("GET", f"/v2/images/{image}", **OTHER)[0] == 404
    member = wire.send("POST", path, {"member": "blue"})[2]
    assert (member["member_id"], member["status"], member["image_id"]) == ("blue", "pending", image)
    assert wire.send("POST", path, {"member": "blue"})[0] == 409
    assert wire.send("GET", f"/v2/images/{image}", **OTHER)[0] == 200
    assert wire.send("GET", "/v2/images", **OTHER)[2]["images"] == []
    at = f"{path}/blue"
    assert wire.send("PUT", at, {"status": "accepted"})[0] == 403
    assert wire.send("PUT", at, {"status": "perhaps"}, **OTHER)[0] == 400
    assert wire.send("PUT", at, {"status": "accepted"}, **OTHER)[2]["status"] == "accepted"
    assert [one["id"] for one in wire.send("GET", "/v2/images", **OTHER)[2]["images"]] == [image]
    assert [one["member_id"] for one in wire.send("GET", path, **OTHER)[2]["members"]] == ["blue"]
    assert wire.send("PATCH", f"/v2/images/{image}", **OTHER)[0] != 200
    assert wire.send("DELETE", at, **OTHER)[0] == 403
    assert wire.send("DELETE", at)[0] == 204
    assert wire.send("DELETE", at)[0] == 404
    assert wire.send("GET", f"/v2/images/{image}", **OTHER)[0] == 404


def test_shared_images_are_listed_by_the_answer_of_the_member(wire):
    """An owner sees its own image, also as a member of it."""
    image = wire.create()["id"]
    for member in ("blue", "red"):
        wire.send("POST", f"/v2/images/{image}/members", {"member": member})

    def listed(query, **who):
        return [one["id"] for one in wire.send("GET", f"/v2/images?{query}", **who)[2]["images"]] == [image]

    assert listed("")
    assert listed("member_status=rejected")
    assert not listed("", **OTHER)
    assert listed("member_status=pending&visibility=shared", **OTHER)
    assert listed("member_status=all", **OTHER)
    wire.send("PUT", f"/v2/images/{image}/members/blue", {"status": "rejected"}, **OTHER)
    assert not listed("member_status=pending", **OTHER)
    assert listed("member_status=rejected", **OTHER)
    status, _, document = wire.send("GET", "/v2/images?member_status=maybe", **OTHER)
    assert (status, document["message"]) == (400, "Invalid status: maybe")


def test_a_patch_may_have_the_older_form(wire):
    """Media type v2.0: the operation is the name of the member that holds the path."""
    path = f"/v2/images/{wire.create(note='a')['id']}"
    old = "application/openstack-images-v2.0-json-patch"

    def patch(*operations):
        return wire.send("PATCH", path, list(operations), kind=old)

    status, _, document = patch(
        {"replace": "/name", "value": "new"}, {"add": "/os~1x", "value": "y"}, {"remove": "/note"}
    )
    assert (status, document["name"], document["os/x"]) == (200, "new", "y")
    assert "note" not in document
    for wrong in ({"op": "replace", "path": "/name", "value": "x"}, {"add": "/a", "remove": "/name", "value": "x"}):
        status, _, document = patch(wrong)
        assert status == 400
        assert "exactly one of the members" in document["message"]


def test_only_shared_images_have_members(wire):
    image = wire.create(visibility="private")["id"]
    assert wire.send("POST", f"/v2/images/{image}/members", {"member": "p"})[0] == 403
    assert wire.send("GET", f"/v2/images/{image}/members")[0] == 403


def test_other_keys_in_the_answer_of_a_member_are_ignored(wire):
    """The openstacksdk sends the keys of its object along."""
    image = wire.create()["id"]
    wire.send("POST", f"/v2/images/{image}/members", {"member": "blue"})
    answer = {"member": "blue", "image_id": image, "status": "accepted"}
    status, _, member = wire.send("PUT", f"/v2/images/{image}/members/blue", answer, **OTHER)
    assert (status, member["member_id"], member["status"]) == (200, "blue", "accepted")
    assert wire.send("PUT", f"/v2/images/{image}/members/blue", {"member": "blue"}, **OTHER)[0] == 400


def test_the_schemas_can_be_read(wire):
    schema = wire.send("GET", "/v2/schemas/image")[2]
    image = wire.create()
    assert set(image) <= set(schema["properties"])
    assert wire.send("GET", "/v2/schemas/images")[2]["properties"]["images"]["items"] == schema
    member = wire.send("GET", "/v2/schemas/member")[2]
    shared = wire.send("POST", f"/v2/images/{image['id']}/members", {"member": "blue", "image_id": "ignored"})[2]
    assert set(shared) == set(member["properties"])
    assert wire.send("GET", "/v2/schemas/members")[2]["properties"]["members"]["items"] == member
    assert wire.send("GET", "/v2/info/import")[2]["import-methods"]["value"] == []


def test_every_policy_rule_of_the_routes_is_defined():
    from moorage.images.routes import API, RULES

    assert {route.rule for route in API.routes if route.rule} <= set(RULES.rules)


def test_the_members_of_an_image_are_limited(wire):
    """An image's file and its cached copy contain all of them."""
    path = f"/v2/images/{wire.create(visibility='shared')['id']}/members"
    added = [wire.send("POST", path, {"member": f"project-{number}"})[0] for number in range(129)]
    assert added == [200] * 128 + [413]
    assert wire.send("DELETE", f"{path}/project-0")[0] == 204
    assert wire.send("POST", path, {"member": "another"})[0] == 200


def test_the_tags_of_an_image_are_limited_one_by_one_as_in_its_document(wire):
    path = f"/v2/images/{wire.create()['id']}/tags"
    added = [wire.send("PUT", f"{path}/tag-{number}")[0] for number in range(129)]
    assert added == [204] * 128 + [413]
    assert wire.send("PUT", f"{path}/tag-0")[0] == 204, "it has this one already"


def test_a_length_of_thousands_of_digits_is_too_large(wire):
    """Python refuses to convert such a text."""
    image = wire.create()
    assert wire.upload(image["id"], b"data", **{"x-openstack-image-size": "9" * 5000})[0] == 413
    assert wire.send("GET", f"/v2/images/{image['id']}")[2]["status"] == "queued"
