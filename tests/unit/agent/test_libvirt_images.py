"""A guest's files, created with the host's rights for the server's project. Needs ``qemu-img``, but no libvirt."""

import shutil
from dataclasses import replace

import pytest

from moorage.agent.virt.driver import DomainSpec, VirtError
from moorage.agent.virt.libvirt_guests import GuestFiles
from moorage.agent.virt.libvirt_images import BaseImages
from moorage.core.ids import RandomIds
from moorage.images.cache import DigestCache
from moorage.images.directory import ImageDirectory
from moorage.images.model import Image, Member, MemberStatus, Visibility

pytestmark = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="this machine has no qemu-img")

SPEC = DomainSpec(uuid="aaaaaaaa-0000-4000-8000-000000000000", name="a", vcpus=1, memory_mb=64, project_id="red")
DISK, KERNEL = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


class Shelf:
    def __init__(self, directory, clock):
        self.images = ImageDirectory(directory / "images", clock=clock, ids=RandomIds())
        cache = DigestCache(directory / "cache", max_bytes=1 << 26, clock=clock)
        self.guests = GuestFiles(directory, BaseImages(directory, cache, self.images))
        self.files = directory / "guests" / SPEC.uuid
        self.now = clock.now()

    def put(self, image_id, owner, visibility=Visibility.PRIVATE, **more):
        formats = {"disk_format": "raw", "container_format": "bare"}
        image = Image(image_id, self.now, self.now, owner=owner, visibility=visibility, **formats, **more)
        self.images.create(image)
        self.images.upload(image_id, [image_id.encode() * 1024], size_bytes=None)


@pytest.fixture
def shelf(tmp_path, clock):
    return Shelf(tmp_path, clock)


@pytest.mark.parametrize("name", ["kernel_id", "ramdisk_id"])
@pytest.mark.parametrize("way", ["built", "rebuilt", "rescued"])
def test_another_projects_private_image_is_no_kernel(shelf, name, way):
    """Unshelved, resized and migrated servers are built again from another image, as `built`."""
    shelf.put(KERNEL, "blue")
    shelf.put(DISK, "red", properties={name: KERNEL})
    spec = replace(SPEC, image_id=DISK)
    ways = {
        "built": lambda: shelf.guests.prepare_disks(spec),
        "rebuilt": lambda: shelf.guests.replace_disk(spec, "key"),
        "rescued": lambda: shelf.guests.begin_rescue(SPEC, DISK, "password"),
    }
    shelf.files.mkdir(parents=True, exist_ok=True)
    with pytest.raises(
        VirtError, match=f"from image {KERNEL}: the image service does not have it, or not for project red"
    ):
        ways[way]()
    assert [path.name for path in shelf.files.iterdir() if path.name.startswith(("kernel", "initrd"))] == []


@pytest.mark.parametrize(
    ("owner", "visibility", "is_member", "is_made"),
    [
        ("red", Visibility.PRIVATE, False, True),
        ("blue", Visibility.PUBLIC, False, True),
        ("blue", Visibility.COMMUNITY, False, True),
        ("blue", Visibility.SHARED, True, True),
        ("blue", Visibility.SHARED, False, False),
        ("blue", Visibility.PRIVATE, False, False),
    ],
)
def test_a_disk_is_made_of_what_the_servers_project_may_use(shelf, owner, visibility, is_member, is_made):
    members = {"red": Member(MemberStatus.PENDING, shelf.now, shelf.now)} if is_member else {}
    shelf.put(DISK, owner, visibility, members=members)
    spec = replace(SPEC, image_id=DISK)
    if is_made:
        shelf.guests.prepare_disks(spec)
    else:
        with pytest.raises(VirtError, match="not for project red"):
            shelf.guests.prepare_disks(spec)
        with pytest.raises(VirtError, match="not for project red"), shelf.guests.hold_image(spec):
            pass
    assert (shelf.files / "disk").exists() is is_made


def test_an_image_in_the_cache_is_no_more_to_be_had_than_one_that_is_not(shelf):
    shelf.put(DISK, "blue")
    shelf.guests.prepare_disks(
        replace(SPEC, uuid="bbbbbbbb-0000-4000-8000-000000000000", project_id="blue", image_id=DISK)
    )
    with pytest.raises(VirtError, match="not for project red"):
        shelf.guests.prepare_disks(replace(SPEC, image_id=DISK))


def test_a_server_without_a_project_gets_no_image(shelf):
    shelf.put(DISK, "", Visibility.PUBLIC)
    with pytest.raises(VirtError, match="has no project"):
        shelf.guests.prepare_disks(replace(SPEC, project_id=None, image_id=DISK))
