"""Images from an image service over the Image API v2: Glance or our own. Each request has a view.

The service's credentials may see every image. So the query contains the filters of the view, and each answer is
checked against the view again; an image service that ignores a filter discloses no images of other projects.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import quote

from moorage.core.errors import NotFound, RemoteError
from moorage.images.attributes import is_base, is_filter_property
from moorage.images.base import (
    CallerView,
    ImageRecord,
    OwnerView,
    ProjectView,
    PublicView,
    ServiceView,
    View,
    lists,
    reads,
)
from moorage.wire.client import ServiceClient


class GlanceImages:
    """An `ImageSource`. `http` uses the catalogue's image endpoint, without ``/v2``."""

    def __init__(self, http: ServiceClient, *, page_size: int = 100) -> None:
        self._http = http
        self._page_size = page_size

    def find(self, view: View, properties: Mapping[str, str], *, status: str = "active") -> list[ImageRecord]:
        """`status`: one status, or ``in:a,b``. Raises `ValueError` for names that are not additional properties."""
        if wrong := sorted(name for name in properties if name != "tag" and not is_filter_property(name)):
            raise ValueError(f"images can only be searched by additional properties, not by {', '.join(wrong)}")
        http = self.http(view)
        found: dict[str, ImageRecord] = {}
        created: dict[str, str] = {}
        for scope in _scopes(view):
            filters = [("status", status), *scope, ("sort", "created_at:asc"), ("limit", str(self._page_size))]
            for row in http.paged_rows("/v2/images", "images", [*filters, *properties.items()], more="next"):
                record = record_from_document(row)
                if record.carries(properties) and (isinstance(view, CallerView) or lists(view, record)):
                    found[record.id] = record
                    created[record.id] = str(row.get("created_at") or "")
        # Each list is in order already, with times in seconds; the stable sort keeps that order.
        return sorted(found.values(), key=lambda record: created[record.id])

    def get(self, view: View, image_id: str) -> ImageRecord | None:
        """None if there is no such image, or `view` may not read it."""
        document = self._read(view, image_id)
        if document is None:
            return None
        record = record_from_document(document)
        return record if isinstance(view, CallerView) or self._may_read(view, record) else None

    def document(self, view: CallerView, image_id: str) -> dict[str, Any] | None:
        """The API's document of the image; None as `get`."""
        return self._read(view, image_id)

    @contextmanager
    def open(self, view: View, image_id: str) -> Iterator[Iterator[bytes]]:
        if not isinstance(view, CallerView) and self.get(view, image_id) is None:
            raise NotFound(f"there is no image {image_id} for {_view_label(view)}", code="images.not_found")
        with ExitStack() as stack:
            try:
                chunks = stack.enter_context(self.http(view).download(f"{image_path(image_id)}/file"))
            except RemoteError as error:
                if error.status == 204:  # Glance's answer before there is data
                    raise NotFound(f"No image data found for image {image_id}", code="images.no_data") from error
                raise
            yield chunks

    def http(self, view: View) -> ServiceClient:
        """A client with the credentials of `view`. For service views, the caller must check what the view permits."""
        return self._http.on_behalf_of(view.credentials) if isinstance(view, CallerView) else self._http

    def _read(self, view: View, image_id: str) -> dict[str, Any] | None:
        """The document that the credentials of `view` may read, whatever the view permits."""
        try:
            document: dict[str, Any] = self.http(view).get(image_path(image_id))
        except NotFound:
            return None
        except RemoteError as error:
            if error.status == 403:  # not readable with these credentials
                return None
            raise
        return document

    def _may_read(self, view: ServiceView, record: ImageRecord) -> bool:
        may = reads(view, record)
        if may is None and isinstance(view, ProjectView):
            return self._is_member(record.id, view.project_id)
        return bool(may)

    def _is_member(self, image_id: str, project_id: str) -> bool:
        """Whether the image is shared with the project. Acceptance does not matter for use by id."""
        try:
            rows = self._http.get(f"{image_path(image_id)}/members")["members"]
        except NotFound:
            return False
        except RemoteError as error:
            if error.status == 403:  # not shared
                return False
            raise
        return any(row["member_id"] == project_id for row in rows)


def _scopes(view: View) -> list[list[tuple[str, str]]]:
    """The query filters of each list that makes up `view`."""
    match view:
        case CallerView():
            return [[]]
        case OwnerView(project_id):
            return [[("owner", project_id), ("visibility", "all")]]
        case ProjectView(project_id):
            return [[("owner", project_id), ("visibility", "all")], [("visibility", "public")]]
        case PublicView():
            return [[("visibility", "public")]]


def _view_label(view: ServiceView) -> str:
    return "the public" if isinstance(view, PublicView) else f"project {view.project_id}"


def record_from_document(document: Mapping[str, Any]) -> ImageRecord:
    """Build the record from the API's document of one image."""
    return ImageRecord(
        id=document["id"],
        name=document.get("name") or "",
        visibility=document["visibility"],
        owner=document.get("owner") or "",
        status=document["status"],
        size_bytes=document.get("size"),
        hash_algo=document.get("os_hash_algo"),
        hash_value=document.get("os_hash_value"),
        properties={name: value for name, value in document.items() if not is_base(name) and isinstance(value, str)},
        tags=frozenset(document.get("tags", ())),
        disk_format=document.get("disk_format") or "",
        min_disk_gb=document.get("min_disk") or 0,
        min_ram_mb=document.get("min_ram") or 0,
    )


def image_path(image_id: str) -> str:
    """Raises `NotFound` for ids that would lead to another resource: quoting does not change dots."""
    if image_id in ("", ".", ".."):
        raise NotFound(f"there is no image {image_id!r}")
    return f"/v2/images/{quote(image_id, safe='')}"
