"""The clients of image services for other packages. Each call names its view.

ImageLookup    reads one image by its id
CallerImages   images as their callers see them, also in pages, for compute's image proxy
ImageWriter    stores disks of servers
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from moorage.core.errors import Conflict, Forbidden, Invalid, OverQuota, RemoteError
from moorage.images.attributes import refuse_base
from moorage.images.base import CallerView, ImageRecord, OwnerView, View
from moorage.images.glance import GlanceImages, image_path, record_from_document
from moorage.wire.client import ServiceClient

__all__ = ["CallerImages", "DatedImage", "ImageLookup", "ImageRecord", "ImageWriter"]

_PAGE_SIZE = 100
_CONTAINER_FORMAT = "bare"
_MADE_OR_BEING_MADE = "in:queued,saving,uploading,importing,active"
_PATCH = "application/openstack-images-v2.1-json-patch"


class ImageLookup:
    """`http` uses the catalogue's image endpoint, without ``/v2``: Glance or our own service."""

    def __init__(self, http: ServiceClient) -> None:
        self._images = GlanceImages(http)

    def get(self, view: View, image_id: str) -> ImageRecord | None:
        """None if there is no such image, or `view` may not read it."""
        return self._images.get(view, image_id)

    def has_image(self, view: OwnerView, properties: Mapping[str, str]) -> bool:
        """Whether the project has an image with all of `properties`, complete or being created."""
        _check_view(view, OwnerView)
        return bool(self._images.find(view, properties, status=_MADE_OR_BEING_MADE))


@dataclass(frozen=True, slots=True)
class DatedImage:
    record: ImageRecord
    created_at: str  #: ``2026-11-20T16:54:59Z``, as `updated_at`
    updated_at: str


class CallerImages:
    """Reads with the callers' own credentials, never with the service's: the image service decides what they may see.

    `http` uses the catalogue's image endpoint, without ``/v2``; `address` is its URL, for links.
    """

    def __init__(self, http: ServiceClient, address: str) -> None:
        self._images = GlanceImages(http)
        self.address = address

    def get(self, view: CallerView, image_id: str) -> DatedImage | None:
        """None if there is no such image, or the caller may not read it."""
        document = self._images.document(view, image_id)
        return None if document is None else _dated(document)

    def page(
        self, view: CallerView, filters: Sequence[tuple[str, str]], *, limit: int, marker: str | None
    ) -> list[DatedImage]:
        """Up to `limit` images behind the image `marker`, newest first. `filters`: of the Image API.

        Raises `Invalid` for a filter or marker that the image service rejects, `Forbidden` if it rejects the caller.
        """
        query = [*filters, ("limit", str(max(1, min(limit, _PAGE_SIZE))))]
        if marker is not None:
            query.append(("marker", marker))
        try:
            rows = islice(self._images.http(view).paged_rows("/v2/images", "images", query, more="next"), limit)
            return [_dated(row) for row in rows]
        except RemoteError as error:
            message = str(error.fields.get("detail") or "the image service rejects the request")
            if error.status == 400:
                raise Invalid(message) from error
            if error.status == 403:
                raise Forbidden(message) from error
            raise


def _dated(document: dict[str, Any]) -> DatedImage:
    record = record_from_document(document)
    return DatedImage(record, str(document.get("created_at") or ""), str(document.get("updated_at") or ""))


class ImageWriter:
    """Creates images of servers' disks, owned by the servers' projects.

    A caller announces an image with its own credentials. Later, the service uploads or deletes it with an
    administrator's credentials, for one project only: the images it writes are private to the project, and it changes
    no other images. Properties may not contain base attributes (`Invalid`).

    All calls can be repeated: an existing image with the id that belongs to the project counts as created before a
    crash.
    """

    def __init__(self, http: ServiceClient) -> None:
        self._images = GlanceImages(http)

    def announce(self, view: CallerView, image_id: str, name: str, owner: str, properties: Mapping[str, str]) -> None:
        """Create the image without data (``queued``), so that callers can find it."""
        _check_view(view, CallerView)
        self._create(view, _new_image_document(image_id, name, owner, properties))

    def upload(
        self,
        view: OwnerView,
        image_id: str,
        name: str,
        properties: Mapping[str, str],
        *,
        disk_format: str,
        size_bytes: int,
        chunks: Iterator[bytes],
    ) -> None:
        """Create the image if it was not announced, and upload its data.

        Raises `Conflict` if the image belongs to another project or was deleted meanwhile.
        """
        _check_view(view, OwnerView)
        formats = {"disk_format": disk_format, "container_format": _CONTAINER_FORMAT}
        http = self._images.http(view)
        if not self._create(view, _new_image_document(image_id, name, view.project_id, properties) | formats):
            present = self._images.get(view, image_id)
            if present is None:
                raise Conflict(
                    f"image {image_id} was deleted, or does not belong to project {view.project_id}; create the image "
                    "of the server again",
                    code="images.not_ours",
                )
            if present.status == "active":
                return
            patch = [{"op": "replace", "path": f"/{field}", "value": value} for field, value in formats.items()]
            # Only the server's host knows these properties of the disk; the announcement did not have them.
            patch += [
                {"op": "add", "path": f"/{name}", "value": value}
                for name, value in properties.items()
                if name not in present.properties
            ]
            http.upload("PATCH", image_path(image_id), iter((orjson.dumps(patch),)), _PATCH)
        length = {"content-length": str(size_bytes)}
        http.upload("PUT", f"{image_path(image_id)}/file", chunks, "application/octet-stream", length)

    def delete(self, view: OwnerView, image_id: str) -> None:
        """Delete the image. Ignores a missing image and one that the project does not own."""
        _check_view(view, OwnerView)
        if self._images.get(view, image_id) is not None:
            self._images.http(view).request_raw("DELETE", image_path(image_id), accept=(404,))

    def find(self, view: OwnerView, properties: Mapping[str, str]) -> list[ImageRecord]:
        """Active images of the project that have all of `properties`, oldest first."""
        _check_view(view, OwnerView)
        return self._images.find(view, properties)

    def _create(self, view: CallerView | OwnerView, document: Mapping[str, str]) -> bool:
        """Returns False if the image existed."""
        http = self._images.http(view)
        try:
            return http.request_raw("POST", "/v2/images", json=document, repeatable=True, accept=(409,)).status != 409
        except RemoteError as error:
            if error.status == 413:
                raise OverQuota(f"Quota exceeded or out of space for image: {error.message}") from error
            raise


def _check_view(view: View, kind: type[View]) -> None:
    """Checked at run time in addition to the types, because a write in another view would use the service's
    credentials.
    """
    if not isinstance(view, kind):
        raise TypeError(f"this call needs an image view of type {kind.__name__}, not {view!r}")


def _new_image_document(image_id: str, name: str, owner: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The document of a new image of a server's disk. Raises `Invalid` for base attributes among the properties."""
    refuse_base(properties, "the properties of an image of a server's disk")
    return {**properties, "id": image_id, "name": name, "owner": owner, "visibility": "private"}
