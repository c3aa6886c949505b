"""Image views: each operation of the client, in each view, on images of each owner and visibility.

Uses our image service through its routes. The client has the services' credentials, which may see everything, so the
client itself must enforce the view.
"""

from dataclasses import dataclass

import pytest

from moorage.core.errors import Conflict, Invalid, NotFound, RemoteError
from moorage.images.base import CallerView, OwnerView, ProjectView, PublicView
from moorage.images.client import ImageLookup, ImageWriter
from moorage.images.directory import ImageDirectory
from moorage.images.glance import GlanceImages
from moorage.wire.client import NoCredentials, ServiceClient
from tests.images import put_image
from tests.plane import InProcessPlane

#: {image: (owner, visibility, its status for the member red)}; the views are those of red.
KINDS = {
    "own private": ("red", "private", None),
    "own shared": ("red", "shared", None),
    "own community": ("red", "community", None),
    "own public": ("red", "public", None),
    "public": ("blue", "public", None),
    "community": ("blue", "community", None),
    "shared, accepted": ("blue", "shared", "accepted"),
    "shared, pending": ("blue", "shared", "pending"),
    "shared with others": ("blue", "shared", None),
    "foreign private": ("blue", "private", None),
}
IDS = {kind: f"aaaaaaaa-0000-4000-8000-{number:012}" for number, kind in enumerate(KINDS)}
OWN = {kind for kind in KINDS if kind.startswith("own")}
PUBLIC = {"own public", "public"}

VIEWS = {
    "caller": CallerView({"x-auth-token": "alice:red", "x-roles": "member"}),
    "project": ProjectView("red"),
    "owner": OwnerView("red"),
    "public": PublicView(),
}

#: {view: the images that a search finds}; a search must not find images that another project shares with everybody.
FINDS = {
    "caller": OWN | {"public", "shared, accepted"},
    "project": OWN | {"public"},
    "owner": OWN,
    "public": PUBLIC,
}
#: {view: the images that can be read by their id}
READS = {
    "caller": OWN | {"public", "community", "shared, accepted", "shared, pending"},
    "project": OWN | {"public", "community", "shared, accepted", "shared, pending"},
    "owner": OWN,
    "public": PUBLIC,
}


@dataclass
class Shelf:
    plane: InProcessPlane
    http: ServiceClient

    def kinds_left(self):
        rows = self.http.get("/v2/images", params={"visibility": "all", "limit": 100})["images"]
        return {kind for kind, image_id in IDS.items() if image_id in {row["id"] for row in rows}}


@pytest.fixture
def shelf(tmp_path):
    with InProcessPlane(tmp_path, "image") as plane:
        http = plane.client("image")
        for kind, (owner, visibility, said) in KINDS.items():
            put_image(
                http, IDS[kind], kind, owner=owner, visibility=visibility, properties={"mark": "x"}, tags=("FPGA",)
            )
            if said is not None:
                members = f"/v2/images/{IDS[kind]}/members"
                http.request("POST", members, json={"member": "red"})
                http.request("PUT", f"{members}/red", json={"status": said})
        yield Shelf(plane, http)


def sources(shelf, view):
    """The image sources that a service may have: an image service, and its directory."""
    found = [GlanceImages(shelf.http, page_size=3)]
    if view != "caller":  # a directory has no users
        path = shelf.plane.directory / "images"
        found.append(ImageDirectory(path, clock=shelf.plane.clock, ids=shelf.plane.ids))
    return found


@pytest.mark.parametrize("view", VIEWS)
def test_a_search_finds_only_the_images_of_its_view(shelf, view):
    for source in sources(shelf, view):
        for asked in ({"mark": "x"}, {"tag": "FPGA"}, {"mark": "x", "tag": "FPGA"}):
            assert {record.name for record in source.find(VIEWS[view], asked)} == FINDS[view], source
        assert source.find(VIEWS[view], {"mark": "y"}) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("view", VIEWS)
def test_an_image_is_readable_by_its_id_only_in_the_right_views(shelf, view, kind):
    for source in sources(shelf, view):
        record = source.get(VIEWS[view], IDS[kind])
        assert (record is not None) == (kind in READS[view]), source
        if kind in READS[view]:
            with source.open(VIEWS[view], IDS[kind]) as chunks:
                assert b"".join(chunks) == b"tiny"
        else:
            with pytest.raises(NotFound), source.open(VIEWS[view], IDS[kind]):
                pass
    lookup = ImageLookup(shelf.http)
    assert (lookup.get(VIEWS[view], IDS[kind]) is not None) == (kind in READS[view])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("view", VIEWS)
def test_only_the_owners_view_deletes_its_images(shelf, view, kind):
    writer = ImageWriter(shelf.http)
    if view == "owner":
        writer.delete(VIEWS[view], IDS[kind])
    else:
        with pytest.raises(TypeError, match="OwnerView"):
            writer.delete(VIEWS[view], IDS[kind])
    gone = {kind} if view == "owner" and kind in OWN else set()
    assert shelf.kinds_left() == KINDS.keys() - gone


@pytest.mark.parametrize("view", VIEWS)
def test_the_writer_finds_only_the_owners_images(shelf, view):
    writer, lookup = ImageWriter(shelf.http), ImageLookup(shelf.http)
    if view == "owner":
        assert {record.name for record in writer.find(VIEWS[view], {"mark": "x"})} == OWN
        assert lookup.has_image(VIEWS[view], {"mark": "x"})
        assert not lookup.has_image(OwnerView("green"), {"mark": "x"})
    else:
        for ask in (writer.find, lookup.has_image):
            with pytest.raises(TypeError, match="OwnerView"):
                ask(VIEWS[view], {"mark": "x"})


def filled(shelf, view, image_id):
    ImageWriter(shelf.http).upload(
        view, image_id, "disk", {"purpose": "test"}, disk_format="raw", size_bytes=4, chunks=iter((b"disk",))
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("view", VIEWS)
def test_only_the_owners_queued_image_is_filled(shelf, view, kind):
    """A project's own image from before a crash is filled. Another project's id is a conflict, and its image is not
    changed.
    """
    queued = IDS[kind].replace("aaaaaaaa", "bbbbbbbb")
    owner, visibility, _ = KINDS[kind]
    put_image(shelf.http, queued, kind, owner=owner, visibility=visibility, data=None)
    before = shelf.http.get(f"/v2/images/{queued}")
    if view != "owner":
        with pytest.raises(TypeError, match="OwnerView"):
            filled(shelf, VIEWS[view], queued)
    elif kind in OWN:
        filled(shelf, VIEWS[view], queued)
        assert shelf.http.get(f"/v2/images/{queued}")["status"] == "active"
        return
    else:
        with pytest.raises(Conflict, match="does not belong to project red"):
            filled(shelf, VIEWS[view], queued)
    assert shelf.http.get(f"/v2/images/{queued}") == before


def test_a_created_image_is_private_to_the_project(shelf):
    new = "cccccccc-0000-4000-8000-000000000000"
    filled(shelf, OwnerView("green"), new)
    made = shelf.http.get(f"/v2/images/{new}")
    assert (made["owner"], made["visibility"], made["status"], made["purpose"]) == (
        "green", "private", "active", "test",
    )  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_only_the_callers_view_may_announce_an_image_of_its_own_project(shelf, view):
    new, writer = "cccccccc-0000-4000-8000-000000000000", ImageWriter(shelf.http)
    if view != "caller":
        with pytest.raises(TypeError, match="CallerView"):
            writer.announce(VIEWS[view], new, "disk", "red", {})
        return
    with pytest.raises(RemoteError, match="not permitted to create images owned by 'blue'"):
        writer.announce(VIEWS[view], new, "disk", "blue", {})
    writer.announce(VIEWS[view], new, "disk", "red", {})
    assert shelf.http.get(f"/v2/images/{new}")["owner"] == "red"


@pytest.mark.parametrize("name", ["owner", "visibility", "id", "os_glance_x", "os_hidden", "Status"])
def test_properties_cannot_set_a_base_attribute(shelf, name):
    writer, new = ImageWriter(shelf.http), "cccccccc-0000-4000-8000-000000000000"
    with pytest.raises(Invalid, match=name):
        writer.announce(VIEWS["caller"], new, "disk", "red", {name: "x"})
    with pytest.raises(Invalid, match=name):
        writer.upload(OwnerView("red"), new, "disk", {name: "x"}, disk_format="raw", size_bytes=0, chunks=iter(()))
    assert ImageLookup(shelf.http).get(OwnerView("red"), new) is None


@pytest.mark.parametrize("name", ["owner", "visibility", "limit", "marker", "member_status", "size_min", "id"])
def test_a_search_accepts_only_properties_as_filters(shelf, name):
    """Otherwise a filter of this name would replace the view's own."""
    with pytest.raises(ValueError, match=name):
        GlanceImages(shelf.http).find(OwnerView("red"), {name: "blue"})


@pytest.mark.parametrize("view", ["project", "owner", "public"])
def test_the_client_hides_foreign_images_although_a_service_ignores_filters(shelf, view):
    """The client checks the view and the properties again on the answer."""
    http = shelf.http

    class Careless(ServiceClient):
        def paged_rows(self, path, key, params=(), **options):
            return http.paged_rows(path, key, [("visibility", "all"), ("limit", "100")], more="next")

    careless = GlanceImages(Careless(shelf.plane.transport("/image"), service_type="image"))
    assert {record.name for record in careless.find(VIEWS[view], {"mark": "x"})} == FINDS[view]
    assert careless.find(VIEWS[view], {"mark": "other"}) == []


def test_a_caller_without_credentials_does_not_get_the_services_credentials(shelf):
    """In mode `none` there are no credentials to send; in the other modes the request is refused."""
    with pytest.raises(RemoteError) as refused:
        GlanceImages(shelf.http).find(CallerView({}), {"mark": "x"})
    assert refused.value.status == 401
    assert (
        ServiceClient(shelf.plane.transport("/image"), service_type="image", credentials=NoCredentials())
        .on_behalf_of({"x-auth-token": "alice:red", "x-roles": "member"})
        .get("/v2/images")
    )


@pytest.mark.parametrize("kind", [ProjectView, OwnerView])
def test_a_view_of_no_project_is_refused(kind):
    """Otherwise an image without an owner would belong to every caller without a project."""
    with pytest.raises(Invalid):
        kind("")
