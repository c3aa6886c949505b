"""Whose view of the images a search, a read or a write has. Every one of them names a view; there is none that sees all.

| view | credentials | lists | reads by id | writes |
|---|---|---|---|---|
| `CallerView` | the caller's own | what the Image API lists for the caller | the same | makes images, with the caller's rights |
| `ProjectView` | the service's | the project's own images and public ones | those, community ones and images shared with it | - |
| `OwnerView` | the service's | the project's own images | those | those, and new private ones of the project |
| `PublicView` | the service's | public images | those | - |

A request in progress has a `CallerView`. Work that runs later (builds, moves, backups, snapshots, bitstreams) has one of
the others: the service may see every image, so the query names the project, and the answer is held against it again.
A community image is usable by everybody who knows its id, and anybody can make one: no search finds it for another project.

Not here: the requests (`glance`), and what attributes may be written (`document`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.core.caller import Caller
from moorage.core.errors import Invalid
from moorage.images.base import ImageRecord


@dataclass(frozen=True, slots=True)
class CallerView:
    """Of the user whose request is being served; `credentials` are the headers that the user sent. Not to be kept."""

    credentials: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, caller: Caller) -> "CallerView":
        return cls(caller.credentials)


@dataclass(frozen=True, slots=True)
class ProjectView:
    """All that a project may use. Raises `Invalid` without a project."""

    project_id: str

    def __post_init__(self) -> None:
        _check_project(self.project_id)


@dataclass(frozen=True, slots=True)
class OwnerView:
    """What a project owns, to read and to write. Raises `Invalid` without a project."""

    project_id: str

    def __post_init__(self) -> None:
        _check_project(self.project_id)


@dataclass(frozen=True, slots=True)
class PublicView:
    """What an operator has published."""


#: Views of work that runs later, with the service's credentials.
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
    """Whether `view` may read the image by its id. None: if the project is a member of it, which its record does not say."""
    if lists(view, image):
        return True
    if not isinstance(view, ProjectView):
        return False
    if image.visibility == "community":
        return True
    return None if image.visibility == "shared" else False


def _check_project(project_id: str) -> None:
    if not project_id:
        raise Invalid("images are looked up for a project, and no project is named", code="images.no_project")
