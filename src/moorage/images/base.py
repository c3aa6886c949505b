"""The interface of images for other packages: a record, a source that finds and streams images, and the views.

A view says on whose behalf images are searched, read or written. Each call names a view, and no view sees all images.

| view | credentials | lists | reads by id | writes |
|---|---|---|---|---|
| `CallerView` | the caller's own | what the Image API lists | the same | creates images with the caller's rights |
| `ProjectView` | the service's | the project's and public images | those, community and shared images | - |
| `OwnerView` | the service's | the project's images | those | those, and new private images of the project |
| `PublicView` | the service's | public images | those | - |

A request in progress has a `CallerView`. Background work (builds, moves, backups, snapshots, bitstreams) has one of
the other views: the service's credentials may see every image, so the query names the project, and the answer is
checked against the view again. A community image is usable by any project that knows its id, and any project can
create one; so no search finds it for another project.

Pure. Not here: HTTP requests (`glance`), and the attributes that may be written (`document`).
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Invalid

#: The only trusted digest; Glance's default, and the one that our own service computes.
HASH_ALGO = "sha512"

CHUNK_BYTES = 1 << 20


class DigestMismatch(Conflict):
    """The data does not match the digest or size in the image's record, and must not be used."""

    code = "images.digest_mismatch"


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """One image as its source describes it.

    `properties` are the additional properties only (``accel:function_id``, ``region_uuid``, ``hw_disk_bus``);
    `size_bytes`, `hash_algo` and `hash_value` are None until the image has data (status ``active``).
    """

    id: str
    name: str
    visibility: str  #: public, community, shared or private
    owner: str  #: a project; empty for an image without one
    status: str  #: queued, saving, active, ...
    size_bytes: int | None
    hash_algo: str | None
    hash_value: str | None
    properties: Mapping[str, str]
    tags: frozenset[str]
    disk_format: str = ""  #: ``raw``, ``qcow2``, ``aki`` ...; empty: unknown
    min_disk_gb: int = 0  #: minimum disk of a server of the image
    min_ram_mb: int = 0

    @property
    def is_public(self) -> bool:
        """Whether an operator published it. Community images do not count, because any project can create one."""
        return self.visibility == "public"

    def carries(self, properties: Mapping[str, str]) -> bool:
        """Whether it has all of these additional properties; ``{"tag": "FPGA"}`` matches a tag."""
        return all(
            value in self.tags if name == "tag" else self.properties.get(name) == value
            for name, value in properties.items()
        )


class ImageSource(Protocol):
    """A source of images for background work with a service's credentials. Each call names its view."""

    def find(self, view: "ServiceView", properties: Mapping[str, str]) -> list[ImageRecord]:
        """Active images that `view` lists and that have all of `properties`, by creation time. ``{"tag": "FPGA"}``
        matches a tag. Raises `ValueError` for a base attribute among the properties.
        """
        ...

    def get(self, view: "ServiceView", image_id: str) -> ImageRecord | None:
        """None if there is no such image, or `view` may not read it."""
        ...

    def open(self, view: "ServiceView", image_id: str) -> AbstractContextManager[Iterator[bytes]]:
        """The data in chunks, not verified. Raises `NotFound` if `get` would return None, or the image has no data."""
        ...


@dataclass(frozen=True, slots=True)
class CallerView:
    """The view of the user whose request is served; `credentials` are the user's headers. Do not store it."""

    credentials: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, caller: Caller) -> "CallerView":
        return cls(caller.credentials)


@dataclass(frozen=True, slots=True)
class ProjectView:
    """The images that a project may use. Raises `Invalid` without a project."""

    project_id: str

    def __post_init__(self) -> None:
        _check_project(self.project_id)


@dataclass(frozen=True, slots=True)
class OwnerView:
    """The images that a project owns, to read and to write. Raises `Invalid` without a project."""

    project_id: str

    def __post_init__(self) -> None:
        _check_project(self.project_id)


@dataclass(frozen=True, slots=True)
class PublicView:
    """The images published by operators."""


#: Views of background work with the service's credentials.
ServiceView = ProjectView | OwnerView | PublicView

View = CallerView | ServiceView


def lists(view: ServiceView, image: ImageRecord) -> bool:
    """Whether a search in `view` may find the image."""
    match view:
        case OwnerView(project_id):
            return image.owner == project_id
        case ProjectView(project_id):
            return image.owner == project_id or image.is_public
        case PublicView():
            return image.is_public


def reads(view: ServiceView, image: ImageRecord) -> bool | None:
    """Whether `view` may read the image by its id. None: only if the project is a member, which the record does not
    contain.
    """
    if lists(view, image):
        return True
    if not isinstance(view, ProjectView):
        return False
    if image.visibility == "community":
        return True
    return None if image.visibility == "shared" else False


def _check_project(project_id: str) -> None:
    if not project_id:
        raise Invalid("images can only be looked up for a project, but none is named", code="images.no_project")
