"""Views: on whose behalf images are searched, read or written. Each call names a view, and no view sees all images.

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

Not here: HTTP requests (`glance`), and the attributes that may be written (`document`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.core.caller import Caller
from moorage.core.errors import Invalid
from moorage.images.base import ImageRecord


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
