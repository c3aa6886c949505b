"""Virt drivers on the tests' libvirt without a plane, and the images of their guests."""

import hashlib
from contextlib import contextmanager
from pathlib import Path

from moorage.agent.virt.driver import DomainSpec
from moorage.core.clock import SystemClock
from moorage.images.base import ImageRecord
from moorage.images.cache import DigestCache
from tests.system.libvirt import guest
from tests.system.libvirt.servers import patiently

A, B = "aaaaaaaa-0000-4000-8000-000000000000", "bbbbbbbb-0000-4000-8000-000000000000"
#: Without a kernel. The guest stays in its firmware, which suffices for most tests, and ignores the power button.
DISK, RESCUE = "disk", "rescue"
#: Images that boot; the guest of the second one writes more data than a small file system takes.
LINUX, FILLS = "linux", "fills"
#: Images that must be refused.
HIDDEN, ODD, NOISE, TORN, LARGE, CHANGED = "hidden", "odd", "noise", "torn", "large", "changed"
_BOOTS = {"kernel_id": "kernel", "ramdisk_id": "initrd", "hw_qemu_guest_agent": "yes"}
PROPERTIES = {
    LINUX: _BOOTS | {"os_command_line": guest.CMDLINE},
    FILLS: _BOOTS | {"os_command_line": f"{guest.CMDLINE} fill"},
}


class Images:
    """An image source."""

    def __init__(self, images: dict[str, tuple[str, bytes]]) -> None:
        self._images = images

    def get(self, view, image_id):
        if image_id not in self._images:
            return None
        disk_format, data = self._images[image_id]
        digest = "0" * 128 if image_id == CHANGED else hashlib.sha512(data).hexdigest()
        return ImageRecord(
            image_id, image_id, "public", "", "active", len(data), "sha512", digest,
            PROPERTIES.get(image_id, {}), frozenset(), disk_format,
        )  # fmt: skip

    @contextmanager
    def open(self, view, image_id):
        yield iter((self._images[image_id][1],))


def images(kernel: Path, directory: Path) -> Images:
    secret = directory / "secret"
    secret.write_bytes(b"of the host" * 100)
    disk = guest.empty_disk(directory)
    return Images(
        {
            "kernel": ("aki", kernel.read_bytes()),
            "initrd": ("ari", guest.initial_file_system()),
            LINUX: ("qcow2", disk),
            FILLS: ("qcow2", disk),
            DISK: ("qcow2", disk),
            RESCUE: ("raw", bytes(1 << 20)),
            HIDDEN: ("qcow2", guest.disk_over(secret, directory)),
            ODD: ("vmdk", b"KDMV"),
            NOISE: ("qcow2", bytes(range(256)) * 256),
            TORN: ("qcow2", guest.written_disk(directory)[: 1 << 20]),
            LARGE: ("qcow2", guest.empty_disk(directory, "2G")),
            CHANGED: ("raw", b"other data"),
        }
    )


def driver_on(libvirtd, images: Images, directory: Path, **settings: object):
    """A driver as an agent creates it; several drivers on one directory stand for several starts of one agent."""
    from moorage.agent.virt.libvirt_connection import LibvirtConnection
    from moorage.agent.virt.libvirt_driver import LibvirtDriver
    from moorage.agent.virt.libvirt_guests import GuestFiles
    from moorage.agent.virt.libvirt_images import BaseImages
    from moorage.agent.virt.libvirt_node import LibvirtSettings

    clock = SystemClock()
    cache = DigestCache(directory / "cache", max_bytes=1 << 26, clock=clock)
    options = {"virt_type": "qemu", "shutdown_timeout_s": 1.0} | settings
    guests = GuestFiles(directory, BaseImages(directory, cache, images))
    return LibvirtDriver(LibvirtSettings("metal-2", **options), LibvirtConnection(libvirtd.uri, clock), guests, clock)


def spec(uuid=A, **more) -> DomainSpec:
    return DomainSpec(
        **(
            {"uuid": uuid, "name": "of one name", "vcpus": 1, "memory_mb": 64, "project_id": "red", "image_id": DISK}
            | more
        )
    )


def linux(**more) -> DomainSpec:
    return spec(**({"image_id": LINUX, "memory_mb": 192} | more))


def wait_for_console(driver, text: str) -> str:
    """Waits until the console contains `text`; returns the whole console."""
    return patiently(lambda: text in (console := driver.console(A)) and console)


def pids_of(driver) -> list[int]:
    """Libvirt's ids of the running domains; a domain gets a new id at each start."""
    with driver._connection.use() as link:
        return sorted(domain.ID() for domain in link.listAllDomains())
