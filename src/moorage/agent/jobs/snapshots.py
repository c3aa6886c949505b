"""Uploads disks of servers as images, from the hypervisor to the compute service, which requested them.

Not here: the image's owner and the number of backups to keep; the compute service decides both.
"""

import logging
from typing import Protocol

from moorage.agent.virt.driver import VirtDriver
from moorage.core.errors import MoorageError, Unavailable
from moorage.images.for_hosts import DiskImageUploads
from moorage.jobs.contract import ShelveJob, SnapshotJob

log = logging.getLogger(__name__)


class Snapshots(Protocol):
    def upload_disk(self, job: SnapshotJob | ShelveJob) -> None:
        """Uploads the disk as the image that `job` names; does nothing if that image exists.

        A failure leaves no image.
        """
        ...


class NoSnapshots:
    """`Snapshots` for a host without an image service: refuses them."""

    def upload_disk(self, job: SnapshotJob | ShelveJob) -> None:
        raise MoorageError("this host has no image service, so it cannot store the image", code="agent.no_images")


class ImageSnapshots:
    def __init__(self, driver: VirtDriver, images: DiskImageUploads) -> None:
        self._driver = driver
        self._images = images

    def upload_disk(self, job: SnapshotJob | ShelveJob) -> None:
        try:
            with self._driver.snapshot(job.server.id) as disk:
                self._images.upload_disk_image(
                    job.image.id,
                    disk_format=disk.disk_format,
                    properties=disk.properties,
                    size_bytes=disk.size_bytes,
                    chunks=disk.chunks,
                )
        except Unavailable as error:
            if "url" not in error.fields:  # with a URL, compute itself does not answer: the job is done again
                self._withdraw(job.image.id)
            raise
        except MoorageError:
            self._withdraw(job.image.id)
            raise

    def _withdraw(self, image_id: str) -> None:
        """Deletes the image record, because no data will come; clients would wait for the data without an end."""
        try:
            self._images.withdraw_disk_image(image_id)
        except MoorageError as error:
            log.warning("an image without data could not be deleted", extra={"image": image_id, "why": error.message})
