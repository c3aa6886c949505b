"""Disks of servers as images: taken from the hypervisor, put into the image service; of backups, the newest few kept."""

import logging
from collections.abc import Mapping
from typing import Protocol

from moorage.agent.orders import SnapshotOrder
from moorage.agent.virt.driver import VirtDriver
from moorage.core.errors import MoorageError
from moorage.images.client import ImageRecord, ImageWriter

log = logging.getLogger(__name__)


class Snapshots(Protocol):
    def take(self, order: SnapshotOrder) -> None:
        """The disk becomes the image that `order` names. Done before, it is not done again; failed, it leaves none."""
        ...


class NoSnapshots:
    """A host that knows no image service."""

    def take(self, order: SnapshotOrder) -> None:
        raise MoorageError("this host has no image service to put an image into", code="agent.no_images")


class ImageSnapshots:
    def __init__(self, driver: VirtDriver, images: ImageWriter) -> None:
        self._driver = driver
        self._images = images

    def take(self, order: SnapshotOrder) -> None:
        try:
            self._take(order)
        except MoorageError:
            self._withdraw(order.image.id)
            raise
        if order.rotation is not None:
            for old in self._beyond(order.rotation, order.image.properties):
                self._images.delete(old.id)

    def _take(self, order: SnapshotOrder) -> None:
        image, server = order.image, order.server
        with self._driver.snapshot(server.id) as disk:
            self._images.upload(
                image.id, image.name, server.project_id, {**disk.properties, **image.properties},
                disk_format=disk.disk_format, size_bytes=disk.size_bytes, chunks=disk.chunks,
            )  # fmt: skip

    def _withdraw(self, image_id: str) -> None:
        """Who waits for an image that was announced waits for good, unless it goes."""
        try:
            self._images.delete(image_id)
        except MoorageError as error:
            log.warning("an image without data is left", extra={"image": image_id, "why": error.message})

    def _beyond(self, rotation: int, properties: Mapping[str, str]) -> list[ImageRecord]:
        alike = {name: properties[name] for name in ("instance_uuid", "image_type", "backup_type")}
        found = self._images.find(alike)
        return found[: max(0, len(found) - rotation)]
