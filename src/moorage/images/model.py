"""Images of our own service: their attributes, members and status transitions."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from moorage.core import states
from moorage.images.base import ImageRecord


class ImageStatus(StrEnum):
    QUEUED = "queued"
    SAVING = "saving"
    ACTIVE = "active"
    DEACTIVATED = "deactivated"


class Visibility(StrEnum):
    PUBLIC = "public"  #: listed for and usable by all projects
    COMMUNITY = "community"  #: usable by all projects that know its id
    SHARED = "shared"  #: as private, plus its members
    PRIVATE = "private"


#: A failed upload returns the image to queued, so that it can be repeated.
TRANSITIONS = states.transition_table(
    "Image status",
    {
        ImageStatus.QUEUED: [ImageStatus.SAVING],
        ImageStatus.SAVING: [ImageStatus.ACTIVE, ImageStatus.QUEUED],
        ImageStatus.ACTIVE: [ImageStatus.DEACTIVATED],
        ImageStatus.DEACTIVATED: [ImageStatus.ACTIVE],
    },
)


class MemberStatus(StrEnum):
    """A project's answer to an image shared with it. The image is usable in any case, and listed when accepted."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Member:
    """A project that an image is shared with."""

    status: MemberStatus
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Image:
    """`size_bytes`, `md5` and `sha512` are None until the data is there. `upload_id` is that of the upload in
    progress.
    """

    id: str
    created_at: datetime
    updated_at: datetime
    name: str | None = None
    owner: str | None = None
    status: ImageStatus = ImageStatus.QUEUED
    visibility: Visibility = Visibility.SHARED
    protected: bool = False
    hidden: bool = False
    disk_format: str | None = None
    container_format: str | None = None
    min_disk_gb: int = 0
    min_ram_mb: int = 0
    size_bytes: int | None = None
    md5: str | None = None
    sha512: str | None = None
    tags: frozenset[str] = frozenset()
    properties: Mapping[str, str] = field(default_factory=dict)
    upload_id: str | None = None
    members: Mapping[str, Member] = field(default_factory=dict)  #: by project

    def record(self) -> ImageRecord:
        return ImageRecord(
            id=self.id,
            name=self.name or "",
            visibility=self.visibility,
            owner=self.owner or "",
            status=self.status,
            size_bytes=self.size_bytes,
            hash_algo="sha512" if self.sha512 else None,
            hash_value=self.sha512,
            properties=self.properties,
            tags=self.tags,
            disk_format=self.disk_format or "",
            min_disk_gb=self.min_disk_gb,
            min_ram_mb=self.min_ram_mb,
        )


def begin_upload(image: Image, upload_id: str, now: datetime) -> Image:
    """Raises `Conflict` if there is data already, or another upload is in progress."""
    status = TRANSITIONS.check_transition(image.status, ImageStatus.SAVING)
    return dataclasses.replace(image, status=status, upload_id=upload_id, updated_at=now)


def finish_upload(image: Image, *, size_bytes: int, md5: str, sha512: str, now: datetime) -> Image:
    status = TRANSITIONS.check_transition(image.status, ImageStatus.ACTIVE)
    return dataclasses.replace(
        image, status=status, upload_id=None, size_bytes=size_bytes, md5=md5, sha512=sha512, updated_at=now
    )


def abandon_upload(image: Image, now: datetime) -> Image:
    status = TRANSITIONS.check_transition(image.status, ImageStatus.QUEUED)
    return dataclasses.replace(image, status=status, upload_id=None, updated_at=now)
