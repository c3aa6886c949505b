"""The proxy to images below 2.36: Nova's shapes, in the caller's own view."""

import itertools

import pytest

from tests.images import put_image
from tests.wire.compute.conftest import IMAGE, SECRET_IMAGE

#: {name: (owner, visibility, answer of the member red)}; red is the caller.
KINDS = {
    "own": ("red", "private", None),
    "accepted": ("blue", "shared", "accepted"),
    "pending": ("blue", "shared", "pending"),
    "community": ("blue", "community", None),
    "foreign": ("blue", "private", None),
}
IDS = {kind: f"aaaaaaaa-0000-4000-8000-{number:012}" for number, kind in enumerate(KINDS)}
LISTED = {"tiny", "own", "accepted"}


@pytest.fixture
def images(plane):
    http = plane.process.client("image")
    for kind, (owner, visibility, answer) in KINDS.items():
        properties = {"os_distro": "debian"} if kind == "own" else {}
        put_image(http, IDS[kind], kind, owner=owner, visibility=visibility, properties=properties)
        if answer is not None:
            http.request("POST", f"/v2/images/{IDS[kind]}/members", json={"member": "red"})
            http.request("PUT", f"/v2/images/{IDS[kind]}/members/red", json={"status": answer})
    return http


def listed(plane, query="", *, path="images", version="2.35", **options):
    status, _, document = plane.send("GET", f"/v2.1/{path}{query}", version=version, **options)
    assert status == 200, document
    return [row["name"] for row in document["images"]]


def test_an_image_has_the_fields_of_nova(plane, images):
    server, image = "4d17d41a-830d-47b2-91c7-4f9fc0ae611e", "bbbbbbbb-0000-4000-8000-000000000001"
    properties = {"instance_uuid": server, "auto_disk_config": "True", "mappings": '[{"device": "sda"}]', "note": "a"}
    put_image(images, image, "snapshot", properties=properties, tags=("t",))
    status, _, document = plane.send("GET", f"/v2.1/images/{image}", version="2.1")
    base = plane.process.cloud.url
    shown = document["image"]
    assert shown["links"][2].pop("href").endswith(f"/image/images/{image}")
    assert (status, shown.pop("created")[-1], shown.pop("updated")[-1]) == (200, "Z", "Z")
    assert shown == {
        "id": image,
        "name": "snapshot",
        "minRam": 0,
        "minDisk": 0,
        "status": "ACTIVE",
        "progress": 100,
        "OS-EXT-IMG-SIZE:size": 4,
        "OS-DCF:diskConfig": "AUTO",
        "metadata": properties | {"mappings": [{"device": "sda"}]},
        "server": {
            "id": server,
            "links": [
                {"rel": "self", "href": f"{base}/compute/v2.1/servers/{server}"},
                {"rel": "bookmark", "href": f"{base}/compute/servers/{server}"},
            ],
        },
        "links": [
            {"rel": "self", "href": f"{base}/compute/v2.1/images/{image}"},
            {"rel": "bookmark", "href": f"{base}/compute/images/{image}"},
            {"rel": "alternate", "type": "application/vnd.openstack.image"},
        ],
    }
    rows = plane.send("GET", "/v2.1/images/detail?name=snapshot", version="2.1")[2]["images"]
    assert [sorted(row) for row in rows] == [sorted(document["image"] | {"created": "", "updated": ""})]
    assert sorted(plane.send("GET", "/v2.1/images", version="2.1")[2]["images"][0]) == ["id", "links", "name"]


def test_an_image_without_data_is_being_saved(plane, images):
    queued = "bbbbbbbb-0000-4000-8000-000000000002"
    put_image(images, queued, "queued", data=None)
    shown = plane.send("GET", f"/v2.1/images/{queued}", version="2.35")[2]["image"]
    assert (shown["status"], shown["progress"], shown["OS-EXT-IMG-SIZE:size"]) == ("SAVING", 25, 0)


@pytest.mark.parametrize("path", ["images", "images/detail"])
def test_a_list_has_the_images_that_the_image_service_lists_for_the_caller(plane, images, path):
    assert set(listed(plane, path=path)) == LISTED
    assert set(listed(plane, path=path, who="carol:green")) == {"tiny"}
    assert {"own", "foreign"} <= set(listed(plane, path=path, who="root:admin", roles="admin"))


def test_an_image_is_read_with_the_rights_of_the_caller(plane, images):
    for path in ("", "/metadata", "/metadata/os_distro"):
        for kind in ("pending", "community", "accepted", "own"):
            found = 404 if path.endswith("distro") and kind != "own" else 200
            assert plane.send("GET", f"/v2.1/images/{IDS[kind]}{path}", version="2.35")[0] == found
        for hidden in (IDS["foreign"], SECRET_IMAGE, "nope", "..", "%2e%2e", "x%2Fy"):
            assert plane.send("GET", f"/v2.1/images/{hidden}{path}", version="2.35")[0] == 404, hidden
    _, _, refused = plane.send("GET", f"/v2.1/images/{IDS['foreign']}", version="2.35")
    assert refused["itemNotFound"]["message"] == "Image not found."
    assert plane.send("GET", f"/v2.1/images/{IDS['own']}/metadata", version="2.38")[2] == {
        "metadata": {"os_distro": "debian"}
    }
    assert plane.send("GET", f"/v2.1/images/{IDS['own']}/metadata/os_distro", version="2.38")[2] == {
        "meta": {"os_distro": "debian"}
    }


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("?name=own", {"own"}),
        ("?status=active", LISTED),
        ("?status=ACTIVE", LISTED),
        ("?status=QUEUED", set()),
        ("?property-os_distro=debian", {"own"}),
        ("?property-os_distro=other", set()),
        ("?minRam=0", LISTED),
        ("?minDisk=1", set()),
        ("?type=snapshot", set()),
        ("?server=http%3A%2F%2Fx%2Fservers%2Fnone", set()),
        ("?changes-since=2000-01-01T00:00:00Z", LISTED),
        ("?changes-since=2999-01-01T00:00:00Z", set()),
        ("?unknown=ignored", LISTED),
        ("?limit=0", set()),
    ],
)
def test_a_list_is_filtered(plane, images, query, names):
    assert set(listed(plane, query)) == names


@pytest.mark.parametrize(
    "query",
    [
        "property-owner=blue", "property-visibility=all", "property-limit=1000", "property-marker=x", "property-tag=x",
        "property-Owner=blue", "property-os_hidden=true", "property-member_status=all", "limit=-1", "limit=x",
        "marker=nope", f"marker={IDS['foreign']}", "marker=..", "changes-since=yesterday", "minRam=0&property-size=1",
    ],
)  # fmt: skip
def test_a_filter_that_is_none_is_refused(plane, images, query):
    """The names of a property could otherwise widen the list."""
    assert plane.send("GET", f"/v2.1/images?{query}", version="2.35")[0] == 400


def test_a_full_page_links_to_the_next_one(plane, images):
    seen, path = [], "/v2.1/images/detail?limit=1"
    for _ in itertools.repeat(None, 4):
        _, _, document = plane.send("GET", path, version="2.35")
        seen += [row["name"] for row in document["images"]]
        if "images_links" not in document:
            break
        path = document["images_links"][0]["href"].partition("/compute")[2]
    assert (set(seen), len(seen), document) == (LISTED, 3, {"images": []})


@pytest.mark.parametrize(
    ("path", "until"),
    [("images", 35), ("images/detail", 35), (f"images/{IMAGE}", 35), (f"images/{IMAGE}/metadata", 38)],
)
def test_the_proxy_ends_with_the_microversion(plane, path, until):
    assert plane.send("GET", f"/v2.1/{path}", version=f"2.{until}")[0] == 200
    assert plane.send("GET", f"/v2.1/{path}", version=f"2.{until + 1}")[0] == 404


def test_images_are_not_changed_through_the_proxy(plane):
    for method, path in (("DELETE", ""), ("POST", "/metadata"), ("PUT", "/metadata"), ("PUT", "/metadata/k")):
        body = None if method == "DELETE" else {"metadata": {"k": "v"}}
        status, _, refused = plane.admin(method, f"/v2.1/images/{IMAGE}{path}", body, version="2.35")
        assert (status, "only reads" in refused["notImplemented"]["message"]) == (501, True)
    assert plane.send("GET", f"/v2.1/images/{IMAGE}", version="2.35")[0] == 200


@pytest.mark.parametrize(
    "text", ["1" * 30, '"\\ud800"', '{"\\ud800": 1}', "[" * 300 + "]" * 300], ids=["integer", "text", "key", "depth"]
)
def test_a_property_that_an_answer_cannot_hold_is_shown_as_its_text(plane, images, text):
    """Otherwise one image would break every list that contains it."""
    put_image(images, "bbbbbbbb-0000-4000-8000-000000000002", "odd", properties={"mappings": text})
    status, _, document = plane.send("GET", "/v2.1/images/detail?name=odd", version="2.35")
    assert (status, [row["metadata"]["mappings"] for row in document["images"]]) == (200, [text])
