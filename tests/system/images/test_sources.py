"""The same tests for every image source: the directory, our service, and a real Glance with and without identity."""

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from moorage.core.clock import SystemClock, VirtualClock
from moorage.core.errors import NotFound, RemoteError
from moorage.core.ids import RandomIds
from moorage.identity.client import PasswordTokens
from moorage.images.base import CallerView, DigestMismatch, ImageSource, ProjectView
from moorage.images.cache import DigestCache
from moorage.images.client import ImageLookup
from moorage.images.directory import ImageDirectory
from moorage.images.glance import GlanceImages
from moorage.wire.client import ServiceClient
from moorage.wire.transports import SocketTransport
from tests.plane import InProcessPlane
from tests.ports import free_port
from tests.processes import cloud, python_of, running

DATA = bytes(range(256)) * 5000


RED = ProjectView("red")


@dataclass
class SourceUnderTest:
    """An image source, with ways to add images and to damage their data."""

    source: ImageSource
    http: ServiceClient
    data_of: Callable[[str], Path]  #: path of an image's data on the disk
    user: CallerView | None = None  #: a user of another project than red; None: the source does not authenticate

    def queue(self, name="", *, tags=(), visibility="shared", **properties):
        properties = {key.replace("__", ":"): value for key, value in properties.items()}
        body = {"name": name, "disk_format": "raw", "container_format": "bare", "tags": list(tags)}
        return self.http.request(
            "POST", "/v2/images", json=body | {"owner": RED.project_id, "visibility": visibility} | properties
        )["id"]

    def put(self, data=DATA, **options):
        image = self.queue(**options)
        size = {"x-openstack-image-size": str(len(data))}
        chunks = (data[start : start + 70_000] for start in range(0, len(data), 70_000))
        self.http.upload("PUT", f"/v2/images/{image}/file", chunks, "application/octet-stream", size)
        return image


@contextlib.contextmanager
def glance(tmp, *arguments):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    rig = "tests/system/images/glance_rig.py"
    command = [python_of(".venv-glance"), "-W", "ignore", rig, str(tmp / "glance"), str(port), *arguments]
    with running(command, f"{url}/versions", tmp / "glance-out.log"):
        yield url, lambda image: next((tmp / "glance" / "images").rglob(image))


@pytest.fixture(
    scope="module",
    params=[
        "directory",
        "own service",
        pytest.param("own service over a socket", marks=pytest.mark.slow),
        pytest.param("glance", marks=[pytest.mark.slow, pytest.mark.glance]),
        pytest.param("glance with our identity", marks=[pytest.mark.slow, pytest.mark.glance]),
    ],
)
def tested(request, tmp_path_factory):
    tmp = tmp_path_factory.mktemp("source")
    with contextlib.ExitStack() as stack:
        if request.param in ("directory", "own service"):
            plane = stack.enter_context(InProcessPlane(tmp, "image", clock=SystemClock(), ids=RandomIds()))
            http = plane.client("image")
            directory = ImageDirectory(tmp / "images", clock=plane.clock, ids=plane.ids)
            source = directory if request.param == "directory" else GlanceImages(http)
            user = CallerView({"x-auth-token": "bob:blue", "x-roles": "member"}) if source is not directory else None
            yield SourceUnderTest(source, http, lambda image: tmp / "images" / f"{image}.data", user)
            return
        if request.param == "glance":
            url, data_of = stack.enter_context(glance(tmp))
            http = ServiceClient(SocketTransport(url), service_type="image")
        elif request.param == "glance with our identity":
            ours = stack.enter_context(cloud(tmp / "state"))
            password = ours.password("moorage")
            url, data_of = stack.enter_context(glance(tmp, f"{ours.auth_url}/v3", "moorage", password, "service"))
            http = ServiceClient(SocketTransport(url), service_type="image", credentials=tokens(ours))
        else:
            ours = stack.enter_context(cloud(tmp / "state"))
            credentials = tokens(ours)
            endpoint = credentials.endpoint("image")
            http = ServiceClient(SocketTransport(endpoint), service_type="image", credentials=credentials)

            def data_of(image):
                return tmp / "state" / "images" / f"{image}.data"

        user = None if request.param == "glance" else CallerView(tokens(ours, "demo", "demo").headers())
        yield SourceUnderTest(GlanceImages(http), http, data_of, user)


def tokens(ours, user="moorage", project="service"):
    return PasswordTokens(
        SocketTransport(ours.auth_url),
        username=user,
        password=ours.password(user),
        project=project,
        clock=SystemClock(),
    )


@pytest.fixture
def cache(tmp_path, clock: VirtualClock):
    cache = DigestCache(tmp_path / "cache", max_bytes=1 << 30, clock=clock)
    yield cache
    cache.close()


def test_images_are_found_by_the_properties_of_the_bitstream_specification(tested):
    keys = {"function_uuid": "spec-1", "region_uuid": "r1"}
    wanted = tested.put(name="gzip", tags=["FPGA"], **keys)
    tested.put(name="no tag", **keys)
    tested.put(name="other region", tags=["FPGA"], function_uuid="spec-1", region_uuid="r2")
    (record,) = tested.source.find(RED, {**keys, "tag": "FPGA"})
    assert record.id == wanted
    assert record.properties.items() >= keys.items()
    assert "FPGA" in record.tags


def test_images_are_found_by_the_property_that_cyborg_uses(tested):
    images = {tested.put(name=name, accel__function_id="cyborg-1") for name in ("first", "second")}
    assert {record.id for record in tested.source.find(RED, {"accel:function_id": "cyborg-1"})} == images
    assert tested.source.find(RED, {"accel:function_id": "cyborg-2"}) == []


def test_a_search_reads_all_pages_of_the_list(tested):
    images = {tested.put(data=b"x", function_uuid="paged") for _ in range(5)}
    source = GlanceImages(tested.http, page_size=2)
    assert {record.id for record in source.find(RED, {"function_uuid": "paged"})} == images
    assert {record.id for record in tested.source.find(RED, {"function_uuid": "paged"})} == images


def test_get_returns_all_attributes_of_an_image(tested):
    image = tested.put(name="whole", tags=["FPGA", "x"], visibility="public", region_uuid="r1", vendor="acme")
    for record in (tested.source.get(RED, image), ImageLookup(tested.http).get(RED, image)):
        assert record.name == "whole"
        assert record.visibility == "public"
        assert record.is_public
        assert record.status == "active"
        assert record.size_bytes == len(DATA)
        assert (record.hash_algo, record.hash_value) == ("sha512", hashlib.sha512(DATA).hexdigest())
        assert record.properties == {"region_uuid": "r1", "vendor": "acme"}
        assert record.tags == {"FPGA", "x"}


def test_get_of_an_unknown_id_returns_none(tested):
    for image in ("11111111-1111-4111-8111-999999999999", "nonsense", "../../etc/passwd"):
        assert tested.source.get(RED, image) is None


def test_open_streams_the_data_in_pieces(tested):
    image = tested.put()
    with tested.source.open(RED, image) as chunks:
        pieces = list(chunks)
    assert b"".join(pieces) == DATA
    assert len(pieces) > 1


def test_open_of_an_image_without_data_is_not_found(tested):
    for image in (tested.queue(), "11111111-1111-4111-8111-999999999999"):
        with pytest.raises(NotFound), tested.source.open(RED, image):
            pass


def test_the_cache_verifies_data_and_reads_it_only_once(tested, cache):
    record = tested.source.get(RED, tested.put())
    with cache.open(record, tested.source, RED) as cached:
        assert cached.path.read_bytes() == DATA
    assert cache.digests() == [hashlib.sha512(DATA).hexdigest()]


def test_tampered_data_is_refused(tested, cache):
    image = tested.put(data=b"good" * 1000)
    record = tested.source.get(RED, image)
    tested.data_of(image).write_bytes(b"evil" * 1000)
    with pytest.raises(DigestMismatch), cache.open(record, tested.source, RED):
        pass
    assert cache.digests() == []


def test_truncated_data_is_refused(tested, cache):
    image = tested.put(data=b"good" * 100_000)
    record = tested.source.get(RED, image)
    tested.data_of(image).write_bytes(b"good" * 99_000)
    with (
        pytest.raises(Exception, match=r"instead of 400000|does not answer|peer closed"),
        cache.open(record, tested.source, RED),
    ):
        pass
    assert cache.digests() == []


def test_an_image_without_data_is_not_found_by_properties(tested):
    image = tested.queue(function_uuid="half")
    assert tested.source.find(RED, {"function_uuid": "half"}) == []
    record = tested.source.get(RED, image)
    assert (record.status, record.size_bytes, record.hash_value) == ("queued", None, None)


def test_a_search_for_a_user_finds_only_images_that_the_user_may_see(tested):
    """The service sends the user's token with its own, so the user's rights apply, not the service's."""
    if tested.user is None:
        pytest.skip("this source asks nobody who calls")
    private, shared = tested.put(visibility="private", mark="whose"), tested.put(visibility="shared", mark="whose")
    public = tested.put(visibility="public", mark="whose")
    assert {record.id for record in tested.source.find(tested.user, {"mark": "whose"})} == {public}
    for hidden in (private, shared):
        assert tested.source.get(tested.user, hidden) is None
        with pytest.raises(NotFound), tested.source.open(tested.user, hidden):
            pass
    with tested.source.open(tested.user, public) as chunks:
        assert b"".join(chunks) == DATA


def test_a_project_can_use_a_shared_image_by_its_id(tested):
    image = tested.put(visibility="shared", mark="shared")
    green = ProjectView("green")
    assert tested.source.get(green, image) is None
    tested.http.request("POST", f"/v2/images/{image}/members", json={"member": "green"})
    assert tested.source.get(green, image).id == image
    assert tested.source.find(green, {"mark": "shared"}) == []


def test_the_id_of_a_deleted_image_cannot_be_used_again(tested):
    image = tested.put()
    tested.http.request("DELETE", f"/v2/images/{image}")
    with pytest.raises(RemoteError) as refused:
        tested.http.request("POST", "/v2/images", json={"id": image})
    assert refused.value.status == 409
