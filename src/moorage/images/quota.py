"""What a project may keep in the directory of images, and what is left of its disk for others: databases are often on it.

Not here: locks, and what there is (`directory`).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.core.errors import TooLarge

UNLIMITED = -1
#: Of a small disk only this share is kept free.
_MAX_SHARE_KEPT_FREE = 0.1


@dataclass(frozen=True, slots=True)
class ImageQuota:
    """`images` and `size_bytes` are of one project. -1: without that bound."""

    images: int = UNLIMITED
    size_bytes: int = UNLIMITED
    keep_free_bytes: int = 0  #: of the disk, for whatever else writes to it

    def check_count(self, project_id: str | None, there: int) -> None:
        """May the project have another image? Raises `TooLarge`, which is how Glance answers."""
        if project_id and 0 <= self.images <= there:
            raise TooLarge(
                f"Image quota exceeded: project {project_id} has {there} images of the {self.images} that it may have; "
                "delete some, or have the operator raise [image] quota_images",
                code="images.over_quota",
            )

    def check_size(self, project_id: str | None, there: int, more: int) -> None:
        """May the project, which has so many bytes, have so many more? Raises `TooLarge`."""
        if project_id and 0 <= self.size_bytes < there + more:
            raise TooLarge(
                f"Image exceeds the storage quota: The size of the data {more} will exceed the limit. "
                f"{max(0, self.size_bytes - there)} bytes remaining. Delete images of project {project_id}, or have the "
                "operator raise [image] quota_gb",
                code="images.over_quota",
            )

    def check_disk(self, directory: Path, more: int, parts: Sequence[Path]) -> None:
        """Is there room for `more` bytes beside uploads under way, `parts`? Raises `TooLarge`."""
        if not self.keep_free_bytes:
            return
        disk = os.statvfs(directory)
        kept = min(self.keep_free_bytes, int(disk.f_blocks * disk.f_frsize * _MAX_SHARE_KEPT_FREE))
        if disk.f_bavail * disk.f_frsize - sum(map(_unwritten_bytes, parts)) - more < kept:
            raise TooLarge(
                f"Image storage media is full: with {more} bytes more less than {kept} bytes would be free on its disk, "
                "which are kept for others ([image] keep_free_gb)",
                code="images.disk_full",
            )


def _unwritten_bytes(part: Path) -> int:
    """Bytes of an upload that are announced, and not written yet."""
    try:
        there = part.stat()
    except FileNotFoundError:  # it has just ended
        return 0
    return max(0, there.st_size - there.st_blocks * 512)
