"""The files of a guest, which the host creates from images that the server's project may use.

These tests need ``qemu-img``, but no libvirt.
"""

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

pytestmark = pytest.mark.skipif(
    not (shutil.which("qemu-img") and shutil.which("genisoimage")), reason="this machine has no qemu-img or genisoimage"
)

SPEC = DomainSpec(uuid="aaaaaaaa-0000-4000-8000-000000000000", name="a", vcpus=1, memory_mb=64, project_id="red")
DISK, KERNEL = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


class HostWithImages:
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
def host(tmp_path, clock):
    return HostWithImages(tmp_path, clock)


@pytest.mark.parametrize("name", ["kernel_id", "ramdisk_id"])
@pytest.mark.parametrize("way", ["built", "rebuilt", "rescued"])
def test_a_private_image_of_another_project_cannot_be_the_kernel_or_ramdisk(host, name, way):
    """Unshelved, resized and migrated servers are created in the same way as built ones."""
    host.put(KERNEL, "blue")
    host.put(DISK, "red", properties={name: KERNEL})
    spec = replace(SPEC, image_id=DISK)
    ways = {
        "built": lambda: host.guests.prepare_disks(spec),
        "rebuilt": lambda: host.guests.replace_disk(spec, "key"),
        "rescued": lambda: host.guests.begin_rescue(SPEC, DISK, "password"),
    }
    host.files.mkdir(parents=True, exist_ok=True)
    with pytest.raises(
        VirtError, match=f"from image {KERNEL}: the image service does not have it, or not for project red"
    ):
        ways[way]()
    assert [path.name for path in host.files.iterdir() if path.name.startswith(("kernel", "initrd"))] == []


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
def test_a_disk_is_created_only_from_images_that_the_servers_project_may_use(
    host, owner, visibility, is_member, is_made
):
    members = {"red": Member(MemberStatus.PENDING, host.now, host.now)} if is_member else {}
    host.put(DISK, owner, visibility, members=members)
    spec = replace(SPEC, image_id=DISK)
    if is_made:
        host.guests.prepare_disks(spec)
    else:
        with pytest.raises(VirtError, match="not for project red"):
            host.guests.prepare_disks(spec)
        with pytest.raises(VirtError, match="not for project red"), host.guests.hold_image(spec):
            pass
    assert (host.files / "disk").exists() is is_made


def test_a_cached_image_is_refused_to_projects_that_may_not_use_it(host):
    host.put(DISK, "blue")
    host.guests.prepare_disks(
        replace(SPEC, uuid="bbbbbbbb-0000-4000-8000-000000000000", project_id="blue", image_id=DISK)
    )
    with pytest.raises(VirtError, match="not for project red"):
        host.guests.prepare_disks(replace(SPEC, image_id=DISK))


def test_a_server_without_a_project_gets_no_image(host):
    host.put(DISK, "", Visibility.PUBLIC)
    with pytest.raises(VirtError, match="has no project"):
        host.guests.prepare_disks(replace(SPEC, project_id=None, image_id=DISK))
