"""What other features ask of images: one by its id, and to keep the disk of a server."""

from collections.abc import Iterator, Mapping

import orjson

from moorage.images.base import ImageRecord
from moorage.images.glance import GlanceImages
from moorage.wire.client import ServiceClient

__all__ = ["ImageLookup", "ImageRecord", "ImageWriter"]

_CONTAINER_FORMAT = "bare"
_MADE_OR_BEING_MADE = "in:queued,saving,uploading,importing,active"
_PATCH = "application/openstack-images-v2.1-json-patch"


class ImageLookup:
    """`http` leads to the image endpoint of the catalogue, without ``/v2``; a Glance or our own service."""

    def __init__(self, http: ServiceClient) -> None:
        self._images = GlanceImages(http)

    def get(self, image_id: str) -> ImageRecord | None:
        """None where there is no such image, or its credentials may not see it."""
        return self._images.get(image_id)

    def is_shared_with(self, image_id: str, project_id: str) -> bool:
        return self._images.is_shared_with(image_id, project_id)

    def is_there(self, properties: Mapping[str, str]) -> bool:
        """Whether an image carries all of `properties`, made or being made."""
        return bool(self._images.find(properties, status=_MADE_OR_BEING_MADE))


class ImageWriter:
    """Images of servers' disks. Needs the credentials of an administrator: they belong to the servers' projects.

    Everything may be done again: an image of this id that is there already is taken for ours, made before a crash.
    """

    def __init__(self, http: ServiceClient) -> None:
        self._http = http
        self._images = GlanceImages(http)

    def announce(self, image_id: str, name: str, owner: str, properties: Mapping[str, str]) -> None:
        """The image without its data, so that whoever asks for it finds it (``queued``)."""
        self._create({"id": image_id, "name": name, "owner": owner, "visibility": "private", **properties})

    def upload(
        self,
        image_id: str,
        name: str,
        owner: str,
        properties: Mapping[str, str],
        *,
        disk_format: str,
        size_bytes: int,
        chunks: Iterator[bytes],
    ) -> None:
        """The image with its data, announced or not."""
        formats = {"disk_format": disk_format, "container_format": _CONTAINER_FORMAT}
        document = {"id": image_id, "name": name, "owner": owner, "visibility": "private", **properties, **formats}
        if not self._create(document):
            present = self._images.get(image_id)
            if present is not None and present.status == "active":
                return
            patch = [{"op": "replace", "path": f"/{field}", "value": value} for field, value in formats.items()]
            known = {} if present is None else present.properties
            # What the host of the server knows of the disk, the announcement could not say.
            patch += [
                {"op": "add", "path": f"/{name}", "value": value}
                for name, value in properties.items()
                if name not in known
            ]
            self._http.upload("PATCH", _path(image_id), iter((orjson.dumps(patch),)), _PATCH)
        length = {"content-length": str(size_bytes)}
        self._http.upload("PUT", f"{_path(image_id)}/file", chunks, "application/octet-stream", length)

    def delete(self, image_id: str) -> None:
        """One that is not there is fine."""
        self._http.answer("DELETE", _path(image_id), accept=(404,))

    def find(self, properties: Mapping[str, str]) -> list[ImageRecord]:
        """Active images that carry all of `properties`, the oldest first."""
        return self._images.find(properties)

    def _create(self, document: Mapping[str, str]) -> bool:
        """False: it was there."""
        return self._http.answer("POST", "/v2/images", json=document, repeatable=True, accept=(409,)).status != 409


def _path(image_id: str) -> str:
    return f"/v2/images/{image_id}"
