"""Disks of servers as images: taken from the hypervisor, put into the image service; of backups, the newest few kept."""

import logging
from collections.abc import Mapping
from typing import Protocol

from moorage.agent.orders import SnapshotOrder
from moorage.agent.virt.driver import VirtDriver
from moorage.core.errors import MoorageError
from moorage.images.client import ImageRecord, ImageWriter
from moorage.images.views import OwnerView

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
    """Acts for the project of the server: only its images are looked for, filled or deleted."""

    def __init__(self, driver: VirtDriver, images: ImageWriter) -> None:
        self._driver = driver
        self._images = images

    def take(self, order: SnapshotOrder) -> None:
        view = OwnerView(order.server.project_id)
        try:
            self._take(view, order)
        except MoorageError:
            self._withdraw(view, order.image.id)
            raise
        if order.rotation is not None:
            for old in self._beyond(view, order.rotation, order.image.properties):
                self._images.delete(view, old.id)

    def _take(self, view: OwnerView, order: SnapshotOrder) -> None:
        image, server = order.image, order.server
        with self._driver.snapshot(server.id) as disk:
            self._images.upload(
                view, image.id, image.name, {**disk.properties, **image.properties},
                disk_format=disk.disk_format, size_bytes=disk.size_bytes, chunks=disk.chunks,
            )  # fmt: skip

    def _withdraw(self, view: OwnerView, image_id: str) -> None:
        """Who waits for an image that was announced waits for good, unless it goes."""
        try:
            self._images.delete(view, image_id)
        except MoorageError as error:
            log.warning("an image without data is left", extra={"image": image_id, "why": error.message})

    def _beyond(self, view: OwnerView, rotation: int, properties: Mapping[str, str]) -> list[ImageRecord]:
        alike = {name: properties[name] for name in ("instance_uuid", "image_type", "backup_type")}
        found = self._images.find(view, alike)
        return found[: max(0, len(found) - rotation)]
