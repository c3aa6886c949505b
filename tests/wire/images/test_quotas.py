"""A project's limits in our image service: answered with 413, as in Glance."""

import threading
from contextlib import suppress

import pytest

from moorage.core.errors import NotFound, TooLarge
from moorage.images.directory import ImageDirectory
from moorage.images.model import Image
from moorage.images.quota import ImageQuota
from tests.plane import InProcessPlane
from tests.wire.images.conftest import Wire

GIB = 1 << 30
FORMATS = {"disk_format": "raw", "container_format": "bare"}


@pytest.fixture
def limited(tmp_path):
    """A function that opens planes with different [image] options."""
    opened = []

    def open_plane(**options):
        opened.append(InProcessPlane(tmp_path / str(len(opened)), "image", image=options))
        return Wire(opened[-1].transport())

    yield open_plane
    for plane in opened:
        plane.stop()


def test_the_number_of_images_of_a_project_is_limited(limited):
    wire = limited(quota_images=2)
    first = wire.create()
    wire.create()
    status, _, refused = wire.send("POST", "/v2/images", FORMATS)
    assert (status, refused["code"]) == (413, "413 Request Entity Too Large")
    assert "project red has 2 images, and may have 2; delete some" in refused["message"]
    wire.create(who="bob:blue")
    assert wire.send("POST", "/v2/images", {"owner": "red"}, who="root:ops", roles="admin,member")[0] == 413
    assert wire.send("DELETE", f"/v2/images/{first['id']}")[0] == 204
    wire.create()


def test_the_bytes_of_images_of_a_project_are_limited(limited):
    wire = limited(quota_gb=0)
    image = wire.create()
    status, _, refused = wire.upload(image["id"], b"data")
    assert (status, "The size of the data 4 will exceed the limit. 0 bytes remaining." in refused["message"]) == (
        413,
        True,
    )
    assert wire.send("GET", f"/v2/images/{image['id']}")[2]["status"] == "queued", "it can be filled later"
    wire = limited(quota_gb=-1)
    assert wire.upload(wire.create()["id"], b"data")[0] == 204


def test_uploads_keep_the_configured_space_of_the_disk_free(limited):
    wire = limited(keep_free_gb=1e9, quota_gb=-1)  # a tenth of the disk, in effect
    whole = 1 << 40  # more than any disk of a test has
    image = wire.create()
    length = {"x_openstack_image_size": str(whole)}
    status, _, refused = wire.upload(image["id"], b"data", **length)
    assert (status, "Image storage media is full" in refused["message"]) == (413, True)
    assert wire.upload(image["id"], b"data")[0] in (204, 413), "as full as this disk is"


def directory_of(tmp_path, clock, ids, **limits):
    directory = ImageDirectory(tmp_path / "images", clock=clock, ids=ids, quota=ImageQuota(**limits))

    def new(owner="red"):
        image = Image(ids.uuid(), clock.now(), clock.now(), "i", owner)
        directory.create(image)
        return image.id

    return directory, new


def test_an_upload_counts_before_it_is_complete(tmp_path, clock, ids):
    directory, new = directory_of(tmp_path, clock, ids, size_bytes=10)
    one, other, third = new(), new(), new()

    def while_it_comes():
        with pytest.raises(TooLarge, match=r"6 will exceed the limit\. 4 bytes remaining"):
            directory.upload(other, iter([b"x" * 6]), size_bytes=6)
        directory.upload(other, iter([b"x" * 4]), size_bytes=4)
        yield b"x" * 6

    directory.upload(one, while_it_comes(), size_bytes=6)
    with pytest.raises(TooLarge, match="0 bytes remaining"):
        directory.upload(third, iter([b"x"]), size_bytes=1)
    directory.upload(new("blue"), iter([b"x" * 10]), size_bytes=10)
    directory.remove(one, lambda image: None)
    directory.upload(third, iter([b"x" * 6]), size_bytes=6)


@pytest.mark.parametrize(("left", "fits"), [(7, True), (6, False)])
def test_an_upload_without_a_length_counts_while_it_comes(tmp_path, clock, ids, left, fits):
    """7 bytes in chunks; with a limit of 6, the chunk with the last byte is refused before it is written."""
    directory, new = directory_of(tmp_path, clock, ids, size_bytes=10)
    directory.upload(new(), iter([b"x" * (10 - left)]), size_bytes=None)
    image = new()
    if fits:
        assert directory.upload(image, iter([b"abc", b"def", b"g"]), size_bytes=None).size_bytes == 7
        return
    with pytest.raises(TooLarge, match=r"Image exceeds the storage quota: .* 7 will exceed the limit\. 6 bytes rem"):
        directory.upload(image, iter([b"abc", b"def", b"g"]), size_bytes=None)
    assert directory.image(image).status == "queued"
    assert list((tmp_path / "images").glob("*.part")) == []
    assert directory.upload(image, iter([b"abcdef"]), size_bytes=None).size_bytes == 6


def test_two_uploads_without_a_length_share_the_quota(tmp_path, clock, ids):
    directory, new = directory_of(tmp_path, clock, ids, size_bytes=10)
    one, other = new(), new()

    def while_it_comes():
        yield b"x" * 6
        with pytest.raises(TooLarge, match=r"5 will exceed the limit\. 4 bytes remaining"):
            directory.upload(other, iter([b"y" * 4, b"y"]), size_bytes=None)
        directory.upload(other, iter([b"y" * 3]), size_bytes=None)
        yield b"x"
        yield b"x"

    with pytest.raises(TooLarge, match=r"8 will exceed the limit\. 7 bytes remaining"):
        directory.upload(one, while_it_comes(), size_bytes=None)
    assert {image.id: image.size_bytes for image in directory.images()} == {one: None, other: 3}
    assert directory.upload(one, iter([b"x" * 7]), size_bytes=None).size_bytes == 7


def test_a_large_upload_without_a_length_counts_a_sixteenth_ahead_if_the_limits_allow_it(tmp_path, clock, ids):
    directory, new = directory_of(tmp_path, clock, ids, size_bytes=100)
    one, other = new(), new()

    def while_it_comes():
        yield b"x" * 80
        with pytest.raises(TooLarge, match=r"16 will exceed the limit\. 15 bytes remaining"):
            directory.upload(other, iter([b"y" * 16]), size_bytes=None)
        yield b"x"
        directory.upload(other, iter([b"y" * 15]), size_bytes=15)
        yield b"x" * 3

    assert directory.upload(one, while_it_comes(), size_bytes=None).size_bytes == 84
    with directory.data(one) as file:
        assert file.read() == b"x" * 84
    assert directory.upload(new(), iter([b"z"]), size_bytes=None).size_bytes == 1, "no more than the data counts"


def test_an_upload_without_a_length_keeps_the_configured_space_of_the_disk_free(tmp_path, clock, ids):
    directory, new = directory_of(tmp_path, clock, ids, keep_free_bytes=1)
    image, sent = new(), []

    def endless():
        while True:
            sent.append(1)
            yield _Huge()

    with pytest.raises(TooLarge, match="Image storage media is full"):
        directory.upload(image, endless(), size_bytes=None)
    assert (len(sent), directory.image(image).status) == (1, "queued")


class _Huge(bytes):
    """Claims to be larger than any disk of a test."""

    def __len__(self):
        return 1 << 50


def test_an_upload_without_a_length_ends_when_its_image_is_deleted(tmp_path, clock, ids):
    directory, new = directory_of(tmp_path, clock, ids, size_bytes=1 << 30)
    image, sent = new(), []

    def endless():
        while True:
            sent.append(1)
            if len(sent) == 3:
                directory.remove(image, lambda _: None)
            yield b"x"

    with pytest.raises(NotFound):
        directory.upload(image, endless(), size_bytes=None)
    assert len(sent) == 3
    assert [path.name for path in (tmp_path / "images").iterdir() if path.is_file()] == []


def test_an_interrupted_upload_does_not_count(tmp_path, clock, ids):
    directory, new = directory_of(tmp_path, clock, ids, size_bytes=10)
    broken = new()
    with suppress(ConnectionError):
        directory.upload(broken, _breaking(), size_bytes=10)
    assert directory.upload(new(), iter([b"x" * 10]), size_bytes=10).size_bytes == 10


def _breaking():
    yield b"x"
    raise ConnectionError


def test_concurrent_creations_do_not_exceed_the_quota(tmp_path, clock, ids):
    directory, new = directory_of(tmp_path, clock, ids, images=5)
    together = threading.Barrier(6)

    def make():
        together.wait()
        for _ in range(3):
            with suppress(TooLarge):
                new()

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(directory.images()) == 5


def test_images_are_stored_in_the_configured_directory(tmp_path):
    with InProcessPlane(tmp_path / "state", "image", image={"directory": str(tmp_path / "large")}) as plane:
        image = Wire(plane.transport()).create()
        assert (tmp_path / "large" / f"{image['id']}.json").exists()
        assert not (tmp_path / "state" / "images").exists()
