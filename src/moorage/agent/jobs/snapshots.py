"""Disks of servers as images: taken from the hypervisor, and sent to the compute service, which ordered them.

Not here: whose image it becomes, and how many backups are kept; compute sees to that.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Protocol

from moorage.agent.model.job_payloads import SnapshotPayload
from moorage.agent.virt.driver import VirtDriver
from moorage.core.errors import MoorageError, Unavailable

log = logging.getLogger(__name__)


class Snapshots(Protocol):
    def upload_disk(self, job: SnapshotPayload) -> None:
        """The disk becomes the image that `job` names. Done before, it is not done again; failed, it leaves none."""
        ...


class NoSnapshots:
    """A host that knows no image service."""

    def upload_disk(self, job: SnapshotPayload) -> None:
        raise MoorageError("this host has no image service to put an image into", code="agent.no_images")


class DiskImages(Protocol):
    """See `moorage.images.for_hosts.DiskImageUploads`."""

    def upload(
        self,
        image_id: str,
        *,
        disk_format: str,
        properties: Mapping[str, str],
        size_bytes: int,
        chunks: Iterator[bytes],
    ) -> None: ...

    def withdraw(self, image_id: str) -> None: ...


class ImageSnapshots:
    def __init__(self, driver: VirtDriver, images: DiskImages) -> None:
        self._driver = driver
        self._images = images

    def upload_disk(self, job: SnapshotPayload) -> None:
        try:
            with self._driver.snapshot(job.server.id) as disk:
                self._images.upload(
                    job.image.id,
                    disk_format=disk.disk_format,
                    properties=disk.properties,
                    size_bytes=disk.size_bytes,
                    chunks=disk.chunks,
                )
        except Unavailable as error:
            if "url" not in error.fields:  # where compute is gone itself, the job is done again
                self._withdraw(job.image.id)
            raise
        except MoorageError:
            self._withdraw(job.image.id)
            raise

    def _withdraw(self, image_id: str) -> None:
        """Who waits for an image that was announced waits for good, unless it goes."""
        try:
            self._images.withdraw(image_id)
        except MoorageError as error:
            log.warning("an image without data is left", extra={"image": image_id, "why": error.message})
