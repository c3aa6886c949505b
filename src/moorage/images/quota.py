"""Limits for the image directory: per project, and for its disk, which often holds databases, too.

Not here: locks, and counting the present images (`directory`).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.core.errors import TooLarge

UNLIMITED = -1
#: At most this share of the disk is kept free, which matters for small disks.
_MAX_SHARE_KEPT_FREE = 0.1


@dataclass(frozen=True, slots=True)
class ImageQuota:
    """`images` and `size_bytes` are limits per project; -1: no limit."""

    images: int = UNLIMITED
    size_bytes: int = UNLIMITED
    keep_free_bytes: int = 0  #: kept free on the disk, for other programs

    def check_count(self, project_id: str | None, present: int) -> None:
        """Raises `TooLarge`, as Glance does, if the project, which has `present` images, may not have another."""
        if project_id and 0 <= self.images <= present:
            raise TooLarge(
                f"Image quota exceeded: project {project_id} has {present} images, and may have {self.images}; "
                "delete some, or ask the operator to raise [image] quota_images",
                code="images.over_quota",
            )

    def check_size(self, project_id: str | None, present: int, more: int) -> None:
        """Raises `TooLarge` if the project's `present` bytes plus `more` exceed its limit."""
        if project_id and 0 <= self.size_bytes < present + more:
            raise TooLarge(
                f"Image exceeds the storage quota: The size of the data {more} will exceed the limit. "
                f"{max(0, self.size_bytes - present)} bytes remaining. Delete images of project {project_id}, or ask "
                "the operator to raise [image] quota_gb",
                code="images.over_quota",
            )

    def check_disk(self, directory: Path, more: int, parts: Sequence[Path]) -> None:
        """Raises `TooLarge` if the disk has no space for `more` bytes in addition to the uploads in progress,
        `parts`.
        """
        if not self.keep_free_bytes:
            return
        disk = os.statvfs(directory)
        kept = min(self.keep_free_bytes, int(disk.f_blocks * disk.f_frsize * _MAX_SHARE_KEPT_FREE))
        if disk.f_bavail * disk.f_frsize - sum(map(_unwritten_bytes, parts)) - more < kept:
            raise TooLarge(
                f"Image storage media is full: {more} more bytes would leave less than the {kept} bytes on its disk "
                "that are kept free ([image] keep_free_gb)",
                code="images.disk_full",
            )


def _unwritten_bytes(part: Path) -> int:
    """Announced bytes of an upload that are not written yet."""
    try:
        status = part.stat()
    except FileNotFoundError:  # the upload has just ended
        return 0
    return max(0, status.st_size - status.st_blocks * 512)
