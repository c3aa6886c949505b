"""What other features ask of images: one by its id, and to keep the disk of a server. Each call says whose view it has."""

from collections.abc import Iterator, Mapping

import orjson

from moorage.core.errors import Conflict, OverQuota, RemoteError
from moorage.images.attributes import refuse_base
from moorage.images.base import ImageRecord
from moorage.images.glance import GlanceImages, image_path
from moorage.images.views import CallerView, OwnerView, View
from moorage.wire.client import ServiceClient

__all__ = ["ImageLookup", "ImageRecord", "ImageWriter"]

_CONTAINER_FORMAT = "bare"
_MADE_OR_BEING_MADE = "in:queued,saving,uploading,importing,active"
_PATCH = "application/openstack-images-v2.1-json-patch"


class ImageLookup:
    """`http` leads to the image endpoint of the catalogue, without ``/v2``; a Glance or our own service."""

    def __init__(self, http: ServiceClient) -> None:
        self._images = GlanceImages(http)

    def get(self, view: View, image_id: str) -> ImageRecord | None:
        """None where there is no such image, or `view` may not read it."""
        return self._images.get(view, image_id)

    def is_there(self, view: OwnerView, properties: Mapping[str, str]) -> bool:
        """Whether an image of the project carries all of `properties`, made or being made."""
        _check_view(view, OwnerView)
        return bool(self._images.find(view, properties, status=_MADE_OR_BEING_MADE))


class ImageWriter:
    """Images of servers' disks, which belong to the servers' projects.

    A caller announces them with its own rights. Later the service fills and deletes them with the rights of an
    administrator, for one project: what it writes is private and the project's, and nothing else is touched. Properties
    never carry a base attribute (`Invalid`).

    Everything may be done again: an image of this id that is there already, and is the project's, is taken for ours, made
    before a crash.
    """

    def __init__(self, http: ServiceClient) -> None:
        self._images = GlanceImages(http)

    def announce(self, view: CallerView, image_id: str, name: str, owner: str, properties: Mapping[str, str]) -> None:
        """The image without its data, so that whoever asks for it finds it (``queued``)."""
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
        """The image with its data, announced or not.

        Raises `Conflict` where the id is not the project's to fill: another project has it, or it was deleted meanwhile.
        """
        _check_view(view, OwnerView)
        formats = {"disk_format": disk_format, "container_format": _CONTAINER_FORMAT}
        http = self._images.http(view)
        if not self._create(view, _new_image_document(image_id, name, view.project_id, properties) | formats):
            present = self._images.get(view, image_id)
            if present is None:
                raise Conflict(
                    f"image {image_id} was deleted, or belongs to another project than {view.project_id}; make the image "
                    "of the server again",
                    code="images.not_ours",
                )
            if present.status == "active":
                return
            patch = [{"op": "replace", "path": f"/{field}", "value": value} for field, value in formats.items()]
            # What the host of the server knows of the disk, the announcement could not say.
            patch += [
                {"op": "add", "path": f"/{name}", "value": value}
                for name, value in properties.items()
                if name not in present.properties
            ]
            http.upload("PATCH", image_path(image_id), iter((orjson.dumps(patch),)), _PATCH)
        length = {"content-length": str(size_bytes)}
        http.upload("PUT", f"{image_path(image_id)}/file", chunks, "application/octet-stream", length)

    def delete(self, view: OwnerView, image_id: str) -> None:
        """One that is not there, or that the project does not own, is left alone."""
        _check_view(view, OwnerView)
        if self._images.get(view, image_id) is not None:
            self._images.http(view).request_raw("DELETE", image_path(image_id), accept=(404,))

    def find(self, view: OwnerView, properties: Mapping[str, str]) -> list[ImageRecord]:
        """Active images of the project that carry all of `properties`, the oldest first."""
        _check_view(view, OwnerView)
        return self._images.find(view, properties)

    def _create(self, view: CallerView | OwnerView, document: Mapping[str, str]) -> bool:
        """False: it was there."""
        http = self._images.http(view)
        try:
            return http.request_raw("POST", "/v2/images", json=document, repeatable=True, accept=(409,)).status != 409
        except RemoteError as error:
            if error.status == 413:
                raise OverQuota(f"Quota exceeded or out of space for image: {error.message}") from error
            raise


def _check_view(view: View, kind: type[View]) -> None:
    """Types say so too; but what is written in another view is written with the rights of the service."""
    if not isinstance(view, kind):
        raise TypeError(f"this needs an image view of the kind {kind.__name__}, not {view!r}")


def _new_image_document(image_id: str, name: str, owner: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The image of a server's disk. Raises `Invalid` for base attributes among the properties."""
    refuse_base(properties, "the properties of an image of a server's disk")
    return {**properties, "id": image_id, "name": name, "owner": owner, "visibility": "private"}
